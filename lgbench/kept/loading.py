"""Loading a model: rebuilt from its run file and its kept weights alone, or refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lgbench import seeds
from lgbench.contracts import Task
from lgbench.errors import Refused, RunFileError
from lgbench.execution.device import choose_device, full_float32
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.extensions.registry import Registry
from lgbench.kept.finding import FoundRun, find
from lgbench.submissions.rebuilding import rebuilt
from lgbench.training.kept_weights import restored
from lgbench.training.models import Models
from lgbench.training.precision import answered


class LoadedModel(nn.Module):
    """A trained model as evaluation asks it: inputs (B, T) or (B, T, F) -> logits (B, A, V), in float32 or wider.

    It is in evaluation mode, and its parameters need no gradient, as when it was tested. Both can be changed, as of any module;
    where parameters need gradients, PyTorch chooses other kernels for some products, which round otherwise.
    """

    def __init__(self, model: nn.Module, task: Task, record: ExperimentRecord, weights: str, positions: int) -> None:
        super().__init__()
        self.model = model
        """The module that the architecture built, with its weights."""
        self.task = task
        self.record = record
        """Everything that decided the numbers of its run."""
        self.weights = weights
        """The variant of the weights: "raw", or the name of an averager."""
        self.positions = positions
        """The positions of the longest input that it was built for."""
        self.requires_grad_(False)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        with full_float32():
            return answered(self.model, inputs, self.record.precision)


@dataclass(frozen=True)
class Restored:
    """A run's experiment, and its model with all of its weights, as training hands a model to its test."""

    run: FoundRun
    experiment: Experiment
    models: Models
    """A population of one."""


def restore(run: FoundRun, registry: Registry, device: torch.device, probes: Sequence[str] = ()) -> Restored:
    """The model of a run that kept its weights. Raises RunFileError with the reason where it cannot be rebuilt here.

    `probes` are names of those that its experiment gets; they change nothing of the model.
    """
    content = run.content()
    try:
        experiment = rebuilt(run.footer, registry, probes)
    except Refused as error:
        raise Refused([f"{run.where} cannot be loaded here: {sentence}" for sentence in error.sentences]) from error
    return Restored(run, experiment, models_of(run, experiment, content, device))


def models_of(run: FoundRun, experiment: Experiment, content: bytes, device: torch.device) -> Models:
    """The model of a run with all of its weights. Raises RunFileError where they are those of another model."""
    with seeds.initial(experiment.seed, "weights"):
        skeleton = experiment.build()
    try:
        return restored(content, skeleton, run.variants, experiment.record.precision, device)
    except RunFileError as error:
        raise RunFileError(f"{run.where} cannot be loaded: {error}") from error


def load(
    run: str | Path,
    *,
    weights: str = "raw",
    results: str | Path = "results",
    plugins: Sequence[str | Path] = (),
    device: str = "cpu",
) -> LoadedModel:
    """The trained model of a run that kept its weights, as a module from inputs to logits, exactly as evaluation asks it.

    `run` is a run file, a folder that has it alone such as one that `lgbench export` wrote, or a run's id, which
    is looked for in `results`. `weights` is "raw" or the name of an averager of the run. `plugins` are plugin files.

    Raises UsageError where no such run or weights are there. Raises RunFileError where the weights are missing or are not those
    that the run kept, and where the run was made with another lgbench, or with other plugins, than those that are here.
    """
    found = find(run, results)
    found.require_variant(weights)
    whole = restore(found, Registry.load(files=[Path(path) for path in plugins]), choose_device(device))
    return loaded(whole, weights)


def loaded(whole: Restored, weights: str) -> LoadedModel:
    """One variant of a model, which takes over its skeleton."""
    model, experiment = whole.models.skeleton, whole.experiment
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, tensor in (whole.models.weights[weights] | whole.models.buffers).items():
            own[name].copy_(tensor[0])
    return LoadedModel(model, experiment.task, experiment.record, weights, experiment.parts_to_build().test_positions)
