"""The outcome of running a run again: the two tables of numbers, compared, as a few lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lgbench.errors import LgbenchError
from lgbench.experiment.tuning import TuningRun
from lgbench.measurement.chance import CHANCE
from lgbench.submissions.agreement import (
    Disagreement,
    Tolerance,
    disagreements,
    largest_distance,
    largest_mean_distance,
    numbers_in,
    tuning_disagreements,
)
from lgbench.submissions.inspection import Run
from lgbench.submissions.rows import unsound

MAX_DISAGREEMENTS = 5
"""How many disagreements of a run are shown."""

SAME_BITS = Tolerance(single=1e-4, mean=None, points=True)
"""Unless the reviewer chooses another one, whatever the file says of its machine: far more than a rounding of a score's last
digit, far less than any rank depends on."""

OTHER_ROUNDING = Tolerance(single=0.3, mean=0.1, points=False)
"""For a reviewer who believes that rounding differs. That moved a mean by 0.12 at most, and by far less than 0.1 in nearly all
trainings."""


def chosen(single: float | None) -> Tolerance:
    """The tolerance that a reviewer chooses, by that of single numbers, or the strict one for None.

    A third of it is that of means. A wide one leaves out the points of the training curve: a spike need not come twice.
    """
    if single is None:
        return SAME_BITS
    return Tolerance(single, single / 3, points=single <= SAME_BITS.single)


@dataclass(frozen=True)
class Verdict:
    """The result of a rerun for one file."""

    run: Run
    disagreements: Sequence[Disagreement]
    """Beyond the tolerance, the worst first."""
    compared: int
    """How many numbers."""
    largest: float
    """The largest distance between the two values of a score, which a wide tolerance would hide."""
    largest_mean: float
    """The largest distance between two means over lengths."""
    tolerance: Tolerance
    otherwise: Sequence[str]
    """Everything that rounding depends on and that is not as in the file."""
    by_weights: bool = False
    """Whether kept weights were tested again, and nothing was trained."""

    @classmethod
    def of(cls, run: Run, rerun: pa.Table, otherwise: Sequence[str], tolerance: Tolerance = SAME_BITS) -> Verdict:
        """Compare a file with the table that a rerun would write."""
        filed, here = numbers_in(run.rows), numbers_in(rerun)
        found = disagreements(filed, here, tolerance)
        diverged = [table.column("diverged_step")[0].as_py() for table in (run.rows, rerun)]
        if tolerance.points and diverged[0] != diverged[1]:
            found.insert(0, Disagreement(math.inf, f"diverged_step is {diverged[0]} in the file and {diverged[1]} here"))
        found[:0] = other_soundness(run.rows, rerun)
        compared = sum(1 for key in filed if key.length is not None or tolerance.points)
        largest = largest_distance(filed, here), largest_mean_distance(filed, here)
        return cls(run, found, compared, *largest, tolerance, otherwise)

    @classmethod
    def of_weights(cls, run: Run, again: pa.Table, otherwise: Sequence[str], tolerance: Tolerance = SAME_BITS) -> Verdict:
        """Compare what a file says of the trained model with what its kept weights give."""
        last = run.experiment.train.steps
        filed, here = (
            {
                key: n
                for key, n in numbers_in(rows).items()
                if key.length is not None and key.step == last and key.weights != CHANCE
            }
            for rows in (run.rows, again)
        )
        found = [*other_soundness(run.rows, again), *disagreements(filed, here, tolerance)]
        largest = largest_distance(filed, here), largest_mean_distance(filed, here)
        return cls(run, found, len(filed), *largest, tolerance, otherwise, by_weights=True)

    def with_tuning(self, again: Sequence[TuningRun]) -> Verdict:
        """With the tuning runs compared, too, that were made again."""
        filed = self.run.footer.experiment.tuning
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
        """Whether the reviewer allowed more than the strict tolerance does."""
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


def other_soundness(filed: pa.Table, rerun: pa.Table) -> Iterator[Disagreement]:
    """A flag decides whether boards rank an entry, so no tolerance covers it. A file without flags claims none."""
    there, here = unsound(filed), unsound(rerun)
    for weights, metric in sorted(there ^ here):
        what = f"{metric} ({weights}) is above 0"
        flagged = (weights, metric) in there
        yield Disagreement(math.inf, f"{what} in the file and 0 here" if flagged else f"{what} here and not in the file")


@dataclass(frozen=True)
class Failure:
    """A run that failed when it was made again."""

    run: Run
    error: Exception
    agrees = False

    def lines(self) -> Iterator[str]:
        """The failure for a reader."""
        known = isinstance(self.error, LgbenchError)  # its message is a sentence already
        why = str(self.error) if known else f"{type(self.error).__name__}: {self.error}"
        yield f"failed: {self.run.title}: it cannot be verified here: {why}"
