"""Inspection of stored runs: comparison of their metadata and rows with the installed lgbench and plugins.

Inspection trains nothing. Only a rerun, in :mod:`lgbench.submissions.verification`, detects invented numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import torch

from lgbench.contracts import Answers, Task
from lgbench.errors import LgbenchError, Refused, RunFileError, message_of
from lgbench.experiment.contexts import point_steps
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Replanner
from lgbench.extensions.registry import Registry
from lgbench.kept import rebuilt
from lgbench.measurement.causality import Predict
from lgbench.measurement.evaluate import chance, evaluate, evaluate_point
from lgbench.measurement.scores import of_source
from lgbench.results import run_files
from lgbench.results.metrics import Metric
from lgbench.results.rows import Measured, rows_of
from lgbench.results.stored_runs import RunMetadata, StoredRun, differences, with_rows
from lgbench.results.submission_files import digest
from lgbench.training.models import Curve, curve_steps


@dataclass(frozen=True)
class Run:
    """A stored run after a successful inspection, with its rows and its experiment."""

    stored: StoredRun
    rows: pa.Table
    """In the schema of run files."""
    experiment: Experiment
    """Experiment planned from the metadata with the installed plugins, with the measurements of the file."""
    content: str
    """Digest of metadata and rows."""

    @property
    def metadata(self) -> RunMetadata:
        return self.stored.metadata

    @property
    def where(self) -> str:
        return self.stored.where

    @property
    def run_id(self) -> str:
        return self.stored.run_id

    @property
    def title(self) -> str:
        return self.stored.record.title


def gather(given: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Run files, given or in given folders, each once, and a sentence for each folder without run files."""
    found: dict[str, Path] = {}
    wrong: list[str] = []
    for path in given:
        files = list(run_files.find(path)) if path.is_dir() else [path]
        if not files:
            wrong.append(f"{path}: no run file is in this folder; name one in which `lgbench run` wrote results")
        found |= {os.path.realpath(file): file for file in files}
    return list(found.values()), wrong


def inspected(
    asked: Mapping[Path, Collection[str] | None], registry: Registry, wrong: list[str], whole: bool = False
) -> Iterator[Run]:
    """Inspected runs of files, with the ids in `asked`, or all runs for None. Adds a sentence for each fault to `wrong`.

    With `whole`, a run must have all rows of its experiment, with any values, and no others.
    """
    inspector = _Inspector(registry)
    for path, only in asked.items():
        try:
            for stored, rows in with_rows(path, only):
                try:
                    yield inspector.run(stored, rows, whole)
                except RunFileError as error:
                    sentences = error.sentences if isinstance(error, Refused) else [str(error)]
                    wrong += [f"{stored.where}: {sentence}" for sentence in sentences]
        except RunFileError as error:
            wrong.append(str(error))


