"""The runs of a results folder as a table of DuckDB, and what their footers say of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import RunFileError, UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.results import cache, run_files
from lgbench.results.metrics import Metric
from lgbench.results.run_schema import SCHEMA
from lgbench.results.tables import SQL_TYPES, Tables, packaged
from lgbench.results.variants import Plugins, Protocol, Use, suffixes
from lgbench.terminal import printable

READINGS = 5
"""So often a folder is read that changes while it is read."""

_MISTAKES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
"""The errors of DuckDB for a wrong query. For a broken file it raises any other error."""
_WRITING = {duckdb.StatementType.COPY, duckdb.StatementType.EXPORT}

Content = TypeVar("Content")


def _with_names(answer: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[Any, ...]]]:
    return [column[0] for column in answer.description or []], answer.fetchall()


class Database(Tables):
    """The runs of a folder as the DuckDB views `results` and `final`, and the files that had to be left out.

    All that it says is of one moment, even if run files come, change and go meanwhile.
    """

    def __init__(self, folder: str | Path) -> None:
        """Raises UsageError where there is no folder, or no run in it."""
        self.folder = Path(folder)
        self._guarded = False
        if not self.folder.is_dir():
            raise UsageError(f"no results folder {str(folder)!r}; `lgbench run` makes one, and --results names another")
        self._open_unchanged()
        if not self.names:
            reasons = "".join(f"\n{printable(sentence)}" for sentence in self.left_out)
            raise UsageError(f"no runs in {printable(str(self.folder))}; `lgbench run` makes them{reasons}")

    def _open_unchanged(self) -> None:
        """Open the run files of one moment: those that are the same before and after."""
        cached = True
        for _ in range(READINGS):
            found = self._find()
            try:
                self._open(found, cached=cached)
            except duckdb.Error:  # a file was deleted since it was found
                cached = False
                continue
            if self._find() == found:
                return
        if vars(self).get("_files") != found:
            raise self._changed()
        self.left_out.append(f"what changed in {self.folder} while it was read, {READINGS} times in a row")

    def _changed(self) -> RunFileError:
        return RunFileError(f"run files in {printable(str(self.folder))} changed while they were read; give the command again")

    def _find(self) -> run_files.Files:
        """The run files as they are now, whatever their names are."""
        return run_files.states(self.folder)

    def _read_again(self) -> None:
        """Leave the cache alone, of which something was deleted or is broken. RunFileError if the run files have changed."""
        if self._find() != self._files:
            raise self._changed()
        said = self.left_out
        self._open(self._files, cached=False)
        self.left_out = said
        if "_suffixes" in vars(self):
            self._name_variants()
        if "protocols" in vars(self):
            self.connection.execute(packaged("scores"))
        if self._guarded:
            self.guard()

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric that runs describe, in all its versions: the primary one first, then by name, the newest first.

        Where runs describe one version in several ways, the way of the most runs counts.
        """
        read = cache.descriptions(self._described[name] for name in self._loose + self._unread)
        counts = sum((own.descriptions for own in self._cached), read)
        found: dict[tuple[str, int], Metric] = {}
        for metric in sorted(counts, key=lambda metric: (counts[metric], repr(metric))):
            found[metric.name, metric.version] = metric
        return tuple(sorted(found.values(), key=lambda metric: (metric.name != PRIMARY_METRIC, metric.name, -metric.version)))

    @property
    def metric_names(self) -> list[str]:
        """The names of all metrics, the primary one first."""
        return list(dict.fromkeys(metric.name for metric in self.metrics))

    @property
    def ranking_names(self) -> list[str]:
        """The names of the metrics that entries can be ranked by, the primary one first."""
        return list(dict.fromkeys(metric.name for metric in self.metrics if metric.ranks))

    @cached_property
    def protocols(self) -> Mapping[int, ProtocolUse]:
        """Every protocol with its version and changes, by its number in the tables that boards are made from."""
        self._name_variants()
        self._rows(packaged("scores"))
        rows = self._rows("select * from protocols")
        return {number: ProtocolUse(name, version, tuple(sorted(changes.items()))) for number, name, version, changes in rows}

    def label(self, entry: str, weights: str, plugins: Mapping[str, str], protocol: Protocol) -> str:
        """The name on boards of an entry's weights whose numbers these packages decide, under this version of a protocol."""
        suffix = self._suffixes.get(((entry, weights), protocol, tuple(sorted(plugins.items()))), "")
        return entry + suffix + ("" if weights == "raw" else f"@{weights}")

    @cached_property
    def _suffixes(self) -> Mapping[tuple[tuple[str, str], Protocol, Plugins], str]:
        """Those that tell the versions of a package apart, by entry with weights, protocol, and packages."""
        return suffixes(
            Use((entry, weights), task, (protocol, version), tuple(sorted(plugins.items())))
            for entry, weights, plugins, task, protocol, version in self._rows(packaged("made_with"))
        )

    def _name_variants(self) -> None:
        """Make the table of entries with several versions of a package, and of their suffixes."""
        named = [
            (entry, weights, *protocol, dict(plugins), suffix)
            for ((entry, weights), protocol, plugins), suffix in self._suffixes.items()
            if suffix
        ]
        kind = SQL_TYPES[str(SCHEMA.field("plugins").type)]
        self.connection.execute(
            f"""create or replace table variants
            (entry varchar, weights varchar, protocol varchar, protocol_version integer, plugins {kind}, suffix varchar)"""
        )
        if named:
            self.connection.executemany("insert into variants values (?, ?, ?, ?, ?, ?)", named)

    @cached_property
    def task_names(self) -> list[str]:
        """The names of all tasks and families."""
        return [str(row[0]) for row in self._rows("select distinct unnest([family, task]) from results")]

    def guard(self) -> None:
        """From now on, queries read the results alone. They write no file, load no extension and change no setting."""
        own = [str(cached.path) for cached in self._cached] + [f"{self._root}/{name}" for name in self._unread]
        if any(cache.unglobbed(path) != path for path in own):  # which DuckDB searches for, and may not from now on
            for view in ("results", "lasts"):
                self.connection.execute(f"create table kept_{view} as from {view}")
                self.connection.execute(f"create or replace view {view} as from kept_{view}")
        self.connection.execute(f"set allowed_paths = [{', '.join(map(cache.quoted, own))}]")
        self.connection.execute("set enable_external_access = false; set lock_configuration = true")
        self._guarded = True

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of any query over these views. UsageError with DuckDB's words where it is wrong."""
        try:
            statements = duckdb.extract_statements(sql)
            if not statements:
                raise UsageError("the query is empty; try select * from results limit 5")
            if self._guarded and _WRITING & {statement.type for statement in statements}:
                raise UsageError("the query writes a file, which --unsafe allows")
            return self._answer(lambda connection: _with_names(connection.execute(sql)))
        except duckdb.PermissionException as error:
            more = "the query reaches for more than the tables `results` and `final`, which --unsafe allows"
            raise UsageError(f"{more}: {error}") from error
        except duckdb.Error as error:
            raise UsageError(f"the query failed: {error}") from error

    def footers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The footer of each run, with the run id. A file that is gone, or is broken by now, is left out."""
        for name in self.names:
            yield from (self._read(name, run_files.footers) or {}).items()

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of one of the queries of lgbench."""
        return self._rows(sql, parameters)

    def _rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._answer(lambda connection: connection.execute(sql, parameters).fetchall())

    def _arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        return self._answer(lambda connection: connection.sql(sql, params=parameters).to_arrow_table())

    def _answer(self, ask: Callable[[duckdb.DuckDBPyConnection], Content]) -> Content:
        """The result of `ask`, which is called again without the cache if a cache file was deleted or is broken."""
        try:
            answer = ask(self.connection)
        except duckdb.Error as error:
            if self._unread and self._find() != self._files:
                raise self._changed() from error
            there = all(own.path.exists() for own in self._cached)
            if not self._cached or (there and isinstance(error, _MISTAKES)):
                raise
            self._read_again()
            answer = ask(self.connection)
        if self._unread and self._find() != self._files:
            raise self._changed()
        return answer
