"""Verdict on a run: comparison of the numbers in its file with the numbers of a rerun."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import pyarrow as pa

from lgbench.contracts import SOUNDNESS
from lgbench.errors import message_of
from lgbench.experiment.tuning import TuningRun
from lgbench.measurement.evaluate import CHANCE
from lgbench.submissions.inspection import Run

MAX_DISAGREEMENTS = 5
"""Maximum of disagreements shown for a run."""


class Place(NamedTuple):
    """Place of a number among the rows of a run."""

    weights: str
    metric: str
    step: int
    length: int | None
    """None for the training curve."""
    layer: int | None = None
    """Layer of a probe; None for a number of the whole model."""
    head: int | None = None

    def __str__(self) -> str:
        if self.length is None:
            return f"{self.metric} at step {self.step}"
        return f"{self.metric} ({self.weights}){self.inside} at length {self.length} after step {self.step}"

    @property
    def inside(self) -> str:
        """Layer and head for a sentence, after a space; empty for a number of the whole model."""
        layer = "" if self.layer is None else f" in layer {self.layer}"
        return layer if self.head is None else f"{layer}, head {self.head}"


class Number(NamedTuple):
    """A value, None if undefined, over `n` contexts, strings or steps."""

    value: float | None
    n: int


Numbers = Mapping[Place, Number]


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed distances between numbers. Distances on the training curve are relative for numbers above 1."""

    single: float
    """Limit for each score and, with `points`, for each point of the training curve."""
    mean: float | None
    """Limit for means of scores over lengths, by metric, weights and step, and for the mean training loss over steps; None for
    no limit on means."""
    points: bool
    """Whether points of the training curve are compared. Spikes, of gradient norms above all, are not reproducible."""

    def __str__(self) -> str:
        means = "" if self.mean is None else f", means over lengths within {self.mean:.4g}"
        return f"within {self.single:g}{means}"


SAME_BITS = Tolerance(single=1e-4, mean=None, points=True)
"""Default tolerance: far above rounding in the last digit of a score, far below differences with an effect on ranks."""

OTHER_ROUNDING = Tolerance(single=0.3, mean=0.1, points=False)
"""Tolerance for machines with different rounding, which moved means by 0.12 at most, and by far less in most trainings."""


def chosen(single: float | None) -> Tolerance:
    """Tolerance with the limit `single`, and a third of `single` for means; the strict default for None.

    A wide tolerance leaves out the points of the training curve.
    """
    if single is None:
        return SAME_BITS
    return Tolerance(single, single / 3, points=single <= SAME_BITS.single)


class Disagreement(NamedTuple):
    """Two numbers at a distance of `excess` tolerances, or infinity for a difference without a distance."""

    excess: float
    sentence: str


