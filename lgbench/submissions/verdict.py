"""Verdict on a run: comparison of the numbers in its file with the numbers of a rerun."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

import pyarrow as pa

from lgbench.contracts import SOUNDNESS
from lgbench.errors import message_of
from lgbench.experiment.tuning import TuningRun
from lgbench.results.file_format import Number, Place, numbers_in
from lgbench.results.stored_runs import Run

MAX_DISAGREEMENTS = 5
"""Maximum of disagreements shown for a run."""

STRICT = 1e-4
"""Default limit: far above rounding in the last digit of a score, far below differences with an effect on ranks."""


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed distances between numbers.

    Distances on the training curve and of probe readings are relative for numbers above 1. A tolerance above the default leaves
    out the points of the training curve: spikes, of gradient norms above all, are not reproducible.
    """

    single: float = STRICT
    """Limit for each number."""

    @property
    def is_wide(self) -> bool:
        """Whether the tolerance is above the default."""
        return self.single > STRICT

    @property
    def mean(self) -> float:
        """Limit for means of scores over lengths, by metric, weights and step, and for the mean training loss over steps."""
        return self.single / 3 if self.is_wide else math.inf

    def __str__(self) -> str:
        means = f", means over lengths within {self.mean:.4g}" if self.is_wide else ""
        return f"within {self.single:g}{means}"


OTHER_ROUNDING = Tolerance(0.3)
"""Tolerance for machines with different rounding. That moved means of models that fit on both by 0.12 at most, and the limit
for means is 0.1: a few such models are told to differ."""


class Distance(NamedTuple):
    """Distance between a number in the file and the number here; infinite for a difference without a distance."""

    of: Literal["training", "score", "mean"]
    """Number of a training, score, or mean of scores over lengths."""
    apart: float
    allowed: float
    sentence: str

    @property
    def excess(self) -> float:
        """Number of tolerances."""
        return self.apart / self.allowed if self.allowed else math.inf


@dataclass(frozen=True)
class RerunVerdict:
    """Outcome of the rerun of one run."""

    run: Run
    distances: Sequence[Distance]
    tolerance: Tolerance
    otherwise: Sequence[str]
    """A sentence for each difference in software, machine or training with an effect on rounding."""

    @classmethod
    def of(cls, run: Run, again: pa.Table, otherwise: Sequence[str], tolerance: Tolerance) -> RerunVerdict:
        """Verdict on the rows of a run and of its rerun."""
        found = list(distances(numbers_in(run.rows), numbers_in(again), tolerance))
        steps = [rows["diverged_step"][0].as_py() for rows in (run.rows, again)]
        if steps[0] != steps[1] and not tolerance.is_wide:
            found.append(_unlike(f"diverged_step is {steps[0]} in the file and {steps[1]} here"))
        return cls(run, found, tolerance, otherwise)

    def with_tuning(self, filed: Sequence[TuningRun], here: Sequence[TuningRun]) -> RerunVerdict:
        """Verdict on the run and on its tuning runs after their rerun."""
        return replace(self, distances=[*tuning_distances(filed, here, self.tolerance), *self.distances])

    @property
    def disagreements(self) -> list[Distance]:
        """Distances beyond the tolerance, the largest excess first."""
        return sorted((each for each in self.distances if each.apart > each.allowed), key=lambda each: -each.excess)

    @property
    def agrees(self) -> bool:
        return not self.disagreements

    @property
    def compared(self) -> int:
        """Number of compared numbers."""
        return sum(each.of != "mean" for each in self.distances)

    def largest(self, of: Literal["score", "mean"]) -> float:
        """Largest distance of two scores, or of two means, also within a wide tolerance."""
        return max((each.apart for each in self.distances if each.of == of), default=0.0)

    def lines(self) -> Iterator[str]:
        """The verdict for a reader."""
        why = "; ".join(self.otherwise) if self.otherwise else "torch, device, threads and population are as in the file"
        if self.agrees:
            apart = (
                f"scores are at most {self.largest('score'):.2g} apart, and their means over lengths {self.largest('mean'):.2g}"
            )
            how = " with a wide tolerance" if self.tolerance.is_wide else ""
            yield f"verified{how}: {self.run.record.title}: {self.compared} numbers agree {self.tolerance}, {apart}; {why}"
            return
        first, *others = [each.sentence for each in self.disagreements]
        yield f"differs: {self.run.record.title}: {first}"
        yield from (f"  {sentence}" for sentence in others[: MAX_DISAGREEMENTS - 1])
        if more := others[MAX_DISAGREEMENTS - 1 :]:
            yield f"  and {len(more)} more"
        yield f"  expected {self.tolerance}; {why}"
        if self.otherwise and not self.tolerance.is_wide:
            wide = f"--tolerance {OTHER_ROUNDING.single:g} covers most of the known differences between machines"
            yield f"  numbers may be rounded otherwise for that reason, if the file is right about it; {wide}"


