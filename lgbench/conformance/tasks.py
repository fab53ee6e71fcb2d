"""Rules of tasks: the form of their contexts, and that p* is a distribution, a function of the context, and right."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench.conformance.check import CheckFailed, Outcome, Rules, expect, expect_kind, kind_of, no_global_randomness
from lgbench.contracts import Answers, Batch, Language, Task, Tokens
from lgbench.errors import message_of
from lgbench.experiment.contexts import board_lengths, no_answer_counts, problem
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.settings import check_settings
from lgbench.randomness import Random, key_of

CONTEXTS = 32
"""Contexts drawn at each length."""
SHORT = 8
"""Longest contexts to compare with a reference."""
DRAWS = 4000
"""Contexts for frequencies."""
FAR = 6.0
"""Allowed deviation of a frequency, in standard deviations: chance alone exceeds it once in 500 million times."""

TASKS = Rules[[Task]]()


def _reads_tokens(task: Task) -> bool:
    return isinstance(task.signature.inputs, Tokens)


def _drawn(task: Task, n: int, length: int, seed: int = 0) -> Batch:
    return task.sample(length, Random(n, seed))


def _lengths(task: Task, longest: int | None = None) -> list[int]:
    """Shortest length, longest length in training, lengths on boards, and a length far beyond, as far as there are contexts.

    longest: limit for checks of short contexts, which is never below the shortest length in training.
    """
    low, high = task.train_lengths
    short = None if longest is None else max(low, longest)
    bound = min(x for x in (short, task.max_length, 4 * high + 1) if x is not None)
    own = [length for length in task.lengths or () if 1 <= length <= bound]
    return sorted({min(x, bound) for x in (max(low, 1), max(low, 1) + 1, high, bound, *own)})


@TASKS.rule("its version, sizes, lengths and budgets make sense")
def _describes_itself(task: Task) -> None:
    expect(task.version >= 1, f"its version is {task.version!r}, expected a number from 1 up")
    expect(bool(task.family), "it has no family: give its own name if it stands alone")
    low, high = task.train_lengths
    expect(0 <= low <= high and high >= 1, f"its train_lengths are {task.train_lengths}, expected the shortest and the longest")
    for name in task.budgets:
        expect(name in PROTOCOLS, f"it has a budget for {name!r}, which is no protocol; known: {', '.join(PROTOCOLS)}")
    for protocol in PROTOCOLS.values():
        training, evaluation = protocol.settings(task)
        check_settings(task, training, evaluation)
        if task.lengths is not None:
            shown = board_lengths(task, training, evaluation)
            where = f"under the protocol {protocol.name}, which tests up to {evaluation.max_length}"
            expect(bool(shown) and shown[0] >= 1, f"boards show none of its lengths {task.lengths} {where}")
    if task.lengths is not None and task.max_length is not None:
        longest = max(task.lengths, default=0)
        expect(longest <= task.max_length, f"its lengths go to {longest}, and its max_length is {task.max_length}")
    names, classes = len(task.answers), task.signature.classes
    expect(names == classes, f"it has names for {names} answers, and its signature has {classes} classes")


@TASKS.rule("shapes and dtypes are those of its signature, at every length")
def _keeps_its_signature(task: Task) -> None:
    for length in _lengths(task):
        batch, at = _drawn(task, 3, length), f"at length {length}"
        wrong = problem(task, batch, 3)  # as every run does
        expect(wrong is None, f"{at} {wrong}")
        form, inputs, positions = task.signature.inputs, batch.inputs, batch.inputs.shape[1]
        expect_kind(f"{at} p* is", batch.distribution, batch.distribution.shape)
        if isinstance(form, Tokens):
            shape = (3, positions) if form.positions is None else (3, positions, 2)
            expect_kind(f"{at} its inputs are", inputs, shape, torch.int64)
        else:
            expect_kind(f"{at} its inputs are", inputs, (3, positions, form.width))
            expect(inputs.isfinite().all(), f"{at} some of its features are not finite")
        if isinstance(task, Language):
            begin = task.signature.classes - 1
            expect(batch.positions is None, "it is a Language, whose positions are places: leave out Tokens.positions")
            expect_kind(f"{at} its inputs are", inputs, (3, length + 1), torch.int64)
            fits = (inputs[:, 0] == begin).all() and (inputs[:, 1:] < begin).all()
            shown = inputs[0].tolist()
            expect(fits, f"{at} the begin token, {begin}, should stand first and nowhere else; it gives {shown}")


@TASKS.rule("the same random numbers give the same contexts, and nothing else does")
def _is_determined(task: Task) -> Outcome:
    for length in _lengths(task):
        with no_global_randomness():
            first = _drawn(task, CONTEXTS, length)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(12345)  # another global state
            second = _drawn(task, CONTEXTS, length)
        same = all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(first, second, strict=True))
        expect(same, f"at length {length} the same random numbers give other contexts the second time")
    others = [_drawn(task, CONTEXTS, length, seed).inputs for length in _lengths(task) for seed in (1, 2)]
    if any(not torch.equal(a, b) for a, b in zip(others[::2], others[1::2], strict=True)):
        return None
    there_are_more = any(not torch.equal(inputs, inputs[:1].expand_as(inputs)) for inputs in others)
    expect(not there_are_more, "all seeds give the same contexts: it does not use the random numbers that it is given")
    return "all seeds give the same contexts: right only if there is a single one of each length"


@TASKS.rule("a context does not depend on those that are drawn with it")
def _is_drawn_alone(task: Task) -> None:
    keys = [key_of(seed) for seed in range(2)]
    remedy = "draw the same amounts whatever comes out, and use `random.branch()` in loops that end when something holds"
    for length in _lengths(task):
        together = task.sample(length, Random.stacked(keys, CONTEXTS))
        for first, n in ((0, 1), (CONTEXTS // 2, 3)):
            alone = task.sample(length, Random.stacked(keys[1:], n, first=first))
            for own, among in zip(alone, together, strict=True):
                if own is not None and among is not None:
                    same = torch.allclose(own.double(), among[CONTEXTS + first :][:n].double(), atol=1e-5)
                    expect(same, f"at length {length} a context is another one when it is drawn with others: {remedy}")


@TASKS.rule("some answer counts at a length that boards show")
def _counts_on_boards(task: Task) -> None:
    for protocol in PROTOCOLS.values():
        wrong = no_answer_counts(task, *protocol.settings(task))  # as every run asks
        expect(wrong is None, f"under the protocol {protocol.name} {wrong}")


def _answered(task: Task, n: int, longest: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Each short context that has an answer that counts, prefixes included, with its p*."""
    for length in _lengths(task, longest):
        batch = _drawn(task, n, length, seed)
        counts = torch.ones(batch.distribution.shape[:2]) if batch.weights is None else batch.weights
        for inputs, p, counted in zip(batch.inputs, batch.distribution, counts, strict=True):
            places = [len(inputs) - 1] if task.signature.answers is Answers.LAST else range(len(inputs))
            yield from ((inputs[: at + 1], q) for at, q, weight in zip(places, p, counted.tolist(), strict=True) if weight > 0)


