"""Whether a run, in a run file or a submission file, is one that lgbench writes: its footer, its rows, and both compared with
what is installed.

Nothing is trained here, so a number may still be made up. :mod:`lgbench.submissions.verification` finds that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from lgbench.errors import LgbenchError, Refused, RunFileError
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.experiment.replan import Replanner
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.footers import digest
from lgbench.results.metrics import Metric
from lgbench.results.weights_files import KeptWeights
from lgbench.submissions.bounds import MAX_MODELS, Bounds, reason_against
from lgbench.submissions.disagreements import (
    other_measurements,
    other_plugins,
    other_protocol,
    other_sources,
    other_versions,
)
from lgbench.submissions.footer import Footer, parse, shown
from lgbench.submissions.reader import Contents, Reader
from lgbench.submissions.rebuilding import as_recorded, refuse, require_same
from lgbench.submissions.rows import Expected, RowKey, expected_rows, wrong_rows

Rule = Callable[[Footer], Iterable[str]]
"""A further rule that footers must comply with: it gives a sentence for each thing that is wrong."""

_NAMED_BY_RUN = re.compile(r".*\.([0-9a-f]{16})\.parquet", re.DOTALL)


@dataclass(frozen=True)
class Run:
    """A run in which nothing is wrong."""

    path: Path
    """Of the run file or submission file that it is in."""
    where: str
    """For messages: the path, and in a submission file the name of the run."""
    footer: Footer
    rows: pa.Table
    """In the schema of run files."""
    experiment: Experiment
    """The experiment that the names in the footer stand for here, with the measurements that the file has."""

    @property
    def title(self) -> str:
        return self.footer.experiment.title

    @cached_property
    def content(self) -> str:
        """A hash of everything in it, and not of the bytes, which depend on the release of pyarrow."""
        return digest(self.footer.content, self.rows)


@dataclass(frozen=True)
class FoundRun:
    """A run by its footer alone, and where it is."""

    path: Path
    where: str
    record: ExperimentRecord
    measurements: tuple[Metric, ...]
    content: str | None
    """As of a :class:`Run`, where the file says it."""
    kept: KeptWeights | None = None
    """The weights that it kept."""

    @classmethod
    def of(cls, run: Run) -> FoundRun:
        about = run.footer
        return cls(run.path, run.where, about.experiment, about.measurements, run.content, about.kept_weights)

    def is_named(self, patterns: Sequence[str]) -> bool:
        """Whether its id or its name fits any of the patterns, as in a shell; every run does where there are none."""
        names = (self.record.run_id, run_files.run_name(self.record))
        return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


class Inspector:
    """Compares run files with what is installed, and checks them by `rules` as well.

    With `bounds`, changed settings that need more than these are refused before anything is built with them.
    """

    def __init__(self, registry: Registry, rules: Sequence[Rule] = (), bounds: Bounds | None = None) -> None:
        self.registry, self.rules, self.bounds = registry, rules, bounds
        self._replanner = Replanner(registry)
        self._expected: dict[Hashable, Mapping[RowKey, Expected]] = {}

    def run(self, path: Path, contents: Contents) -> Run:
        """A run of a file. Raises Refused with a sentence for each thing that is wrong."""
        footer = footer_of(path, contents)
        record, where = footer.experiment, _where(path, contents, footer.experiment)
        if footer.external:
            why = "lgbench did not train its model, so nobody can run it again: it can be neither verified nor submitted"
            raise Refused([f"{where}: {why}"])
        wrong = [
            *_other_run_id(path, contents, record),
            *_other_content(footer, contents),
            *(sentence for rule in self.rules for sentence in rule(footer)),
        ]
        experiment = None
        try:
            if not (wrong and record.protocol.changes):  # a stranger's settings that no rule allows are not even tried
                experiment = self._agreed(footer)
                wrong = wrong or list(wrong_rows(experiment, contents.rows, self._rows_of(experiment)))
        except Refused as error:
            wrong += error.sentences
        except LgbenchError as error:
            wrong.append(str(error))
        except Exception as error:  # the code of a task or a measurement may raise anything
            wrong.append(f"{record.task} or one of its measurements failed with {type(error).__name__}: {error}")
        if wrong:
            raise Refused([f"{where}: {sentence}" for sentence in wrong])
        assert experiment and contents.rows is not None
        return Run(path, where, footer, contents.rows, experiment)

    def _agreed(self, footer: Footer) -> Experiment:
        """The experiment that a footer describes. Raises Refused where it disagrees with what is installed."""
        versions = list(other_versions(footer, self.registry)) or other_sources(footer, self.registry)
        refuse(versions, other_measurements(footer, self.registry), other_protocol(footer))
        record = footer.experiment
        planned = self._measured(self._replanner.experiment(record), footer)
        if self.bounds and record.protocol.changes:
            models = min(footer.execution.population, MAX_MODELS)
            refuse([reason] if (reason := reason_against(planned, models, self.bounds)) else [])
        refuse(other_plugins(footer, planned.record, {**planned.plugins, **planned.measured_by}))
        planned = as_recorded(planned, record)
        require_same(planned, record)
        return planned

    def _measured(self, experiment: Experiment, footer: Footer) -> Experiment:
        """The experiment with the measurements that the footer describes."""
        found = [self.registry.measurements.found(metric.name) for metric in footer.measurements]
        versions = {each.origin.name: each.origin.version for each in found}
        return replace(experiment, measurements=tuple(each.thing for each in found), measured_by=versions)

    def _rows_of(self, experiment: Experiment) -> Mapping[RowKey, Expected]:
        record, measured = experiment.record, tuple(measurement.name for measurement in experiment.measurements)
        same = (record.task, record.averagers, record.train, record.evaluate, record.tuning is None, measured)
        if same not in self._expected:
            self._expected[same] = expected_rows(experiment)
        return self._expected[same]


def gather(given: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Files of runs and those in folders, each once, and a sentence for each folder that has none."""
    found: dict[str, Path] = {}
    wrong: list[str] = []
    for path in given:
        files = list(run_files.find(path)) if os.path.isdir(path) else [path]
        if not files:
            wrong.append(f"{path}: no run file is in this folder; name one in which `lgbench run` wrote results")
        found |= {os.path.realpath(file): file for file in files}
    return list(found.values()), wrong