@dataclass(frozen=True)
class Failure:
    """A run whose rerun failed."""

    run: Run
    error: Exception
    agrees = False

    def lines(self) -> Iterator[str]:
        """The failure for a reader."""
        yield f"failed: {self.run.record.title}: it cannot be verified here: {message_of(self.error)}"


def distances(filed: Mapping[Place, Number], here: Mapping[Place, Number], tolerance: Tolerance) -> Iterator[Distance]:
    """Distances of all numbers, and of means of scores over lengths and of the training loss over steps."""
    pairs: dict[Place, list[tuple[float, float]]] = defaultdict(list)
    for place in {**filed, **here}:
        if place not in filed or place not in here:
            yield _unlike(f"{place} is {'in the file and not here' if place in filed else 'here and not in the file'}")
            continue
        (there, n), (again, n_again) = filed[place], here[place]
        of_training = place.length is None
        relative = of_training or place.layer is not None  # scores share one scale; losses and probe readings do not
        if there is not None and again is not None:
            pairs[place._replace(step=0) if of_training else place._replace(length=0)].append((there, again))
        if of_training and tolerance.is_wide:
            continue
        if n != n_again:
            yield _unlike(f"{place} is over {n} in the file and over {n_again} here")
        # Validity decides whether boards rank an entry: no tolerance covers a flag.
        allowed = 0.0 if place.metric in SOUNDNESS and bool(there) != bool(again) else tolerance.single
        yield _distance("training" if of_training else "score", str(place), there, again, allowed, relative)
    for place, own in pairs.items():
        there, again = map(fmean, zip(*own, strict=True))
        if place.length is not None:
            name = f"the mean over lengths of {place.metric} ({place.weights}){place.inside} after step {place.step}"
            yield _distance("mean", name, there, again, tolerance.mean, relative=place.layer is not None)
        elif place.metric == "train_loss" and tolerance.is_wide:
            yield _distance("training", "the mean over steps of train_loss", there, again, tolerance.mean, relative=True)


def tuning_distances(filed: Sequence[TuningRun], here: Sequence[TuningRun], tolerance: Tolerance) -> Iterator[Distance]:
    """Distances of the losses of tuning runs: all tenths of the curve, or the last within a wide tolerance."""
    for there, again in zip(filed, here, strict=True):
        name = f"the tuning run with the rate {there.lr:g} and seed {there.seed}"
        if tolerance.is_wide:
            yield _distance("training", f"the loss of {name}", there.loss, again.loss, tolerance.mean, relative=True)
            continue
        if there.diverged_step != again.diverged_step:
            steps = f"{there.diverged_step} in the file and {again.diverged_step} here"
            yield _unlike(f"the step at which {name} diverged is {steps}")
        for tenth, (a, b) in enumerate(zip(there.losses, again.losses, strict=True), 1):
            of = f"the loss of {name}, in tenth {tenth} of its steps,"
            yield _distance("training", of, a, b, tolerance.single, relative=True)


def _unlike(sentence: str) -> Distance:
    return Distance("training", math.inf, 0.0, sentence)


def _distance(
    of: Literal["training", "score", "mean"], name: str, there: float | None, here: float | None, allowed: float, relative: bool
) -> Distance:
    apart = _apart(there, here)
    if relative and math.isfinite(apart):
        apart /= max(1.0, abs(there or 0), abs(here or 0))
    return Distance(of, apart, allowed, f"{name} is {_both(there, here)}" if apart else "")


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
