from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from scipy.stats import chisquare
from sympy.combinatorics import AlternatingGroup, CyclicGroup, Permutation, SymmetricGroup

import lgbench_state_tracking
from lgbench import Random, Task
from lgbench.conformance.check import Check
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.testing import checks
from lgbench_state_tracking.boxes import Boxes
from lgbench_state_tracking.flip_flop import FlipFlop
from lgbench_state_tracking.groups import elements
from lgbench_state_tracking.word_problem import WordProblem

GROUPS = {"z": CyclicGroup, "s": SymmetricGroup, "a": AlternatingGroup}
EVERY_GROUP = ["z2", "z3", "z60", "s3", "s4", "s5", "s6", "a4", "a5", "a4xz5", "z2xs3"]


@pytest.mark.slow
@pytest.mark.parametrize("check", checks(lgbench_state_tracking))
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def of_sympy(group: str) -> list[tuple[Permutation, ...]]:
    """The elements of a group in lexicographic order, by sympy."""
    factors = [GROUPS[factor[0]](int(factor[1:])).elements for factor in group.split("x")]
    return list(product(*(sorted(factor, key=lambda element: element.array_form) for factor in factors)))


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_products_are_those_of_sympy_at_every_prefix(group: str) -> None:
    known, task = of_sympy(group), WordProblem(group)
    assert len(known) == task.order
    numbers = {element: number for number, element in enumerate(known)}
    for length in range(1, 13):
        inputs, distribution, _ = task.sample(length, Random(84, seed=length))
        assert ((distribution == 0) | (distribution == 1)).all()
        for context, right in zip(inputs.tolist(), distribution.argmax(-1).tolist(), strict=True):
            result = known[0]
            for number, answer in zip(context, right, strict=True):
                # p * q of sympy applies p first.
                result = tuple(p * q for p, q in zip(result, known[number], strict=True))
                assert numbers[result] == answer


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_elements_are_in_the_order_of_sympy(group: str) -> None:
    assert [tuple(tuple(p.array_form) for p in element) for element in of_sympy(group)] == list(elements(group))


def test_elements_are_uniform() -> None:
    counts = Counter(WordProblem("s3").sample(100, Random(60)).inputs.flatten().tolist())
    assert chisquare([counts[number] for number in range(6)]).pvalue > 0.001


def test_the_word_problem_of_z_2_is_parity() -> None:
    inputs, distribution, _ = WordProblem("z2").sample(128, Random(20))
    assert torch.equal(distribution.argmax(-1), inputs.cumsum(1) % 2)


@pytest.mark.parametrize("name", ["z3", "z60", "s5", "a4xz5", "z7", "s4", "a6", "z3xz3", "s3xa4", "z1000"])
def test_other_groups_are_made_by_name(name: str) -> None:
    task = WordProblem("z2").sibling(f"word-problem-{name}")
    assert task is not None and task.name == task.family == f"word-problem-{name}"
    assert task.sample(3, Random(2)).distribution.shape == (2, 3, len(of_sympy(name)) if name != "z1000" else 1000)


@pytest.mark.parametrize("name", ["z1", "s7", "a7", "a2", "z0", "z05", "z1001", "s6xs3"])
def test_impossible_groups_are_refused_in_words(name: str) -> None:
    with pytest.raises(ValueError, match="word-problem-GROUP takes zN, sN or aN .* as in word-problem-s4"):
        WordProblem("z2").sibling(f"word-problem-{name}")


@pytest.mark.parametrize("name", ["word-problem-d4", "word-problem-s", "word-problem-s5-2", "flip-flop-80"])
def test_names_of_another_form_are_no_word_problems(name: str) -> None:
    assert WordProblem("z2").sibling(name) is None