class _Inspector:
    """Comparison of runs with the installed packages. Plans each kind of run once."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._planner = registry, Replanner(registry)
        self._keys: dict[Hashable, Counter[RowKey]] = {}

    def run(self, stored: StoredRun, rows: pa.Table, whole: bool) -> Run:
        """The inspected run. Raises RunFileError with all faults."""
        metadata, record = stored.metadata, stored.record
        if metadata.external or record.protocol.is_external:
            raise RunFileError("lgbench did not train its model: nobody can run it again, to verify or submit it")
        content = digest(stored.about, rows)
        if stored.content not in (None, content):
            raise RunFileError("its metadata or its rows are not those that were filed: they do not fit its checksum")
        try:
            experiment = self._experiment(stored)
            if wrong := [*self._wrong_rows(experiment, rows)] if whole else []:
                raise Refused(wrong)
        except LgbenchError as error:
            raise error if isinstance(error, RunFileError) else RunFileError(str(error)) from error
        except Exception as error:  # the code of a task or a measurement may raise anything
            why = message_of(error)
            raise RunFileError(f"{record.task} or one of its measurements failed with {why}") from error
        return Run(stored, rows, experiment, content)

    def _experiment(self, stored: StoredRun) -> Experiment:
        """Experiment of a run, with the measurements of its file. Raises Refused if the installed packages differ."""
        metadata = stored.metadata
        made_with = {name: plugin.version for name, plugin in metadata.took_part.items()}
        planned = rebuilt(stored, self._planner, made_with)
        if wrong := [*_other_measurements(metadata, self._registry), *_other_tuning(metadata)]:
            raise Refused(wrong)
        found = [self._registry.measurements.found(metric.name) for metric in metadata.measurements]
        versions = {each.origin.name: each.origin.version for each in found}
        return replace(planned, measurements=tuple(each.thing for each in found), measured_by=versions)

    def _wrong_rows(self, experiment: Experiment, rows: pa.Table) -> Iterator[str]:
        """A sentence for missing rows, and a sentence for surplus rows.

        Rows of probes are not compared: the layers of a model are known only after building it.
        """
        record, measured = experiment.record, tuple(measurement.name for measurement in experiment.measurements)
        same = (record.task, record.averagers, replace(record.train, lr=0.0), record.evaluate, record.tuning is None, measured)
        if same not in self._keys:
            self._keys[same] = row_keys(experiment)
        probes = {probe.name for probe in of_source("insides", experiment.task, experiment.measurements)}
        found = Counter(key for key in keys_in(rows) if key.metric not in probes)
        for what, keys in (("lacks", self._keys[same] - found), ("has too many rows:", found - self._keys[same])):
            if keys:
                named, more = "; ".join(map(str, list(keys)[:3])), f" and {len(keys) - 3} more" if len(keys) > 3 else ""
                yield f"it {what} {named}{more}"


def _other_measurements(metadata: RunMetadata, registry: Registry) -> Iterator[str]:
    """A sentence for each measurement of a run without an installed measurement of the same description."""
    here = {plugin.distribution.name for plugin in registry.plugins}
    lacking = ", ".join(f"{name} {plugin.version}" for name, plugin in metadata.took_part.items() if name not in here)
    for metric in metadata.measurements:
        if metric.name not in registry.measurements:
            what = f"install {lacking}" if lacking else "install the plugin that does"
            yield f"no installed plugin provides its measurement {metric.name!a}; {what}, or name its file with --plugin"
            continue
        for _, sentence in differences(asdict(Metric.of(registry.measurements[metric.name])), asdict(metric)):
            remedy = "run it again, or install the version of the plugin that it was made with"
            yield f"of its measurement {metric.name}, {sentence}; {remedy}"


def _other_tuning(metadata: RunMetadata) -> Iterator[str]:
    """A sentence for a learning rate inconsistent with the losses of the tuning runs."""
    record, tuning = metadata.experiment, metadata.experiment.tuning
    if tuning is None:
        return
    if not tuning.is_whole():
        yield "tuning.runs does not have each rate that was due with each tuning seed once, in order"
    elif tuning.chosen != tuning.best:
        yield f"tuning.chosen is {tuning.chosen}, and the losses of the tuning runs choose {tuning.best}"
    elif record.train.lr != tuning.chosen:
        yield f"train.lr is {record.train.lr}, and the tuning chose {tuning.chosen}"
    if record.seed in tuning.seeds:
        yield f"its seed {record.seed} is one of those that chose its learning rate"


class RowKey(NamedTuple):
    """Identity of a row within a run, with the columns that follow from the identity."""

    weights: str
    metric: str
    metric_version: int | None
    step: int
    length: int | None
    layer: int | None
    head: int | None
    in_distribution: bool | None
    on_boards: bool | None

    def __str__(self) -> str:
        return " ".join(f"{name}={value!a}" for name, value in self._asdict().items() if value is not None)


def keys_in(rows: pa.Table) -> Iterator[RowKey]:
    """Key of each row, in order."""
    return map(RowKey, *(rows[name].to_pylist() for name in RowKey._fields))


def row_keys(experiment: Experiment) -> Counter[RowKey]:
    """Keys of all rows of a run, except rows of probes.

    The keys come from the evaluation of a stub model on the smallest test, by the code for trained models. Neither the number
    of contexts nor the answers of the model change a key.
    """
    evaluation = experiment.evaluate
    least = replace(
        evaluation, contexts=1, strings=_STRINGS, point_contexts=1, point_strings=min(evaluation.point_strings, _STRINGS)
    )
    small = replace(experiment, record=replace(experiment.record, evaluate=least))
    models = dict.fromkeys(("raw", *experiment.record.averagers), _stub(experiment.task))
    device = torch.device("cpu")
    scores, point = evaluate(small, models, device), evaluate_point(small, models, device)
    points = dict.fromkeys(point_steps(experiment.train, evaluation), point)
    steps = curve_steps(experiment.train.steps)
    curve = Curve(steps, torch.zeros(len(steps), 1), torch.zeros(len(steps), 1))
    level = chance(experiment.task, experiment.measurements, experiment.train, evaluation)
    return Counter(keys_in(rows_of(experiment, Measured(scores, points, level, curve, 0, None))))


_STRINGS = 4
"""Smallest number of strings for a test with members and non-members of a language."""


def _stub(task: Task) -> Predict:
    """Model with the uniform distribution over classes as every answer."""
    last = task.signature.answers is Answers.LAST
    return lambda inputs: torch.zeros(len(inputs), 1 if last else inputs.shape[1], task.signature.classes)
