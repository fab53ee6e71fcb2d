"""Training a population from its first step, or from a checkpoint, to its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lgbench import seeds
from lgbench.contracts import Weights
from lgbench.errors import RunFileError
from lgbench.experiment import Experiment
from lgbench.registry import Registry
from lgbench.training import cost
from lgbench.training.checkpoint import Checkpoint, Progress
from lgbench.training.data import CHUNK, draw_targets, stream, training_lengths
from lgbench.training.faster import Captured, Compiled, room_for
from lgbench.training.population import Advance, Population

Report = Callable[[int, Callable[[], float]], None]
"""Given, after every step, the number of steps done and a function for the mean loss of the latest one."""


@dataclass(frozen=True)
class Curve:
    """What training looked like, at a few dozen steps; a point covers the steps since the one before."""

    steps: list[int]
    loss: Tensor
    """(points, P): mean over the covered steps, in nats."""
    gradient_norm: Tensor
    """(points, P): the largest norm over the covered steps, so that a spike is not averaged away."""


@dataclass(frozen=True)
class Trained:
    """A trained population. `weights`: by variant ("raw" and each averager), tensors with a leading P."""

    skeleton: nn.Module
    weights: dict[str, Weights]
    buffers: Weights
    curve: Curve
    diverged: list[int | None]
    """The first step with a loss that is not finite, or the last where its update left weights that are not."""
    compiled: bool
    """Whether the training step was compiled."""
    resumed: bool
    """Whether training went on from a checkpoint."""
    seconds: float
    """What training took, in the processes before this one too."""

    def model(self, variant: str, index: int) -> Callable[[Tensor], Tensor]:
        """One model of the population, in evaluation mode, as a function from inputs to logits."""
        state = {name: tensor[index] for name, tensor in (self.weights[variant] | self.buffers).items()}
        return lambda inputs: functional_call(self.skeleton, state, (inputs,))


def population_key(experiment: Experiment, registry: Registry) -> Hashable:
    """Experiments with equal keys can be trained as one population: one shape and one number of steps.

    Seed, task, learning rate, weight decay and warmup may differ.
    """
    signature = registry.tasks[experiment.task].signature
    model = (experiment.entry, experiment.model)
    shared = replace(experiment.train, lr=0.0, weight_decay=0.0, warmup=0.0)
    return (signature, *model, experiment.averagers, shared, experiment.evaluate)


def train(
    experiments: Sequence[Experiment],
    registry: Registry,
    device: torch.device,
    report: Report = lambda step, loss: None,
    *,
    compile: bool = False,
    checkpoint: Checkpoint | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Trained:
    """Train all experiments, which share a :func:`population_key`, at once.

    With a `checkpoint` training goes on from it, where it holds a state, and saves to it from time to time. What goes on is
    compiled or not as it began, whatever `compile` says, so that all its steps round alike. `say` is given sentences about how
    training is done.
    """
    started = time.monotonic()
    training = experiments[0].train
    population = Population(experiments, registry, device, say)
    past = _restored(population, checkpoint, compile, say) if checkpoint else Progress()
    compile = past.compiled if past.step else compile
    members = [(registry.tasks[e.task], e.seed) for e in experiments]
    advance: Advance = population.advance
    average: Callable[[], object] = population.average
    compiled = Compiled(population, say) if compile else None
    if compiled:
        advance = compiled

    def progress(step: int) -> Progress:
        works = compiled is not None and compiled.works
        return Progress(step, past.compiled or works, past.seconds + time.monotonic() - started)

    # Gradients come from torch.func alone: without no_grad autograd would keep a second graph around them.
    with torch.no_grad(), room_for(_programs(experiments[0], registry)) if compile else nullcontext():
        if device.type == "cuda":
            advance, average = Captured(advance), Captured(average)
        for step, (inputs, targets) in enumerate(stream(members, training, device, past.step), start=past.step + 1):
            population.draw_noise(step)
            losses = advance(inputs, targets)
            if step % training.average_every == 0:
                average()
            population.mark(step)
            if checkpoint and checkpoint.due(last=step == training.steps):
                checkpoint.save(progress(step), population.tensors())
            report(step, lambda losses=losses: losses.mean().item())  # type: ignore[misc]
    loss, norm = population.curve.cpu().unbind(1)
    curve = Curve(population.marks, loss, norm)
    population.skeleton.eval()
    whole = progress(training.steps)
    return Trained(
        skeleton=population.skeleton,
        weights=population.variants(),
        buffers=population.buffers,
        curve=curve,
        diverged=population.diverged(),
        compiled=whole.compiled,
        resumed=past.step > 0,
        seconds=whole.seconds,
    )


def step_cost(experiment: Experiment, registry: Registry, device: torch.device) -> cost.Cost:
    """What one training step of one model costs, found by running it."""
    population = Population([experiment], registry, device)
    task, training = registry.tasks[experiment.task], experiment.train
    generator = seeds.generator(0, "cost", device=device)
    inputs, distribution = task.sample(training.batch, training.max_length, generator)
    targets = draw_targets(distribution, generator)
    batches = min(training.steps, CHUNK) * (inputs.nbytes + targets.nbytes)
    kept = batches + sum(tensor.nbytes for tensor in population.tensors().values())
    with torch.no_grad():
        return cost.measure(lambda: population.advance(inputs[None], targets[None]), kept)


def compiling_gain(
    population: Sequence[Experiment], registry: Registry, each: cost.Cost, device: torch.device
) -> tuple[float, float]:
    """Seconds that compiling would save in the whole training, and seconds that it would take.

    From counts, not from a clock, so that the same command always trains in the same way.
    """
    compiling = cost.COMPILING[device.type]
    saved = compiling.saved(each, len(population), population[0].train.steps)
    return saved, compiling.seconds(each, _programs(population[0], registry))


def _programs(experiment: Experiment, registry: Registry) -> int:
    """How many shapes of batches a training has."""
    return len(set(training_lengths(registry.tasks[experiment.task], experiment.train)))


def _restored(population: Population, checkpoint: Checkpoint, compile: bool, say: Callable[[str], None]) -> Progress:
    try:
        past = checkpoint.restore(population.tensors())
    except RunFileError as error:
        say(f"{error}; training starts from its beginning")
        return Progress()
    if past.step:
        otherwise = ", compiled as it began" if past.compiled else ", not compiled, as it began"
        say(f"training goes on after step {past.step}{otherwise if past.compiled != compile else ''}")
    return past
