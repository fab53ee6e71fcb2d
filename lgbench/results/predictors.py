"""Predictors: correlation of probes of the internals of a model with its scores on longer inputs.

Spearman's rank correlation of a probe with a score, over the models of a task; mean over the tasks of a family. Ranks suit
different units and nonlinear relations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import packaged
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import Floats, expanded_tail

TIMES = 8
"""Limit of the length of a reading, in training lengths: the longest length of boards up to the limit is read."""
MIN_ENTRIES = 4
"""Minimum of entries for an interval: resamples of fewer entries carry no information."""
RESAMPLES = 10_000
"""The ends of an interval change by about 0.01 with other resamples."""


@dataclass(frozen=True)
class Predictor:
    """Correlation of a probe with the score of models on the tasks of a family."""

    protocol: ProtocolUse
    family: str
    probe: str
    correlation: float
    """Positive if higher readings go with higher scores; a higher TVD is worse."""
    low: float | None
    """95 % interval over resamples of entries, each with all seeds, expanded as for means; None for few entries."""
    high: float | None
    entries: int
    models: int
    """Number of trainings on the task with most trainings."""


Readings = Mapping[str, Mapping[str, Floats]]
"""Probe and score of each seed, (2, S), by task and entry."""


@dataclass(frozen=True)
class ProbeReadings:
    """Readings of probes under one protocol."""

    protocol: ProtocolUse
    readings: Mapping[tuple[str, str], Readings]
    """By family and probe."""

    def predictors(self) -> list[Predictor]:
        """Predictors of every family, the strongest correlation first; those without an interval come last in their family."""
        every = (_predictor(self.protocol, *place, readings) for place, readings in self.readings.items())
        found = [each for each in every if each]
        return sorted(found, key=lambda each: (each.family, each.low is None, -abs(each.correlation), each.probe))


def probed(
    results: Results, metric: str = PRIMARY_METRIC, name: str | None = None, protocol: str | None = None, times: int = TIMES
) -> list[ProbeReadings]:
    """Readings by protocol, the most telling first.

    Entries with raw weights alone. `name` is a family or a task. Raises UsageError for an unknown name, or without probes.
    """
    chosen = results.chosen(metric, name, protocol)
    results.require_ranks(metric)
    unranked = [each.name for each in results.metrics if not each.ranks]
    asked = {"name": chosen.name, "protocols": results.numbers(protocol)}
    rows = results.rows(packaged("predictors"), {"metric": metric, "unranked": unranked, "times": times, **asked})
    found: dict[int, dict[tuple[str, str], dict[str, dict[str, Floats]]]] = defaultdict(lambda: defaultdict(dict))
    for (number, family, task, probe, entry), own in groupby(rows, lambda row: row[:5]):
        found[number][family, probe].setdefault(task, {})[entry] = np.array([row[6:] for row in own]).T
    if not found:
        raise UsageError("no run has a probe beside its scores; `lgbench run --probe all` makes such runs")
    return [ProbeReadings(results.protocols[number], found[number]) for number in sorted(found)]


def _predictor(protocol: ProtocolUse, family: str, probe: str, readings: Readings) -> Predictor | None:
    entries = sorted({entry for own in readings.values() for entry in own})
    n = len(entries)
    (correlation,) = _mean_correlations(readings, entries, np.ones((1, n))).tolist()
    if np.isnan(correlation):
        return None
    low = high = None
    if n >= MIN_ENTRIES:
        # A fixed seed: equal results have equal intervals.
        copies = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(float)
        tail = expanded_tail(n)
        low, high = np.nanquantile(_mean_correlations(readings, entries, copies), [tail, 1 - tail]).tolist()
    models = max(sum(own.shape[1] for own in entries_of.values()) for entries_of in readings.values())
    return Predictor(protocol, family, probe, correlation, low, high, n, models)


def _mean_correlations(readings: Readings, entries: Sequence[str], copies: Floats) -> Floats:
    """Mean over tasks of the correlation over models, of each resample; NaN without variation on any task.

    copies (R, E): how many copies of each entry a resample has.
    """
    found = []
    for own in readings.values():
        there = [index for index, entry in enumerate(entries) if entry in own]
        pairs = [own[entries[index]] for index in there]
        found.append(_spearman(np.concatenate(pairs, 1), copies[:, there].repeat([each.shape[1] for each in pairs], 1)))
    known = np.isfinite(found)
    sums = np.where(known, found, 0).sum(0)
    means: Floats = np.divide(sums, known.sum(0), out=np.full(len(copies), np.nan), where=known.any(0))
    return means


def _spearman(pairs: Floats, copies: Floats) -> Floats:
    """Spearman's rank correlation of (2, n) with so many copies of each, (R, n) -> (R,); NaN for a constant row."""
    total = np.maximum(copies.sum(1, keepdims=True), 1)
    centred = []
    for values in pairs:
        distinct, place = np.unique(values, return_inverse=True)
        counts = copies @ (place[:, None] == np.arange(len(distinct)))
        ranks = (counts.cumsum(1) - counts / 2)[:, place]  # the mean rank of equal values, less one half
        centred.append(ranks - (copies * ranks).sum(1, keepdims=True) / total)
    first, second = centred
    spread = np.sqrt((copies * first**2).sum(1) * (copies * second**2).sum(1))
    product = (copies * first * second).sum(1)
    correlations: Floats = np.divide(product, spread, out=np.full(len(copies), np.nan), where=spread > 0)
    return correlations
