"""Checks of p*: that it is a distribution, a function of the context, and right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench.contracts import Answers, Batch, Language, Task, Tokens
from lgbench.extensions.conformance.check import CheckFailed, Checks, Outcome, expect
from lgbench.extensions.conformance.probes import kind_of, no_global_randomness
from lgbench.extensions.conformance.samples import CONTEXTS, drawn, lengths
from lgbench.randomness import Random

SHORT = 8
"""The longest contexts that a reference is asked for."""
DRAWS = 4000
"""Contexts over which frequencies are counted."""
FAR = 6.0
"""Standard deviations that a frequency may be away: chance alone exceeds it once in 500 million times."""


def checks(task: Task) -> Checks:
    found: dict[str, Callable[[], Outcome]] = {
        "p* is a distribution": lambda: _is_a_distribution(task),
        "p* matches an independent estimate": lambda: _is_right(task),
        "its text can be read back, and its sources are positions": lambda: _is_readable(task),
    }
    if isinstance(task.signature.inputs, Tokens):
        found["p* is a function of the context"] = lambda: _is_a_function(task)
    if task.signature.answers is Answers.EVERY_PREFIX:
        found["prefixes are distributed as shorter contexts are"] = lambda: _prefixes_are_contexts(task)
    if isinstance(task, Language):
        found["half of its strings are members, and p* says which"] = lambda: _strings_are_right(task)
    return found


def _is_a_distribution(task: Task) -> Outcome:
    for length in lengths(task):
        p = drawn(task, CONTEXTS, length).distribution
        expect(bool((p >= 0).all()), f"at length {length} p* has the probability {p.min().item():g}")
        total = p.double().sum(-1)
        worst = total.flatten()[(total - 1).abs().argmax()].item()
        expect(abs(worst - 1) < 1e-4, f"at length {length} a p* sums to {worst:.6g}, expected 1")
    return None


def _is_a_function(task: Task) -> Outcome:
    known: dict[tuple[int, ...], Tensor] = {}
    for length in lengths(task, SHORT):
        for context, p in _answered(task, drawn(task, 8 * CONTEXTS, length)):
            before = known.setdefault(tuple(context.tolist()), p)
            if not torch.allclose(before, p, atol=1e-5):
                raise CheckFailed(f"after {task.text(context)} p* is {_shown(before)} once and {_shown(p)} another time")
    return None


def _is_right(task: Task) -> Outcome:
    compared = 0
    for length in lengths(task, SHORT):
        for context, p in _answered(task, drawn(task, CONTEXTS, length, seed=3)):
            expected = task.reference(context)
            if expected is None:
                continue
            compared += 1
            other = torch.tensor(expected, dtype=torch.float32)
            expect(other.shape == p.shape, f"reference gives {len(other)} probabilities, expected {len(p)}")
            if not torch.allclose(other, p, atol=1e-5):
                raise CheckFailed(f"after {task.text(context)} p* is {_shown(p)}, and the reference is {_shown(other)}")
    if compared:
        return None
    if isinstance(task, Language):
        return _walks_follow_p(task)
    return "nothing independent says what p* is: give the task a `reference`"


def _is_readable(task: Task) -> Outcome:
    for length in lengths(task, SHORT):
        inputs = drawn(task, CONTEXTS, length).inputs
        sources = task.sources(inputs)
        if sources is not None:
            fits = sources.shape == inputs.shape[:2] and sources.dtype == torch.bool
            expect(fits, f"at length {length} sources are {kind_of(sources)}, expected {tuple(inputs.shape[:2])} bool")
        for context in inputs:
            text = task.text(context)
            try:
                read = task.context(text)
            except ValueError:  # it says that it does not read
                continue
            expect(read.shape == context.shape, f"it reads {text!r} as {kind_of(read)}, and it is a {kind_of(context)}")
            # Numbers of vectors may be rounded in a text.
            same = not isinstance(task.signature.inputs, Tokens) or torch.equal(read, context)
            expect(same, f"it writes {context.tolist()} as {text!r}, and reads that as {read.tolist()}")
    return None


def _walks_follow_p(task: Language) -> Outcome:
    """Whether the next symbols of its contexts are as frequent as p* says, without the end of the string."""
    length = min(SHORT, task.max_length or SHORT)
    batch = drawn(task, DRAWS, length, seed=4)
    inputs, p = batch.inputs, batch.distribution
    symbols = p[:, :-1, :-1].double()
    taken = F.one_hot(inputs[:, 1:], task.signature.classes)[..., :-1]
    impossible = ((symbols == 0) & (taken == 1)).any(-1).nonzero()
    if len(impossible):
        context, place = impossible[0].tolist()
        string, answer = inputs[context], p[context, place]
        where = f"after {task.text(string[: place + 1])} p* is {_shown(answer)}"
        raise CheckFailed(f"{where}, but one of its contexts goes on: {task.text(string[: place + 2])}")
    going_on = symbols / symbols.sum(-1, keepdim=True)
    excess = (taken - going_on).sum((0, 1)) / (going_on * (1 - going_on)).sum((0, 1)).sqrt().clamp(min=1e-9)
    if excess.abs().max() > FAR:
        return "its contexts are not walks along p*, and it has no `reference` to compare with"
    return None


def _prefixes_are_contexts(task: Task) -> Outcome:
    """Whether tokens and p* at the first positions have the same means in contexts of two lengths."""
    short = max(task.train_lengths[0], 2)
    long = max(task.train_lengths[1], 2 * short)
    long = long if task.max_length is None else min(long, task.max_length)
    both = [drawn(task, DRAWS, length, seed=length) for length in (short, long)]
    if isinstance(task.signature.inputs, Tokens):
        size = task.signature.inputs.size
        means = {"the share of token {} at position {} is": [F.one_hot(batch.inputs, size) for batch in both]}
    else:
        means = {"feature {} at position {} is": [batch.inputs for batch in both]}
    means["p* of answer {} at position {} is"] = [batch.distribution for batch in both]
    for what, (few, many) in means.items():
        few, many = few.double(), many[:, : few.shape[1]].double()
        spread = ((few.var(0) + many.var(0)) / DRAWS).sqrt().clamp(min=1 / DRAWS)
        apart = (few.mean(0) - many.mean(0)).abs() / spread
        if apart.max() > FAR:
            place, which = divmod(int(apart.argmax()), apart.shape[1])
            first, second = (sample[:, place, which].mean().item() for sample in (few, many))
            found = f"{what.format(which, place)} {first:.3f} in contexts of {short} and {second:.3f} in contexts of {long}"
            raise CheckFailed(f"{found}, on average, but one pass over the longer ones measures the shorter ones")
    return None


def _strings_are_right(task: Language) -> Outcome:
    lengths = sorted({task.testable_length(n) for n in (1, SHORT, task.train_lengths[1], 3 * task.train_lengths[1])})
    for length in lengths:
        with no_global_randomness():
            inputs, is_member = task.strings(length, Random(16))
            again, _ = task.strings(length, Random(16))
        fits = inputs.shape == (16, length + 1) and inputs.dtype == torch.int64
        expect(fits, f"strings of length {length} are {kind_of(inputs)}, expected (16, {length + 1}) int64")
        fits = is_member.shape == (16,) and is_member.dtype == torch.bool
        expect(fits, f"is_member is {kind_of(is_member)}, expected (16,) bool")
        members = int(is_member.sum())
        expect(members == 8, f"of 16 strings of length {length}, {members} are members, expected 8")
        same = torch.equal(inputs, again)
        expect(same, f"two calls with the same random numbers gave different strings of length {length}")
        for string, member in zip(inputs, is_member.tolist(), strict=True):
            if length <= SHORT:
                _follow(task, string, member)
        expect(bool(is_member[:8].all()), f"of 16 strings of length {length} the first 8 are not the members, as expected")
    others, _ = task.strings(lengths[-1], Random(16, seed=1))
    expect(not torch.equal(inputs, others), f"its strings of length {lengths[-1]} do not depend on the random numbers")
    return None


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


def _answered(task: Task, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Each context that has an answer that counts, prefixes included, with its p*."""
    counts = torch.ones(batch.distribution.shape[:2]) if batch.weights is None else batch.weights
    for inputs, p, counted in zip(batch.inputs, batch.distribution, counts, strict=True):
        places = [len(inputs) - 1] if task.signature.answers is Answers.LAST else range(len(inputs))
        yield from ((inputs[: at + 1], q) for at, q, weight in zip(places, p, counted.tolist(), strict=True) if weight > 0)


def _shown(p: Tensor) -> str:
    return "[" + ", ".join(f"{x:.3g}" for x in p.tolist()) + "]"
