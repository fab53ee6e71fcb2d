"""Inspection of stored runs: comparison of their metadata and rows with the installed lgbench and plugins.

Inspection trains nothing. Only a rerun, in :mod:`lgbench.submissions.verification`, detects invented numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from lgbench.contracts import Answers, Task
from lgbench.errors import LgbenchError, Refused, RunFileError, message_of
from lgbench.experiment.contexts import eval_steps
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Replanner
from lgbench.experiment.record import ExperimentRecord, differences
from lgbench.experiment.tuning import ends_of_parts
from lgbench.extensions.registry import Registry
from lgbench.measurement.causality import Predict
from lgbench.measurement.evaluate import context_free_scores, evaluate, evaluate_at_eval_step
from lgbench.measurement.scores import of_source
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA, Place, digest
from lgbench.results.metrics import Metric
from lgbench.results.rows import labels_of, rows_of
from lgbench.results.stored_runs import Run, RunMetadata, StoredRun, stored_in, with_rows
from lgbench.training.models import POINTS, Curve


def found_in(given: Iterable[Path]) -> tuple[list[StoredRun], list[str]]:
    """Runs of files and folders, each file once, and a sentence for each unreadable file and each folder without runs."""
    files: dict[str, Path] = {}
    wrong: list[str] = []
    for path in given:
        own = list(run_files.find(path)) if path.is_dir() else [path]
        if not own:
            wrong.append(f"{path}: no run file is in this folder; name one in which `lgbench run` wrote results")
        files |= {os.path.realpath(file): file for file in own}
    runs, unreadable = stored_in(files.values())
    return runs, [*wrong, *unreadable]


def inspected(runs: Iterable[StoredRun], registry: Registry, wrong: list[str]) -> Iterator[Run]:
    """Inspected runs, with all rows of their experiments, with any values, and no others. Adds each fault to `wrong`."""
    inspector = _Inspector(registry)
    for path, group in groupby(runs, lambda run: run.path):
        wanted = {run.run_id for run in group}
        try:
            for run, rows in with_rows(path):
                if run.run_id in wanted:
                    try:
                        yield inspector.run(run, rows)
                    except Refused as error:
                        wrong += [f"{run.where}: {sentence}" for sentence in error.sentences]
        except RunFileError as error:
            wrong.append(str(error))


class _Inspector:
    """Comparison of runs with the installed packages. Plans each kind of run once."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._planner = registry, Replanner(registry)
        self._keys: dict[Hashable, Counter[Key]] = {}

    def run(self, stored: StoredRun, rows: pa.Table) -> Run:
        """The inspected run. Raises Refused with all faults."""
        record = stored.record
        if stored.metadata.external or record.protocol.is_external:
            raise Refused(["lgbench did not train its model: nobody can run it again, to verify or submit it"])
        content = digest(stored.packed.metadata, rows)
        if stored.packed.content not in ("", content):
            raise Refused(["its metadata or its rows are not those that were filed: they do not fit its checksum"])
        try:
            experiment = self._experiment(stored)
            if wrong := [*_other_labels(record, rows), *self._other_rows(experiment, rows)]:
                raise Refused(wrong)
        except LgbenchError as error:
            raise error if isinstance(error, Refused) else Refused([str(error)]) from error
        except Exception as error:  # the code of a task or a measurement may raise anything
            raise Refused([f"{record.task} or one of its measurements failed with {message_of(error)}"]) from error
        return Run(stored.path, stored.metadata, stored.packed, rows, experiment, content)

    def _experiment(self, stored: StoredRun) -> Experiment:
        """Experiment of a run, with the measurements of its file. Raises Refused if the installed packages differ."""
        metadata = stored.metadata
        made_with = {name: plugin.version for name, plugin in metadata.took_part.items()}
        made_with["lgbench"] = metadata.environment.lgbench
        planned = self._planner.rebuilt(stored.record, made_with, metadata.environment.git_commit)
        if wrong := [*_other_measurements(metadata, self._registry), *_other_tuning(stored.record)]:
            raise Refused(wrong)
        found = [self._registry.measurements.found(metric.name) for metric in metadata.measurements]
        versions = {each.origin.name: each.origin.version for each in found}
        return replace(planned, measurements=tuple(each.thing for each in found), measured_by=versions)

    def _other_rows(self, experiment: Experiment, rows: pa.Table) -> Iterator[str]:
        """A sentence for missing rows, and a sentence for surplus rows.

        Rows of probes are not compared: the layers of a model are known only after building it.
        """
        record, measured = experiment.record, tuple(measurement.name for measurement in experiment.measurements)
        # The tuned rate changes no key.
        same = (record.task, record.averagers, replace(record.train, lr=0.0), record.evaluate, record.tuning is None, measured)
        if same not in self._keys:
            self._keys[same] = row_keys(experiment)
        probes = [probe.name for probe in of_source("internals", experiment.task, experiment.measurements)]
        found = keys_in(rows.filter(pc.invert(pc.is_in(rows["metric"], pa.array(probes, pa.string())))))
        for what, keys in (("lacks", self._keys[same] - found), ("has too many rows:", found - self._keys[same])):
            if keys:
                named = "; ".join(_named(key) for key in list(keys)[:3])
                yield f"it {what} {named}" + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _other_measurements(metadata: RunMetadata, registry: Registry) -> Iterator[str]:
    """A sentence for each measurement of a run without an installed measurement of the same description."""
    for metric in metadata.measurements:
        if metric.name not in registry.measurements:
            yield f"no installed plugin provides its measurement {metric.name!a}: install one, or name its file with --plugin"
            continue
        for sentence in differences(asdict(Metric.of(registry.measurements[metric.name])), asdict(metric)):
            remedy = "run it again, or install the version of the plugin that it was made with"
            yield f"of its measurement {metric.name}, {sentence}; {remedy}"


