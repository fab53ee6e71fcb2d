"""Checks of tasks: what they say of themselves, and the form of their contexts."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Batch, Language, Task, Tokens, Vectors
from lgbench.experiment.contexts import problem
from lgbench.experiment.lengths import board_lengths, no_answer_counts
from lgbench.experiment.limits import check_settings
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.conformance import distributions
from lgbench.extensions.conformance.check import Checks, Outcome, expect
from lgbench.extensions.conformance.probes import kind_of, no_global_randomness
from lgbench.extensions.conformance.samples import CONTEXTS, drawn, lengths
from lgbench.randomness import Random

UNKNOWN_NAMES = ("no-such-task", "none-9", "9", "")
"""Names that a user might misspell, and no family has."""


def checks(task: Task) -> Checks:
    found = {
        "its version, sizes, lengths and budgets make sense": lambda: _describes_itself(task),
        "shapes and dtypes are those of its signature, at every length": lambda: _keeps_its_signature(task),
        "the same random numbers give the same contexts, and nothing else does": lambda: _is_determined(task),
        "a context does not depend on those that are drawn with it": lambda: _is_drawn_alone(task),
        "its siblings have names of its own family": lambda: _siblings_are_its_own(task),
        "some answer counts at a length that boards show": lambda: _counts_on_boards(task),
        **distributions.checks(task),
    }
    if task.signature.answers is Answers.MARKED:
        found["some answer counts at every length"] = lambda: _marks_some(task)
    return found


def _describes_itself(task: Task) -> Outcome:
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
    expect(isinstance(task.text(drawn(task, 1, high).inputs[0]), str), "text() gives no string")
    return None


def _siblings_are_its_own(task: Task) -> Outcome:
    for name in UNKNOWN_NAMES:
        found = task.sibling(name)
        expect(found is None, f"its sibling {name!r} is {found!r}, expected None for a name of another family")
    return None


def _keeps_its_signature(task: Task) -> Outcome:
    for length in lengths(task):
        batch = drawn(task, 3, length)
        at = f"at length {length}"
        expect(isinstance(batch, Batch), f"{at} `sample` gives {type(batch).__name__}, expected lgbench.Batch")
        _require_inputs(task, batch.inputs, at)
        expect(len(batch.inputs) == 3, f"{at} it gives {len(batch.inputs)} contexts, expected 3")
        wrong = problem(task, batch, 3)  # as every run does
        expect(wrong is None, f"{at} {wrong}")
        p, weights = batch.distribution, batch.weights
        expect(p.dtype == torch.float32, f"{at} p* is {kind_of(p)}, expected float32")
        if weights is not None:
            expect(weights.dtype == torch.float32, f"{at} its weights are {kind_of(weights)}, expected float32")
        if isinstance(task, Language):
            _require_begin_token(task, batch.inputs, length)
    return None


def _require_inputs(task: Task, inputs: Tensor, at: str) -> None:
    form = task.signature.inputs
    match form:
        case Tokens():
            fits = inputs.dtype == torch.int64 and inputs.ndim == 2
            expect(fits, f"{at} its inputs are {kind_of(inputs)}, expected (3, T) int64")
            low, high = inputs.min().item(), inputs.max().item()
            expect(low >= 0 and high < form.size, f"{at} its tokens go from {low} to {high}, expected 0 to {form.size - 1}")
        case Vectors():
            fits = inputs.ndim == 3 and inputs.shape[-1] == form.width and inputs.dtype == torch.float32
            expect(fits, f"{at} its inputs are {kind_of(inputs)}, expected (3, T, {form.width}) float32")
            expect(bool(inputs.isfinite().all()), f"{at} some of its features are not finite")


def _require_begin_token(task: Language, inputs: Tensor, length: int) -> None:
    begin = task.signature.classes - 1
    expected = f"expected (3, {length + 1}) int64"
    expect(inputs.shape[1] == length + 1, f"at length {length} its inputs are {kind_of(inputs)}, {expected}")
    fits = bool((inputs[:, 0] == begin).all() and (inputs[:, 1:] < begin).all())
    found = inputs[0].tolist()
    expect(fits, f"at length {length} the begin token, {begin}, should stand first and nowhere else; it gives {found}")


def _is_determined(task: Task) -> Outcome:
    for length in lengths(task):
        with no_global_randomness():
            first = drawn(task, CONTEXTS, length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(12345)
            second = drawn(task, CONTEXTS, length)
        same = all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(first, second, strict=True))
        expect(same, f"at length {length} the same random numbers give other contexts the second time")
    others = [drawn(task, CONTEXTS, length, seed).inputs for length in lengths(task) for seed in (1, 2)]
    if any(not torch.equal(a, b) for a, b in zip(others[::2], others[1::2], strict=True)):
        return None
    there_are_more = any(not torch.equal(inputs, inputs[:1].expand_as(inputs)) for inputs in others)
    expect(not there_are_more, "all seeds give the same contexts: it does not use the random numbers that it is given")
    return "all seeds give the same contexts: right only if there is a single one of each length"


def _is_drawn_alone(task: Task) -> Outcome:
    keys = [seeds.key(seed) for seed in range(2)]
    for length in lengths(task):
        together = task.sample(length, Random.stacked(keys, CONTEXTS))
        for first, n in ((0, 1), (CONTEXTS // 2, 3)):
            alone = task.sample(length, Random.stacked(keys[1:], n, first=first))
            for own, among in zip(alone, together, strict=True):
                same = own is None or among is None
                if own is not None and among is not None:
                    start = CONTEXTS + first
                    same = torch.allclose(own.double(), among[start : start + n].double(), atol=1e-5)
                expect(
                    same,
                    f"at length {length} a context is another one when it is drawn with others: draw the same amounts from "
                    "`random` whatever comes out, and use `random.branch()` in loops that end when something holds",
                )
    return None


def _counts_on_boards(task: Task) -> Outcome:
    for protocol in PROTOCOLS.values():
        wrong = no_answer_counts(task, *protocol.settings(task))  # as every run asks
        expect(wrong is None, f"under the protocol {protocol.name} {wrong}")
    return None


def _marks_some(task: Task) -> Outcome:
    for length in lengths(task):
        weights = drawn(task, CONTEXTS, length).weights
        counted = weights is not None and bool((weights.sum(-1) > 0).all())
        expect(counted, f"at length {length} some context has no answer that counts: give one a weight above 0")
    return None