@dataclass(frozen=True)
class RerunVerdict:
    """Outcome of the rerun of one run."""

    run: Run
    disagreements: Sequence[Disagreement]
    """Distances beyond the tolerance, the largest first."""
    compared: int
    """Number of compared numbers."""
    largest: float
    """Largest distance between two values of a score, also within a wide tolerance."""
    largest_mean: float
    """Largest distance between two means over lengths."""
    tolerance: Tolerance
    otherwise: Sequence[str]
    """A sentence for each difference in software, machine or training with an effect on rounding."""
    by_weights: bool = False
    """Whether kept weights were tested again, without training."""

    @classmethod
    def of(
        cls, run: Run, again: pa.Table, otherwise: Sequence[str], tolerance: Tolerance = SAME_BITS, by_weights: bool = False
    ) -> RerunVerdict:
        """Verdict on the rows of a run and of its rerun; with `by_weights` only on measurements of the trained model."""
        filed, here = numbers_in(run.rows), numbers_in(again)
        if by_weights:
            last = run.experiment.train.steps
            filed, here = (
                {p: n for p, n in own.items() if p.length is not None and p.step == last and p.weights != CHANCE}
                for own in (filed, here)
            )
        found = disagreements(filed, here, tolerance)
        diverged = [table.column("diverged_step")[0].as_py() for table in (run.rows, again)]
        if tolerance.points and diverged[0] != diverged[1]:
            found.insert(0, Disagreement(math.inf, f"diverged_step is {diverged[0]} in the file and {diverged[1]} here"))
        found[:0] = _other_validity(run.rows, again)
        compared = sum(1 for place in filed if place.length is not None or tolerance.points)
        largest = max((_apart(filed[p].value, here[p].value) for p in filed if p.length is not None and p in here), default=0.0)
        means = max((abs(a - b) for _, a, b in _means(filed, here, of_scores=True)), default=0.0)
        return cls(run, found, compared, largest, means, tolerance, otherwise, by_weights)

    def with_tuning(self, again: Sequence[TuningRun]) -> RerunVerdict:
        """Verdict on the run and on its tuning runs after their rerun."""
        filed = self.run.stored.record.tuning
        if filed is None:
            return self
        found = tuning_disagreements(filed.runs, again, self.tolerance)
        compared = sum(len(run.losses) if self.tolerance.points else 1 for run in filed.runs)
        return replace(self, disagreements=[*found, *self.disagreements], compared=self.compared + compared)

    @property
    def agrees(self) -> bool:
        return not self.disagreements

    @property
    def is_wide(self) -> bool:
        """Whether the tolerance is wider than the strict default."""
        return self.tolerance.single > SAME_BITS.single

    def lines(self) -> Iterator[str]:
        """The verdict for a reader."""
        if not self.disagreements:
            apart = f"scores are at most {self.largest:.2g} apart, and their means over lengths {self.largest_mean:.2g}"
            how = (" by its weights" if self.by_weights else "") + (" with a wide tolerance" if self.is_wide else "")
            agree = f"{self.compared} numbers agree {self.tolerance}, {apart}"
            yield f"verified{how}: {self.run.title}: {agree}; {self._why()}"
            return
        first, *others = [disagreement.sentence for disagreement in self.disagreements[:MAX_DISAGREEMENTS]]
        yield f"differs: {self.run.title}: {first}"
        yield from (f"  {sentence}" for sentence in others)
        if len(self.disagreements) > MAX_DISAGREEMENTS:
            yield f"  and {len(self.disagreements) - MAX_DISAGREEMENTS} more"
        yield f"  expected {self.tolerance}; {self._why()}"
        if self.otherwise and not self.is_wide:
            wide = f"--tolerance {OTHER_ROUNDING.single:g} allows for all that is known of rounding"
            yield f"  numbers may be rounded otherwise for that reason, if the file is right about it; {wide}"

    def _why(self) -> str:
        same = "torch, device and threads" if self.by_weights else "torch, device, threads and population"
        return "; ".join(self.otherwise) if self.otherwise else f"{same} are as in the file"


@dataclass(frozen=True)
class Failure:
    """A run whose rerun failed."""

    run: Run
    error: Exception
    agrees = False

    def lines(self) -> Iterator[str]:
        """The failure for a reader."""
        yield f"failed: {self.run.title}: it cannot be verified here: {message_of(self.error)}"


def numbers_in(table: pa.Table) -> Numbers:
    """The numbers in the rows of a run."""
    places = map(Place, *(table.column(name).to_pylist() for name in Place._fields))
    values, counts = (table.column(name).to_pylist() for name in ("value", "n"))
    return dict(zip(places, map(Number, values, counts), strict=True))


def disagreements(filed: Numbers, here: Numbers, tolerance: Tolerance) -> list[Disagreement]:
    """Rows missing in the file or in the rerun, and numbers beyond the tolerance, the largest excess first."""
    found = [Disagreement(math.inf, f"{place} is in the file and not here") for place in filed if place not in here]
    found += [Disagreement(math.inf, f"{place} is here and not in the file") for place in here if place not in filed]
    for place in filed:
        if place not in here or (place.length is None and not tolerance.points):
            continue
        there, again = filed[place], here[place]
        if there.n != again.n:
            found.append(Disagreement(math.inf, f"{place} is over {there.n} in the file and over {again.n} here"))
        relative = place.length is None or place.layer is not None  # scores share one scale; losses and probe readings do not
        found += _compared(str(place), there.value, again.value, tolerance.single, relative)
    if tolerance.mean is not None:
        for name, a, b in _means(filed, here, of_scores=True):
            found += _compared(name, a, b, tolerance.mean, relative=False)
        for name, a, b in _means(filed, here, of_scores=False):
            found += _compared(name, a, b, tolerance.mean, relative=True)
    return sorted(found, key=lambda disagreement: -disagreement.excess)


