"""Which runs are on one line of a sweep: those that differ in one setting alone, on the tasks where it has several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lgbench.errors import UsageError, unknown
from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import Board
from lgbench.results.entries import BASELINE_ENTRY
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.setting_values import PRECISION, SettingValue, known_settings, ordered, setting_values
from lgbench.results.training_numbers import NUMBERS, training_numbers
from lgbench.results.values import Inside

MODEL = ("task_version", "protocol", "entry", "seed", "task")
"""The columns that name a model."""
PLACE = ("board", "task_version", "base", "metric_version")
"""The columns that are the same on one line. The base is the protocol without the setting, as a number."""


class Asked(NamedTuple):
    """A request for a sweep: a metric to draw, and the setting to draw it against."""

    setting: str
    metric: str
    name: str | None = None
    """A family or a task; None for all families."""
    protocol: str | None = None
    """A name, which means its versions without other changes, or a label without the setting."""
    lengths: Sequence[int] = ()
    """None of them for the OOD mean."""
    inside: Inside | None = None


class SweptRows(NamedTuple):
    """Everything that is on one line of each entry, on one family or task."""

    board: Board
    """Without rows. Its protocol is without the setting, and its tasks are those on which the setting has several values."""
    points: Sequence[SettingValue]
    """Every value of the setting, in order."""
    rows: pa.Table
    """As values.sql makes them, with the column `point`: which of the values."""


def swept_rows(results: Results, asked: Asked) -> list[SweptRows]:
    """By family or task and protocol. Raises UsageError where a name is unknown, or the setting has no several values.

    A sentence for what had to be left out is in `results.no_boards`.
    """
    results.check(asked.metric, asked.name, None, also=NUMBERS)
    models = results.trained(asked.name)
    bases = {number: without(use, asked.setting) for number, use in results.protocols.items()}
    numbers = _numbers(bases, asked.protocol)
    models = models.filter(pc.is_in(models["protocol"], pa.array(sorted(numbers), models["protocol"].type)))
    runs = dict(zip(models["run_id"].to_pylist(), models["protocol"].to_pylist(), strict=True))
    values = setting_values(results, asked.setting, {run: results.protocols[number] for run, number in runs.items()})
    points = ordered(values.values())
    _require_several(results, asked, points)
    places = {run: points.index(value) for run, value in values.items()}
    of_models = models.append_column("point", pa.array([places.get(run) for run in models["run_id"].to_pylist()], pa.int32()))
    if asked.metric in NUMBERS:
        rows = training_numbers(results, models, asked.metric)
    else:
        rows = results.values(asked.metric, asked.name, inside=asked.inside)
    placed = _placed(rows, _once(results, of_models, asked.setting), {number: bases[number] for number in numbers})
    found = [SweptRows(board, points, rows) for board, rows in _groups(results, placed, asked)]
    if not found:
        raise _nothing(asked, points[0])
    return found


def without(use: ProtocolUse, setting: str) -> ProtocolUse:
    """A protocol as it is but for one setting."""
    return ProtocolUse(use.name, use.version, tuple(change for change in use.changes if change[0] != setting))


def _numbers(bases: Mapping[int, ProtocolUse], protocol: str | None) -> set[int]:
    """The numbers of the protocols that are meant. Raises UsageError where there is none."""
    meant = {n for n, base in bases.items() if protocol in (None, str(base)) or (protocol == base.name and not base.changes)}
    if not meant:
        every = bases.values()
        raise unknown("protocol", str(protocol), {base.name for base in every if not base.changes} | {str(b) for b in every})
    return meant


def _require_several(results: Results, asked: Asked, points: Sequence[SettingValue]) -> None:
    setting = asked.setting
    if not points:
        if setting in (known := known_settings(results)):
            raise UsageError(f"no run on {asked.name or 'a family'} has {setting}; choose with --task and --protocol")
        if within := sorted(name for name in known if name.endswith(f".{setting}")):
            raise UsageError(f"no setting {setting!r}; did you mean {' or '.join(map(repr, within))}?")
        raise unknown("setting", setting, {"length", "step", *known})
    if len(points) == 1:
        raise UsageError(f"all runs have {setting} {points[0]}; {_others(setting, points[0])}")


def _nothing(asked: Asked, value: SettingValue) -> UsageError:
    return UsageError(
        f"no entry has {asked.metric} at several values of {asked.setting} with nothing else changed; "
        f"{_others(asked.setting, value)}"
    )


def _others(setting: str, value: SettingValue) -> str:
    """The command that makes runs with other values, in a sentence."""
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


def _once(results: Results, models: pa.Table, setting: str) -> pa.Table:
    """The point of each model that has one. A model whose runs have several values is left out."""
    known = models.filter(pc.is_valid(models["point"]))
    each = known.group_by(list(MODEL), use_threads=False).aggregate([("point", "min"), ("point", "max")])
    same = pc.equal(each["point_min"], each["point_max"])
    for row in each.filter(pc.invert(same)).to_pylist():
        protocol = results.protocols[row["protocol"]]
        model = f"{row['entry']} on {row['task']} seed {row['seed']}"
        results.no_boards[f"{model}, whose runs under {protocol} have several values of {setting}"] = None
    return each.filter(same).drop_columns(["point_max"]).rename_columns([*MODEL, "point"])


def _placed(rows: pa.Table, models: pa.Table, bases: Mapping[int, ProtocolUse]) -> pa.Table:
    """The rows of values.sql with their points and the numbers of their bases. The chance level has a row at each point."""
    names = {use: number for number, use in sorted(bases.items(), reverse=True)}  # the least number with that base
    protocols = pa.array(list(bases), rows["protocol"].type)
    numbers = pa.array([names[use] for use in bases.values()], pa.int64())
    of_models = rows.join(models, list(MODEL), join_type="inner")
    levels = rows.filter(pc.is_null(rows["entry"]))
    at = models.group_by(["task_version", "protocol", "task", "point"], use_threads=False).aggregate([])
    of_chance = levels.join(at, ["task_version", "protocol", "task"], join_type="inner")
    both = pa.concat_tables([of_models, of_chance.select(of_models.column_names)])
    # In the order of the protocols, so that the same row is the last one wherever this is done.
    return both.join(pa.table({"protocol": protocols, "base": numbers}), "protocol", join_type="inner").sort_by("protocol")


def _groups(results: Results, placed: pa.Table, asked: Asked) -> list[tuple[Board, pa.Table]]:
    """Of each board, the rows of the tasks on which any entry has several points."""
    found = []
    for key in placed.group_by(list(PLACE), use_threads=False).aggregate([]).to_pylist():
        rows = placed
        for name in PLACE:
            rows = rows.filter(pc.equal(rows[name], key[name]))
        base = without(results.protocols[key["base"]], asked.setting)
        if (metric := _metric(results, asked.metric, key["metric_version"])) and (tasks := several(rows, "task")):
            others = sorted({*pc.unique(rows["task"]).to_pylist()} - {*tasks})
            if others:
                said = f"{', '.join(others)} under {base}, where no entry has several values of {asked.setting}"
                results.no_boards[said] = None
            rows = rows.filter(pc.is_in(rows["task"], pa.array(tasks)))
            name = tasks[0] if len(tasks) == 1 else key["board"]
            found.append((_board(name, key["task_version"], base, metric, rows), rows))
    found.sort(key=lambda own: (own[0].name, -own[0].task_version, str(own[0].protocol), -own[0].metric.version))
    return found


def _board(name: str, task_version: int, base: ProtocolUse, metric: Metric, rows: pa.Table) -> Board:
    lengths = {n for n in pc.unique(rows["train_length"]).to_pylist() if n}
    return Board(
        name=name,
        metric=metric,
        task_version=task_version,
        protocol=base,
        tasks=len(pc.unique(rows["task"])),
        train_length=lengths.pop() if len(lengths) == 1 else 0,
        chance=(),
        rows=(),
        incomplete=(),
        unsound=(),
        lacking={},
        baseline=BASELINE_ENTRY,
    )


def _metric(results: Results, name: str, version: int) -> Metric | None:
    """None where no run file describes this version of the metric."""
    if name in NUMBERS:
        return NUMBERS[name][0]
    return next((own for own in results.metrics if (own.name, own.version) == (name, version)), None)


def several(rows: pa.Table, name: str) -> list[str]:
    """The entries that have several points on any task, or the tasks on which any entry has several; sorted."""
    own = rows.filter(pc.is_valid(rows["entry"]))
    counts = own.group_by(["entry", "task"], use_threads=False).aggregate([("point", "count_distinct")])
    return sorted({*counts.filter(pc.greater(counts["point_count_distinct"], 1))[name].to_pylist()})
