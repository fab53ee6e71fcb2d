"""Stored runs: typed metadata, rows and saved weights of run files and submission files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from lgbench.contracts import Facts
from lgbench.errors import RunFileError
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord, LoadedPlugin
from lgbench.results import run_files
from lgbench.results.file_format import PackedRun
from lgbench.results.metrics import Metric
from lgbench.results.run_files import CheckedFile, SavedWeights, checked


@dataclass(frozen=True)
class ExternalModel:
    """External model: given to :func:`lgbench.evaluate_model`, not trained by lgbench. Its run cannot be made again."""

    kind: Literal["module", "function"]
    made_of: str
    """Class of a module, or name of a function, with its Python module."""
    parameters: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
    """Number of parameters of a module; None for a function."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None
    """Hash of names, types, shapes and values of parameters and buffers; None for a function."""


_AtLeastOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]


@dataclass(frozen=True)
class ExecutionRecord:
    """How a run was trained."""

    population: _AtLeastOne
    """Models that were trained together."""
    compiled: bool
    resumed: bool


@dataclass(frozen=True)
class EnvironmentRecord:
    """Software and machine of a run, as :func:`lgbench.execution.device.environment` gives them."""

    lgbench: str
    torch: str
    python: str
    git_commit: str | None
    device: str
    threads: _AtLeastOne
    date: str


@dataclass(frozen=True)
class Seconds:
    """Wall-clock time of a run."""

    train: float
    total: float


@dataclass(frozen=True)
class RunMetadata:
    """Everything in a run file except its rows."""

    experiment: ExperimentRecord
    plugins: tuple[LoadedPlugin, ...]
    """Distributions of plugins that were loaded, and plugin files."""
    measurements: tuple[Metric, ...]
    execution: ExecutionRecord
    environment: EnvironmentRecord
    seconds: Seconds
    checksum: str
    """Checksum of the run file; see :mod:`lgbench.results.file_format`."""
    kept_weights: SavedWeights | None = None
    """None, and no field of the JSON, for a run without saved weights."""
    external: ExternalModel | None = None
    """External model; None, and no field of the JSON, for a run trained by lgbench."""
    facts: Facts | None = None
    """Published facts about the task; None, and no field of the JSON, where the task names none."""

    @property
    def took_part(self) -> Mapping[str, LoadedPlugin]:
        """Plugins that decide or measure a number, by name."""
        return {plugin.name: plugin for plugin in self.plugins if plugin.takes_part}


@dataclass(frozen=True)
class StoredRun:
    """A run in a run file or a submission file, with typed metadata."""

    path: Path
    metadata: RunMetadata
    packed: PackedRun

    @property
    def record(self) -> ExperimentRecord:
        return self.metadata.experiment

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def where(self) -> str:
        """File and, for a run of a submission file, name of the run; for messages."""
        return f"{self.path}, run {run_files.run_name(self.record)}" if self.packed.content else str(self.path)

    def is_named(self, patterns: Collection[str]) -> bool:
        """Whether the id or the name of the run matches any shell pattern; True without patterns."""
        names = (self.run_id, run_files.run_name(self.record))
        return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

    def weights(self) -> bytes:
        """Content of the weights file. Raises RunFileError for a missing or damaged file."""
        saved = self.metadata.kept_weights
        if self.metadata.external:
            raise RunFileError(f"{self.where} has no weights: lgbench did not train its model")
        if saved is None:
            raise RunFileError(f"{self.where} saved no weights; make the run with --save-weights, in a folder that lacks it")
        return run_files.read_weights(saved.beside(run_files.path_for(self.path.parent, self.record)), saved)


@dataclass(frozen=True)
class Run(StoredRun):
    """A stored run after a successful inspection."""

    rows: pa.Table
    """In the schema of run files."""
    experiment: Experiment
    """Experiment planned from the metadata with the installed plugins, with the measurements of the file."""
    content: str
    """Digest of metadata and rows."""


def stored(path: Path) -> list[StoredRun]:
    """Runs of a run file or a submission file. Raises RunFileError with the reason for any other or damaged file."""
    return _stored(checked(path))


def stored_in(paths: Iterable[Path]) -> tuple[list[StoredRun], list[str]]:
    """Runs of all files, and a sentence for each unreadable file."""
    found: list[StoredRun] = []
    wrong: list[str] = []
    for path in paths:
        try:
            found += stored(path)
        except RunFileError as error:
            wrong.append(str(error))
    return found, wrong


def with_rows(path: Path) -> Iterator[tuple[StoredRun, pa.Table]]:
    """Runs of a file, each with rows in the schema of run files. Raises RunFileError as :func:`stored`."""
    file = checked(path)
    yield from ((run, rows) for run, (_, rows) in zip(_stored(file), file.tables(), strict=True))


def _stored(file: CheckedFile) -> list[StoredRun]:
    found = []
    for run in file.runs():
        where = f"{file.path}, run {run.run_id!a:.50}" if file.is_submission else str(file.path)
        try:
            own = StoredRun(file.path, msgspec.convert(run.metadata, RunMetadata), run)
        except msgspec.ValidationError as error:
            raise RunFileError(f"{where}: in its metadata, {error}") from error
        if file.is_submission and own.run_id != run.run_id:
            raise RunFileError(f"{where}: by its metadata it is run {own.run_id}")
        found.append(own)
    return found