@TASKS.rule("p* matches an independent estimate")
def _is_right(task: Task) -> Outcome:
    answers, unknown = 0, 0
    for context, p in _answered(task, CONTEXTS, SHORT, seed=3):
        expected, answers = task.reference(context), answers + 1
        if expected is None:
            unknown += 1
            continue
        other = torch.tensor(expected, dtype=torch.float32)
        expect(other.shape == p.shape, f"reference gives {len(other)} probabilities, expected {len(p)}")
        if not torch.allclose(other, p, atol=1e-5):
            raise CheckFailed(f"after {task.text(context)} p* is {_shown(p)}, and the reference is {_shown(other)}")
    if unknown == answers:
        return "nothing independent says what p* is: give the task a `reference`"
    return f"`reference` gives None for {unknown} of {answers} answers, and nothing says what p* is there" if unknown else None


@TASKS.rule("p* is a function of the context", when=_reads_tokens)
def _is_a_function(task: Task) -> None:
    known: dict[tuple[int, ...], Tensor] = {}
    for context, p in _answered(task, 8 * CONTEXTS, SHORT):
        before = known.setdefault(tuple(context.flatten().tolist()), p)
        if not torch.allclose(before, p, atol=1e-5):
            raise CheckFailed(f"after {task.text(context)} p* is {_shown(before)} once and {_shown(p)} another time")


def _shown(p: Tensor) -> str:
    return "[" + ", ".join(f"{x:.3g}" for x in p.tolist()) + "]"


@TASKS.rule("its text can be read back, and its sources are positions")
def _is_readable(task: Task) -> None:
    for length in _lengths(task, SHORT):
        inputs = _drawn(task, CONTEXTS, length).inputs
        if (sources := task.sources(inputs)) is not None:
            expect_kind(f"at length {length} sources are", sources, inputs.shape[:2], torch.bool)
        for context in inputs:
            text = task.text(context)
            expect(isinstance(text, str), "text() gives no string")
            try:
                read = task.context(text)
            except ValueError:  # it says that it does not read
                continue
            expect(read.shape == context.shape, f"it reads {text!r} as {kind_of(read)}, and it is a {kind_of(context)}")
            same = not _reads_tokens(task) or torch.equal(read, context)  # a text may round numbers of vectors
            expect(same, f"it writes {context.tolist()} as {text!r}, and reads that as {read.tolist()}")


