"""The checks of tasks find each breach of the contract and name it, and find nothing in tasks that keep it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
import torch
import toys
from helpers.breaking import DECLARED, DOCUMENTED, check_of, complaint, complaints, table, unproven
from helpers.toy_registries import but
from torch import nn

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Strings, Task, Tokens
from lgbench.conformance.check import CheckFailed, expect_close


class Walk(toys.Walk):
    """Independent uniform tokens; what may follow depends on the latest one alone."""

    def reference(self, context):
        return toys.WALK[context[-1]].tolist()


class Largest(toys.Largest):
    """The feature with the largest sum."""

    def reference(self, context):
        sums = [sum(column) for column in zip(*context.tolist(), strict=True)]
        return [float(total == max(sums)) for total in sums]


class Running(toys.Largest):
    """The feature with the largest sum so far."""

    signature = replace(toys.Largest.signature, answers=Answers.EVERY_PREFIX)
    reference = Largest.reference

    def sample(self, length, random):
        inputs = super().sample(length, random).inputs
        return Batch(inputs, torch.eye(3)[inputs.cumsum(1).argmax(-1)])


class Even(toys.Even):
    """Strings over 0 and 1 with an even number of 1s."""

    def reference(self, context):
        return [0.5, 0.5, 0.0] if context[1:].tolist().count(1) % 2 else [1 / 3] * 3


class Retrying(Walk):
    """Draws first tokens until none is 2, and then the others; `numbers` gives those for the loop."""

    def __init__(self, numbers=lambda random: random):
        self.numbers = numbers

    def sample(self, length, random):
        tries = self.numbers(random)
        first = tries.integers(3, 1)
        while (first == 2).any():
            first = first.where(first < 2, tries.integers(3, 1))
        inputs = torch.cat([first, random.integers(3, length - 1)], 1)
        return Batch(inputs, toys.WALK[inputs])


class Copying(Task):
    """Two digits, a sign, and the digits again: p* counts at the sign and at the first digit after it."""

    name = family = "toy-copying"
    version = 1
    signature = Signature(Tokens(3), 3, Answers.MARKED)
    train_lengths = (2, 5)

    def sample(self, length, random):
        digits = random.integers(2, length)
        inputs = torch.cat([digits, torch.full((random.n, 1), 2), digits[:, :-1]], 1)
        answers = torch.cat([torch.zeros_like(digits), digits], 1)
        weights = torch.cat([torch.zeros(random.n, length), torch.ones(random.n, length)], 1)
        return Batch(inputs, torch.eye(3)[answers], weights)

    def reference(self, context):
        *digits, copied = " ".join(map(str, context.tolist())).split(" 2")
        found = "".join(digits).split()[len(copied.split())]
        return [float(found == "0"), float(found == "1"), 0.0]


WALK, LARGEST, RUNNING, EVEN, COPYING = Walk(), Largest(), Running(), Even(), Copying()
BRANCHING = Retrying(Random.branch)
ODD_OR_EVEN = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]])
calls = count()


def giving(task, change):
    """The task, whose every batch is changed."""
    return but(task, sample=lambda self, length, random: Batch(*change(*task.sample(length, random)[:2])))


def weighing(change):
    """Copying, with other weights."""

    def sample(self, length, random):
        inputs, p, weights = COPYING.sample(length, random)
        return Batch(inputs, p, change(weights))

    return but(COPYING, sample=sample)


def meddling(act):
    """A task that does something besides whenever it samples."""
    return giving(WALK, lambda inputs, p: (act(), (inputs, p))[1])


def with_random(change):
    """A task that samples with other random numbers than those that it is given."""
    return but(WALK, sample=lambda self, length, random: WALK.sample(length, Random(random.n, change())))


def in_strings(change):
    """A language whose strings are changed."""
    return but(EVEN, strings=lambda self, length, random: Strings(*change(*EVEN.strings(length, random))))


def whole_strings(inputs, p):
    """Members of the language, where prefixes are wanted: the last symbol makes the number of 1s even."""
    inputs[:, -1] = inputs[:, 1:-1].sum(-1) % 2
    return inputs, ODD_OR_EVEN[nn.functional.pad(inputs[:, 1:].cumsum(-1) % 2, (1, 0))]


def rarer_where_more_follow(inputs, p):
    """The first token is 0 in contexts of 2 more often than in longer ones."""
    inputs[: len(inputs) // inputs.shape[1], 0] = 0
    return inputs, toys.WALK[inputs]


def with_a_period(inputs, p):
    """The first token is the parity of the length: the same in contexts of 2 and of any other even length."""
    inputs[:, 0] = inputs.shape[1] % 2
    return inputs, toys.WALK[inputs]


DESCRIBED = "its version, sizes, lengths and budgets make sense"
SHAPED = "shapes and dtypes are those of its signature, at every length"
DETERMINED = "the same random numbers give the same contexts, and nothing else does"
ESTIMATED = "p* matches an independent estimate"
FUNCTION = "p* is a function of the context"
PREFIXES = "prefixes are distributed as shorter contexts are"
ALONE = "a context does not depend on those that are drawn with it"
SHOWN = "some answer counts at a length that boards show"
STRINGS = "half of its strings are members, and p* says which"
SIBLING = "`sibling` gives None for names of another form"
READABLE = "its text can be read back, and its sources are positions"

TASKS = [
    (but(WALK, sibling=lambda self, name: self), SIBLING, "sibling('toy-walk-of-another-form') gives <"),
    (but(WALK, sibling=lambda self, name: {}[name]), SIBLING, "raised KeyError: 'toy-walk-of-another-form'; return None"),
    (but(WALK, lengths=[8]), DECLARED, "has the lengths [8]; lgbench.Task declares lengths: tuple[int, ...] | None"),
    (but(WALK, __doc__=None), DOCUMENTED, "it has no docstring: say what it is"),
    (but(WALK, version=0), DESCRIBED, "its version is 0, expected a number from 1 up"),
    (but(WALK, family=""), DESCRIBED, "it has no family: give its own name if it stands alone"),
    (but(WALK, train_lengths=(6, 1)), DESCRIBED, "its train_lengths are (6, 1), expected the shortest and the longest"),
    (but(WALK, budgets={"fast": Budget()}), DESCRIBED, "a budget for 'fast', which is no protocol; known: quick, short"),
    (but(WALK, max_length=4), DESCRIBED, "train.max_length=6 is out of range for toy-walk: it must be from 1 to 4"),
    (but(WALK, lengths=(0, 8)), DESCRIBED, "boards show none of its lengths (0, 8) under the protocol quick"),
    (but(WALK, lengths=(8, 65)), DESCRIBED, "its lengths go to 65, and its max_length is 64"),
    (but(WALK, answers=("a", "b")), DESCRIBED, "it has names for 2 answers, and its signature has 3 classes"),
    (but(WALK, text=lambda self, inputs: inputs.tolist()), READABLE, "text() gives no string"),
    (giving(WALK, lambda x, p: (x.int(), p)), SHAPED, "at length 1 its inputs are (3, 1) int32, expected (3, 1) int64"),
    (giving(LARGEST, lambda x, p: (x[..., :2], p)), SHAPED, "its inputs are (3, 2, 2) float32, expected (3, 2, 3) float32"),
    (giving(EVEN, lambda x, p: (x.flip(1), p)), SHAPED, "the begin token, 2, should stand first and nowhere else"),
    (giving(WALK, lambda x, p: (x.roll(1, 0), p.roll(1, 0))), ALONE, "a context is another one when it is drawn with others"),
    (Retrying(), ALONE, "use `random.branch()` in loops that end when something holds"),
    (meddling(lambda: torch.manual_seed(0)), DETERMINED, "it draws from torch's global generator, or sets it: use the random"),
    (meddling(lambda: np.random.rand()), DETERMINED, "it draws from numpy's global generator, or sets it"),
    (meddling(lambda: random.random()), DETERMINED, "it draws from Python's global `random`, or sets it"),
    (with_random(lambda: 7), DETERMINED, "all seeds give the same contexts: it does not use the random numbers that it is"),
    (with_random(lambda: next(calls)), DETERMINED, "at length 1 the same random numbers give other contexts the second time"),
    (but(WALK, reference=lambda self, context: [1 / 3] * 3), ESTIMATED, "and the reference is [0.333, 0.333, 0.333]"),
    (but(WALK, reference=lambda self, context: [0.5] * 2), ESTIMATED, "reference gives 2 probabilities, expected 3"),
    (giving(WALK, lambda x, p: (x, p.roll(1, 0))), FUNCTION, "another time"),
    (weighing(torch.zeros_like), SHOWN, "no answer of toy-copying counts at a length that boards show (2, 4, 5, ...)"),
    (giving(WALK, rarer_where_more_follow), PREFIXES, "the share of token 0 at position 0 is 0.67"),
    (giving(WALK, with_a_period), PREFIXES, "of token 0 at position 0 is 1.000 in contexts of 2 and 0.000 in contexts of 3"),
    (giving(EVEN, whole_strings), PREFIXES, "p* of answer 2 at position 2 is 0.333 in contexts of 2 and 0.16"),
    (in_strings(lambda x, member: (x, ~member)), STRINGS, "is no member, and the reference says otherwise"),
    (in_strings(lambda x, member: (x, member.new_ones(len(x)))), STRINGS, "of 16 strings of length 1, 16 are members,"),
    (in_strings(lambda x, member: (x[:, 1:], member)), STRINGS, "strings of length 1 are (16, 1) int64, expected (16, 2)"),
    (in_strings(lambda x, member: (x.flip(0), member.flip(0))), STRINGS, "the first 8 are not the members, as expected"),
    (
        but(EVEN, strings=lambda self, length, random: EVEN.strings(length, Random(random.n))),
        STRINGS,
        "do not depend on the random numbers",
    ),
    (but(LARGEST, sources=lambda self, inputs: inputs[:, :1].float()), READABLE, "sources are (32, 1, 3) float32, exp"),
    (but(WALK, text=lambda self, inputs: " ".join(["0"] * len(inputs))), READABLE, "as '0', and reads that as [0]"),
]

RIGHT = [WALK, LARGEST, RUNNING, EVEN, COPYING, BRANCHING]


@pytest.mark.parametrize(("thing", "rule", "words"), table(TASKS))
def test_a_breach_is_found_and_named(registry, thing, rule, words):
    assert words in complaint(thing, rule, registry)


def test_nothing_is_found_in_tasks_that_keep_the_contract(registry):
    assert complaints(RIGHT, registry) == []


def test_every_check_of_tasks_finds_something_above(registry):
    assert unproven(RIGHT, TASKS, registry) == set()


def at_odd_lengths(self, context):
    return Walk.reference(self, context) if len(context) % 2 else None


NOTES = [
    (giving(WALK, lambda x, p: (x * 0, toys.WALK[x * 0])), DETERMINED, "all seeds give the same contexts: right only if"),
    (toys.Walk(), ESTIMATED, "nothing independent says what p* is: give the task a `reference`"),
    (but(WALK, reference=at_odd_lengths), ESTIMATED, "`reference` gives None for "),
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()


def test_a_reference_is_asked_about_contexts_alone(registry):
    def zeros_alone(self, context):
        assert 1 not in context[1:]
        return [0.5, 0.0, 0.5]

    def strings(self, length, random):
        inputs, is_member = EVEN.strings(length, random)
        return Strings(inputs.where((inputs == 2) | ~is_member[:, None], 0), is_member)

    zeros = but(EVEN, reference=zeros_alone, strings=strings)
    assert check_of(zeros, STRINGS, registry)() is None


def test_a_result_that_cannot_be_used_is_not_said_to_raise(registry):
    sentence = complaint(but(WALK, sample=lambda self, length, random: None), FUNCTION, registry)
    assert sentence.startswith("task toy-walk: its result cannot be used: AttributeError: 'NoneType' object")


def test_the_description_that_a_dataclass_makes_is_no_docstring(registry):
    @dataclass(frozen=True)
    class Bare(Walk):
        rate: float = 0.5

    assert "it has no docstring" in complaint(Bare(), DOCUMENTED, registry)
    assert check_of(but(WALK, __doc__=None, about="Walks."), DOCUMENTED, registry)() is None


def test_global_generators_are_left_as_they_were(registry):
    before = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())
    complaint(meddling(lambda: (torch.manual_seed(0), random.seed(0), np.random.seed(0))), DETERMINED, registry)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), repr(np.random.get_state())) == before[1:]


def test_one_infinite_number_does_not_make_the_others_close():
    with pytest.raises(CheckFailed, match="the two: they differ by 1$"):
        expect_close(torch.tensor([0.0, torch.inf]), torch.tensor([1.0, torch.inf]), "the two")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"star_free": "no"}, "the fact star_free is 'no', expected True, False or None"),
        ({"group": 5}, "the fact group is 5, expected a text"),
        ({"sources": "arXiv 2410.02140"}, "the sources of facts are 'arXiv 2410.02140', expected a tuple of texts"),
        ({"sources": (2410,)}, "the sources of facts are (2410,), expected a tuple of texts"),
    ],
)
def test_facts_of_another_type_are_refused_where_they_are_written(facts, said):
    """Not when boards read the runs, after hours of training."""
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        Facts("regular with groups", **facts)
