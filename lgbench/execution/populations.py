"""Planned populations: runs that are left, as plain objects that can be sent to another process or machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from lgbench.errors import UsageError, first_line
from lgbench.experiment.experiment import Experiment, plugins_of
from lgbench.experiment.record import ExperimentRecord


@dataclass(frozen=True)
class PlannedPopulation:
    """Runs that train together. Names and numbers alone: it can be pickled, and :meth:`to_json` writes it as text."""

    runs: tuple[ExperimentRecord, ...]
    """The records that decide the numbers of each run: names of task and entry, settings, seed."""
    models: int
    """The size of the stack that they are trained in, at least that of the population: a compiled step takes no other."""
    compile: bool
    """Whether the training step is compiled."""
    plugins: tuple[str, ...]
    """Names of the distributions and plugin files that take part. The process that trains loads no others."""
    measurements: tuple[str, ...]
    """Names of the measurements of the runs, probes among them. They change no other number."""
    tuning: bool = False
    """Whether these are tuning runs, which choose learning rates. Their files are in the folder `.tuning` of the results."""

    @classmethod
    def of(cls, experiments: Sequence[Experiment], models: int, compile: bool, tuning: bool = False) -> PlannedPopulation:
        """The population of experiments with one `population_key`."""
        records = tuple(experiment.record for experiment in experiments)
        measurements = dict.fromkeys(each.name for experiment in experiments for each in experiment.measurements)
        return cls(records, models, compile, tuple(sorted(plugins_of(experiments))), tuple(measurements), tuning)

    @property
    def title(self) -> str:
        """For messages."""
        return title_of(self.runs)

    def to_json(self) -> str:
        """This population as one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> PlannedPopulation:
        """The population that :meth:`to_json` wrote. Raises UsageError for any other text."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"this is no population as to_json writes it: {first_line(error)}") from error


def named(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks and entry of runs that can train together, for messages."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    return f"{tasks[0] if len(tasks) == 1 else f'{tasks[0]} .. {tasks[-1]}'} {runs[0].entry}"


def title_of(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks, entry and number of models, for messages."""
    return f"{named(runs)} ({'1 model' if len(runs) == 1 else f'{len(runs)} models'})"
