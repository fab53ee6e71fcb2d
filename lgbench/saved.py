"""Trained models from saved weights: find the run, rebuild its experiment, load its weights; predictions and probes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from lgbench.contracts import Language, Task
from lgbench.errors import PluginError, Refused, RunFileError, Unsupported, UsageError, first_line, message_of, unknown
from lgbench.execution.device import as_in_runs, choose_device, full_float32
from lgbench.experiment.components import ALL, NONE, chosen_probes, is_probe, undefined
from lgbench.experiment.contexts import TOLERANCE
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Replanner
from lgbench.experiment.record import ExperimentRecord
from lgbench.extensions.registry import Registry
from lgbench.measurement.probing import probe as read_probes
from lgbench.options import listed
from lgbench.results import run_files
from lgbench.results.rows import rows_of
from lgbench.results.stored_runs import StoredRun, stored, stored_in, with_rows
from lgbench.training.models import Models, answered, restored

RUN_ID = re.compile(r"[0-9a-f]{16}")


class LoadedModel(nn.Module):
    """Trained model with the interface of evaluation: inputs (B, T) or (B, T, F) -> logits (B, A, V), in float32 or wider.

    In evaluation mode and without gradients of parameters, as in the test of the run. Both can be changed, as for any module.
    With gradients, PyTorch chooses other kernels for some products, with other rounding.
    """

    def __init__(self, model: nn.Module, task: Task, record: ExperimentRecord, weights: str, positions: int) -> None:
        super().__init__()
        self.model = model
        """Module built by the architecture, with trained weights."""
        self.task = task
        self.record = record
        """Settings and versions with an effect on the numbers of the run."""
        self.weights = weights
        """Variant of the weights: "raw", or the name of an averager."""
        self.positions = positions
        """Positions of the longest possible input."""
        self.requires_grad_(False)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        with full_float32():
            return answered(self.model, inputs, self.record.precision)


def find(run: str | Path, results: str | Path, weights: str = "raw") -> StoredRun:
    """Run in a file, the only run in a folder, or the run with an id in the folder `results`.

    Raises UsageError for no run or several, or without these weights, and RunFileError for a damaged file.
    """
    named, path = str(run), Path(run)
    if RUN_ID.fullmatch(named) and not path.exists():
        found = _by_id(named, Path(results))
    elif not path.exists():
        raise UsageError(f"no run file {named!r}: name one that `lgbench run --save-weights` wrote, or a run's id of 16 digits")
    else:
        found = _only(path)
    variants = ("raw", *found.record.averagers)
    if weights not in variants:
        raise unknown("weights", weights, variants)
    return found


def _only(path: Path) -> StoredRun:
    every = [each for file in (run_files.find(path) if path.is_dir() else [path]) for each in stored(file)]
    if not every:
        raise UsageError(f"no run file is in {str(path)!r}; name a run's file, or its id")
    if len(every) > 1:
        folder = path if path.is_dir() else path.parent
        how = f"name one by its file, or by its id, such as {every[0].run_id} with --results {folder}"
        raise UsageError(f"{path} has {len(every)} runs: {how}")
    return every[0]


def _by_id(run_id: str, folder: Path) -> StoredRun:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} in which the run {run_id} could be; name the folder that has it")
    paths = list(run_files.find(folder))
    named = [path for path in paths if path.name.endswith(f".{run_id}.parquet")]
    found, damaged = stored_in(named or paths)  # a file may have another name, and a submission file has many runs
    if named and damaged:
        raise RunFileError(damaged[0])
    for each in found:
        if each.run_id == run_id:
            return each
    raise UsageError(f"no run {run_id} in {folder}; name the run's file, or the folder that has it")


def restore(run: StoredRun, registry: Registry, device: torch.device, probes: Sequence[str] = ()) -> tuple[Experiment, Models]:
    """Experiment of a run, and its model from saved weights. Raises RunFileError if the model cannot be rebuilt here.

    `probes` are names of additional measurements of the experiment, without effect on the model.
    """
    content, about = run.weights(), run.metadata.environment
    made_with = {plugin.name: plugin.version for plugin in run.record.plugins} | {"lgbench": about.lgbench}
    try:
        experiment = Replanner(registry).rebuilt(run.record, made_with, about.git_commit, probes)
    except Refused as error:
        raise Refused([f"{run.where} cannot be loaded here: {sentence}" for sentence in error.sentences]) from error
    try:
        variants = ("raw", *run.record.averagers)
        return experiment, restored(content, experiment.build(), variants, experiment.record.precision, device)
    except RunFileError as error:
        raise RunFileError(f"{run.where} cannot be loaded: {error}") from error


def load(
    run: str | Path,
    *,
    weights: str = "raw",
    results: str | Path = "results",
    plugins: str | Path | Sequence[str | Path] = (),
    device: str = "cpu",
) -> LoadedModel:
    """Trained model of a run with saved weights: a module from inputs to logits, with the interface of evaluation.

    `run` is a run file, a folder with one run, or the id of a run in the folder `results`. `weights` is "raw" or the name of
    an averager of the run. `plugins` are plugin files.

    Raises UsageError for an unknown run or unknown weights. Raises RunFileError for missing or damaged weights, and for a run
    made with another version of lgbench or of a plugin than the installed version.
    """
    found = find(run, results, weights)
    registry = Registry.load(files=[Path(path) for path in listed(plugins)], only=found.metadata.took_part)
    return loaded(found, registry, device, weights)


def loaded(run: StoredRun, registry: Registry, device: str, weights: str) -> LoadedModel:
    """Model of a run with one variant of its weights. Raises RunFileError as :func:`restore`."""
    experiment, models = restore(run, registry, choose_device(device))
    model = models.skeleton
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, tensor in (models.weights[weights] | models.buffers).items():
            own[name].copy_(tensor[0])
    return LoadedModel(model, experiment.task, experiment.record, weights, experiment.parts_to_build().test_positions)


@dataclass(frozen=True)
class Prediction:
    """Distributions over the answers of a task after one context."""

    context: str
    """Context in the notation of the task."""
    answers: tuple[str, ...]
    p: Sequence[float]
    """Distribution of the model; NaN for non-finite logits."""
    right: Sequence[float] | None
    """p*; None for a task with p* only for contexts from its own sampler."""

    @property
    def tvd(self) -> float | None:
        """Total variation distance between p and p*."""
        return None if self.right is None else sum(abs(a - b) for a, b in zip(self.p, self.right, strict=True)) / 2


def predicted(model: LoadedModel, text: str) -> Prediction:
    """Prediction of a model after a context written by a user. Raises UsageError for an impossible context of the task."""
    task = model.task
    inputs = _read(task, text)
    if len(inputs) > model.positions:
        raise UsageError(
            f"the context has {len(inputs)} positions, and the model was built for {model.positions} at most: use a shorter one"
        )
    with torch.inference_mode():
        device = next(model.model.parameters()).device
        logits = model(inputs[None].to(device))[0, -1].cpu().double()  # a device may have no float64
    return Prediction(task.text(inputs), tuple(task.answers), logits.softmax(-1).tolist(), _right(task, inputs))


def _read(task: Task, text: str) -> Tensor:
    try:
        return task.context(text)
    except Unsupported as error:
        raise UsageError(f"{task.name} cannot be asked: {error}") from error
    except ValueError as error:
        raise _impossible(task, text, first_line(error)) from error
    except Exception as error:  # the code of a task may raise anything
        raise PluginError(f"{task.name} failed to read {text!r}: {message_of(error)}") from error


def _right(task: Task, inputs: Tensor) -> Sequence[float] | None:
    """p* after a context. Raises UsageError for an impossible context."""
    try:
        found = task.reference(inputs)
    except ValueError as error:
        raise _impossible(task, task.text(inputs), first_line(error)) from error
    except Exception as error:  # the code of a task may raise anything
        raise PluginError(f"{task.name} failed to say p*: {message_of(error)}") from error
    if found is None:
        return None
    if abs(sum(found) - 1) > TOLERANCE:
        what = "no member of the language begins with that" if isinstance(task, Language) else "nothing may follow it"
        raise _impossible(task, task.text(inputs), what)
    return [float(value) for value in found]


def _impossible(task: Task, text: str, reason: str) -> UsageError:
    return UsageError(f"{task.name} has no context {text!r}: {reason}; `lgbench show {task.name}` has examples")


def probe(
    run: str | Path,
    probe: str | Sequence[str] = "all",
    *,
    results: str | Path = "results",
    plugins: str | Path | Sequence[str | Path] = (),
    device: str = "cpu",
) -> pa.Table:
    """Readings of probes on a run with saved weights, as rows in the format of `lgbench run --probe`.

    `probe` has names of probes, or is "all" for all of lgbench and of the plugins of the run. All variants of the weights are
    read. Further parameters as in :func:`lgbench.load`.
    """
    names = [probe] if isinstance(probe, str) else list(probe)
    files = [Path(path) for path in listed(plugins)]
    return probe_run(find(run, results), names, lambda only: Registry.load(files=files, only=only), device)


def probe_run(
    run: StoredRun,
    names: Sequence[str],
    load: Callable[[Collection[str] | None], Registry],
    device: str,
    say: Callable[[str], None] = lambda sentence: None,
) -> pa.Table:
    """Readings of probes on a run. Calls `say` with a sentence for each reading that fails.

    `load` makes the registry of the plugins with these names, or of all plugins for None: only for a probe from none of the
    plugins of the run. Raises UsageError without a probe by name, or without a probe defined for the task.
    """
    registry = load(run.metadata.took_part)
    if not {*registry.measurements.names(), ALL, NONE} >= {*names}:
        registry = load(None)  # the plugin of a probe is known after its import alone
    known = list(registry.measurements)
    chosen = chosen_probes(names, known)
    if not chosen:
        raise UsageError(f"--probe {NONE} reads nothing: name probes, or leave it out for all")
    where = choose_device(device)
    experiment, models = restore(run, registry, where, sorted(chosen))
    missing = undefined(chosen, known, [experiment.task])
    probes = [each.name for each in experiment.measurements if is_probe(each)]
    if not probes:
        raise UsageError("; ".join(missing))
    for sentence in missing if names != [ALL] else []:
        say(sentence)
    with as_in_runs(where):
        found = read_probes(experiment, lambda skeleton: models.on(skeleton).models(0), where)
    for sentence in found.sentences:
        say(sentence)
    (filed,) = (rows for each, rows in with_rows(run.path) if each.run_id == run.run_id)
    diverged = filed["diverged_step"][0].as_py()
    rows = rows_of(experiment, {experiment.train.steps: found.scores}, diverged_step=diverged)
    return rows.filter(pc.is_in(rows["metric"], value_set=pa.array(probes, pa.string())))
