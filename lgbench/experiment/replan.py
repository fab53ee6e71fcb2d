"""From a record back to its experiment, in another process than planned it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.errors import UsageError
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.json_files import is_object
from lgbench.experiment.plan import Request, plan
from lgbench.experiment.record import ExperimentRecord
from lgbench.extensions.registry import Registry


class Replanner:
    """Finds the experiments that records describe, with what is installed here. Plans each kind of run once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._planned: dict[Hashable, Experiment] = {}

    def experiment(self, record: ExperimentRecord, probes: Sequence[str] = ()) -> Experiment:
        """The experiment that `lgbench run` makes of the names in a record, which may be another run.

        `probes` are names of those that the run has, as far as the task has them. The outcome of a tuning is the record's.
        Raises UsageError where there is no such experiment.
        """
        # Of a JSON object the protocol has a label alone.
        objects = {key: value for key, value in record.options if isinstance(value, str) and is_object(value)}
        same = (record.task, record.entry, record.optimizer, record.averagers, record.protocol, *objects.items(), tuple(probes))
        if same not in self._planned:
            name, precision = record.protocol.name, record.precision
            changes = {key: objects.get(key, value) for key, value in record.protocol.changes if key != "precision"}
            request = Request(
                [record.task], [arch_of(record)], record.averagers, [0], name, changes, record.optimizer, precision, probes
            )
            found = {each.record.task: each for each in plan(request, self.registry).experiments}
            if record.task not in found:
                raise UsageError(f"{record.task} is a family, and no task of it has that name")
            self._planned[same] = found[record.task]
        planned = self._planned[same].with_seed(record.seed)
        if (asked := planned.record.tuning) and (said := record.tuning):
            planned = planned.tuned(replace(asked, runs=said.runs, chosen=said.chosen))
        return planned


def arch_of(record: ExperimentRecord) -> str:
    """The value of --arch that names an entry: the entry without its optimizer, which has an option of its own."""
    return record.entry if record.optimizer == DEFAULT_OPTIMIZER else record.entry.removesuffix(f"+{record.optimizer}")
