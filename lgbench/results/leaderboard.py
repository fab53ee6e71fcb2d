"""From the runs of a folder to boards: SQL chooses rows, and :mod:`lgbench.results.boards` ranks entries."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.boards import Board, chance_levels, ranked_rows, unsound
from lgbench.results.columns import Models, Values
from lgbench.results.entries import BASELINE_ENTRY
from lgbench.results.fit import NotFitted
from lgbench.results.overall import Family, Overall, overall
from lgbench.results.run_schema import SCHEMA
from lgbench.results.steps import BoardSteps, board_steps
from lgbench.results.tables import packaged
from lgbench.results.unranked import Key, Unranked, rows_by_board, seeds_not_fitted, unlearned
from lgbench.results.values import Inside, MeasuredValues

Sentences = Mapping[Key, list[str]]
Counts = Mapping[Key, dict[str, int]]
"""By board and entry."""


ByEntry = dict[str, dict[str, list[float]]]
"""Learning rates by entry and task."""


class Results(MeasuredValues):
    """The runs of a folder, and the boards that are made from them."""

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
        """The boards of one metric, of all families or of one family or task. UsageError where a name is unknown.

        A probe by which no value is better has no board. With `inside` it has one without ranks, for plots: entries are in the
        order of their names.

        `protocol` is a name, which means its versions without changes, or a full label such as "standard/3 train.lr=0.001".
        The name "external" means all of what was tested of models that lgbench did not train, whose boards come last.
        `baseline` is the entry that the others are compared with, as on boards or short; by default it is BASELINE_ENTRY.
        With `apart`, every task has a board of its own, and families have none.
        """
        self.check(metric, name, protocol)
        if inside is None:
            self.require_ranks(metric)
        entry = self.baseline(baseline)
        asked = name, protocol, apart
        unfitted = self._not_fitted(*asked)
        incomplete, lacking = self._missing(metric, *asked)
        rates = self._learning_rates(*asked)
        return [
            replace(
                about,
                rows=ranked_rows(models, about.metric, about.train_length, unfitted.get(key[:3], {}), entry),
                incomplete=tuple(incomplete.get(key, ())),
                lacking=dict(lacking.get(key, {})),
                baseline=entry,
                learning_rates=rates.get(key[:3], {}),
            )
            for key, about, models, _ in self._in_order(metric, *asked, inside)
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
        """The curves against training steps of each board of :meth:`boards` whose models were tested while they trained.

        At these lengths; where none are named, at the default ones of each board.
        """
        self.check(metric, name, protocol)
        self.require_ranks(metric)
        asked = metric, name, protocol, apart
        rows = dict(rows_by_board(self._table("steps", *asked)))
        found = []
        for each in self._measured(*asked):
            if each.key in rows:
                steps, reasons = board_steps(each.about, rows[each.key], lengths)
                said = f"the curves of {each.key.name} by {metric} under protocol {each.about.protocol} at"
                self.no_boards.update(dict.fromkeys(f"{said} {reason}" for reason in reasons))
                found.append(steps)
        return found

    def overall(self, metric: str, protocol: str | None = None, *, baseline: str | None = None) -> list[Overall]:
        """For each protocol under which any entry ran all families, of which there are several, all these entries."""
        self.check(metric, None, protocol)
        self.require_ranks(metric)
        entry = self.baseline(baseline)
        found: dict[tuple[int, int], dict[str, Family]] = defaultdict(dict)
        for key, about, models, _ in self._measured(metric, None, protocol, False):  # of versions the newest first
            found[key.protocol, -key.metric_version].setdefault(key.name, Family(about, models))
        boards = (overall(tuple(families.values()), entry) for _, families in sorted(found.items()))
        return [board for board in boards if board]

    def models(self, metric: str, name: str | None = None, protocol: str | None = None) -> list[tuple[Board, Models]]:
        """Each board of :meth:`boards`, still without rows, and the values that its rows are made from."""
        return [(each.about, each.models) for each in self._in_order(metric, name, protocol, False)]

    def _measured(
        self, metric: str, name: str | None, protocol: str | None, apart: bool, inside: Inside | None = None
    ) -> list[Unranked]:
        """Boards that have any value, by name and label; of versions the newest first.

        Of whole models; but with `inside`, and of a metric that ranks nothing, of their layers and heads.
        """
        asked = metric, name, protocol, apart, inside
        if asked not in self._answers:
            every = (self._board(metric, *own) for own in rows_by_board(self.values(*asked)))
            found = [each for each in every if each]
            found.sort(key=_place)
            self._answers[asked] = found
        return self._answers[asked]

    def _in_order(
        self, metric: str, name: str | None, protocol: str | None, apart: bool, inside: Inside | None = None
    ) -> list[Unranked]:
        """The same; a board of one task on which longer inputs tell nothing is ranked by the ID mean."""
        lost = unlearned(self._measured(PRIMARY_METRIC, name, protocol, apart), self._not_fitted(name, protocol, apart))
        found = []
        for each in self._measured(metric, name, protocol, apart, inside):
            models = replace(each.models, unlearned=each.key[:3] in lost)
            about = replace(each.about, ranked_by=models.ranked_by[0])
            found.append(each._replace(about=about, models=models))
        return found

    def _not_fitted(self, name: str | None, protocol: str | None, apart: bool) -> Mapping[tuple[Any, ...], NotFitted]:
        """By family or task, version and protocol. Where several versions of the metric are measured, the newest one counts."""
        asked = name, protocol, apart
        if asked not in self._lost:
            self._lost[asked] = seeds_not_fitted(self._measured(PRIMARY_METRIC, *asked))
        return self._lost[asked]

    @cached_property
    def _lost(self) -> dict[tuple[str | None, str | None, bool], Mapping[tuple[Any, ...], NotFitted]]:
        """The results of :meth:`_not_fitted` so far, kept as those in :meth:`_answers` are."""
        return {}

    @cached_property
    def no_boards(self) -> dict[str, None]:
        """A sentence for each board that was asked for so far, and that is left out because it is too large."""
        return {}

    @cached_property
    def _answers(self) -> dict[tuple[str, str | None, str | None, bool, Inside | None], list[Unranked]]:
        """The results of :meth:`_measured` so far, since a page or many comparisons ask the same again and again."""
        return {}

    def _board(self, metric: str, key: Key, rows: pa.Table) -> Unranked | None:
        """None where no run file describes this version of the metric, or nothing has a value."""
        train_length = rows["train_length"][0].as_py()  # the same in all of them
        described = next((own for own in self.metrics if (own.name, own.version) == (metric, key.metric_version)), None)
        of_chance = pc.is_null(rows["entry"])
        values, levels = (
            Values.of_table(rows.filter(pc.invert(of_chance))),
            Values.of_table(named_chance(rows.filter(of_chance))),
        )
        if reason := Models.too_many(values) or Models.too_many(levels):
            said = f"the board of {key.name} by {metric} under protocol {self.protocols[key.protocol]}, since {reason}"
            self.no_boards[f"{said}; put runs that belong together into a results folder of their own"] = None
            return None
        models, chance = Models.of(values), Models.of(levels)
        if described is None or not models.columns:
            return None
        about = Board(
            name=key.name,
            metric=described,
            task_version=key.task_version,
            protocol=self.protocols[key.protocol],
            tasks=len(models.tasks),
            train_length=train_length or 0,
            chance=chance_levels(chance) if chance.tasks == models.tasks else (),
            rows=(),
            incomplete=(),
            unsound=unsound(models),
            lacking={},
            baseline=BASELINE_ENTRY,
        )
        return Unranked(key, about, models, chance)

    def _learning_rates(self, name: str | None, protocol: str | None, apart: bool) -> Mapping[tuple[Any, ...], ByEntry]:
        """By family or task, version and protocol, the learning rates that tuning chose."""
        asked = {"name": name, "protocols": self._numbers(protocol), "apart": apart}
        found: dict[tuple[Any, ...], dict[str, dict[str, list[float]]]] = defaultdict(dict)
        for *place, entry, task, rate in self._rows(packaged("learning_rates"), asked):
            found[tuple(place)].setdefault(entry, {}).setdefault(task, []).append(rate)
        return found

    def _missing(self, metric: str, name: str | None, protocol: str | None, apart: bool) -> tuple[Sentences, Counts]:
        """By board, what to say of seeds that lack runs, and how many seeds of each entry have runs that lack the metric."""
        incomplete: Sentences = defaultdict(list)
        lacking: Counts = defaultdict(lambda: defaultdict(int))
        for row in self._query("missing", metric, name, protocol, apart):
            key, (entry, seed, present, tasks) = Key(*row[:4]), row[4:]
            if present < tasks:
                incomplete[key].append(f"{entry} seed {seed} has {present} of the {tasks} tasks and is left out")
            else:
                lacking[key][entry] += 1
        return incomplete, lacking


def _place(board: Unranked) -> tuple[Any, ...]:
    """The order of boards: by name and protocol, of versions the newest first; models that lgbench did not train come last."""
    key, protocol = board.key, board.about.protocol
    return protocol.is_external, key.name, -key.task_version, str(protocol), -key.metric_version


def named_chance(chance: pa.Table) -> pa.Table:
    """The chance level as one entry with one seed."""
    named = {"entry": pa.repeat("chance", len(chance)), "seed": pa.repeat(pa.scalar(0, pa.int64()), len(chance))}
    return pa.table({name: named.get(name, chance[name]) for name in chance.column_names})


def read_results(path: str | Path = "results") -> duckdb.DuckDBPyRelation:
    """All rows of the runs in a folder as a DuckDB relation; files that are no runs are left out with a warning.

    The relation is of DuckDB's default connection, so `duckdb.sql` can name the variable that holds it. It reads the run files
    themselves, however much later it is asked.
    """
    opened = Results(path)
    for sentence in opened.left_out:
        warnings.warn(f"left out: {sentence}", stacklevel=2)
    rows = duckdb.read_parquet(opened.files, hive_partitioning=False, union_by_name=True)
    return rows.project(", ".join(n if n in rows.columns else f"null::integer as {n}" for n in SCHEMA.names))
