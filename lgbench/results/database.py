"""The runs of a results folder as a table of DuckDB, and what their footers say of metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import RunFileError, UsageError, first_line
from lgbench.experiment.record import ProtocolUse
from lgbench.results import cache, run_files
from lgbench.results.metrics import Metric, described
from lgbench.results.variants import Plugins, Use, suffixes

MANY = 250
"""So many run files that are in no cache file get one; opening fewer takes less than half a second."""

LIMITS = {"max_lengths": 1000, "max_text": 2000}
"""Boards show about twenty lengths, and names have at most hundreds of characters. A file with much more fills the memory."""

SQL_TYPES = {
    "string": "varchar",
    "int32": "integer",
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "map<string, string>": "map(varchar, varchar)",
}

_WRITING = {duckdb.StatementType.COPY, duckdb.StatementType.EXPORT}

Content = TypeVar("Content")


class Database:
    """The runs of a folder as the DuckDB view `results`, and the files that had to be left out."""

    def __init__(self, folder: str | Path) -> None:
        """Raises UsageError where there is no folder, or no run in it."""
        self.folder = Path(folder)
        self.left_out: list[str] = []
        self._guarded = False
        if not self.folder.is_dir():
            raise UsageError(f"no results folder {str(folder)!r}; `lgbench run` makes one, and --results names another")
        self.connection = duckdb.connect()
        # Not from an empty Arrow table: DuckDB would import pandas, where that is installed, which takes longer than a board.
        columns = ", ".join(f"{field.name} {SQL_TYPES[str(field.type)]}" for field in run_files.SCHEMA)
        self.connection.execute(f"create table loose ({columns})")
        readable = filter(self._has_text, run_files.find(self.folder))
        self._cached, found = cache.find(self.folder, cache.state(self.folder, readable))
        footers = {name: about for name in found if (about := self._read(name, run_files.metadata))}
        self._described = {name: described(about) for name, about in footers.items()}
        self._loose: list[str] = []
        self._load({name: found[name] for name in footers})
        if not self.files:
            raise UsageError(f"no runs in {self.folder}; `lgbench run` makes them" + "".join(f"\n{o}" for o in self.left_out))
        rows = self.connection.table("loose")
        if self._cached:
            rows = self.connection.read_parquet([cache.unglobbed(own.path) for own in self._cached]).union(rows)
        rows.create_view("results")

    def _has_text(self, path: Path) -> bool:
        """Whether a path is text, which DuckDB needs. A name on a disk may be any bytes."""
        try:
            str(path).encode()
        except UnicodeEncodeError:
            self.left_out.append(f"{str(path)!r} cannot be read: its name is not UTF-8; rename it")
            return False
        return True

    @property
    def files(self) -> list[str]:
        """The Parquet files that together hold every row once, named as DuckDB wants it."""
        cached, loose = [own.path for own in self._cached], [self.folder / name for name in self._loose]
        return [cache.unglobbed(path) for path in cached + loose]

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric that run files describe, in all its versions: the primary one first, then by name, the newest first.

        Where run files describe one version in several ways, the way of the most run files counts.
        """
        counts = sum((own.descriptions for own in self._cached), self._descriptions(self._loose))
        found: dict[tuple[str, int], Metric] = {}
        for metric in sorted(counts, key=lambda metric: (counts[metric], repr(metric))):
            found[metric.name, metric.version] = metric
        return tuple(sorted(found.values(), key=lambda metric: (metric.name != PRIMARY_METRIC, metric.name, -metric.version)))

    @property
    def metric_names(self) -> list[str]:
        """The names of all metrics, the primary one first."""
        return list(dict.fromkeys(metric.name for metric in self.metrics))

    @cached_property
    def protocols(self) -> Mapping[int, ProtocolUse]:
        """Every protocol with its version and changes, by its number in the tables that boards are made from."""
        self._name_variants()
        self.connection.execute(packaged("scores"))
        rows = self.connection.execute("select * from protocols").fetchall()
        return {number: ProtocolUse(name, version, tuple(sorted(changes.items()))) for number, name, version, changes in rows}

    def label(self, entry: str, weights: str, plugins: Mapping[str, str]) -> str:
        """The name on boards of an entry's weights whose numbers these packages decide."""
        suffix = self._suffixes.get(((entry, weights), tuple(sorted(plugins.items()))), "")
        return entry + suffix + ("" if weights == "raw" else f"@{weights}")

    @cached_property
    def _suffixes(self) -> Mapping[tuple[tuple[str, str], Plugins], str]:
        """Those that tell the versions of a package apart, by entry with weights, and packages."""
        found = self.connection.execute(packaged("made_with")).fetchall()
        return suffixes(Use((entry, weights), task, tuple(sorted(plugins.items()))) for entry, weights, plugins, task in found)

    def _name_variants(self) -> None:
        """Make the table of entries with several versions of a package, and of their suffixes."""
        kind = SQL_TYPES[str(run_files.SCHEMA.field("plugins").type)]
        self.connection.execute(f"create table variants (entry varchar, weights varchar, plugins {kind}, suffix varchar)")
        named = [
            (entry, weights, dict(plugins), suffix) for ((entry, weights), plugins), suffix in self._suffixes.items() if suffix
        ]
        if named:
            self.connection.executemany("insert into variants values (?, ?, ?, ?)", named)

    @cached_property
    def task_names(self) -> list[str]:
        """The names of all tasks and families."""
        rows = self.connection.execute("select distinct unnest([family, task]) from results").fetchall()
        return [str(row[0]) for row in rows]

    def guard(self) -> None:
        """From now on, queries read the results alone. They write no file, load no extension and change no setting."""
        own = ", ".join("'" + str(cached.path).replace("'", "''") + "'" for cached in self._cached)
        self.connection.execute(f"set allowed_paths = [{own}]")
        self.connection.execute("set enable_external_access = false; set lock_configuration = true")
        self._guarded = True

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of any query over `results`. UsageError with DuckDB's words where it is wrong."""
        try:
            statements = duckdb.extract_statements(sql)
            if not statements:
                raise UsageError("the query is empty; try select * from results limit 5")
            if self._guarded and _WRITING & {statement.type for statement in statements}:
                raise UsageError("the query writes a file, which --unsafe allows")
            cursor = self.connection.execute(sql)
            return [column[0] for column in cursor.description or []], cursor.fetchall()
        except duckdb.PermissionException as error:
            raise UsageError(f"the query reaches for more than the table `results`, which --unsafe allows: {error}") from error
        except duckdb.Error as error:
            raise UsageError(f"the query failed: {error}") from error

    def _load(self, files: cache.Files) -> None:
        """Make run files with sound footers part of the results. Broken data are found by halves, and left out."""
        try:
            unsound = self._unsound(files)
        except duckdb.Error as error:
            self._load_halves(files, error)
            return
        self.left_out += [f"{self.folder / name} cannot be on a board: {reason}" for name, reason in unsound.items()]
        files = {name: state for name, state in files.items() if name not in unsound}
        if len(files) >= MANY and (cached := cache.write(self.folder, files, self._descriptions(files))):
            self._cached.append(cached)
            return
        try:
            if files:
                load = "insert into loose from read_parquet($paths, hive_partitioning = false)"
                self.connection.execute(load, {"paths": [cache.unglobbed(self.folder / name) for name in files]})
            self._loose += files
        except duckdb.Error as error:
            self._load_halves(files, error)

    def _load_halves(self, files: cache.Files, error: duckdb.Error) -> None:
        names = list(files)
        if half := len(names) // 2:
            for part in (names[:half], names[half:]):
                self._load({name: files[name] for name in part})
        elif self._read(names[0], run_files.read):
            self.left_out.append(f"{self.folder / names[0]} cannot be read by DuckDB: {first_line(error)}")

    def _unsound(self, files: cache.Files) -> dict[str, str]:
        """The files whose rows cannot be on a board, each with the reason."""
        if not files:
            return {}
        names = {str(self.folder / name): name for name in files}
        asked = {"paths": [cache.unglobbed(Path(path)) for path in names], **LIMITS}
        return {names[path]: reason for path, reason in self.connection.execute(packaged("unsound"), asked).fetchall()}

    def _descriptions(self, names: Iterable[str]) -> Counter[Metric]:
        """How many of these run files describe a metric so."""
        return Counter(chain.from_iterable(self._described[name] for name in names))

    def _read(self, name: str, read: Callable[[Path], Content]) -> Content | None:
        """What `read` returns of a run file; None where it refuses the file, which is then left out."""
        try:
            return read(self.folder / name)
        except RunFileError as error:
            self.left_out.append(str(error))
            return None


def packaged(name: str) -> str:
    """The text of an SQL file."""
    return files("lgbench.results").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