def _other_tuning(record: ExperimentRecord) -> Iterator[str]:
    """A sentence for a learning rate inconsistent with the losses of the tuning runs."""
    if (tuning := record.tuning) is None:
        return
    if not tuning.is_whole():
        yield "tuning.runs does not have each rate that was due with each tuning seed once, in order"
    elif tuning.chosen != tuning.best:
        yield f"tuning.chosen is {tuning.chosen}, and the losses of the tuning runs choose {tuning.best}"
    elif record.train.lr != tuning.chosen:
        yield f"train.lr is {record.train.lr}, and the tuning chose {tuning.chosen}"
    if record.seed in tuning.seeds:
        yield f"its seed {record.seed} is one of those that chose its learning rate"


def _other_labels(record: ExperimentRecord, rows: pa.Table) -> Iterator[str]:
    """A sentence for columns with other names, versions or settings than the metadata: rows must be of the run's own."""
    weights = pc.unique(rows["weights"])
    labels = pa.Table.from_pylist([labels_of(record, each) for each in weights.to_pylist()], schema=SCHEMA)
    labels = labels.take(pc.index_in(rows["weights"], weights))
    if wrong := [name for name in labels_of(record, "raw") if not rows[name].equals(labels[name])]:
        yield f"its rows and its metadata differ in {', '.join(wrong)}"
    if len(pc.unique(rows["diverged_step"])) > 1:
        yield "its rows have several values of diverged_step"


Key = tuple[Any, ...]
"""Place of a row within a run, with the columns that follow from the place."""

_KEY = (*Place._fields, "in_distribution", "on_boards")


def keys_in(rows: pa.Table) -> Counter[Key]:
    """Keys of all rows."""
    return Counter(zip(*(rows[name].to_pylist() for name in _KEY), strict=True))


def _named(key: Key) -> str:
    return " ".join(f"{name}={value!a}" for name, value in zip(_KEY, key, strict=True) if value is not None)


def row_keys(experiment: Experiment) -> Counter[Key]:
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
    scores, earlier = evaluate(small, models, device), evaluate_at_eval_step(small, models, device)
    by_step = dict.fromkeys(eval_steps(experiment.train, evaluation), earlier)
    steps = ends_of_parts(experiment.train.steps, POINTS)
    curve = Curve(steps, torch.zeros(len(steps), 1), torch.zeros(len(steps), 1))
    level = context_free_scores(experiment.task, experiment.measurements, experiment.train, evaluation)
    return keys_in(rows_of(experiment, {experiment.train.steps: [*scores, *level], **by_step}, curve))


_STRINGS = 4
"""Smallest number of strings for a test with members and non-members of a language."""


def _stub(task: Task) -> Predict:
    """Model with the uniform distribution over classes as every answer."""
    last = task.signature.answers is Answers.LAST
    return lambda inputs: torch.zeros(len(inputs), 1 if last else inputs.shape[1], task.signature.classes)
