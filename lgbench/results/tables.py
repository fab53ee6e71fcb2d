"""Run files and submission files become tables of DuckDB: from copies in the cache, or from the files themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from lgbench.errors import RunFileError, first_line
from lgbench.results import cache, run_files
from lgbench.results.cache import Ways
from lgbench.results.metrics import Metric, described
from lgbench.results.run_schema import SCHEMA

MANY = 250
"""So many runs that are in no cache file get one; reading fewer takes less than half a second."""

AT_ONCE = 2000
"""So many runs are read at once, and get a cache file: their rows have room in the memory."""

MOST = 2000
"""So many runs that are in no cache file are kept in the memory. Those beyond are read by every query."""

LIMITS = {"max_lengths": 1000, "max_text": 2000}
"""Boards show about twenty lengths, and names have at most hundreds of characters. A file with much more fills the memory."""

ASIDE = ("path", "largest", "shown", "stepless")
"""The columns of kinds.sql that say whether a file is sound; the view `kinds` has none of them."""

SQL_TYPES = {
    "string": "varchar",
    "int32": "integer",
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "map<string, string>": "map(varchar, varchar)",
}

Content = TypeVar("Content")


class Tables:
    """The rows of the files of a folder, as the views `results`, `final` and `kinds` of a connection."""

    folder: Path

    def _open(self, files: run_files.Files, *, cached: bool = True) -> None:
        """Make a connection with the view `results` of the rows of these files. If not `cached`, the cache is left alone."""
        self.left_out: list[str] = []
        self.connection = duckdb.connect()
        # Not from an empty Arrow table: DuckDB would import pandas, where that is installed, which takes longer than a board.
        columns = [f"{name} {SQL_TYPES[str(SCHEMA.field(name).type)]}" for name in cache.KIND]
        points = [f"{name} {SQL_TYPES[str(SCHEMA.field(name).type)]}" for name in cache.IN_POINTS]
        self.connection.execute(
            f"create table loose ({', '.join(columns)}, lengths integer, first_step integer, last_step integer, "
            f"points struct({', '.join(points)})[])"
        )
        self._root = self.folder.resolve()
        self._files, readable = files, {name: own for name, own in files.items() if self._has_text(name)}
        self._cached, found = cache.find(self.folder, readable) if cached else ([], readable)
        self._described: dict[str, Ways] = {}
        known: dict[str, tuple[Metric, ...]] = {}  # nearly all runs say the same
        for name in found:
            if footers := self._read(name, run_files.footers):
                self._described[name] = _ways(footers.values(), known)
        self._loose: list[str] = []
        self._unread: list[str] = []
        for part in batched({name: self._runs_in(name) for name in self._described}, AT_ONCE):
            self._load({name: found[name] for name in part}, cached=cached)
        self._make_views()

    def _make_views(self) -> None:
        """The views `results`, of rows, `kinds`, as kinds.sql makes them, and those of final.sql."""
        whole = [cache.quoted(cache.unglobbed(str(own.path))) for own in self._cached if not own.others]
        kinds = ["from loose", *(own.kinds(self.folder) for own in self._cached if own.others)]
        if whole:
            kinds.append(f"select * exclude ({cache.PATH}) from read_parquet([{', '.join(whole)}])")
        flat = ", ".join(f"point.{name}" if name in cache.IN_POINTS else name for name in SCHEMA.names)
        rows = [f"select {flat} from (select *, unnest(points) as point from ({' union all '.join(kinds)}))"]
        if self._unread:
            paths = f"[{', '.join(cache.quoted(self._path(name)) for name in self._unread)}]"
            rows.append(f"from read_parquet({paths}, hive_partitioning = false)")
            read = packaged("kinds").replace("read_parquet($paths", f"read_parquet({paths}")
            kinds.append(f"select * exclude ({', '.join(ASIDE)}) from ({read})")
        self.connection.execute(f"create view results as {' union all '.join(rows)}")
        self.connection.execute(f"create view kinds as {' union all '.join(kinds)}")
        self.connection.execute(packaged("final"))

    def _path(self, name: str) -> str:
        """The path of a run file, as DuckDB wants it."""
        return cache.unglobbed(f"{self._root}/{name}")

    def _has_text(self, name: str) -> bool:
        """Whether a path is text, which DuckDB needs. A name on a disk may be any bytes."""
        try:
            f"{self._root}/{name}".encode()
        except UnicodeEncodeError:
            self.left_out.append(f"{str(self.folder / name)!r} cannot be read: its name is not UTF-8; rename it")
            return False
        return True

    @property
    def names(self) -> list[str]:
        """The files that together hold every row once, by their names within the folder."""
        return [name for own in self._cached for name in own.names] + self._loose + self._unread

    def _runs_in(self, *names: str) -> int:
        """How many runs some files have that are in no cache file."""
        return sum(self._described[name].total() for name in names)

    @property
    def files(self) -> list[str]:
        """The files, named as DuckDB wants it."""
        return [self._path(name) for name in self.names]

    def _load(self, files: run_files.Files, *, cached: bool) -> None:
        """Make files with sound footers part of the results. Broken data are found by halves, and left out."""
        if not files:
            return
        paths = {"paths": [self._path(name) for name in files]}
        try:
            self.connection.execute(f"create or replace temp table opened as {packaged('kinds')}", paths)
            unsound = self._unsound(files)
        except duckdb.Error as error:
            self._load_halves(files, error, cached=cached)
            return
        self.left_out += [f"{self.folder / name} cannot be on a board: {reason}" for name, reason in unsound.items()]
        files = {name: state for name, state in files.items() if name not in unsound}
        if self._runs_in(*files) >= MANY and cached and (new := self._written(files)):
            self._cached.append(new)
        elif self._runs_in(*self._loose, *files) > MOST:
            self._unread.extend(files)
        else:
            self.connection.execute(f"insert into loose select * exclude ({', '.join(ASIDE)}) from opened")
            self._loose.extend(files)
        self.connection.execute("drop table opened")

    def _written(self, files: run_files.Files) -> cache.CacheFile | None:
        return cache.write(self.folder, files, self._described, self.connection, "opened")

    def _load_halves(self, files: run_files.Files, error: duckdb.Error, *, cached: bool) -> None:
        names = list(files)
        if half := len(names) // 2:
            for part in (names[:half], names[half:]):
                self._load({name: files[name] for name in part}, cached=cached)
        elif self._read(names[0], _is_readable):
            self.left_out.append(f"{self.folder / names[0]} cannot be read by DuckDB: {first_line(error)}")

    def _unsound(self, names: Iterable[str]) -> dict[str, str]:
        """The files of the table `opened` whose rows cannot be on a board, each with the reason. The table loses them."""
        expected = {f"{self._root}/{name}": self._runs_in(name) for name in names}
        asked = LIMITS | {"paths": list(expected), "runs": list(expected.values())}
        found = self.connection.execute(packaged("unsound"), asked).fetchall()
        if found:
            self.connection.execute(
                "delete from opened where list_contains($paths, path)", {"paths": [path for path, _ in found]}
            )
        return {path.removeprefix(f"{self._root}/"): reason for path, reason in found}

    def _read(self, name: str, read: Callable[[Path], Content]) -> Content | None:
        """The content of a file, as `read` returns it; None where `read` refuses the file, which is then left out."""
        try:
            return read(self.folder / name)
        except RunFileError as error:
            self.left_out.append(str(error))
            return None


def _ways(footers: Iterable[Mapping[str, Any]], known: dict[str, tuple[Metric, ...]]) -> Ways:
    """Each description of metrics in footers, and how many footers have it. `known` has those that were read, by text."""
    ways: Ways = Counter()
    for footer in footers:
        said = repr(footer.get("measurements"))
        if said not in known:
            known[said] = tuple(described(footer))
        ways[known[said]] += 1
    return ways


def _is_readable(path: Path) -> bool:
    run_files.require_readable(path)
    return True


def batched(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    """Names in parts whose sizes add up to at most so many; a name of a larger size is a part alone."""
    part: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if part and filled + size > most:
            yield part
            part, filled = [], 0
        part.append(name)
        filled += size
    if part:
        yield part


def packaged(name: str) -> str:
    """The text of an SQL file."""
    return files("lgbench.results").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