def tuning_disagreements(filed: Sequence[TuningRun], here: Sequence[TuningRun], tolerance: Tolerance) -> list[Disagreement]:
    """Losses of tuning runs beyond the tolerance: all tenths of the curve with `points`, otherwise the last tenth."""
    found: list[Disagreement] = []
    for there, again in zip(filed, here, strict=True):
        name = f"the tuning run with the rate {there.lr:g} and seed {there.seed}"
        if not tolerance.points:
            allowed = tolerance.single if tolerance.mean is None else tolerance.mean
            found += _compared(f"the loss of {name}", there.loss, again.loss, allowed, relative=True)
            continue
        if there.diverged_step != again.diverged_step:
            steps = f"{there.diverged_step} in the file and {again.diverged_step} here"
            found.append(Disagreement(math.inf, f"the step at which {name} diverged is {steps}"))
        for tenth, (a, b) in enumerate(zip(there.losses, again.losses, strict=True), 1):
            found += _compared(f"the loss of {name}, in tenth {tenth} of its steps,", a, b, tolerance.single, relative=True)
    return found


def _means(filed: Numbers, here: Numbers, of_scores: bool) -> Iterator[tuple[str, float, float]]:
    """Name, value in the file and value here, of means of scores over lengths, or of the mean training loss over steps."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for place in filed:
        if place not in here or (place.length is not None) is not of_scores:
            continue
        pair = filed[place].value, here[place].value
        if pair[0] is None or pair[1] is None:
            continue
        if of_scores:
            name = f"{place.metric} ({place.weights}){place.inside} after step {place.step}"
            groups[f"the mean over lengths of {name}"].append(pair)  # type: ignore[arg-type]  # both are numbers
        elif place.metric == "train_loss":
            groups["the mean over steps of train_loss"].append(pair)  # type: ignore[arg-type]
    for name, pairs in groups.items():
        there, again = zip(*pairs, strict=True)
        yield name, fmean(there), fmean(again)


def _compared(name: str, there: float | None, here: float | None, allowed: float, relative: bool) -> Iterator[Disagreement]:
    apart = _apart(there, here)
    if relative and math.isfinite(apart):
        apart /= max(1.0, abs(there or 0), abs(here or 0))
    if apart > allowed:
        yield Disagreement(apart / allowed if allowed else math.inf, f"{name} is {_both(there, here)}")


def _apart(there: float | None, here: float | None) -> float:
    """Distance of two numbers: infinite if only one is finite or defined, and for different infinities; 0 for equals."""
    if there is None or here is None:
        return 0.0 if there is here else math.inf
    if math.isfinite(there) and math.isfinite(here):
        return abs(there - here)
    return 0.0 if there == here or (math.isnan(there) and math.isnan(here)) else math.inf


def _both(there: float | None, here: float | None) -> str:
    """Two numbers with enough digits to differ."""
    for digits in (".4f", ".8g", ".17g"):
        a, b = ("undefined" if value is None else format(value, digits) for value in (there, here))
        if a != b:
            break
    return f"{a} in the file and {b} here"


def _other_validity(filed: pa.Table, again: pa.Table) -> Iterator[Disagreement]:
    """Differences in validity, which decides the ranking of an entry on boards, without any tolerance."""
    there, here = _invalid(filed), _invalid(again)
    for weights, metric in sorted(there ^ here):
        what = f"{metric} ({weights}) is above 0"
        flagged = (weights, metric) in there
        yield Disagreement(math.inf, f"{what} in the file and 0 here" if flagged else f"{what} here and not in the file")


def _invalid(table: pa.Table) -> set[tuple[str, str]]:
    """Weights with invalid answers, and the metric of validity above 0."""
    columns = (table.column(name).to_pylist() for name in ("weights", "metric", "value"))
    return {(weights, metric) for weights, metric, value in zip(*columns, strict=True) if metric in SOUNDNESS and value}
