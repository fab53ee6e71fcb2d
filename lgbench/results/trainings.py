"""The trainings of runs, for those who show single runs: what each run is, and its training curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lgbench.contracts import CURVE_METRICS
from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import Database
from lgbench.results.tables import packaged


class Training(NamedTuple):
    """A run, and how its training went."""

    run_id: str
    task: str
    task_version: int
    seed: int
    diverged_step: int | None
    protocol: ProtocolUse
    entry: str
    plugins: Mapping[str, str]
    """The packages that decide the numbers of the raw weights, with their versions."""
    curves: Mapping[str, Sequence[tuple[int, float | None]]]
    """By metric of the training curve, steps with values, by step."""

    def label(self, results: Database) -> str:
        """The name of its raw weights on boards of these results."""
        return results.label(self.entry, "raw", self.plugins, (self.protocol.name, self.protocol.version))


def trainings(results: Database) -> Iterator[Training]:
    """Every run, once, however many files hold it."""
    for row in results.rows(packaged("trainings"), {"curves": list(CURVE_METRICS)}):
        run_id, task, task_version, seed, diverged_step, protocol, version, changes, entry, plugins, curves = row
        use = ProtocolUse(protocol, version, tuple(sorted(changes.items())))
        points = {
            metric: sorted(zip(own["steps"], own["values"], strict=True), key=lambda point: point[0])
            for metric, own in (curves or {}).items()
        }
        yield Training(run_id, task, task_version, seed, diverged_step, use, entry, plugins, points)
