"""Verdicts on a claim, from runs: one for each task, test and protocol, with the difference and its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from lgbench.claims.claim import Claim, ClaimTest
from lgbench.claims.missing import Wanted, wanted
from lgbench.claims.samples import Sample, samples
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.results.columns import rounded
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import (
    CONFIDENCE,
    MIN_PAIRED_SEEDS,
    MOST_SEEDS,
    Floats,
    Moments,
    holm,
    moderated_t,
    seeds_needed,
)

State = Literal["confirmed", "refuted", "undecided", "not run"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Verdict:
    """On one test on one task under one protocol. Numbers are None where nothing was run."""

    claim: str
    """Its name."""
    task: str
    test: ClaimTest
    protocol: ProtocolUse
    state: State
    reason: str
    """A sentence: why it is so, or what would decide it."""
    tasks: int = 0
    """How many tasks the numbers are means over."""
    first: float | None = None
    """The mean of the entry, or the mean exponent."""
    second: float | None = None
    """The mean of the other entry, or the exponent that is claimed."""
    difference: float | None = None
    """The mean of first - second over seeds."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the difference."""
    n: int = 0
    """Seeds."""
    p: float | None = None
    """Of the moderated t-test against the nearer end of the margin, corrected (Holm) for the tests of the claim."""
    seeds_needed: int | None = None
    """Of an undecided test: with so many seeds it would be decided, if differences go on as they are."""
    wanted: tuple[Wanted, ...] = ()
    """Runs that the claim asks for and that are not there. Without them nothing is decided, or with fewer seeds."""


def decide(claim: Claim, results: Results | None, protocol: str | None = None) -> list[Verdict]:
    """The verdicts on a claim: under the protocols that it names, and under every other one that was run.

    `protocol` is a name, which means its versions without changes, or a full label. None for results where there are no runs.
    """
    parts = [_Part(task, test, *_found(results, task, test)) for task in claim.runs.tasks for test in claim.tests]
    uses = [use for use in _uses(claim, parts) if protocol in (None, str(use)) or (protocol == use.name and not use.changes)]
    return [verdict for use in uses for verdict in _under(claim, use, parts)]


@dataclass(frozen=True)
class _Part:
    """A test on a task."""

    task: str
    test: ClaimTest
    samples: Mapping[ProtocolUse, Sample]
    nothing: str
    """The sentence for a test without a sample."""


def _found(results: Results | None, task: str, test: ClaimTest) -> tuple[Mapping[ProtocolUse, Sample], str]:
    if results is None:
        return {}, "there is no run of it"
    if test.metric not in results.metric_names:
        return {}, f"no run has the measurement {test.metric}"
    if test.against is not None and test.expect == "better" and test.metric not in results.ranking_names:
        return {}, f"no value of {test.metric} is better than another; expect alike, or name an exponent"
    return samples(results, task, test), "there is no run of it"


def _uses(claim: Claim, parts: Iterable[_Part]) -> list[ProtocolUse]:
    """The protocols that the claim names, in their present versions; then the others, by name."""
    named = [ProtocolUse(name, PROTOCOLS[name].version) for name in claim.runs.protocols]
    others = sorted({use for part in parts for use, sample in part.samples.items() if sample.n} - {*named}, key=str)
    return [*named, *others]


def _under(claim: Claim, use: ProtocolUse, parts: Sequence[_Part]) -> list[Verdict]:
    """Under one protocol, with p corrected for all that were tested."""
    found = [(_measured(claim, use, part), part.samples.get(use)) for part in parts]
    tested = [verdict.p for verdict, _ in found if verdict.p is not None]
    corrected = iter(holm(np.array(tested, dtype=np.float64)).tolist())
    return [
        _judged(verdict, sample, next(corrected), len(tested)) if sample and verdict.p is not None else verdict
        for verdict, sample in found
    ]


