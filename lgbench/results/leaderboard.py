"""Boards of the runs of a folder: rows selected by SQL, entries ranked by :mod:`lgbench.results.boards`."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from lgbench.contracts import PRIMARY_METRIC, TRAINING_METRICS
from lgbench.contracts.names import FAMILIES
from lgbench.errors import UsageError, unknown
from lgbench.experiment.protocols import ALL_PROTOCOLS
from lgbench.results.boards import Board, BoardHeader, BoardKey, MeasuredBoard, TunedRate, not_fitted, ranked_rows, unsound
from lgbench.results.columns import OOD, BoardValues, NotFitted, mean_of_known, models_and_context_free
from lgbench.results.database import Database, packaged
from lgbench.results.entries import BASELINE_ENTRY, PREFIX, find_entry, find_task
from lgbench.results.overall import Overall, overall
from lgbench.results.steps import BoardSteps, board_steps
from lgbench.terminal import named_seeds


class Inside(NamedTuple):
    """Place of a probe in models: one layer or head, or the mean over all layers and heads."""

    layer: int | None = None
    head: int | None = None


EVERYWHERE = Inside()

MOST_NAMED = 3
"""Most missing tasks that a board names; it counts more of them."""


class Ran(NamedTuple):
    """Weights of a run that could be on a board: a row of sql/ran.sql."""

    name: str
    task_version: int
    protocol: int
    entry: str
    seed: int
    task: str
    run_id: str
    weights: str

    @property
    def board(self) -> tuple[str, int, int]:
        """Identity of the board without the version of the metric."""
        return self[:3]


class Chosen(NamedTuple):
    """Selection of the rows of boards, apart from the metric."""

    name: str | None = None
    """Full name of a family or task; None for all families."""
    protocol: str | None = None
    """Name of a protocol for its versions without changes, or a full label such as "standard/3 train.lr=0.001"."""
    apart: bool = False
    """Whether every task has its own board, in place of boards of families. Without a name alone."""
    inside: Inside | None = None


class Results(Database):
    """Runs of a folder, and their boards."""

    def __init__(self, folder: str | Path, reference: Path | None = None) -> None:
        super().__init__(folder, reference)
        # Boards read so far, by metric, `apart` and `inside` of :class:`Chosen`, and name; None for all names.
        self._known: dict[tuple[str, bool, Inside | None], dict[str | None, list[MeasuredBoard]]] = {}

    def boards(
        self,
        metric: str,
        name: str | None = None,
        protocol: str | None = None,
        *,
        baseline: str | None = None,
        apart: bool = False,
        inside: Inside | None = None,
    ) -> list[Board]:
        """Boards of one metric, of all families or of one family or task. UsageError for an unknown name.

        `protocol` and `apart` as in :class:`Chosen`; the protocol "external" selects all boards of external models, which come
        last. `baseline` is the full or short name of an entry, by default BASELINE_ENTRY. A probe without ranks has boards only
        with `inside`, for plots, with entries in alphabetical order.
        """
        chosen = self.chosen(metric, name, protocol)._replace(apart=apart, inside=inside)
        if inside is None:
            self.require_ranks(metric)
        entry, measured = self.baseline(baseline), self._to_rank(metric, chosen)
        ran = [Ran._make(row) for row in self.rows(packaged("ran"), self._place(chosen))]
        rates, (incomplete, lacking) = self._learning_rates(ran), _missing(measured, ran)
        return [
            Board(
                **vars(header := each.header),
                context_free=each.levels,
                rows=ranked_rows(each.models, header.metric, header.train_length, each.levels, entry),
                incomplete=tuple(incomplete.get(each.key, ())),
                unsound=unsound(each.models),
                lacking=dict(lacking.get(each.key, {})),
                baseline=entry,
                learning_rates=rates.get(each.key.without_metric, {}),
                ranked_by=each.models.ranked_by[0],
            )
            for each in measured
        ]

    def steps(
        self,
        metric: str,
        name: str | None = None,
        protocol: str | None = None,
        *,
        apart: bool = False,
        lengths: Sequence[int] = (),
    ) -> list[BoardSteps]:
        """Curves against training steps, for each board of :meth:`boards` with eval steps.

        At `lengths`, or at the default lengths of each board.
        """
        chosen = self.chosen(metric, name, protocol)._replace(apart=apart)
        self.require_ranks(metric)
        rows = dict(_rows_by_board(self.values(metric, chosen, every_step=True)))
        found = []
        for each in self._measured(metric, chosen):
            if each.key in rows:
                found.append(board_steps(each.header, rows[each.key], lengths))
        return found

    def overall(self, metric: str, protocol: str | None = None, *, baseline: str | None = None) -> list[Overall]:
        """Overall boards, for each protocol with several families and a complete entry.

        They are over the families that come with lgbench, so that a task of a pack changes no score; over all families if fewer
        than two of these have run.
        """
        chosen = self.chosen(metric, None, protocol)
        self.require_ranks(metric)
        entry = self.baseline(baseline)
        found: dict[tuple[int, int], dict[str, MeasuredBoard]] = defaultdict(dict)
        for each in self._measured(metric, chosen):  # of versions the newest first
            found[each.key.protocol, -each.key.metric_version].setdefault(each.key.name, each)
        boards = []
        for _, families in sorted(found.items()):
            built_in = [each for name, each in families.items() if name in FAMILIES]
            boards.append(overall(built_in if len(built_in) > 1 else [*families.values()], entry))
        return [board for board in boards if board]

    def one_protocol(
        self,
        metric: str,
        name: str | None = None,
        protocol: str | None = None,
        entries: Sequence[str] = (),
        inside: Inside | None = None,
    ) -> tuple[str | None, list[str]]:
        """Most telling protocol with boards of all `entries`, and the others, as values of `protocol` in :meth:`boards`.

        Of the protocols named `protocol`, or of all; those with reference runs come first. (None, []) for ALL_PROTOCOLS, and
        (protocol, []) without such boards.
        """
        if protocol == ALL_PROTOCOLS:
            return None, []
        chosen = self.chosen(metric, name, protocol)._replace(inside=inside)
        known: dict[str, set[str]] = {}
        others = "select distinct protocol from models where not own and belongs(family, task, $name)"
        reference = {number for (number,) in self.rows(others, {"name": chosen.name})}
        measured = self._measured(metric, chosen)
        for each in sorted(measured, key=lambda each: (each.key.protocol not in reference, each.key.protocol)):
            use = each.header.protocol
            known.setdefault(use.name if use.is_external else str(use), set()).update(each.models.entries)
        labels = [label for label, own in known.items() if _has_all(entries, own)]
        return (labels[0], labels[1:]) if labels else (protocol, [])

    def models(
        self, metric: str, name: str | None = None, protocol: str | None = None, *, inside: Inside | None = None
    ) -> list[tuple[BoardHeader, BoardValues]]:
        """Header and values of each board of :meth:`boards`."""
        return [(each.header, each.models) for each in self.measured(metric, name, protocol, inside=inside)]

    def measured(
        self, metric: str, name: str | None = None, protocol: str | None = None, *, inside: Inside | None = None
    ) -> list[MeasuredBoard]:
        """Values of each board of :meth:`boards`, before entries are ranked."""
        return self._to_rank(metric, self.chosen(metric, name, protocol)._replace(inside=inside))

    def chosen(self, metric: str, name: str | None = None, protocol: str | None = None, setting: str = "") -> Chosen:
        """Selection with full names, of families and of whole models. UsageError for the first unknown name.

        With `setting`, its changes do not count in a protocol, and numbers of the training are metrics, too.
        """
        if metric not in (known := [*self.metric_names, *(TRAINING_METRICS if setting else ())]):
            raise self._without(unknown("metric", metric, known))
        if name is not None:
            try:
                name = find_task(name, self.task_names)
            except UsageError as error:
                raise self._without(error) from None
        if protocol is not None and not self.numbers(protocol, setting):
            uses = [use.without(setting) for use in self.protocols.values()]
            raise self._without(unknown("protocol", protocol, {u.name for u in uses if not u.changes} | {str(u) for u in uses}))
        return Chosen(name, protocol)

    def _without(self, error: UsageError) -> UsageError:
        return UsageError(f"in {self.place} there is {error}")

    def require_ranks(self, metric: str) -> None:
        """Raise UsageError for a metric without ranks."""
        if metric not in self.ranking_names:
            raise UsageError(
                f"no value of {metric} is better than another, so no board ranks entries by it; "
                f"`lgbench plot --metric {metric}` draws it, and `lgbench sql` has its rows"
            )

    def require_some(self, boards: Sequence[Board], metric: str) -> None:
        """Raise UsageError without boards."""
        if not boards:
            raise UsageError(
                f"no {metric} in {self.place} for this task and protocol; without --task and --protocol all are shown"
            )

    def require_entries(
        self,
        entries: Iterable[str],
        known: Collection[str],
        metric: str,
        name: str | None = None,
        protocol: str | None = None,
        inside: Inside | None = None,
    ) -> None:
        """Raise UsageError for an entry of the folder that is not among the known ones of :meth:`boards`."""
        for entry in entries:
            if _has_all([entry], known) or not _has_all([entry], self._entries()):
                continue  # a wrong name is told by find_entry
            full = find_entry(entry, self._entries())
            of_it = f"{full.partition('@')[0].removeprefix(PREFIX)}: "
            boards = self.boards(metric, name, protocol, inside=inside)
            reasons = [sentence for board in boards for sentence in board.incomplete if sentence.startswith(of_it)]
            where = f" on {name}" if name else " on any board"
            said = (
                "; ".join(reasons)
                or f"its runs in {self.place} are of other tasks, protocols or metrics; --protocol all shows every protocol"
            )
            raise UsageError(f"no entry {entry!r}{where}: {said}")

    def layers(self, metric: str) -> list[int]:
        """Layers with readings of a probe; none for a number of whole models."""
        return self._places("layer", metric)

    def heads(self, metric: str) -> list[int]:
        """Heads with readings of a probe; none for a number of whole layers or models."""
        return self._places("head", metric)

    def _places(self, column: str, metric: str) -> list[int]:
        places = f"select distinct {column} from results where metric = $metric and {column} is not null order by {column}"
        return [int(place) for (place,) in self.rows(places, {"metric": metric})]

    def baseline(self, name: str | None) -> str:
        """Full name of an entry. The default baseline may have no runs."""
        if name is None:
            return BASELINE_ENTRY
        return find_entry(name, self._entries())

    def _entries(self) -> list[str]:
        return [entry for (entry,) in self.rows("select distinct entry from models where entry is not null")]

    def values(self, metric: str, chosen: Chosen, every_step: bool = False) -> pa.Table:
        """Rows of boards, by sql/values.sql. The protocol is a number of :attr:`protocols`."""
        whole = chosen.inside is None and metric in self.ranking_names
        asked = {"metric": metric, "whole": whole, "every_step": every_step, **(chosen.inside or EVERYWHERE)._asdict()}
        return self.arrow(packaged("values"), asked | self._place(chosen))

    def numbers(self, protocol: str | None, setting: str = "") -> list[int]:
        """Numbers of the protocols with a name or label, apart from changes of `setting`."""
        return [number for number, use in self.protocols.items() if use.without(setting).is_named(protocol)]

    def _place(self, chosen: Chosen) -> dict[str, Any]:
        return {"name": chosen.name, "protocols": self.numbers(chosen.protocol), "apart": chosen.apart}

    def _measured(self, metric: str, chosen: Chosen) -> list[MeasuredBoard]:
        """Boards with any value, by name and protocol; newest versions first."""
        # One scan reads the boards of a first name. Claims and pages ask for many names: from the second on, one scan reads the
        # boards of all tasks, or of all families. All protocols are read, because a command that shows one names the others.
        apart = chosen.apart or (chosen.name is not None and chosen.name not in self.families)
        known = self._known.setdefault((metric, apart, chosen.inside), {})
        if not known.keys() & {chosen.name, None}:
            read = Chosen(None if known else chosen.name, apart=apart, inside=chosen.inside)
            every = (self._board(metric, *own) for own in _rows_by_board(self.values(metric, read)))
            known[read.name] = sorted((each for each in every if each), key=_order)
        boards, numbers = known[chosen.name if chosen.name in known else None], self.numbers(chosen.protocol)
        return [each for each in boards if each.key.protocol in numbers and chosen.name in (None, each.key.name)]

    def _to_rank(self, metric: str, chosen: Chosen) -> list[MeasuredBoard]:
        """Boards before ranking, with the seeds not fitted; ranked by the ID mean if nothing was learned on the only task."""
        primary = self._measured(PRIMARY_METRIC, chosen._replace(inside=None))
        lost = _seeds_not_fitted(primary)
        unlearned = _unlearned(primary, lost)
        found = []
        for each in self._measured(metric, chosen):
            place = each.key.without_metric
            models = replace(each.models, unlearned=place in unlearned, not_fitted=lost.get(place, {}))
            found.append(each._replace(models=models))
        return found

    def _board(self, metric: str, key: BoardKey, rows: pa.Table) -> MeasuredBoard | None:
        """Values of one board; None for a version of the metric without a description, or without any value."""
        described = next((own for own in self.metrics if (own.name, own.version) == (metric, key.metric_version)), None)
        protocol = self.protocols[key.protocol]
        models, context_free = models_and_context_free(rows)
        if described is None or not models.columns:
            return None
        train_length = rows["train_length"][0].as_py()  # equal in all rows
        tasks, only = len(models.tasks), models.tasks[0] if len(models.tasks) == 1 else None
        header = BoardHeader(key.name, described, key.task_version, protocol, tasks, only, train_length)
        return MeasuredBoard(key, header, models, context_free)

    def _learning_rates(self, ran: Iterable[Ran]) -> Mapping[tuple[str, int, int], dict[str, dict[str, list[TunedRate]]]]:
        """Tuned learning rates by board, entry and task."""
        found: dict[tuple[str, int, int], dict[str, dict[str, list[TunedRate]]]] = defaultdict(dict)
        for model in ran:
            tuning = self.records[model.run_id].tuning
            if tuning and tuning.chosen and model.weights == "raw":
                rate = TunedRate(tuning.chosen, tuning.tried)
                own = found[model.board].setdefault(model.entry, {}).setdefault(model.task, [])
                own += [] if rate in own else [rate]
        return found


def _missing(
    boards: Sequence[MeasuredBoard], ran: Iterable[Ran]
) -> tuple[Mapping[BoardKey, list[str]], Mapping[BoardKey, dict[str, int]]]:
    """Sentences on seeds with missing runs, by board, and numbers of seeds without the metric, by board and entry.

    No sentence for an average of weights with the same missing runs as its entry.
    """
    tasks_of: dict[tuple[str, int, int], dict[tuple[str, int], set[str]]] = defaultdict(lambda: defaultdict(set))
    raw: dict[str, str] = {}
    for model in ran:
        tasks_of[model.board][model.entry, model.seed].add(model.task)
        raw[model.entry] = model.entry.removesuffix(f"@{model.weights}")
    incomplete: dict[BoardKey, list[str]] = defaultdict(list)
    lacking: dict[BoardKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for key, _, models, _ in boards:
        measured, tasks = models.measured_tasks, models.tasks
        seeds: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (entry, seed), own in tasks_of[key.without_metric].items():
            absent = [task for task in tasks if task not in own]
            if 0 < len(absent) < len(tasks):
                count = f"{len(absent)} of the {len(tasks)} tasks"
                seeds[entry][", ".join(absent) if len(absent) <= MOST_NAMED else count].append(seed)
            elif not absent and measured.get((entry, seed), 0) < len(tasks):
                lacking[key][entry] += 1
        for entry, by_absent in seeds.items():
            if entry == raw[entry] or by_absent != seeds.get(raw[entry]):
                incomplete[key] += (_left_out(entry, own, absent) for absent, own in by_absent.items())
    return incomplete, lacking


def _left_out(entry: str, seeds: Sequence[int], absent: str) -> str:
    lacks, is_ = ("lacks", "is") if len(seeds) == 1 else ("lack", "are")
    return f"{entry.removeprefix(PREFIX)}: {named_seeds(seeds)} {lacks} {absent} and {is_} left out"


def _has_all(entries: Iterable[str], known: Collection[str]) -> bool:
    """Whether full or short names of entries name known ones."""
    try:
        return all(find_entry(name, known) for name in entries)
    except UsageError:
        return False


def _rows_by_board(values: pa.Table) -> Iterator[tuple[BoardKey, pa.Table]]:
    """Rows of each board."""
    for key, own in parts(values, "board", *BoardKey._fields[1:]):
        yield BoardKey(*key), own


def parts(rows: pa.Table, *names: str) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Parts of sorted rows with equal values in some columns."""
    keys = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
    for key, own in groupby(range(len(keys)), keys.__getitem__):
        places = list(own)
        yield key, rows.slice(places[0], len(places))