@pytest.mark.parametrize("percent", [10, 80, 98])
def test_reads_give_the_bit_last_written(percent: int) -> None:
    task = FlipFlop(percent)
    for length in range(2, 13):
        inputs, distribution, weights = task.sample(length, Random(91, seed=length))
        assert weights is not None
        for context, p, counts in zip(inputs, distribution.tolist(), weights.tolist(), strict=True):
            words = task.text(context).split()
            assert words[0] == "w" and words[-1] == "r" and len(words) == 2 * length - 1
            held = "none"
            for place in range(0, len(words), 2):
                assert words[place] in "wri"
                assert counts[place] == (words[place] == "r")
                if words[place] == "r":
                    assert p[place] == [float(word == held) for word in task.words]
                    assert place + 1 == len(words) or words[place + 1] == held
                else:
                    assert p[place] == [0, 0, 0, 0.5, 0.5]
                    held = words[place + 1] if words[place] == "w" else held
            acts = (100 - percent) / 200
            between = [[acts, acts, percent / 100, 0, 0]] * (length - 2) + [[0, 1, 0, 0, 0]]
            assert p[1::2] == [pytest.approx(q) for q in between]
            assert not any(counts[1::2])
            (source,) = task.sources(context[None]).nonzero()[:, 1].tolist()
            assert words[source - 1] == "w" and "w" not in words[source:] and words[source] == held


@pytest.mark.parametrize("percent", [0, 10, 80, 98])
def test_instructions_are_as_frequent_as_published(percent: int) -> None:
    kinds = Counter(FlipFlop(percent).sample(102, Random(200)).inputs[:, 2:-1:2].flatten().tolist())
    expected = [100.0 * (100 - percent), 100.0 * (100 - percent), 200.0 * percent]
    if not percent:
        assert kinds.pop(2, 0) == 0
        expected.pop()
    assert chisquare([kinds[kind] for kind in range(len(expected))], expected).pvalue > 0.001


def test_bits_of_flip_flops_are_uniform() -> None:
    inputs = FlipFlop(80).sample(40, Random(300)).inputs
    written = inputs[:, :-1:2] != 1  # all but reads, whose bit is known
    bits = Counter(inputs[:, 1::2][written].tolist())
    assert len(bits) == 2 and chisquare([*bits.values()]).pvalue > 0.001


def test_other_flip_flops_are_made_by_name() -> None:
    task = FlipFlop(80).sibling("flip-flop-5")
    assert task is not None and task.name == task.family == "flip-flop-5"
    for name in ("flip-flop-100", "flip-flop-08"):
        with pytest.raises(ValueError, match="from 0 to 99, as in flip-flop-90"):
            FlipFlop(80).sibling(name)
    assert FlipFlop(80).sibling("flip-flop-some") is None


def test_a_flip_flop_without_room_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="length 1: the first instruction writes, the last reads"):
        FlipFlop(80).sample(1, Random(1))


def test_boxes_hold_what_a_story_says() -> None:
    task, kinds = Boxes(), Counter[str]()
    for length in range(1, 13):
        inputs, distribution, _ = task.sample(length, Random(84, seed=length))
        for context, p in zip(inputs, distribution[:, 0].tolist(), strict=True):
            words = task.text(context).split()
            where = dict(zip(words[:16:2], words[1:16:2], strict=True))
            assert list(where) == list("abcdefgh")
            for step in range(length):
                what, source, target = words[16 + 3 * step : 19 + 3 * step]
                assert source != target
                moved = [each for each in where if where[each] == source and what in (each, "all")]
                assert moved
                where |= dict.fromkeys(moved, target)
                kinds["all" if what == "all" else "put" if source == "out" else "remove" if target == "out" else "move"] += 1
                assert what != "all" or "out" not in (source, target)
            assert words[-2] == "?" and len(words) == 18 + 3 * length
            right = [each for each in where if where[each] == words[-1]] or ["nothing"]
            assert p == pytest.approx([(answer in right) / len(right) for answer in task.answers])
    assert min(kinds[kind] for kind in ("put", "move", "remove", "all")) > 500