@TASKS.rule(
    "prefixes are distributed as shorter contexts are", when=lambda task: task.signature.answers is Answers.EVERY_PREFIX
)
def _prefixes_are_contexts(task: Task) -> None:
    """Whether tokens and p* at the first positions have the same means in contexts of three lengths."""
    short = max(task.train_lengths[0], 2)
    # The next length, too: what depends on the length modulo 2 may be the same in the shortest and the longest.
    for long in (max(task.train_lengths[1], 2 * short), short + 1):
        _have_prefixes(task, short, long if task.max_length is None else min(long, task.max_length))


def _have_prefixes(task: Task, short: int, long: int) -> None:
    """Raise CheckFailed unless the first positions of contexts of two lengths have the same means."""
    both = [_drawn(task, DRAWS, length, seed=length) for length in (short, long)]
    if isinstance(task.signature.inputs, Tokens):
        size = task.signature.inputs.size
        tokens = [batch.inputs if batch.positions is None else batch.inputs[..., 0] for batch in both]
        means = {"the share of token {} at position {} is": [F.one_hot(each, size) for each in tokens]}
    else:
        means = {"feature {} at position {} is": [batch.inputs for batch in both]}
    means["p* of answer {} at position {} is"] = [batch.distribution for batch in both]
    for what, (few, many) in means.items():
        few, many = few.double(), many[:, : few.shape[1]].double()
        spread = ((few.var(0) + many.var(0)) / DRAWS).sqrt().clamp(min=1 / DRAWS)  # a constant has no spread
        apart = (few.mean(0) - many.mean(0)).abs() / spread
        if apart.max() > FAR:
            place, which = divmod(int(apart.argmax()), apart.shape[1])
            first, second = (sample[:, place, which].mean().item() for sample in (few, many))
            found = f"{what.format(which, place)} {first:.3f} in contexts of {short} and {second:.3f} in contexts of {long}"
            raise CheckFailed(f"{found}, on average, but one pass over the longer ones measures the shorter ones")


@TASKS.rule("half of its strings are members, and p* says which", when=lambda task: isinstance(task, Language))
def _strings_are_right(task: Task) -> None:
    assert isinstance(task, Language)
    lengths = sorted({task.testable_length(n) for n in (1, SHORT, task.train_lengths[1], 3 * task.train_lengths[1])})
    for length in lengths:
        with no_global_randomness():
            inputs, is_member = task.strings(length, Random(16))
            again, _ = task.strings(length, Random(16))
        expect_kind(f"strings of length {length} are", inputs, (16, length + 1), torch.int64)
        expect_kind("is_member is", is_member, (16,), torch.bool)
        members = int(is_member.sum())
        expect(members == 8, f"of 16 strings of length {length}, {members} are members, expected 8")
        same = torch.equal(inputs, again)
        expect(same, f"two calls with the same random numbers gave different strings of length {length}")
        for string, member in zip(inputs, is_member.tolist(), strict=True):
            if length <= SHORT:
                _follow(task, string, member)
        expect(is_member[:8].all(), f"of 16 strings of length {length} the first 8 are not the members, as expected")
    others, _ = task.strings(lengths[-1], Random(16, seed=1))
    expect(not torch.equal(inputs, others), f"its strings of length {lengths[-1]} do not depend on the random numbers")


def _follow(task: Language, string: Tensor, member: bool) -> None:
    """Every step of a member is legal, and so is its end. Some step of a non-member is not."""
    legal = True
    for place, token in enumerate([*string[1:].tolist(), task.signature.classes - 1]):
        p = task.reference(string[: place + 1])
        if p is None:
            return
        if not p[token] > 0:
            legal = False
            break  # what follows is no context, of which the reference need know nothing
    what = "a member" if member else "no member"
    expect(legal == member, f"strings() says that {task.text(string)} is {what}, and the reference says otherwise")


@TASKS.rule("`sibling` gives None for names of another form")
def _has_siblings(task: Task) -> None:
    name = f"{task.family}-of-another-form"
    try:
        found = task.sibling(name)
    except Exception as error:  # a plugin's code may raise anything
        raise CheckFailed(f"sibling({name!r}) raised {message_of(error)}; return None") from error
    expect(found is None, f"sibling({name!r}) gives {found!r}, expected None")