def _order(board: MeasuredBoard) -> tuple[Any, ...]:
    """Sort key: name, then protocol, newest versions first, external models last."""
    key = board.key
    return board.header.protocol.is_external, key.name, key.protocol, -key.task_version, -key.metric_version


def _seeds_not_fitted(measured: Sequence[MeasuredBoard]) -> Mapping[tuple[str, int, int], NotFitted]:
    """Seeds without a fit, by board; of several versions of the metric, the newest counts."""
    judged: dict[tuple[str, int, int], dict[tuple[str, str, int], bool]] = defaultdict(dict)
    for each in reversed(measured):
        judged[each.key.without_metric] |= not_fitted(each.models, each.header.metric, each.context_free)
    found: dict[tuple[str, int, int], dict[str, dict[str, set[int]]]] = defaultdict(dict)
    for place, own in judged.items():
        for (entry, task, seed), lost in own.items():
            found[place].setdefault(entry, {}).setdefault(task, set()).update([seed] if lost else [])
    return found


def _unlearned(measured: Sequence[MeasuredBoard], lost: Mapping[tuple[str, int, int], NotFitted]) -> set[tuple[str, int, int]]:
    """Boards of one task without a fit by any seed, and without an entry better than the context-free baseline OOD."""
    found, seen = set(), set()
    for each in measured:
        key, models = each.key.without_metric, each.models
        if key in seen or len(models.tasks) > 1:
            continue  # of several versions of the metric, the newest comes first
        seen.add(key)
        (task,) = models.tasks
        fitted = (set(models.seeds_of(e)) - lost.get(key, {}).get(e, {}).get(task, set()) for e in models.entries)
        if not any(fitted) and not _beats_context_free(each):
            found.add(key)
    return found


def _beats_context_free(board: MeasuredBoard) -> bool:
    """Whether the OOD mean of any entry is better than the context-free baseline."""
    if OOD not in board.models.columns or OOD not in board.context_free.columns:
        return False
    sign = board.header.metric.sign
    level = sign * mean_of_known(board.context_free.columns[OOD][0])
    return bool((sign * mean_of_known(board.models.columns[OOD]) < level).any())


def read_results(path: str | Path = "results") -> duckdb.DuckDBPyRelation:
    """All rows of the runs in a folder as a DuckDB relation; other files are left out with a warning.

    The relation belongs to the default connection of DuckDB, so `duckdb.sql` finds it by the name of a variable. Every query
    reads the files.
    """
    opened = Database(path)
    for sentence in opened.left_out:
        warnings.warn(f"left out: {sentence}", stacklevel=2)
    rows = duckdb.sql(opened.every_row)
    assert rows is not None  # as of a statement that selects nothing
    return rows
