"""Runs of a results folder as DuckDB views on run files and submission files, and their models under the names of boards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from filecmp import cmp
from functools import cached_property
from importlib.resources import files
from itertools import groupby, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from lgbench.contracts import CONTEXT_FREE, PRIMARY_METRIC, Facts
from lgbench.errors import RunFileError, UsageError, first_line
from lgbench.experiment.record import ExperimentRecord, ProtocolUse, deciding
from lgbench.results import run_files
from lgbench.results.entries import Use, suffixes
from lgbench.results.file_format import Place
from lgbench.results.merging import different
from lgbench.results.metrics import Metric, described
from lgbench.terminal import printable

Answer = TypeVar("Answer")


class Database:
    """Runs of a folder as the DuckDB views `results` and `final`, the table `facts`, and a sentence for each omitted file.

    The files are checked and listed once. Run files are made once and never replaced, so nothing changes under a reader unless
    somebody deletes a file.
    """

    def __init__(self, folder: str | Path, reference: Path | None = None) -> None:
        """Open a folder, with the runs of the folder `reference` beside its own.

        Raises UsageError for a missing folder, or without runs. Reference runs make up for both, with a sentence in `left_out`.
        """
        self.folder, self.reference = Path(folder), reference
        self.files: list[Path] = []
        self.left_out: list[str] = []
        self.records: dict[str, ExperimentRecord] = {}
        self.facts: dict[str, Facts] = {}
        """What is published about tasks, by name."""
        self._file_of: dict[str, Path] = {}
        """First file of each run."""
        self._repeated: set[str] = set()
        """Runs that are in several files."""
        self._differing: list[tuple[Path, str]] = []
        """File and run id of each run with other numbers in an earlier file, which counts."""
        self._measurements: dict[bytes, None] = {}  # each text once, for thousands of runs have the same
        if not self.folder.is_dir():
            missing = f"no results folder {str(folder)!r}; `lgbench run` makes one, and --results names another"
            if reference is None:
                raise UsageError(missing)
            self.left_out.append(missing)
        for path in run_files.find(self.folder):
            self._add(path)
        self.own = frozenset(self.records)
        for path in run_files.find(reference) if reference else ():
            self._add(path)
        if not self.files:
            reasons = "".join(f"\n{printable(sentence)}" for sentence in self.left_out)
            raise UsageError(
                f"no {'readable ' if self.left_out else ''}runs in {self.place}; `lgbench run` makes them{reasons}"
            )
        self.connection = duckdb.connect()
        self.connection.execute("set enable_progress_bar = false")  # it is written to standard output, where data go
        # Queries ask for the same files several times.
        self.connection.execute("set parquet_metadata_cache = true")
        self.connection.execute(f"create view results as {self.every_row}")
        for name in ("final", "facts", "models"):
            self.connection.execute(packaged(name))
        if self.facts:
            told = pa.Table.from_pylist([{"task": task} | vars(facts) for task, facts in self.facts.items()])  # noqa: F841
            self.connection.execute("insert into facts by name select * from told")

    def _add(self, path: Path) -> None:
        try:
            runs = run_files.checked(path).recorded()
        except RunFileError as error:
            self.left_out.append(str(error))
        else:
            first = next((self._file_of[run.run_id] for run in runs if run.run_id in self._file_of), None)
            if first and cmp(first, path, shallow=False):
                return  # copies of a file are frequent
            self.files.append(path)
            for run in runs:
                if self._counts(path, run.run_id):
                    self.records[run.run_id] = run.metadata.experiment
                    if run.metadata.facts:
                        self.facts[run.metadata.experiment.task] = run.metadata.facts
            self._measurements.update(dict.fromkeys(bytes(run.metadata.measurements) for run in runs))

    def _counts(self, path: Path, run_id: str) -> bool:
        """Whether the numbers of a run in a file count: all but those that differ from an earlier file of the run."""
        first = self._file_of.setdefault(run_id, path)
        if first == path:
            return True
        self._repeated.add(run_id)
        if other := different(run_id, first, path):
            self._differing.append((path, run_id))
            self.left_out.append(f"{other}; the first counts")
        return not other

    @property
    def place(self) -> str:
        """Folders with the runs, for messages."""
        return printable(" and ".join(str(folder) for folder in (self.folder, self.reference) if folder))

    @property
    def every_row(self) -> str:
        """SQL query of all rows, each number of a run once."""
        # In DuckDB, brackets and stars in a path are patterns.
        escaped = [re.sub(r"[*?[]", lambda special: f"[{special[0]}]", str(path.absolute())) for path in self.files]
        paths = ", ".join(map(_quoted, escaped))
        # Else a folder named a=b would be a column.
        every = f"from read_parquet([{paths}], hive_partitioning = false, filename = true)"
        if not self._repeated:
            return f"select * exclude (filename) {every}"
        repeated = ", ".join(map(_quoted, sorted(self._repeated)))
        differing = ", ".join(f"({_quoted(str(path.absolute()))}, {_quoted(run_id)})" for path, run_id in self._differing)
        same = f"and (filename, run_id) not in ({differing})" if differing else ""
        return f"""select * exclude (filename) {every} where run_id not in ({repeated})
            union all (
                select distinct on (run_id, {", ".join(Place._fields)}) * exclude (filename) {every}
                where run_id in ({repeated}) {same}
                order by filename
            )"""

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics described by runs, in all versions: the primary metric first, then by name, newest version first.

        Of several descriptions of one version, the first counts.
        """
        found: dict[tuple[str, int], Metric] = {}
        for text in self._measurements:
            for metric in described({"measurements": json.loads(text)}):
                found.setdefault((metric.name, metric.version), metric)
        return tuple(sorted(found.values(), key=lambda metric: (metric.name != PRIMARY_METRIC, metric.name, -metric.version)))

    @property
    def metric_names(self) -> list[str]:
        """Names of all metrics, the primary metric first."""
        return list(dict.fromkeys(metric.name for metric in self.metrics))

    @property
    def ranking_names(self) -> list[str]:
        """Names of metrics with ranks, the primary metric first."""
        return list(dict.fromkeys(metric.name for metric in self.metrics if metric.ranks))

    @cached_property
    def protocols(self) -> Mapping[int, ProtocolUse]:
        """Protocols with version and changes, by their numbers in the table `models`. Fills that table."""
        uses = most_telling_first({each.protocol for each in self.records.values()})
        numbers = {use: number for number, use in enumerate(uses, 1)}
        named = _columns(self.records, numbers, self.own)  # noqa: F841  # DuckDB finds the table by the name of the variable
        self.connection.execute("insert into models from named")
        return {number: use for use, number in numbers.items()}

    @cached_property
    def families(self) -> set[str]:
        """Names of all families."""
        return {family for (family,) in self.rows("select distinct family from models")}

    @cached_property
    def task_names(self) -> list[str]:
        """Names of all tasks and families."""
        return [name for (name,) in self.rows("select distinct unnest([family, task]) from models")]

    @cached_property
    def entry_order(self) -> list[str]:
        """All entries in one order for colours: raw weights first, those with runs on most tasks and protocols first."""
        counted = """select entry from models where entry is not null group by entry, weights
        order by weights != 'raw', count(distinct (task, task_version, protocol)) desc, entry"""
        return list(dict.fromkeys(entry for (entry,) in self.rows(counted)))

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query of lgbench, on the tables of sql/models.sql."""
        return self._answer(lambda: self.connection.execute(sql, parameters).fetchall())

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Result of a query of lgbench as an Arrow table."""
        return self._answer(lambda: self.connection.sql(sql, params=parameters).to_arrow_table())

    def _answer(self, query: Callable[[], Answer]) -> Answer:
        """Answer to a query of lgbench. Raises RunFileError for a file with broken rows, or deleted meanwhile."""
        self.protocols  # noqa: B018  # fills the table
        try:
            return query()
        except duckdb.Error as error:
            for path in self.files:
                run_files.read(path)  # raises with the name of the file, which DuckDB may not give
            raise RunFileError(f"the run files cannot be queried: {first_line(error)}") from error

    def metadata(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Run id and metadata of each run. Raises RunFileError for a file that was deleted after the folder was opened."""
        for path in self.files:
            yield from run_files.metadata_of_runs(path).items()

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a user's query on `results`, `final` and `facts`. UsageError with DuckDB's message."""
        try:
            if not duckdb.extract_statements(sql):
                raise UsageError("the query is empty; try select * from results limit 5")
            answer = self.connection.execute(sql)
            return [column[0] for column in answer.description or []], answer.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"the query failed: {error}") from error


