"""What tasks promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench.conformance.check import Broken, Outcome, expect, kind_of, no_global_randomness
from lgbench.contracts import Answers, Batch, Language, Task, Tokens
from lgbench.protocols import PROTOCOLS, check_settings

CONTEXTS = 32
"""Drawn at each length that is looked at."""
SHORT = 8
"""Longest contexts that are held to brute force."""
DRAWS = 4000
"""Contexts over which frequencies are counted."""
NOBODYS_NAMES = ("no-such-task", "none-9", "9", "")
"""Names that a user might misspell, which no family has."""
FAR = 6.0
"""Standard deviations that a frequency may be away: chance alone goes that far once in 500 million."""


def promises(task: Task) -> Mapping[str, Callable[[], Outcome]]:
    """What a task promises, and how each promise is looked into."""
    found: dict[str, Callable[[], Outcome]] = {
        "its version, sizes and budgets make sense": lambda: _describes_itself(task),
        "shapes and dtypes are those of its signature, at every length": lambda: _keeps_its_signature(task),
        "p* is a distribution": lambda: _p_is_a_distribution(task),
        "the same generator gives the same contexts, and nothing else does": lambda: _is_determined(task),
        "p* matches an independent estimate": lambda: _p_matches(task),
        "it has siblings of its own names alone": lambda: _siblings_are_its_own(task),
    }
    if isinstance(task.signature.inputs, Tokens):
        found["p* is a function of the context"] = lambda: _p_is_a_function(task)
    if task.signature.answers is Answers.EVERY_PREFIX:
        found["prefixes are distributed as shorter contexts are"] = lambda: _prefixes_are_contexts(task)
    if isinstance(task, Language):
        found["half of its strings are members, and p* says which"] = lambda: _strings_are_right(task)
    return found


def drawn(task: Task, n: int, length: int, seed: int = 0) -> Batch:
    return task.sample(n, length, torch.Generator().manual_seed(seed))


def lengths(task: Task, longest: int | None = None) -> list[int]:
    """The shortest, the longest in training, and one far beyond, as far as there are contexts."""
    low, high = task.train_lengths
    bound = min(x for x in (longest, task.max_length, 4 * high + 1) if x is not None)
    return sorted({min(x, bound) for x in (max(low, 1), max(low, 1) + 1, high, bound)})


def _describes_itself(task: Task) -> Outcome:
    expect(isinstance(task.version, int) and task.version >= 1, f"its version is {task.version!r}, expected a number from 1 up")
    expect(bool(task.family), "it has no family: give its own name where it stands alone")
    low, high = task.train_lengths
    expect(0 <= low <= high and high >= 1, f"its train_lengths are {task.train_lengths}, expected the shortest and the longest")
    for name in task.budgets:
        expect(name in PROTOCOLS, f"it has a budget for {name!r}, which is no protocol; known: {', '.join(PROTOCOLS)}")
    for protocol in PROTOCOLS.values():
        check_settings(task, *protocol.settings(task))
    names, classes = len(task.answers), task.signature.classes
    expect(names == classes, f"it has names for {names} answers, and its signature has {classes} classes")
    expect(isinstance(task.text(drawn(task, 1, high).inputs[0]), str), "text() gives no string")
    return None


def _siblings_are_its_own(task: Task) -> Outcome:
    for name in NOBODYS_NAMES:
        found = task.sibling(name)
        expect(found is None, f"its sibling {name!r} is {found!r}, expected None for what is no name of its family")
    return None


def _keeps_its_signature(task: Task) -> Outcome:
    signature = task.signature
    for length in lengths(task):
        inputs, p = drawn(task, 3, length)
        at = f"at length {length}"
        if isinstance(signature.inputs, Tokens):
            fits = inputs.dtype == torch.int64 and inputs.ndim == 2
            expect(fits, f"{at} its inputs are {kind_of(inputs)}, expected (3, T) int64")
            low, high = inputs.min().item(), inputs.max().item()
            fits = low >= 0 and high < signature.inputs.size
            expect(fits, f"{at} its tokens go from {low} to {high}, expected 0 to {signature.inputs.size - 1}")
        else:
            expected = f"(3, T, {signature.inputs.width}) float32"
            fits = inputs.ndim == 3 and inputs.shape[-1] == signature.inputs.width and inputs.dtype == torch.float32
            expect(fits, f"{at} its inputs are {kind_of(inputs)}, expected {expected}")
            expect(bool(inputs.isfinite().all()), f"{at} some of its features are not finite")
        asked = inputs.shape[1] if signature.answers is Answers.EVERY_PREFIX else 1
        shape = (3, asked, signature.classes)
        fits = p.shape == shape and p.dtype == torch.float32
        expect(fits, f"{at} p* is {kind_of(p)}, expected {shape} float32, since it answers {signature.answers.value}")
        expect(len(inputs) == 3, f"{at} it gave {len(inputs)} contexts, and 3 were asked for")
        if isinstance(task, Language):
            begin = signature.classes - 1
            expect(inputs.shape[1] == length + 1, f"{at} its inputs are {kind_of(inputs)}, expected (3, {length + 1}) int64")
            fits = bool((inputs[:, 0] == begin).all() and (inputs[:, 1:] < begin).all())
            expect(fits, f"{at} the begin token, {begin}, should stand first and nowhere else, and {inputs[0].tolist()} came")
    return None


def _p_is_a_distribution(task: Task) -> Outcome:
    for length in lengths(task):
        p = drawn(task, CONTEXTS, length).distribution
        expect(bool((p >= 0).all()), f"at length {length} p* has the probability {p.min().item():g}")
        total = p.double().sum(-1)
        worst = total.flatten()[(total - 1).abs().argmax()].item()
        expect(abs(worst - 1) < 1e-4, f"at length {length} a p* sums to {worst:.6g}, expected 1")
    return None


def _is_determined(task: Task) -> Outcome:
    for length in lengths(task):
        with no_global_randomness():
            first = drawn(task, CONTEXTS, length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(12345)
            second = drawn(task, CONTEXTS, length)
        same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        expect(same, f"at length {length} the same generator gave other contexts the second time")
    others = [drawn(task, CONTEXTS, length, seed).inputs for length in lengths(task) for seed in (1, 2)]
    if any(not torch.equal(a, b) for a, b in zip(others[::2], others[1::2], strict=True)):
        return None
    there_are_more = any(not torch.equal(inputs, inputs[:1].expand_as(inputs)) for inputs in others)
    expect(not there_are_more, "all seeds give the same contexts: it does not use the generator that it is given")
    return "all seeds give the same contexts: right only where there is but one of each length"


def _p_is_a_function(task: Task) -> Outcome:
    known: dict[tuple[int, ...], Tensor] = {}
    for length in lengths(task, SHORT):
        for context, p in _answered(task, drawn(task, 8 * CONTEXTS, length)):
            before = known.setdefault(tuple(context.tolist()), p)
            if not torch.allclose(before, p, atol=1e-5):
                raise Broken(f"after {task.text(context)} p* was {_shown(before)} once and {_shown(p)} another time")
    return None


def _p_matches(task: Task) -> Outcome:
    held = 0
    for length in lengths(task, SHORT):
        for context, p in _answered(task, drawn(task, CONTEXTS, length, seed=3)):
            expected = task.brute_force(context)
            if expected is None:
                continue
            held += 1
            other = torch.tensor(expected, dtype=torch.float32)
            expect(other.shape == p.shape, f"brute_force gives {len(other)} probabilities, expected {len(p)}")
            if not torch.allclose(other, p, atol=1e-5):
                raise Broken(f"after {task.text(context)} p* is {_shown(p)}, and brute_force says {_shown(other)}")
    if held:
        return None
    if isinstance(task, Language):
        return _walks_follow_p(task)
    return "p* is held to nothing but itself: give the task a brute_force"


def _walks_follow_p(task: Language) -> Outcome:
    """Which symbol comes next in its contexts, against p* without the end."""
    length = min(SHORT, task.max_length or SHORT)
    inputs, p = drawn(task, DRAWS, length, seed=4)
    symbols = p[:, :-1, :-1].double()
    taken = F.one_hot(inputs[:, 1:], task.signature.classes)[..., :-1]
    impossible = ((symbols == 0) & (taken == 1)).any(-1).nonzero()
    if len(impossible):
        context, place = impossible[0].tolist()
        string, answer = inputs[context], p[context, place]
        where = f"after {task.text(string[: place + 1])} p* is {_shown(answer)}"
        raise Broken(f"{where}, but a context that it gave goes on: {task.text(string[: place + 2])}")
    going_on = symbols / symbols.sum(-1, keepdim=True)
    excess = (taken - going_on).sum((0, 1)) / (going_on * (1 - going_on)).sum((0, 1)).sqrt().clamp(min=1e-9)
    if excess.abs().max() > FAR:
        return "its contexts are not walks along p*, and it has no brute_force to hold p* to"
    return None


def _prefixes_are_contexts(task: Task) -> Outcome:
    """What stands at each of the first places, and p* after it, on average over contexts of two lengths."""
    short = max(task.train_lengths[0], 2)
    long = min(task.max_length or 4 * short, max(task.train_lengths[1], 2 * short))
    both = [drawn(task, DRAWS, length, seed=length) for length in (short, long)]
    if isinstance(task.signature.inputs, Tokens):
        size = task.signature.inputs.size
        looks = {"the share of token {} at position {} is": [F.one_hot(batch.inputs, size) for batch in both]}
    else:
        looks = {"feature {} at position {} is": [batch.inputs for batch in both]}
    looks["p* of answer {} at position {} is"] = [batch.distribution for batch in both]
    for what, (few, many) in looks.items():
        few, many = few.double(), many[:, : few.shape[1]].double()
        spread = ((few.var(0) + many.var(0)) / DRAWS).sqrt().clamp(min=1 / DRAWS)
        apart = (few.mean(0) - many.mean(0)).abs() / spread
        if apart.max() > FAR:
            place, which = divmod(int(apart.argmax()), apart.shape[1])
            means = [sample[:, place, which].mean().item() for sample in (few, many)]
            found = f"{what.format(which, place)} {means[0]:.3f} in contexts of {short} and {means[1]:.3f} in those of {long}"
            raise Broken(f"{found}, on average, but one pass over the longer measures the shorter")
    return None


def _strings_are_right(task: Language) -> Outcome:
    for length in sorted({task.testable_length(n) for n in (1, SHORT, task.train_lengths[1], 3 * task.train_lengths[1])}):
        with no_global_randomness():
            inputs, is_member = task.strings(16, length, torch.Generator().manual_seed(0))
        fits = inputs.shape == (16, length + 1) and inputs.dtype == torch.int64
        expect(fits, f"strings of length {length} are {kind_of(inputs)}, expected (16, {length + 1}) int64")
        fits = is_member.shape == (16,) and is_member.dtype == torch.bool
        expect(fits, f"is_member is {kind_of(is_member)}, expected (16,) bool")
        members = int(is_member.sum())
        expect(members == 8, f"of 16 strings of length {length}, {members} are members, expected 8")
        for string, member in zip(inputs, is_member.tolist(), strict=True):
            if length <= SHORT:
                _follow(task, string, member)
    return None


def _follow(task: Language, string: Tensor, member: bool) -> None:
    """Every step of a member is legal and its end as well; some step of another string is not."""
    legal = True
    for place, token in enumerate([*string[1:].tolist(), task.signature.classes - 1]):
        p = task.brute_force(string[: place + 1])
        if p is None:
            return
        if not p[token] > 0:
            legal = False
            break  # beyond that it is no context, of which brute_force need know nothing
    what = "a member" if member else "no member"
    expect(legal == member, f"strings() says that {task.text(string)} is {what}, and brute_force says otherwise")


def _answered(task: Task, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Each context that is answered, prefixes included, with its p*."""
    for inputs, p in zip(*batch, strict=True):
        prefixes = range(len(inputs)) if task.signature.answers is Answers.EVERY_PREFIX else [len(inputs) - 1]
        yield from ((inputs[: place + 1], answer) for place, answer in zip(prefixes, p, strict=True))


def _shown(p: Tensor) -> str:
    return "[" + ", ".join(f"{x:.3g}" for x in p.tolist()) + "]"