def test_operations_on_objects_in_boxes_are_alike() -> None:
    first = Boxes().sample(1, Random(6000)).inputs[:, 16:19]
    inside = first[first[:, 1] != 16]
    together, removed = (inside[:, 0] == 8).sum().item(), (inside[:, 2] == 16).sum().item()
    assert chisquare([together, removed, len(inside) - together - removed]).pvalue > 0.001


def test_places_and_targets_of_boxes_are_uniform() -> None:
    inputs = Boxes().sample(1, Random(12_000)).inputs
    places, (what, source, target) = inputs[:, 1:16:2] - 9, (inputs[:, 16:19] - torch.tensor([0, 9, 9])).T
    moved, put = (source < 7) & (target < 7), source == 7
    drawn = {
        "places": (places.flatten(), range(8)),
        "objects": (what[what < 8], range(8)),
        "moves": (((target - source) % 7)[moved & (what < 8)], range(1, 7)),
        "moves of all": (((target - source) % 7)[moved & (what == 8)], range(1, 7)),
        "puts": (target[put], range(7)),
        "asked": (inputs[:, -1] - 9, range(7)),
    }
    for name, (own, outcomes) in drawn.items():
        found = Counter(own.tolist())
        assert found.keys() == {*outcomes} and chisquare([*found.values()]).pvalue > 0.001, name


@pytest.mark.parametrize("task", list(lgbench_state_tracking.lgbench_tasks()), ids=lambda task: task.name)
def test_texts_are_read_back_and_other_words_are_refused(task: Task) -> None:
    context = task.sample(8, Random(1)).inputs[0]
    assert torch.equal(task.context(task.text(context)), context)
    with pytest.raises(ValueError, match="'#' is none of its tokens"):
        task.context("#")


@pytest.mark.parametrize("percent", [0, 50])
def test_flip_flop_answers_the_contexts_that_it_draws_and_no_others(percent: int) -> None:
    task = FlipFlop(percent)
    drawn = {tuple(row) for length in (2, 3, 4) for row in task.sample(length, Random(3000)).inputs.tolist()}
    every = [tokens for length in (3, 5, 7) for tokens in product(range(5), repeat=length) if tokens[-1] == 1]

    def answers(tokens: tuple[int, ...]) -> bool:
        try:
            return task.reference(torch.tensor(tokens)) is not None
        except ValueError:
            return False

    assert {tokens for tokens in every if answers(tokens)} == drawn


PLACES = "a 3 b 6 c out d 4 e 2 f 3 g 3 h 4"


@pytest.mark.parametrize("operations", ["", "a 3 out", "all 4 7 d 7 1", "c out 5"])
def test_boxes_follow_what_can_be_done(operations: str) -> None:
    assert sum(Boxes().reference(Boxes().context(f"{PLACES} {operations} ? 7"))) == 1


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (f"{PLACES} a 3 out", "the places of a to h, operations of what, from where and to where, then \\? and a box"),
        ("a 3 ? 7", "the places of a to h"),
        (f"{PLACES} all out 3 ? 7", "the places of a to h"),
        (f"{PLACES} a 4 out ? 7", "a is not in 4 when it is moved"),
        (f"{PLACES} all 1 2 ? 7", "'all 1 2' moves nothing"),
        (f"{PLACES} all 3 out ? 3", "the places of a to h"),
        (f"{PLACES} a 3 3 ? 7", "'a 3 3' moves nothing"),
    ],
)
def test_impossible_operations_get_a_sentence(context: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Boxes().reference(Boxes().context(context))


def test_every_protocol_tests_longer_contexts_than_it_trains_on() -> None:
    for task in lgbench_state_tracking.lgbench_tasks():
        for protocol in PROTOCOLS.values():
            train, evaluate = protocol.settings(task)
            assert evaluate.max_length >= 2 * train.max_length, (task.name, protocol.name)