def found_in(paths: Iterable[Path]) -> tuple[list[FoundRun], list[str]]:
    """The runs in the files by their footers, and a sentence for each file or run that is wrong."""
    found: list[FoundRun] = []
    wrong: list[str] = []
    with Reader() as reader:
        for path in paths:
            for contents in _readable(reader.runs(path, rows=False), wrong):
                with _noted(wrong):
                    footer = footer_of(path, contents)
                    where = _where(path, contents, footer.experiment)
                    content = contents.packed.content if contents.packed else None
                    about = footer.experiment, footer.measurements, content, footer.kept_weights
                    found.append(FoundRun(path, where, *about))
    return found, wrong


def by_file(runs: Iterable[FoundRun]) -> dict[Path, list[str]]:
    """The ids of runs, by the file that they are in."""
    ids: dict[Path, list[str]] = {}
    for run in runs:
        ids.setdefault(run.path, []).append(run.record.run_id)
    return ids


def inspect_all(paths: Iterable[Path], inspector: Inspector) -> tuple[list[Run], list[str]]:
    """The runs in the files, and a sentence for each thing that is wrong with any of them."""
    return inspect_some(dict.fromkeys(paths), inspector)


def inspect_some(asked: Mapping[Path, Collection[str] | None], inspector: Inspector) -> tuple[list[Run], list[str]]:
    """The same of those runs alone that have these ids; None for all runs of a file."""
    runs: list[Run] = []
    wrong: list[str] = []
    with Reader() as reader:
        for path, only in asked.items():
            for contents in _readable(reader.runs(path, only=only), wrong):
                with _noted(wrong):
                    runs.append(inspector.run(path, contents))
    return runs, wrong


@contextmanager
def _noted(wrong: list[str]) -> Iterator[None]:
    """Put the sentences of a file or a run that is refused into a list."""
    try:
        yield
    except Refused as error:
        wrong += error.sentences
    except RunFileError as error:
        wrong.append(str(error))


def _readable(runs: Iterator[Contents], wrong: list[str]) -> Iterator[Contents]:
    """The runs up to an error of the file, which goes into a list."""
    with _noted(wrong):
        yield from runs


def footer_of(path: Path, contents: Contents) -> Footer:
    """The footer. Raises RunFileError with the first thing that is wrong."""
    packed = contents.packed
    where = f"{path}, run {shown(packed.run_id)[1:-1]}" if packed else str(path)
    try:
        footer = parse(contents.footer)
    except ValueError as error:
        raise RunFileError(f"{where}: in its footer, {error}") from error
    if packed and packed.run_id != footer.experiment.run_id:
        raise RunFileError(f"{where}: its footer makes it run {footer.experiment.run_id}")
    return footer


def _where(path: Path, contents: Contents, record: ExperimentRecord) -> str:
    return f"{path}, run {run_files.run_name(record)}" if contents.packed else str(path)


def _other_run_id(path: Path, contents: Contents, record: ExperimentRecord) -> Iterator[str]:
    named = None if contents.packed else _NAMED_BY_RUN.fullmatch(path.name)
    if named and named[1] != record.run_id:
        yield f"its name says run {named[1]}, and its footer makes it run {record.run_id}"


def _other_content(footer: Footer, contents: Contents) -> Iterator[str]:
    if contents.packed and contents.rows is not None and digest(footer.content, contents.rows) != contents.packed.content:
        yield "its footer or its rows are not those that were filed: they do not fit the checksum that its file has for it"
