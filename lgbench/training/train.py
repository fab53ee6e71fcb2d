"""Training a population from its first step, or from a checkpoint, to its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from lgbench.errors import RunFileError, first_line
from lgbench.experiment.experiment import Experiment
from lgbench.training.acceleration import Captured, Compiled, captures
from lgbench.training.checkpoint import Checkpoint, TrainingProgress
from lgbench.training.curve import Curve
from lgbench.training.data import stream
from lgbench.training.models import Models, Trained
from lgbench.training.population import Population, StepFunction

ReportStep = Callable[[int, Callable[[], float]], None]
"""Called after every step with the number of steps done and a function that gives the mean loss of the latest one."""


@dataclass(frozen=True)
class Points:
    """The steps at which models are measured while they train, and the function that measures them. It must change no model.

    `measure` returns anything that JSON can hold. A checkpoint keeps it, so that nothing is measured twice.
    """

    steps: Collection[int]
    measure: Callable[[Models], Any]
    """Called with the models in evaluation mode."""


NO_POINTS = Points((), lambda models: None)


class Follower(Protocol):
    """Hears of a training while it goes on: at each point of its curve, and of what was measured at :class:`Points`.

    A training that goes on from a checkpoint tells again what went before.
    """

    def curve(self, step: int, loss: Sequence[float], gradient_norm: Sequence[float]) -> None:
        """A point of the training curve, of each model."""

    def measured(self, step: int, found: Any) -> None:
        """The value that :attr:`Points.measure` returned after a step."""


def train(
    experiments: Sequence[Experiment],
    device: torch.device,
    report: ReportStep = lambda step, loss: None,
    *,
    points: Points = NO_POINTS,
    follower: Follower | None = None,
    compile: bool = False,
    models: int = 0,
    checkpoint: Checkpoint | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Trained:
    """Train all experiments, which share a `population_key`, at once, and measure them at `points`. Tells a `follower`.

    A compiled step is made for a stack of `models`, and fewer experiments are filled up to that. With a `checkpoint`, training
    continues from the state that it holds, if any, and saves to it from time to time. A training that continues is compiled or
    not as it began, whatever `compile` says, so that all its steps round alike. Calls `say` with sentences for the user.
    """
    started = time.monotonic()
    training, asked = experiments[0].train, len(experiments)
    past = checkpoint.peek() if checkpoint else TrainingProgress()
    filled = (past.models if past.step else models if compile else asked) - asked
    experiments = [*experiments, *[experiments[-1]] * filled]
    population = Population(experiments, device, say)
    past = _restored(population, checkpoint, compile, say) if checkpoint else TrainingProgress()
    compile = past.compiled if past.step else compile
    members = [(experiment.task, experiment.seed) for experiment in experiments]
    advance: StepFunction = population.advance
    average: Callable[[], object] = population.average
    precision, measured = experiments[0].record.precision, dict(past.measured)
    compiled = Compiled(population, say) if compile else None
    if compiled:
        advance = compiled
    tell = _teller(follower, population, asked) if follower else lambda step, measured: None
    for step in range(1, past.step + 1):
        tell(step, measured)

    def progress(step: int) -> TrainingProgress:
        compiles = compiled is not None and compiled.compiles
        seconds = past.seconds + time.monotonic() - started
        return TrainingProgress(step, len(experiments), past.compiled or compiles, seconds, measured)

    # Gradients come from torch.func alone: without no_grad autograd would keep a second graph around them.
    with torch.no_grad(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        if captures(device):
            advance = Captured(advance, say)
            average = Captured(average, say) if population.averagers else average  # a graph of nothing is an error
        for step, batch in enumerate(stream(members, training, device, past.step), start=past.step + 1):
            population.draw_noise(step)
            losses = advance(*batch.tensors)
            if step % training.average_every == 0:
                average()
            population.mark(step)
            if step in points.steps:
                with _evaluating(population.skeleton):
                    now = Models(population.skeleton, population.variants(), population.buffers, precision)
                    measured[step] = points.measure(now)
            tell(step, measured)
            if checkpoint and checkpoint.due(last=step == training.steps):
                _save(checkpoint, progress(step), population, say)
            report(step, lambda losses=losses: losses[:asked].mean().item())  # type: ignore[misc]
    loss, norm = population.curve.cpu().unbind(1)
    curve = Curve(population.marks, loss, norm)
    population.skeleton.eval()
    whole = progress(training.steps)
    return Trained(
        skeleton=population.skeleton,
        weights=population.variants(),
        buffers=population.buffers,
        precision=precision,
        measured=measured,
        curve=curve,
        diverged=population.diverged()[:asked],
        stack=len(experiments),
        compiled=whole.compiled,
        resumed=past.step > 0,
        seconds=whole.seconds,
    )


def _teller(follower: Follower, population: Population, models: int) -> Callable[[int, Mapping[int, Any]], None]:
    """A function that is called after every step, and tells what there is to tell of the first so many models.

    It waits for the device, but at the points of the curve alone.
    """
    points = {mark: index for index, mark in enumerate(population.marks)}

    def tell(step: int, measured: Mapping[int, Any]) -> None:
        if step in points:
            loss, norm = population.curve[points[step], :, :models].tolist()
            follower.curve(step, loss, norm)
        if step in measured:
            follower.measured(step, measured[step])

    return tell


@contextmanager
def _evaluating(skeleton: nn.Module) -> Iterator[None]:
    """Inside it, every module is in evaluation mode. After it, each is in the mode in which it was."""
    modes = [(module, module.training) for module in skeleton.modules()]
    skeleton.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _save(checkpoint: Checkpoint, progress: TrainingProgress, population: Population, say: Callable[[str], None]) -> None:
    """A disk that is full for a while costs no training."""
    try:
        checkpoint.save(progress, population.tensors())
    except OSError as error:
        say(f"no checkpoint after step {progress.step}: {first_line(error)}; training goes on")


def _restored(population: Population, checkpoint: Checkpoint, compile: bool, say: Callable[[str], None]) -> TrainingProgress:
    try:
        past = checkpoint.restore(population.tensors())
    except RunFileError as error:
        say(f"{error}; training starts from its beginning")
        return TrainingProgress()
    if past.step:
        otherwise = ", compiled as it began" if past.compiled else ", not compiled, as it began"
        say(f"training goes on after step {past.step}{otherwise if past.compiled != compile else ''}")
    return past
