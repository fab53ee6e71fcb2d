"""DuckDB over run files: SQL chooses, joins and averages over tasks; :mod:`lgbench.ranking.boards` tells what seeds say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb

from lgbench import runfiles
from lgbench.contracts import METRICS
from lgbench.errors import RunFileError, UsageError, unknown
from lgbench.ranking import packs
from lgbench.ranking.boards import LEARNED, Board, Models, ranked_rows

MANY = 250
"""So many run files that are in no pack are packed; opening fewer takes less than half a second."""

SQL_TYPES = {"string": "varchar", "int32": "integer", "int64": "bigint", "double": "double", "bool": "boolean"}


class Results:
    """The runs of a folder as the DuckDB view `results`, and the files that had to be left out."""

    def __init__(self, folder: str | Path) -> None:
        """Raises UsageError where there is no folder, or no run in it."""
        self.folder = Path(folder)
        self.left_out: list[str] = []
        self._names: dict[str, list[str]] = {}
        if not self.folder.is_dir():
            raise UsageError(f"no results folder {str(folder)!r}; `lgbench run` makes one, and --results names another")
        self.connection = duckdb.connect()
        # Not from an empty Arrow table: DuckDB would import pandas, where that is installed, which takes longer than a board.
        columns = ", ".join(f"{field.name} {SQL_TYPES[str(field.type)]}" for field in runfiles.SCHEMA)
        self.connection.execute(f"create table loose ({columns})")
        found = packs.state(self.folder, runfiles.find(self.folder))
        self._packs, loose = packs.find(self.folder, found)
        self._loose: list[Path] = []
        self._load({name: loose[name] for name in loose if self._usable(self.folder / name, runfiles.metadata)})
        if not self.files:
            raise UsageError(f"no runs in {self.folder}; `lgbench run` makes them" + "".join(f"\n{o}" for o in self.left_out))
        rows = self.connection.table("loose")
        if self._packs:
            rows = self.connection.read_parquet([packs.unglobbed(pack) for pack in self._packs]).union(rows)
        rows.create_view("results")
        self.connection.execute(_sql("chosen"))

    @property
    def files(self) -> list[str]:
        """The Parquet files that together hold every row once, named as DuckDB wants it."""
        return [packs.unglobbed(path) for path in self._packs + self._loose]

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of any query over `results`. UsageError with DuckDB's words where it is wrong."""
        try:
            if not duckdb.extract_statements(sql):
                raise UsageError("the query is empty; try select * from results limit 5")
            cursor = self.connection.execute(sql)
            return [column[0] for column in cursor.description or []], cursor.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"the query failed: {error}") from error

    def boards(self, metric: str, name: str | None = None, protocol: str | None = None) -> list[Board]:
        """The boards of one metric, of all families or of one family or task. UsageError where a name is unknown."""
        self.check(metric, name, protocol)
        left_out = self._incomplete({"metric": metric, "name": name, "protocol": protocol})
        unlearned = self._unlearned({"name": name, "protocol": protocol, "most": LEARNED})
        found = []
        for about, models in self.models(metric, name, protocol):
            place = about.name, about.task_version, about.protocol
            ranked = ranked_rows(models, metric, about.train_length, unlearned.get(place, {}))
            found.append(replace(about, rows=ranked, incomplete=tuple(left_out.get(place, ()))))
        return found

    def check(self, metric: str, name: str | None, protocol: str | None) -> None:
        """Raise UsageError for the first name that these results do not know."""
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)
        self._check_known("task", name, "select distinct unnest([family, task]) from results")
        self._check_known("protocol", protocol, "select distinct unnest([split_part(protocol, '/', 1), protocol]) from results")

    def models(self, metric: str, name: str | None = None, protocol: str | None = None) -> list[tuple[Board, Models]]:
        """Of each board of :meth:`boards` what it is about, still without rows, and the values of every seed."""
        cursor = self.connection.execute(_sql("models"), {"metric": metric, "name": name, "protocol": protocol})
        found = []
        for key, own in groupby(cursor.fetchall(), itemgetter(slice(5))):
            board, task_version, label, tasks, train_length = key
            about = Board(board, metric, task_version, label, tasks, train_length or 0, (), ())
            found.append((about, Models.of(row[5:] for row in own)))
        return found

    def _incomplete(self, parameters: dict[str, str | None]) -> dict[tuple[str, int, str], list[str]]:
        found: dict[tuple[str, int, str], list[str]] = {}
        rows = self.connection.execute(_sql("incomplete"), parameters).fetchall()
        for board, version, protocol, entry, seed, present, tasks in rows:
            sentence = f"{entry} seed {seed} has {present} of the {tasks} tasks and is left out"
            found.setdefault((board, version, protocol), []).append(sentence)
        return found

    def _unlearned(self, parameters: dict[str, Any]) -> dict[tuple[str, int, str], dict[str, dict[str, list[int]]]]:
        found: dict[tuple[str, int, str], dict[str, dict[str, list[int]]]] = {}
        for board, version, protocol, entry, task, seeds in self.connection.execute(_sql("unlearned"), parameters).fetchall():
            found.setdefault((board, version, protocol), {}).setdefault(entry, {})[task] = seeds
        return found

    def _check_known(self, kind: str, name: str | None, known: str) -> None:
        if name is not None:
            if kind not in self._names:
                self._names[kind] = [str(row[0]) for row in self.connection.execute(known).fetchall()]
            if name not in self._names[kind]:
                raise UsageError(f"in {self.folder} there is {unknown(kind, name, self._names[kind])}")

    def _load(self, files: packs.Files) -> None:
        """Make run files with sound footers part of the results. Broken data are found by halves, and left out."""
        if len(files) >= MANY and (pack := packs.write(self.folder, files)):
            self._packs.append(pack)
            return
        paths = [self.folder / name for name in files]
        try:
            if paths:
                load = "insert into loose from read_parquet($paths, hive_partitioning = false)"
                self.connection.execute(load, {"paths": [packs.unglobbed(path) for path in paths]})
            self._loose += paths
        except duckdb.Error as error:
            if half := len(paths) // 2:
                for part in (list(files)[:half], list(files)[half:]):
                    self._load({name: files[name] for name in part})
            elif self._usable(paths[0], runfiles.read):
                raise RunFileError(f"DuckDB cannot read the runs in {self.folder}: {error}") from error

    def _usable(self, path: Path, check: Callable[[Path], object]) -> bool:
        try:
            check(path)
        except RunFileError as error:
            self.left_out.append(str(error))
            return False
        return True


def results(path: str | Path = "results") -> duckdb.DuckDBPyRelation:
    """All rows of the runs in a folder as a DuckDB relation; files that are no runs are left out with a warning.

    The relation is of DuckDB's default connection, so `duckdb.sql` can name the variable that holds it.
    """
    opened = Results(path)
    for sentence in opened.left_out:
        warnings.warn(f"left out: {sentence}", stacklevel=2)
    return duckdb.read_parquet(opened.files, hive_partitioning=False)


def _sql(name: str) -> str:
    return files("lgbench.ranking").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
