"""Verdicts on a claim from the runs of a results folder: one for each task, test and protocol, with difference and interval."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lgbench.claims.claim import Claim, ClaimSeeds, ClaimTest
from lgbench.claims.missing import Wanted, wanted
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.results import statistics
from lgbench.results.boards import BoardHeader, MeasuredBoard, failing, id_means
from lgbench.results.columns import ID, OOD, BoardValues, ends, rounded
from lgbench.results.database import most_telling_first
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.statistics import CONFIDENCE, MIN_PAIRED_SEEDS, MOST_SEEDS, Floats


@dataclass(frozen=True)
class PairedSample:
    """Numbers of a test, paired by seed, from the runs on one board."""

    differences: Floats
    """(n,): first - second, over common seeds."""
    common: tuple[int, ...]
    """The n common seeds."""
    failing: NDArray[np.bool_]
    """(n,): whether an entry of the test fails the seed: it does not fit the training range, or is wrong there by the metric of
    the test; all false for a test of likeness."""
    fitted: int
    """Common seeds that no entry of the test fails."""
    first: float
    second: float
    """Means over the common seeds."""
    seeds: dict[str, frozenset[int]]
    """Seeds with a value on all tasks, by entry of the test."""
    tasks: int
    sign: int
    """1 if lower is better, -1 if higher is better."""
    most: float
    """Largest possible difference of the metric."""
    reason: str = ""
    """Reason against any conclusion in spite of runs; empty without one."""
    measurable: bool = True
    """Whether the board has every length of the test; without one, further runs on the board decide nothing."""
    blind: bool = False
    """Whether the context-free baseline is good enough for the test, as in :func:`_is_blind`."""

    @property
    def n(self) -> int:
        return len(self.differences)


def _sample(measured: MeasuredBoard, test: ClaimTest, members: Collection[str], decisive: ClaimSeeds) -> PairedSample | None:
    """Sample of a board; None for a board with neither entry."""
    board, models = measured.header, measured.models
    variants = {entry: _variants(entry, models) for entry in test.entries}
    if not any(variants.values()):
        return None
    missing = np.full((1, len(models.seeds)), np.nan)
    values = {entry: _values(models, test, own[0]) if own else missing for entry, own in variants.items()}
    known = {entry: np.isfinite(own).all(0) for entry, own in values.items()}
    seeds = {entry: frozenset(np.array(models.seeds)[own].tolist()) for entry, own in known.items()}
    first = _of_seeds(models, test, values[test.entry])
    if test.against is not None:
        second = _of_seeds(models, test, values[test.against])
    else:
        second = np.full_like(first, test.value if test.exponent is None else test.exponent)
    common = np.isfinite(first) & np.isfinite(second)
    if decisive.alone:
        common &= np.isin(models.seeds, decisive)
    reasons = [*_reasons(models, test, variants, values)]
    if lacking := [task for task in members if task not in models.tasks]:
        reasons.append(f"of {len(members)} tasks of {board.name}, {len(lacking)} have no run: {', '.join(lacking)}")
        seeds = {}  # no seed has all tasks
    against = variants[test.against][:1] if test.against is not None else []
    lost = failing(models, *variants[test.entry][:1], *against)
    # Two models whose answers are wrong where they trained show nothing about generalization, whichever is better.
    target = board.metric.threshold if test.value is None and test.exponent is None else test.value
    if target is not None and test.expect != "alike":
        for entry in (own[0] for own in variants.values() if own):
            lost |= _misses(models, board.metric, target, entry)
    return PairedSample(
        differences=(first - second)[common],
        common=tuple(np.array(models.seeds)[common].tolist()),
        failing=lost[common] & (test.expect != "alike"),
        fitted=int((~lost[common]).sum()),
        first=first[common].mean().item() if common.any() else np.nan,
        second=second[common].mean().item() if common.any() else np.nan,
        seeds=seeds,
        tasks=len(models.tasks),
        sign=board.metric.sign,
        most=board.metric.highest - board.metric.lowest if test.exponent is None else np.inf,
        reason="; ".join(reasons),
        measurable={*_lengths(models, test)} <= {*models.lengths},
        blind=target is not None and _is_blind(measured, test, target, first[common]),
    )


def _is_blind(measured: MeasuredBoard, test: ClaimTest, target: float, values: Floats) -> bool:
    """Whether the context-free baseline is better than the target, and as good as an entry that is claimed to be."""
    board, level = measured.header, _level(measured, test)
    if not _better(board, level, target):
        return False
    if test.against is None:
        return test.expect == "worse" or _better(board, values, target)  # only worse than a guess is worse
    return test.expect == "better" and not _better(board, values, level.mean().item())


def _misses(models: BoardValues, metric: Metric, value: float, entry: str) -> NDArray[np.bool_]:
    """(S,): whether an entry misses a value in the upper half of the training range; false where nothing is measured there.

    A model that misses the value where it trained says nothing about generalization.
    """
    means = id_means(models, 0.5)[models.entries.index(entry)].mean(-1)
    missed: NDArray[np.bool_] = metric.sign * (means - value) >= 0
    return missed


def _better(board: BoardHeader, values: Floats, value: float) -> bool:
    """Whether the mean of values is better than a number; false without values."""
    return bool(values.size and board.metric.sign * (value - values.mean()) > 0)


def _level(measured: MeasuredBoard, test: ClaimTest) -> Floats:
    """Context-free baseline at the lengths of a test, as far as it is known."""
    lengths = _lengths(measured.models, test)
    return np.array([level.mean for level in measured.levels if level.kind == "length" and level.length in lengths])


def _variants(entry: str, models: BoardValues) -> list[str]:
    """Names of an entry on a board: several after runs with several versions of a package."""
    base, _, weights = entry.partition("@")
    suffix = f")@{weights}" if weights else ")"
    return [known for known in models.entries if known == entry or (known.startswith(f"{base} (") and known.endswith(suffix))]


def _reasons(
    models: BoardValues, test: ClaimTest, variants: Mapping[str, Sequence[str]], values: Mapping[str, Floats]
) -> Iterator[str]:
    """A sentence for each reason against any conclusion."""
    for entry, own in variants.items():
        if len(own) > 1:
            versions = f"{entry} was made by several versions of a package: {', '.join(own)}"
            yield f"{versions}; put runs that belong together into a folder"
    for entry in (entry for own in variants.values() for entry in own):
        if reason := models.unsound(entry):  # numbers of a non-causal model, or of non-finite answers, have no meaning
            yield f"{entry} is not ranked: {reason}"
    lengths = _lengths(models, test)
    if lacking := sorted({*lengths} - {*models.lengths}):
        yield f"the board has no length {', '.join(map(str, lacking))}; it has {', '.join(map(str, models.lengths))}"
    if test.exponent is not None:
        # Leaving out the seeds of values at or below 0 would bias the mean exponent. Not strict: values are a single row of
        # NaN where a length was not measured.
        at = [str(length) for length, own in zip(lengths, values[test.entry], strict=False) if (own <= 0).any()]
        if at:
            where = f"length{'s'[: len(at) > 1]} {', '.join(at)}"
            yield f"{test.metric} of {test.entry} is not above 0 at {where}, so no power law fits it"


def _lengths(models: BoardValues, test: ClaimTest) -> list[int]:
    if not isinstance(test.lengths, str):
        return list(test.lengths)
    trained = np.asarray(models.in_distribution.all(0)).tolist()
    wanted = {"ID": (True,), "OOD": (False,), "all": (True, False)}[test.lengths]
    return [length for length, own in zip(models.lengths, trained, strict=True) if own in wanted]


def _values(models: BoardValues, test: ClaimTest, entry: str) -> Floats:
    """Values of each seed at each length of the test, (L, S), or means over lengths, (1, S); NaN for missing values."""
    named = {"ID": ID, "OOD": OOD}.get(test.lengths) if test.exponent is None and isinstance(test.lengths, str) else None
    columns = [("length", length) for length in _lengths(models, test)] if named is None else [named]
    if not columns or any(column not in models.columns for column in columns):
        return np.full((1, len(models.seeds)), np.nan)
    return np.stack([models.column(column, [entry])[0] for column in columns])


def _of_seeds(models: BoardValues, test: ClaimTest, values: Floats) -> Floats:
    """Number of each seed, (S,), from values (L, S): mean or exponent; NaN for missing numbers."""
    if test.exponent is None:
        means: Floats = values.mean(0)
        return means
    return statistics.exponents(np.array(_lengths(models, test)), values)


BLIND = "the context-free baseline is good enough"
"""Reason to learn little from a test."""

State = Literal["confirmed", "refuted", "undecided", "not run"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Verdict:
    """Verdict on one test on one task under one protocol. Numbers are None without runs."""

    task: str
    test: ClaimTest
    protocol: ProtocolUse
    state: State
    reason: str
    """Evidence, or the seeds or runs needed for a decision, as a sentence."""
    tasks: int = 0
    """Number of tasks in the means."""
    first: float | None = None
    """Mean of the entry, or mean exponent."""
    second: float | None = None
    """Mean of the compared entry, or the claimed value or exponent."""
    difference: float | None = None
    """Mean of first - second over seeds."""
    low: float | None = None
    high: float | None = None
    """95 % interval of the difference."""
    n: int = 0
    """Number of seeds."""
    fitted: int = 0
    """Number of these seeds at which every entry fits the training range, and is right there by the metric of the test."""
    blind: bool = False
    """Whether a guess from the length alone is good enough for the test, as in the sample."""
    p: float | None = None
    """p of the t-test against the nearer end of the margin, corrected (Holm) for the tests of the claim."""
    seeds_needed: int | None = None
    """Seeds needed for a decision of an undecided test, for the same mean and variance of differences."""
    wanted: tuple[Wanted, ...] = ()
    """Missing runs of the claim."""

    @property
    def is_unfitted(self) -> bool:
        """Whether there are seeds, and every one fails to fit."""
        return self.n > 0 and not self.fitted

    @property
    def is_telling(self) -> bool:
        """Whether the test ran and says something on generalization: some seed fits, and a guess would not do."""
        return self.state != "not run" and not self.is_unfitted and not self.blind


def decide(
    claim: Claim, results: Results | None, protocol: str | None = None, families: Mapping[str, Collection[str]] = {}
) -> list[Verdict]:
    """Verdicts on a claim, under its protocols and under all protocols with runs.

    `protocol` is a name, for its versions without changes, or a full label. `results` is None without runs. `families`
    has the installed tasks of each family: a family without runs on some of them is undecided.
    """
    seeds = claim.runs.seeds
    parts = [_Part(task, test, *_found(results, task, test, families.get(task, ()), seeds)) for task, test in claim.parts]
    uses = [use for use in _uses(claim, parts) if use.is_named(protocol)]
    return [verdict for use in uses for verdict in _under(claim, use, parts)]


@dataclass(frozen=True)
class _Part:
    """A test on a task, with its samples."""

    task: str
    test: ClaimTest
    samples: Mapping[ProtocolUse, PairedSample]
    nothing: str
    """Sentence for a test without a sample."""


def _found(
    results: Results | None, task: str, test: ClaimTest, members: Collection[str], seeds: ClaimSeeds
) -> tuple[Mapping[ProtocolUse, PairedSample], str]:
    """Samples by protocol, of the newest versions of task and metric with values, and a sentence for a test without any.

    `members` are all tasks of a family.
    """
    if results is None:
        return {}, "there is no run of it"
    if test.metric not in results.metric_names:
        return {}, f"no run has the measurement {test.metric}"
    if test.expect != "alike" and test.metric not in results.ranking_names:
        return {}, f"no value of {test.metric} is better than another; expect alike, or name an exponent"
    samples: dict[ProtocolUse, PairedSample] = {}
    for measured in results.measured(test.metric, task) if task in results.task_names else ():  # newest versions first
        sample, use = _sample(measured, test, members, seeds), measured.header.protocol
        if sample and (use not in samples or (sample.n and not samples[use].n)):
            samples[use] = sample
    return samples, "there is no run of it"


def _uses(claim: Claim, parts: Iterable[_Part]) -> list[ProtocolUse]:
    """Protocols of the claim, in their present versions, and all other protocols with runs; the most telling first."""
    named = {ProtocolUse(name, PROTOCOLS[name].version) for name in claim.runs.protocols}
    return most_telling_first(named | {use for part in parts for use, sample in part.samples.items() if sample.n})


def _under(claim: Claim, use: ProtocolUse, parts: Sequence[_Part]) -> list[Verdict]:
    """Verdicts under one protocol, with p corrected for all tests."""
    found = [(_measured(claim, use, part), part.samples.get(use)) for part in parts]
    tested = [verdict.p for verdict, _ in found if verdict.p is not None]
    corrected = iter(statistics.holm(np.array(tested, dtype=np.float64)).tolist())
    samples = [(verdict.test, sample) for verdict, sample in found if sample and verdict.p is not None]
    beyond, lost = [_beyond(*own) for own in samples], [sample.failing for _, sample in samples]
    deciding = iter(statistics.deciding_seeds(beyond, lost, [sample.common for _, sample in samples]))
    return [
        _exception(_judged(verdict, sample, next(corrected), len(tested)), next(deciding))
        if sample and verdict.p is not None
        else verdict
        for verdict, sample in found
    ]


def _exception(verdict: Verdict, seeds: tuple[int, ...]) -> Verdict:
    """Verdict with a word on failing seeds, each of which changes it when left out."""
    if not seeds:
        return verdict
    named = " or ".join(map(str, seeds))
    return replace(verdict, reason=f"{verdict.reason}; one failing seed makes this verdict: without seed {named} it is another")


def _measured(claim: Claim, use: ProtocolUse, part: _Part) -> Verdict:
    """Verdict with numbers: with an uncorrected p before a test, final without p."""
    test, sample = part.test, part.samples.get(use)
    present = sample.seeds if sample else {}
    lacking = wanted(claim, part.task, test, present) if sample is None or sample.measurable else ()
    plain = Verdict(part.task, test, use, "not run", part.nothing, wanted=lacking)
    if sample is None:
        return plain
    if sample.n == 0:
        unfitted = test.exponent is not None and bool(sample.seeds.get(test.entry))
        return replace(plain, state="undecided" if unfitted else "not run", reason=sample.reason or _lacking(claim, sample))
    found = statistics.paired_t(sample.differences)
    low, high = ends(found.low, found.high, sample.most)
    numbers = replace(
        plain,
        tasks=sample.tasks,
        first=rounded(sample.first),
        second=rounded(sample.second),
        difference=rounded(sample.differences.mean()),
        low=low,
        high=high,
        n=sample.n,
        fitted=sample.fitted,
        blind=sample.blind,
    )
    if sample.reason:
        return replace(numbers, state="undecided", reason=sample.reason)
    if sample.n < MIN_PAIRED_SEEDS:
        seeds = max(len(claim.runs.seeds), MIN_PAIRED_SEEDS)
        return replace(numbers, state="undecided", reason=f"a test needs {MIN_PAIRED_SEEDS} seeds", seeds_needed=seeds)
    return replace(numbers, p=statistics.paired_t(_beyond(test, sample)).p.item())


def _lacking(claim: Claim, sample: PairedSample) -> str:
    """Reason for the lack of seeds with complete values."""
    lacking = [entry for entry, seeds in sample.seeds.items() if not seeds]
    if lacking:
        return f"there is no run of {' and '.join(lacking)}"
    entries = "both entries" if len(sample.seeds) > 1 else f"a run of {next(iter(sample.seeds))}"
    return f"no seed {'of the claim ' if claim.runs.seeds.alone else ''}has {entries}"


def _beyond(test: ClaimTest, sample: PairedSample) -> Floats:
    """Distance of each seed beyond the margin, in the claimed direction: (n,).

    "alike" has a margin on both sides: the nearer end counts, and distances within it are negative.
    """
    differences = sample.differences
    if test.expect != "alike":
        return (-sample.sign if test.expect == "better" else sample.sign) * differences - test.margin
    side = 1.0 if differences.mean() >= 0 else -1.0
    return side * differences - test.margin


def _judged(verdict: Verdict, sample: PairedSample, p: float, tests: int) -> Verdict:
    test, beyond = verdict.test, _beyond(verdict.test, sample)
    verdict = replace(verdict, p=float(f"{p:.3g}"))
    real = p < 1 - CONFIDENCE
    above = bool(beyond.mean() > 0)
    if real and test.expect == "alike" and not above:  # p is of the nearer end alone
        found = statistics.paired_t(sample.differences)
        real = bool(found.low > -test.margin and found.high < test.margin)
    if real:
        holds = above == (test.expect != "alike")
        return replace(verdict, state="confirmed" if holds else "refuted", reason=_evidence(verdict))
    return _undecided(verdict, sample, beyond, tests)


def _evidence(verdict: Verdict) -> str:
    return f"p = {verdict.p:.2g} over {verdict.n} seeds{f'; {BLIND}' if verdict.blind else ''}"


def _undecided(verdict: Verdict, sample: PairedSample, beyond: Floats, tests: int) -> Verdict:
    found = statistics.paired_t(beyond)
    # The first and strictest step of Holm's correction.
    needed = statistics.seeds_needed(found.mean.item(), found.variance.item(), (1 - CONFIDENCE) / tests)
    if needed is None:
        reason = f"{_evidence(verdict)}; more than {MOST_SEEDS:,} would not decide it"
        return replace(verdict, state="undecided", reason=reason)
    needed = max(needed, verdict.n + 1)  # the estimate may be a number that was not enough
    reason = f"{_evidence(verdict)}; about {needed} would decide it, if differences go on as they are"
    return replace(verdict, state="undecided", reason=reason, seeds_needed=needed)


def latest(claim: Claim, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One of all verdicts on each test: the most telling with runs, or else "not run" under a protocol of the claim."""
    kinds = (
        verdicts,
        [verdict for verdict in verdicts if verdict.protocol.name in claim.runs.protocols],
        [verdict for verdict in verdicts if verdict.state != "not run"],
    )
    found: dict[tuple[str, ClaimTest], Verdict] = {}
    for own in kinds:  # later ones win
        found |= {(verdict.task, verdict.test): verdict for verdict in reversed(own)}  # the most telling comes first
    return [found[part] for part in dict.fromkeys((verdict.task, verdict.test) for verdict in verdicts)]