def _measured(claim: Claim, use: ProtocolUse, part: _Part) -> Verdict:
    """The numbers. Where a test can be made they have a p, which is not corrected yet; else the verdict is final."""
    test, sample = part.test, part.samples.get(use)
    plain = Verdict(claim.name, part.task, test, use, "not run", part.nothing, wanted=wanted(claim, part.task, test, sample))
    if sample is None:
        return plain
    if sample.n == 0:
        unfitted = test.exponent is not None and bool(sample.seeds[test.entry])
        return replace(plain, state="undecided" if unfitted else "not run", reason=sample.reason or _lacking(sample))
    _, *ends = moderated_t(Moments.of(sample.differences), sample.spread)
    low, high = (np.clip(end, -sample.most, sample.most).item() for end in ends)
    numbers = replace(
        plain,
        tasks=sample.tasks,
        first=rounded(sample.first),
        second=rounded(sample.second),
        difference=rounded(sample.differences.mean()),
        low=None if np.isnan(low) else rounded(low),
        high=None if np.isnan(high) else rounded(high),
        n=sample.n,
    )
    if sample.reason:
        return replace(numbers, state="undecided", reason=sample.reason)
    if sample.n < MIN_PAIRED_SEEDS:
        seeds = max(len(claim.runs.seeds), MIN_PAIRED_SEEDS)
        return replace(numbers, state="undecided", reason=f"a test needs {MIN_PAIRED_SEEDS} seeds", seeds_needed=seeds)
    return replace(numbers, p=moderated_t(Moments.of(_beyond(test, sample)), sample.spread).p.item())


def _lacking(sample: Sample) -> str:
    """Why no seed has all that a test needs."""
    lacking = [entry for entry, seeds in sample.seeds.items() if not seeds]
    return f"there is no run of {' and '.join(lacking)}" if lacking else "no seed has both entries"


def _beyond(test: ClaimTest, sample: Sample) -> Floats:
    """How far each seed is beyond the margin, in the claimed direction: (n,).

    Alike entries have two margins. The nearest one counts, and what lies within it has a negative sign here.
    """
    differences = sample.differences
    if test.expect == "better":
        return -sample.sign * differences - test.margin
    side = 1.0 if differences.mean() >= 0 else -1.0
    return side * differences - test.margin


def _judged(verdict: Verdict, sample: Sample, p: float, tests: int) -> Verdict:
    test, beyond = verdict.test, _beyond(verdict.test, sample)
    verdict = replace(verdict, p=float(f"{p:.3g}"))
    real = p < 1 - CONFIDENCE
    above = bool(beyond.mean() > 0)
    if real and test.expect == "alike" and not above:
        _, low, high = moderated_t(Moments.of(sample.differences), sample.spread)
        real = bool(low > -test.margin and high < test.margin)
    if real:
        holds = above == (test.expect == "better")
        return replace(verdict, state="confirmed" if holds else "refuted", reason=_evidence(verdict))
    return _undecided(verdict, sample, beyond, tests)


def _evidence(verdict: Verdict) -> str:
    return f"p = {verdict.p:.2g} over {verdict.n} seeds"


def _undecided(verdict: Verdict, sample: Sample, beyond: Floats, tests: int) -> Verdict:
    moments = Moments.of(beyond)
    variance = sample.spread.borrowed(moments)[0].item()
    needed = seeds_needed(moments.mean.item(), variance, (1 - CONFIDENCE) / tests)
    if needed is None:
        reason = f"{_evidence(verdict)}; more than {MOST_SEEDS:,} would not decide it"
        return replace(verdict, state="undecided", reason=reason)
    needed = max(needed, verdict.n + 1)
    reason = f"{_evidence(verdict)}; about {needed} would decide it, if differences go on as they are"
    return replace(verdict, state="undecided", reason=reason, seeds_needed=needed)


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts there are of each state."""
    found = {state: sum(verdict.state == state for verdict in verdicts) for state in STATES}
    return {state: count for state, count in found.items() if count}
