"""The numbers of a run compared with those of another one that should be the same."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import pyarrow as pa

from lgbench.experiment.tuning import TuningRun
from lgbench.submissions.rows import RowKey, keys


class Number(NamedTuple):
    """A value, None where it is not defined, over `n` contexts, strings or steps."""

    value: float | None
    n: int


Numbers = Mapping[RowKey, Number]

_OVER_LENGTHS = "mean over lengths"


@dataclass(frozen=True)
class Tolerance:
    """How far apart numbers may be: those of the training curve as a share where they are above 1."""

    single: float
    """Any score and, where `points`, any point of the training curve."""
    mean: float | None
    """The mean over lengths of any metric of any weights at any step, and that of the training loss over steps; None as
    `single` has it."""
    points: bool
    """Whether points of the training curve are compared. A spike need not come twice, least of all a gradient's."""

    def __str__(self) -> str:
        means = "" if self.mean is None else f", means over lengths within {self.mean:.4g}"
        return f"within {self.single:g}{means}"


class Disagreement(NamedTuple):
    """Two numbers that are too far apart, by so many tolerances."""

    excess: float
    sentence: str


def numbers_in(table: pa.Table) -> Numbers:
    """The numbers in the rows of a run."""
    values, counts = (table.column(name).to_pylist() for name in ("value", "n"))
    return dict(zip(keys(table), map(Number, values, counts), strict=True))


def disagreements(filed: Numbers, here: Numbers, tolerance: Tolerance) -> list[Disagreement]:
    """The numbers that are too far apart, the worst first.

    Both runs have the same rows, but for those of probes, which no file has to have. A row that one of them lacks counts, too.
    """
    found = [Disagreement(math.inf, f"{key} is in the file and not here") for key in filed if key not in here]
    found += [Disagreement(math.inf, f"{key} is here and not in the file") for key in here if key not in filed]
    filed = {key: number for key, number in filed.items() if key in here}
    found += [*_singles(filed, here, tolerance), *_means(filed, here, tolerance)]
    return sorted(found, key=lambda disagreement: -disagreement.excess)


def tuning_disagreements(filed: Sequence[TuningRun], here: Sequence[TuningRun], tolerance: Tolerance) -> list[Disagreement]:
    """The losses of tuning runs that are too far apart: all where `points` are compared, else those that choose."""
    found: list[Disagreement] = []
    for there, again in zip(filed, here, strict=True):
        name = f"the loss of the tuning run with the rate {there.lr:g} and seed {there.seed}"
        if tolerance.points and there.diverged_step != again.diverged_step:
            steps = f"{there.diverged_step} in the file and {again.diverged_step} here"
            which = f"the tuning run with the rate {there.lr:g} and seed {there.seed} diverged"
            found.append(Disagreement(math.inf, f"the step at which {which} is {steps}"))
        if not tolerance.points:
            allowed = tolerance.single if tolerance.mean is None else tolerance.mean
            found += _compared(name, there.loss, again.loss, allowed, relative=True)
            continue
        for tenth, (a, b) in enumerate(zip(there.losses, again.losses, strict=True), 1):
            found += _compared(f"{name}, in tenth {tenth} of its steps,", a, b, tolerance.single, relative=True)
    return found


def largest_distance(filed: Numbers, here: Numbers) -> float:
    """The largest distance between the two values of a score."""
    both = [key for key in filed if key.length is not None and key in here]
    return max((_apart(filed[key].value, here[key].value) for key in both), default=0.0)


def largest_mean_distance(filed: Numbers, here: Numbers) -> float:
    """The largest distance between the two means over lengths of a metric of any weights, where both values are known."""
    return max((abs(there - mean) for name, there, mean in _mean_pairs(filed, here) if _OVER_LENGTHS in name), default=0.0)


def _singles(filed: Numbers, here: Numbers, tolerance: Tolerance) -> Iterator[Disagreement]:
    for key, there in filed.items():
        if key.length is None and not tolerance.points:
            continue
        if there.n != here[key].n:
            yield Disagreement(math.inf, f"{key} is over {there.n} in the file and over {here[key].n} here")
        yield from _compared(str(key), there.value, here[key].value, tolerance.single, relative=_is_relative(key))


def _means(filed: Numbers, here: Numbers, tolerance: Tolerance) -> Iterator[Disagreement]:
    if tolerance.mean is None:
        return
    for name, filed_mean, here_mean in _mean_pairs(filed, here):
        yield from _compared(name, filed_mean, here_mean, tolerance.mean, relative=_OVER_LENGTHS not in name)


def _mean_pairs(filed: Numbers, here: Numbers) -> Iterator[tuple[str, float, float]]:
    """Each mean with its name: in the file, and here."""
    groups: dict[str, list[RowKey]] = defaultdict(list)
    for key in filed:
        if key.length is not None:
            groups[f"the {_OVER_LENGTHS} of {key.metric} ({key.weights}){key.inside} after step {key.step}"].append(key)
        elif key.metric == "train_loss":
            groups["the mean over steps of train_loss"].append(key)
    for name, members in groups.items():
        pairs = [(filed[key].value, here[key].value) for key in members if key in here]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if known:
            filed_mean, here_mean = (fmean(values) for values in zip(*known, strict=True))
            yield name, filed_mean, here_mean


def _is_relative(key: RowKey) -> bool:
    """Whether a distance is a share where the number is above 1: scores are on one scale, and other numbers are not."""
    return key.length is None or key.layer is not None


def _compared(name: str, there: float | None, here: float | None, allowed: float, relative: bool) -> Iterator[Disagreement]:
    apart = _apart(there, here)
    if relative and math.isfinite(apart):
        apart /= max(1.0, abs(there or 0), abs(here or 0))
    if apart > allowed:
        yield Disagreement(apart / allowed if allowed else math.inf, f"{name} is {_both(there, here)}")


def _apart(there: float | None, here: float | None) -> float:
    """The distance; infinite where one of them is not a finite number and the other is something else."""
    if there is None or here is None:
        return 0.0 if there is here else math.inf
    if math.isfinite(there) and math.isfinite(here):
        return abs(there - here)
    return 0.0 if there == here or (math.isnan(there) and math.isnan(here)) else math.inf


def _both(there: float | None, here: float | None) -> str:
    for digits in (".4f", ".8g", ".17g"):
        a, b = ("undefined" if value is None else format(value, digits) for value in (there, here))
        if a != b:
            break
    return f"{a} in the file and {b} here"