def packaged(name: str) -> str:
    """Text of an SQL file of lgbench."""
    return files("lgbench.results").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    """SQL literal, for statements in which DuckDB takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


MOST_TELLING = ("standard", "paper", "long", "short", "quick")
"""Protocols in the order in which reports show their runs. Other names follow."""


def most_telling_first(uses: Iterable[ProtocolUse]) -> list[ProtocolUse]:
    """Protocols as reports order them: by name, the newest version first; then those with changes, then external models.

    >>> uses = [ProtocolUse("quick", 5), ProtocolUse("standard", 7, (("train.lr", "0.1"),)), ProtocolUse("standard", 6)]
    >>> [str(use) for use in most_telling_first([*uses, ProtocolUse("standard", 7)])]
    ['standard/7', 'standard/6', 'quick/5', 'standard/7 train.lr=0.1']
    """

    def place(use: ProtocolUse) -> tuple[object, ...]:
        rank = MOST_TELLING.index(use.name) if use.name in MOST_TELLING else len(MOST_TELLING)
        return use.is_external, bool(use.changes), rank, use.name, -use.version, use.changes

    return sorted(uses, key=place)


class _TaskVersion(NamedTuple):
    """Version of a task under a protocol."""

    protocol: int
    family: str
    task: str
    version: int


def _columns(records: Mapping[str, ExperimentRecord], numbers: Mapping[ProtocolUse, int], own: Collection[str]) -> pa.Table:
    """Rows of the table `models`, from records by run id, and the ids of own runs."""
    used = {run_id: dict(_uses(each)) for run_id, each in records.items()}
    named = suffixes({use for own in used.values() for use in own.values()})
    found: list[tuple[Any, ...]] = []
    tasks = {
        run_id: _TaskVersion(numbers[each.protocol], each.family, each.task, each.task_version)
        for run_id, each in records.items()
    }
    versions = _family_versions(tasks.values())
    for run_id, each in records.items():
        place = each.family, each.task, each.task_version, versions[tasks[run_id]], numbers[each.protocol]
        trained = each.train.steps, each.train.max_length, run_id in own
        for weights, use in used[run_id].items():
            entry = each.entry + named[use.entry, use.protocol, use.plugins] + ("" if weights == "raw" else f"@{weights}")
            found.append((run_id, weights, *place, entry, each.seed, *trained))
        found.append((run_id, CONTEXT_FREE, *place, None, None, *trained))
    return pa.table([pa.array(own) for own in zip(*found, strict=True)], [str(place) for place in range(len(found[0]))])


def _family_versions(runs: Iterable[_TaskVersion]) -> dict[_TaskVersion, list[int]]:
    """Versions of the boards of a family that have a version of a task.

    A board of version N has each task in its newest version up to N. There is a board of the newest version of any task, and
    boards of the versions of tasks that have newer ones, each among the runs of one protocol.

    >>> one, two, new = (_TaskVersion(1, "dyck", *own) for own in (("dyck-1", 1), ("dyck-2", 1), ("dyck-2", 2)))
    >>> [*_family_versions([one, new]).values()], [*_family_versions([one, two, new]).values()]
    ([[2], [2]], [[1, 2], [1], [2]])
    """
    versions = sorted({*runs})
    until = {one: other.version for one, other in pairwise(versions) if one[:3] == other[:3]}
    boards: dict[tuple[int, str], set[int]] = {}
    for family, own in groupby(versions, lambda one: one[:2]):
        every = [*own]
        boards[family] = {one.version for one in every if one in until} | {max(one.version for one in every)}
    return {one: sorted(n for n in boards[one[:2]] if one.version <= n < until.get(one, inf)) for one in versions}


def _uses(record: ExperimentRecord) -> Iterator[tuple[str, Use[tuple[str, str]]]]:
    """Packages behind the numbers of a run, by weights."""
    protocol = record.protocol.name, record.protocol.version
    for weights in ("raw", *record.averagers):
        plugins = tuple(sorted(deciding(record.plugins, weights)))
        yield weights, Use((record.entry, weights), record.task, protocol, plugins)
