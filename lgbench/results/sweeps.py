"""Sweeps: values of each entry at several values of one setting, over runs with all other settings equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import DIVERGED, LOSS_VARIANCE
from lgbench.errors import UsageError, unknown
from lgbench.experiment.record import ExperimentRecord
from lgbench.experiment.settings import all_settings
from lgbench.results.boards import BoardHeader, Cell, cells_of
from lgbench.results.columns import OOD, BoardValues, Column, ends, models_and_context_free, rounded, significant
from lgbench.results.database import packaged
from lgbench.results.leaderboard import Inside, Results, parts
from lgbench.results.metrics import Metric
from lgbench.results.statistics import share_interval
from lgbench.terminal import named_seeds

LeaveOut = Callable[[str], None]
"""Receiver of a sentence for each omission of a plot."""

OF_TRAINING: Column = ("length", 0)
"""The column of numbers of a training."""


def _number(name: str, label: str, title: str, lower_is_better: bool | None = None, high: float | None = None) -> Metric:
    return Metric(name, 1, label, title, lower_is_better, 0.0, high, None, None, None, None)


NUMBERS = {
    number.name: number
    for number in (
        _number("gradient_norm", "max gradient norm", "largest gradient norm in training"),
        _number(LOSS_VARIANCE, "loss variance", "training loss variance, last half"),
        _number(DIVERGED, "diverged seeds", "share of seeds that diverged", True, 1.0),
    )
}
"""Numbers of a training, one for each run, by name."""

SettingValue = int | float | str
"""A switch is "on" or "off"."""

PRECISION = "precision"
"""Change of a protocol by `--precision`, not by `--set`."""


class SweepRequest(NamedTuple):
    """A request for a sweep: a metric to draw, and the setting to draw it against."""

    setting: str
    metric: str
    name: str | None = None
    """A family or a task; None for all families."""
    protocol: str | None = None
    """A name, for its versions without other changes, or a label without the setting."""
    lengths: Sequence[int] = ()
    """Lengths to draw; empty for the OOD mean."""
    inside: Inside | None = None


@dataclass(frozen=True)
class Sweep:
    """A line for each entry on one family or task, in one column of its boards."""

    board: BoardHeader
    """Header with the protocol without the setting, and the tasks with several values of the setting."""
    column: Column
    cells: Mapping[str, Mapping[SettingValue, Cell]]
    """By entry and value of the setting, in the order of the values."""
    context_free: Mapping[SettingValue, float]
    """Context-free baseline by value of the setting, if known."""

    @property
    def lines(self) -> list[str]:
        """Entries with several values, sorted."""
        return sorted(entry for entry, cells in self.cells.items() if len(cells) > 1)


def sweeps(results: Results, asked: SweepRequest, leave_out: LeaveOut = lambda sentence: None) -> list[Sweep]:
    """Sweeps by family or task, protocol and column. Raises UsageError for an unknown name, or without several values."""
    of_training = asked.metric in NUMBERS
    if asked.lengths and of_training:
        raise UsageError(f"{asked.metric} is one number of a training, and has no lengths: leave --length out")
    points, rows = _placed(results, asked)
    measured = sorted(pc.unique(rows.filter(rows["several"])["length"]).to_pylist())
    if not measured:
        what = f"no entry has {asked.metric} at several values of {asked.setting} with nothing else changed"
        raise UsageError(f"{what}; {_others(asked.setting, points[0])}")
    for length in asked.lengths:
        if length not in measured:
            raise UsageError(f"length {length} was not measured; measured: {', '.join(map(str, measured))}")
    columns: list[Column] = [OF_TRAINING] if of_training else [("length", length) for length in asked.lengths] or [OOD]
    boards = parts(rows, "board", "task_version", "base", "metric_version")
    swept = [own for key, part in boards if (own := _swept(results, asked, points, key, part, leave_out))]
    swept.sort(key=lambda own: (own[0].name, -own[0].task_version, str(own[0].protocol), -own[0].metric.version))
    every = [_sweep(*own, column, asked.setting, leave_out) for own in swept for column in columns]
    if not (found := [sweep for sweep in every if sweep.lines]):
        where = "above the training lengths; choose others with --length" if columns == [OOD] else "there"
        raise UsageError(f"no entry has {asked.metric} at several values of {asked.setting} {where}")
    return found


Points = Mapping[SettingValue, tuple[BoardValues, BoardValues]]
"""Values of models, and context-free baseline, at every value of the setting, in order."""


def _sweep(header: BoardHeader, points: Points, column: Column, setting: str, leave_out: LeaveOut) -> Sweep:
    found: dict[str, dict[SettingValue, Cell]] = defaultdict(dict)
    levels: dict[SettingValue, float] = {}
    metric, tasks = header.metric, header.tasks
    counts = Counter(entry for models, _ in points.values() for entry in models.entries)
    several = {entry for entry, count in counts.items() if count > 1}
    for value, (models, context_free) in points.items():
        for sentence in _left_out(models, column, header, several, f"{setting} {value}"):
            leave_out(sentence)
        if column in context_free.columns and len(context_free.tasks) == tasks:
            levels[value] = significant(context_free.columns[column].item())
        if column in models.columns and len(models.tasks) == tasks:
            for entry, own in cells_of(models, metric).items():
                if column in own:
                    found[entry][value] = _share(own[column]) if metric.name == DIVERGED else own[column]
    return Sweep(header, column, found, levels)


def _share(cell: Cell) -> Cell:
    """Share of the seeds that diverged, on any task, from a mean over tasks of each seed."""
    known = [value > 0 for value in cell.values if value is not None]
    low, high = ends(*share_interval(sum(known), len(known)))
    return replace(cell, mean=rounded(sum(known) / len(known)), low=low, high=high)


def _left_out(models: BoardValues, column: Column, header: BoardHeader, lines: Collection[str], at: str) -> Iterator[str]:
    """A sentence for the seeds left out of a mean, for each entry with a line."""
    whole = len(models.tasks) == header.tasks and column in models.columns
    where = header.name if header.tasks == 1 else f"all of the {header.tasks} tasks of {header.name}"
    for place, entry in enumerate(models.entries):
        ran = models.measured[place].any((-2, -1))  # (S,)
        lost = ran & ~np.isfinite(models.columns[column][place]) if whole else ran
        if entry in lines and lost.any():
            seeds = [seed for seed, own in zip(models.seeds, lost, strict=True) if own]
            lack = "lacks" if len(seeds) == 1 else "lack"
            yield f"{named_seeds(seeds)} of {entry} with {at}, which {lack} a {header.metric.name} on {where}"


def _placed(results: Results, asked: SweepRequest) -> tuple[list[SettingValue], pa.Table]:
    """Values of the setting, and rows of sweep.sql. Raises UsageError for an unknown name, and for a setting with one value."""
    setting = asked.setting
    named = results.chosen(asked.metric, asked.name, asked.protocol, setting)
    # Of all protocols, because a label lacks the changes of the setting.
    chosen = named._replace(protocol=None, inside=asked.inside)
    bases = {number: results.protocols[number].without(setting) for number in results.numbers(asked.protocol, setting)}
    ran = results.arrow(packaged("ran"), {"name": chosen.name, "apart": False, "protocols": list(bases)})
    settings = {run: settings_in(record) for run, record in results.records.items()}
    values = [settings.get(run, {}).get(asked.setting) for run in ran["run_id"].to_pylist()]
    points = ordered(value for value in values if value is not None)
    _require_several(asked, points, {name for own in settings.values() for name in own})
    numbers = {use: number for number, use in sorted(bases.items(), reverse=True)}  # the least number of each base
    base = [numbers[bases[number]] for number in ran["protocol"].to_pylist()]
    ran = ran.append_column("base", pa.array(base, pa.int32()))
    ran = ran.append_column("point", pa.array([None if v is None else points.index(v) for v in values], pa.int32()))
    results.connection.register("ran", ran)
    if asked.metric in NUMBERS:
        measured = results.arrow(packaged("numbers"), {"metric": asked.metric})
    else:
        measured = results.values(asked.metric, chosen)
    results.connection.register("measured", measured)
    return points, results.arrow(packaged("sweep"))


def _swept(
    results: Results,
    asked: SweepRequest,
    points: Sequence[SettingValue],
    key: Sequence[Any],
    rows: pa.Table,
    leave_out: LeaveOut,
) -> tuple[BoardHeader, Points] | None:
    """Board of rows of sweep.sql; None without a description of the metric, or without several values on any task."""
    name, task_version, base, metric_version = key
    every = [NUMBERS[asked.metric]] if asked.metric in NUMBERS else results.metrics
    metric = next((own for own in every if (own.name, own.version) == (asked.metric, metric_version)), None)
    own = rows.filter(rows["several"])
    if metric is None or not len(own):
        return None
    protocol, tasks = results.protocols[base].without(asked.setting), pc.unique(own["task"]).to_pylist()
    if others := sorted({*pc.unique(rows["task"]).to_pylist()} - {*tasks}):
        leave_out(f"{', '.join(others)} under {protocol}, where no entry has several values of {asked.setting}")
    trained = [length for length in pc.unique(own["train_length"]).to_pylist() if length]
    train_length = trained[0] if len(trained) == 1 else 0
    only = tasks[0] if len(tasks) == 1 else None
    header = BoardHeader(only or name, metric, task_version, protocol, len(tasks), only, train_length)
    return header, {points[place]: models_and_context_free(part) for (place,), part in parts(own, "point")}


def _require_several(asked: SweepRequest, points: Sequence[SettingValue], known: Iterable[str]) -> None:
    setting = asked.setting
    if len(points) == 1:
        raise UsageError(f"all runs have {setting} {points[0]}; {_others(setting, points[0])}")
    if not points:
        if setting in (known := {*known}):
            raise UsageError(f"no run on {asked.name or 'a family'} has {setting}; choose with --task and --protocol")
        if within := sorted(name for name in known if name.endswith(f".{setting}")):
            raise UsageError(f"no setting {setting!r}; did you mean {', '.join(map(repr, within))}, or 'step' or 'length'?")
        raise unknown("setting", setting, {"length", "step", *known})


def _others(setting: str, value: SettingValue) -> str:
    """A sentence with the command for runs with other values."""
    if setting == PRECISION:
        return "`lgbench run --precision bfloat16` makes others"
    if isinstance(value, str):
        several = "on,off" if value in ("on", "off") else f"{value},ANOTHER"
    else:
        several = f"{value},{2 * value or 1}"
    about = "; --x step draws how good entries were while they trained" if setting == "train.steps" else ""
    return f"`lgbench run --set {setting}={several}` makes others{about}"


def settings_in(record: ExperimentRecord) -> dict[str, SettingValue]:
    """Settings of a run under the names of `--set`, and its precision."""
    found = all_settings(record.train, record.evaluate, dict(record.options)) | {PRECISION: record.precision}
    return {name: _value(own) for name, own in found.items() if isinstance(own, int | float | str)}


def _value(own: SettingValue) -> SettingValue:
    """One notation of equal values: a switch as "on" or "off", a whole number as int."""
    if isinstance(own, bool):
        return "on" if own else "off"
    # Beyond 2^53 floats are no exact numbers.
    return int(own) if isinstance(own, float) and own.is_integer() and abs(own) < 2**53 else own


def ordered(values: Iterable[SettingValue]) -> list[SettingValue]:
    """Each value once: numbers by size, then texts in alphabetical order.

    >>> ordered([64, 16, "auto", 16.0])
    [16, 64, 'auto']
    """
    return sorted(set(values), key=lambda value: (isinstance(value, str), value if isinstance(value, str) else 0, value))
