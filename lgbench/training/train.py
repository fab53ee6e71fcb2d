"""Training of a population, with its checkpoints and with measurements on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from lgbench.errors import RunFileError, first_line
from lgbench.experiment.experiment import Experiment, evaluating
from lgbench.training.checkpoint import Checkpoint, TrainingProgress
from lgbench.training.data import stream
from lgbench.training.models import Curve, Models, Trained
from lgbench.training.population import Compiled, Population
from lgbench.training.program import Captured, Function, captures

ReportStep = Callable[[int, Callable[[], float]], None]
"""Called after every step with the number of steps done and a function for the mean loss of the latest step."""


class Follower(Protocol):
    """Listener of a training: to each point of the curve, and each measurement at :class:`EvalSteps`.

    A training from a checkpoint repeats the points and measurements before the checkpoint.
    """

    def curve(self, step: int, loss: Sequence[float], gradient_norm: Sequence[float]) -> None:
        """Point of the training curve of each model."""

    def measured(self, step: int, found: Any) -> None:
        """Value of :attr:`EvalSteps.measure` after a step."""


@dataclass(frozen=True)
class EvalSteps:
    """Steps with a measurement, and the measuring function, which must change no model.

    `measure` returns JSON values. A checkpoint keeps the values, and no step is measured twice.
    """

    steps: Collection[int]
    measure: Callable[[Models], Any]
    """Called with the models in evaluation mode."""
    follower: Follower | None = None


NO_EVAL_STEPS = EvalSteps((), lambda models: None)


def train(
    experiments: Sequence[Experiment],
    device: torch.device,
    report: ReportStep = lambda step, loss: None,
    *,
    eval_steps: EvalSteps = NO_EVAL_STEPS,
    compile: bool = False,
    models: int = 0,
    checkpoint: Checkpoint | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Trained:
    """Train experiments with one `population_key` together, and measure the models at `eval_steps`.

    A compiled step needs a stack of exactly `models`; fewer experiments are filled up with copies. With a `checkpoint`,
    training continues from the saved state, if any, and saves from time to time. A continued training stays compiled or
    plain, whatever `compile` says: all steps must round alike. Calls `say` with sentences for the user.
    """
    started = time.monotonic()
    training, asked = experiments[0].train, len(experiments)
    population = Population([*experiments, *[experiments[-1]] * ((models if compile else 0) - asked)], device, say)
    past = _restored(population, checkpoint, compile, say) if checkpoint else TrainingProgress()
    compiled = Compiled(population, say) if (past.compiled if past.step else compile) else None
    measured = dict(past.measured)
    tell = _teller(eval_steps.follower, population, asked) if eval_steps.follower else lambda step, measured: None
    for step in range(1, past.step + 1):
        tell(step, measured)

    def progress(step: int) -> TrainingProgress:
        compiles = compiled is not None and compiled.compiles
        seconds = past.seconds + time.monotonic() - started
        return TrainingProgress(step, past.compiled or compiles, seconds, measured)

    # Gradients come from torch.func alone: without no_grad autograd would keep a second graph around them.
    # Streams and graphs are made on the current device.
    with torch.no_grad(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        advance: Function = compiled or population.advance
        average: Callable[[], object] = population.average
        if captures(device):
            advance = Captured(advance, say)
            average = Captured(average, say) if population.averagers else average  # a graph of nothing is an error
        for step, batch in enumerate(stream(population.members, training, device, past.step), start=past.step + 1):
            population.draw_noise(step)
            losses = advance(*batch.tensors)
            if step % training.average_every == 0:
                average()
            population.mark(step)
            if step in eval_steps.steps:
                with evaluating(population.skeleton):
                    measured[step] = eval_steps.measure(population.models())
            tell(step, measured)
            if checkpoint and checkpoint.due(last=step == training.steps):
                _save(checkpoint, progress(step), population, say)
            report(step, lambda losses=losses: losses[:asked].mean().item())  # type: ignore[misc]
    population.skeleton.eval()
    whole, (loss, norm) = progress(training.steps), population.curve.cpu().unbind(1)
    return Trained(
        **vars(population.models()),
        measured=measured,
        curve=Curve(population.marks, loss, norm),
        diverged=population.diverged()[:asked],
        stack=len(population.members),
        compiled=whole.compiled,
        resumed=past.step > 0,
        seconds=whole.seconds,
    )


def _teller(follower: Follower, population: Population, models: int) -> Callable[[int, Mapping[int, Any]], None]:
    """Function for the end of every step: passes curve points and measurements of the first `models` models to the follower.

    Waits for the device at the points of the curve only.
    """
    points = {mark: index for index, mark in enumerate(population.marks)}

    def tell(step: int, measured: Mapping[int, Any]) -> None:
        if step in points:
            loss, norm = population.curve[points[step], :, :models].tolist()
            follower.curve(step, loss, norm)
        if step in measured:
            follower.measured(step, measured[step])

    return tell


def _save(checkpoint: Checkpoint, progress: TrainingProgress, population: Population, say: Callable[[str], None]) -> None:
    """Save a checkpoint. A full disk is reported and stops no training."""
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
