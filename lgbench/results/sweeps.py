"""Sweeps: values of each entry at several values of one setting, over runs with all other settings equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError, unknown
from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import BoardHeader
from lgbench.results.columns import OOD, BoardValues, Column, mean_of_known, rounded, significant
from lgbench.results.database import Database
from lgbench.results.leaderboard import Chosen, Inside, Results, models_and_chance
from lgbench.results.metrics import Metric
from lgbench.results.statistics import Floats, interval, share_interval
from lgbench.results.trainings import LENGTH, NUMBERS, training_numbers

LeaveOut = Callable[[str], None]
"""Receiver of a sentence for each omission of a plot."""

OF_TRAINING: Column = ("length", LENGTH)
"""The column of numbers of a training."""


@dataclass(frozen=True)
class SweepCell:
    """Mean over n seeds at one value of the setting, and its 95 % interval, None for one seed."""

    value: SettingValue
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Sweep:
    """A line for each entry on one family or task, in one column of its boards."""

    board: BoardHeader
    """As in :class:`SweptRows`."""
    column: Column
    cells: Mapping[str, tuple[SweepCell, ...]]
    """By entry, in the order of the values."""
    chance: Mapping[SettingValue, float]
    """Context-free baseline by value of the setting, if known."""

    @property
    def lines(self) -> list[str]:
        """Entries with several values, sorted."""
        return sorted(entry for entry, cells in self.cells.items() if len(cells) > 1)


def sweeps(results: Results, asked: SweepRequest, leave_out: LeaveOut = lambda sentence: None) -> list[Sweep]:
    """Sweeps by family or task, protocol and column. Raises UsageError for an unknown name, or without several values."""
    if asked.lengths and asked.metric in NUMBERS:
        raise UsageError(f"{asked.metric} is one number of a training, and has no lengths: leave --length out")
    swept = swept_rows(results, asked, leave_out)
    measured = sorted({length for own in swept for length in pc.unique(own.rows["length"]).to_pylist()})
    for length in asked.lengths:
        if length not in measured:
            raise UsageError(f"length {length} was not measured; measured: {', '.join(map(str, measured))}")
    columns: list[Column] = [("length", length) for length in asked.lengths] or [OOD]
    columns = [OF_TRAINING] if asked.metric in NUMBERS else columns
    found = [sweep for own in swept for sweep in _of_columns(own, columns, asked.setting, leave_out) if sweep.lines]
    if not found:
        where = "above the training lengths; choose others with --length" if columns == [OOD] else "there"
        raise UsageError(f"no entry has {asked.metric} at several values of {asked.setting} {where}")
    return found


def _of_columns(swept: SweptRows, columns: Sequence[Column], setting: str, leave_out: LeaveOut) -> list[Sweep]:
    cells: Mapping[Column, dict[str, list[SweepCell]]] = {column: defaultdict(list) for column in columns}
    levels: Mapping[Column, dict[SettingValue, float]] = {column: {} for column in columns}
    entries = several(swept.rows, "entry")
    for place in sorted(pc.unique(swept.rows["point"]).to_pylist()):
        value = swept.points[place]
        models, chance = models_and_chance(swept.rows.filter(pc.equal(swept.rows["point"], place)))
        for column in columns:
            for entry, cell in _cells(models, column, swept.board, value):
                cells[column][entry].append(cell)
            if column in chance.columns and len(chance.tasks) == swept.board.tasks:
                levels[column][value] = significant(chance.columns[column].item())
            for sentence in _left_out(models, column, swept.board, entries, f"{setting} {value}"):
                leave_out(sentence)
    return [
        Sweep(swept.board, column, {entry: tuple(own) for entry, own in cells[column].items()}, levels[column])
        for column in columns
    ]


def _cells(models: BoardValues, column: Column, board: BoardHeader, value: SettingValue) -> Iterable[tuple[str, SweepCell]]:
    """Cells by entry, over seeds with a value on every task of the board."""
    if len(models.tasks) < board.tasks or column not in models.columns:
        return
    seeds, around = _of_seeds(models.columns[column], board.metric)
    counts, means = np.isfinite(seeds).sum(-1), mean_of_known(seeds)
    low, high = (np.clip(end, board.metric.lowest, board.metric.highest) for end in around)
    short = rounded if board.metric.ranks else significant
    for place, entry in enumerate(models.entries):
        if n := int(counts[place]):
            ends = (short(low[place]), short(high[place])) if n > 1 else (None, None)
            yield entry, SweepCell(value, short(means[place]), ends[0], ends[1], n)


def _of_seeds(values: Floats, metric: Metric) -> tuple[Floats, tuple[Floats, Floats]]:
    """Values of seeds (E, S) and the ends of intervals. A seed diverged if any of its tasks did."""
    if metric == NUMBERS[DIVERGED][0]:
        seeds = np.where(np.isfinite(values), values > 0, np.nan)
        return seeds, share_interval(seeds)
    return values, interval(values)


def _left_out(models: BoardValues, column: Column, board: BoardHeader, entries: Sequence[str], at: str) -> Iterable[str]:
    """A sentence for the seeds left out of a mean, for each entry with a line."""
    per_task = models.measured.any(-1)  # (E, S, T)
    any_task, complete = np.asarray(per_task.any(-1)), np.asarray(per_task.all(-1))
    if len(models.tasks) < board.tasks:
        complete = np.zeros_like(any_task)
    known = np.isfinite(models.columns[column]) if column in models.columns else np.zeros_like(complete)
    for place, entry in enumerate(models.entries):
        if entry not in entries:
            continue
        lacking = any_task[place] & ~complete[place]
        undefined = complete[place] & ~known[place]
        for lost, why in (
            (lacking, f"runs on all of the {board.tasks} tasks of {board.name}"),
            (undefined, f"a {board.metric.name} on {board.name}"),
        ):
            if lost.any():
                seeds = [str(seed) for seed, own in zip(models.seeds, lost, strict=True) if own]
                named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(seeds)}"
                yield f"{named} of {entry} with {at}, which {'lacks' if len(seeds) == 1 else 'lack'} {why}"


MODEL = ("task_version", "protocol", "entry", "seed", "task")
"""Identifying columns of a model."""
PLACE = ("board", "task_version", "base", "metric_version")
"""Columns with one value on a line. The base is the number of the protocol without the setting."""


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


class SweptRows(NamedTuple):
    """Rows of one line of each entry, on one family or task."""

    board: BoardHeader
    """Header with the protocol without the setting, and the tasks with several values of the setting."""
    points: Sequence[SettingValue]
    """Every value of the setting, in order."""
    rows: pa.Table
    """Rows of values.sql with the column `point`, an index of `points`."""


def swept_rows(results: Results, asked: SweepRequest, leave_out: LeaveOut) -> list[SweptRows]:
    """Rows by family or task and protocol. Raises UsageError for an unknown name, and for a setting with one value."""
    chosen = results.chosen(asked.metric, asked.name, inside=asked.inside, also=NUMBERS)
    models = _models(results, chosen)
    bases = {number: without(use, asked.setting) for number, use in results.protocols.items()}
    numbers = _numbers(bases, asked.protocol)
    models = models.filter(pc.is_in(models["protocol"], pa.array(sorted(numbers), models["protocol"].type)))
    runs = dict(zip(models["run_id"].to_pylist(), models["protocol"].to_pylist(), strict=True))
    values = setting_values(results, asked.setting, {run: results.protocols[number] for run, number in runs.items()})
    points = ordered(values.values())
    _require_several(results, asked, points)
    places = {run: points.index(value) for run, value in values.items()}
    of_models = models.append_column("point", pa.array([places.get(run) for run in models["run_id"].to_pylist()], pa.int32()))
    of_training = asked.metric in NUMBERS
    rows = training_numbers(results, models, asked.metric) if of_training else results.values(asked.metric, chosen)
    placed = _placed(rows, _once(results, of_models, asked.setting, leave_out), {number: bases[number] for number in numbers})
    found = [SweptRows(board, points, rows) for board, rows in _groups(results, placed, asked, leave_out)]
    if not found:
        raise _nothing(asked, points[0])
    return found


def _models(results: Results, chosen: Chosen) -> pa.Table:
    """Every model with its run."""
    return results.arrow(
        """select distinct
            board_of(family, task, $name, false) as board, task_version, protocol, entry, seed, task, weights, run_id
        from models
        where entry is not null and belongs(family, task, $name)
        order by all""",
        {"name": chosen.name},
    )


def without(use: ProtocolUse, setting: str) -> ProtocolUse:
    """Protocol without the changes of one setting."""
    return ProtocolUse(use.name, use.version, tuple(change for change in use.changes if change[0] != setting))


def _numbers(bases: Mapping[int, ProtocolUse], protocol: str | None) -> set[int]:
    """Numbers of the selected protocols. Raises UsageError for an unknown protocol."""
    meant = {n for n, base in bases.items() if protocol in (None, str(base)) or (protocol == base.name and not base.changes)}
    if not meant:
        every = bases.values()
        raise unknown("protocol", str(protocol), {base.name for base in every if not base.changes} | {str(b) for b in every})
    return meant


def _require_several(results: Results, asked: SweepRequest, points: Sequence[SettingValue]) -> None:
    setting = asked.setting
    if not points:
        if setting in (known := known_settings(results)):
            raise UsageError(f"no run on {asked.name or 'a family'} has {setting}; choose with --task and --protocol")
        if within := sorted(name for name in known if name.endswith(f".{setting}")):
            raise UsageError(f"no setting {setting!r}; did you mean {' or '.join(map(repr, within))}?")
        raise unknown("setting", setting, {"length", "step", *known})
    if len(points) == 1:
        raise UsageError(f"all runs have {setting} {points[0]}; {_others(setting, points[0])}")


def _nothing(asked: SweepRequest, value: SettingValue) -> UsageError:
    return UsageError(
        f"no entry has {asked.metric} at several values of {asked.setting} with nothing else changed; "
        f"{_others(asked.setting, value)}"
    )


def _others(setting: str, value: SettingValue) -> str:
    """A sentence with the command for runs with other values."""
    if setting == PRECISION:
        return "`lgbench run --precision bfloat16` makes others"
    if isinstance(value, str):
        several = "on,off" if value in ("on", "off") else f"{value},ANOTHER"
    elif isinstance(value, int):
        several = ",".join(map(str, sorted({max(1, value // 2), value, 2 * value}))) if value > 0 else f"{value},{value + 1}"
    else:
        several = f"{value / 2:g},{value:g},{value * 2:g}"
    about = "; --x step draws how good entries were while they trained" if setting == "train.steps" else ""
    return f"`lgbench run --set {setting}={several}` makes others{about}"


def _once(results: Results, models: pa.Table, setting: str, leave_out: LeaveOut) -> pa.Table:
    """Point of each model; models with several values in their runs are left out."""
    known = models.filter(pc.is_valid(models["point"]))
    each = known.group_by(list(MODEL), use_threads=False).aggregate([("point", "min"), ("point", "max")])
    same = pc.equal(each["point_min"], each["point_max"])
    for row in each.filter(pc.invert(same)).to_pylist():
        protocol = results.protocols[row["protocol"]]
        model = f"{row['entry']} on {row['task']} seed {row['seed']}"
        leave_out(f"{model}, whose runs under {protocol} have several values of {setting}")
    return each.filter(same).drop_columns(["point_max"]).rename_columns([*MODEL, "point"])


def _placed(rows: pa.Table, models: pa.Table, bases: Mapping[int, ProtocolUse]) -> pa.Table:
    """Rows of values.sql with points and numbers of bases; the context-free baseline has a row at each point."""
    names = {use: number for number, use in sorted(bases.items(), reverse=True)}  # the least number of each base
    protocols = pa.array(list(bases), rows["protocol"].type)
    numbers = pa.array([names[use] for use in bases.values()], pa.int64())
    of_models = rows.join(models, list(MODEL), join_type="inner")
    levels = rows.filter(pc.is_null(rows["entry"]))
    at = models.group_by(["task_version", "protocol", "task", "point"], use_threads=False).aggregate([])
    of_chance = levels.join(at, ["task_version", "protocol", "task"], join_type="inner")
    both = pa.concat_tables([of_models, of_chance.select(of_models.column_names)])
    # A fixed order: of duplicates the last row counts.
    return both.join(pa.table({"protocol": protocols, "base": numbers}), "protocol", join_type="inner").sort_by("protocol")


def _groups(results: Results, placed: pa.Table, asked: SweepRequest, leave_out: LeaveOut) -> list[tuple[BoardHeader, pa.Table]]:
    """Header of each board, and its rows of tasks with several points of any entry."""
    found = []
    for key in placed.group_by(list(PLACE), use_threads=False).aggregate([]).to_pylist():
        rows = placed
        for name in PLACE:
            rows = rows.filter(pc.equal(rows[name], key[name]))
        base = without(results.protocols[key["base"]], asked.setting)
        if (metric := _metric(results, asked.metric, key["metric_version"])) and (tasks := several(rows, "task")):
            others = sorted({*pc.unique(rows["task"]).to_pylist()} - {*tasks})
            if others:
                leave_out(f"{', '.join(others)} under {base}, where no entry has several values of {asked.setting}")
            rows = rows.filter(pc.is_in(rows["task"], pa.array(tasks)))
            name = tasks[0] if len(tasks) == 1 else key["board"]
            found.append((_header(name, key["task_version"], base, metric, rows), rows))
    found.sort(key=lambda own: (own[0].name, -own[0].task_version, str(own[0].protocol), -own[0].metric.version))
    return found


def _header(name: str, task_version: int, base: ProtocolUse, metric: Metric, rows: pa.Table) -> BoardHeader:
    lengths = {n for n in pc.unique(rows["train_length"]).to_pylist() if n}
    train_length = lengths.pop() if len(lengths) == 1 else 0
    return BoardHeader(name, metric, task_version, base, len(pc.unique(rows["task"])), train_length)


def _metric(results: Results, name: str, version: int) -> Metric | None:
    """Description of a metric; None for a version without a description in any run file."""
    if name in NUMBERS:
        return NUMBERS[name][0]
    return next((own for own in results.metrics if (own.name, own.version) == (name, version)), None)


def several(rows: pa.Table, name: str) -> list[str]:
    """Entries, or tasks, of each pair of entry and task with several points, by the column `name`; sorted."""
    own = rows.filter(pc.is_valid(rows["entry"]))
    counts = own.group_by(["entry", "task"], use_threads=False).aggregate([("point", "count_distinct")])
    return sorted({*counts.filter(pc.greater(counts["point_count_distinct"], 1))[name].to_pylist()})


SettingValue = int | float | str
"""A switch is "on" or "off"."""

PRECISION = "precision"
"""Change of a protocol by `--precision`, not by `--set`."""


def setting_values(results: Database, setting: str, runs: Mapping[str, ProtocolUse]) -> dict[str, SettingValue]:
    """Values by run id, for runs with the setting. Metadata are read only for values absent from protocol changes."""
    found: dict[str, SettingValue] = {}
    for run, use in runs.items():
        changes = {PRECISION: use.precision, **dict(use.changes)}
        if setting in changes:
            found[run] = of_text(changes[setting])
    missing = runs.keys() - found.keys()
    if missing:
        for run, metadata in results.metadata():
            if run in missing and (value := settings_in(metadata).get(setting)) is not None:
                found[run] = value
    return found


def known_settings(results: Database) -> set[str]:
    """Names of all settings of all runs."""
    names = {PRECISION, *(setting for use in results.protocols.values() for setting, _ in use.changes)}
    return names.union(*(settings_in(metadata) for _, metadata in results.metadata()))


def settings_in(metadata: Mapping[str, Any]) -> dict[str, SettingValue]:
    """Settings in the metadata of a run, under the names of `--set`."""
    experiment = metadata["experiment"]
    found = [(f"{part}.{name}", value) for part in ("train", "evaluate") for name, value in experiment.get(part, {}).items()]
    found += experiment.get("options", [])
    named = {name: _of_json(value) for name, value in found}
    return {name: value for name, value in named.items() if value is not None}


def of_text(text: str) -> SettingValue:
    """Value of a setting from its text in the changes of a protocol.

    >>> of_text("64"), of_text("1e-05"), of_text("True"), of_text("exact")
    (64, 1e-05, 'on', 'exact')
    """
    if text in ("True", "False"):
        return "on" if text == "True" else "off"
    try:
        number = float(text)
    except ValueError:
        return text
    return _whole(number) if isfinite(number) else text


def ordered(values: Iterable[SettingValue]) -> list[SettingValue]:
    """Each value once: numbers by size, then texts in alphabetical order.

    >>> ordered([64, 16, "auto", 16.0])
    [16, 64, 'auto']
    """
    return sorted(set(values), key=lambda value: (isinstance(value, str), value if isinstance(value, str) else 0, value))


def _of_json(value: Any) -> SettingValue | None:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return of_text(value)
    return _whole(float(value)) if isinstance(value, int | float) else None


def _whole(number: float) -> int | float:
    """The number as int if whole, for one notation of equal numbers."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
