"""Cost of a training step, measured on real steps, and two choices: how many models train together, and whether to compile."""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lgbench.errors import UsageError, lacks_memory
from lgbench.experiment.experiment import Experiment
from lgbench.randomness import Random
from lgbench.terminal import memory
from lgbench.training.data import CHUNK, Step, batch_shapes, stream, training_lengths
from lgbench.training.population import Population

STACK_BYTES = 2**20
"""Bytes of an operator's result over all models of a compiled stack, on a CPU. Where freed memory is kept, stacks of 1 to 12
Tomita models train within 7 % of each other (benchmarks/stacks.py). Small stacks keep all workers busy."""

PLAIN_STACK_BYTES = 2**24
"""Bytes of an operator's result over all models of an uncompiled stack. Starting the operators takes most of such a step, and
a stack starts each once for all models: an LSTM on Reverse String takes 14 ms a step alone, 6 ms as one of five, 5 ms as one
of ten (benchmarks/stacks.py --plain)."""

SHARE_OF_MEMORY = 0.5
"""Share of free memory for populations. The rest is for the allocator, for evaluation, and for other programs."""

STEPS_PER_PROGRAM = 300
"""Training steps from which a program is compiled. Compiling takes 10 to 30 s, as much as 700 to 7,500 steps of one stack save
(benchmarks/compilation.py), and several stacks and later commands use the same program. A fixed number and no clock: compiled
and plain steps round differently, and equal commands must give equal numbers."""

TIMED_STEPS = 5
"""Steps from which the time of a step is measured."""


@dataclass(frozen=True)
class StepCost:
    """Memory of one training step of one model, in bytes. In proportion to the models of a population."""

    peak: int
    """Largest sum of operator results alive at the same time."""
    largest: int
    """Largest result of one operator."""
    kept: int
    """Tensors that stay between steps: weights, moments, averages, buffers, batches drawn ahead."""

    @property
    def memory(self) -> int:
        return self.peak + self.kept


def step_cost(experiment: Experiment, device: torch.device) -> StepCost:
    """Memory of a step of one model on the longest training contexts, measured by a real step.

    Raises UsageError if one model does not fit into free memory, and any error of building and running the model.
    """
    free = free_memory(device)
    try:
        with torch.no_grad():
            population, batch = Population([experiment], device), _longest([experiment], device)
            with Meter(free) as meter:
                population.advance(*batch.tensors)
    except Exception as error:  # a plugin's model may raise anything
        if lacks_memory(error):
            raise _too_large(experiment, free) from error
        raise
    state, drawn = (sum(t.nbytes for t in tensors) for tensors in (population.tensors().values(), batch.tensors))
    return StepCost(meter.peak, meter.largest, state + min(experiment.train.steps, CHUNK) * drawn)


def step_seconds(experiments: Sequence[Experiment], device: torch.device) -> float:
    """Seconds of a step of a population, not compiled, with data and averages: the median of a few real steps."""
    training = experiments[0].train
    few = replace(training, steps=min(training.steps, TIMED_STEPS))
    with torch.no_grad():
        population = Population(experiments, device)
        started = time.perf_counter()
        batches = list(stream(population.members, few, device))
        drawing = (time.perf_counter() - started) / len(batches)
        taken = []
        for step, batch in enumerate(batches, 1):
            started = time.perf_counter()
            population.draw_noise(step)
            losses = population.advance(*batch.tensors)
            if step % training.average_every == 0:
                population.average()
            losses[0].item()  # waits for a GPU
            taken.append(time.perf_counter() - started)
    return drawing + median(taken[1:] or taken)  # libraries set themselves up in the first step


def stack_size(cost: StepCost, device: torch.device, compiled: bool) -> float:
    """Models to train together where memory suffices for more. From counted bytes: the same on every CPU."""
    if device.type != "cpu":
        return math.inf
    return max(1, (STACK_BYTES if compiled else PLAIN_STACK_BYTES) // cost.largest)


def trains_alone(experiment: Experiment, device: torch.device, compiled: bool) -> bool:
    """Whether a model trains alone: on a CPU, one program for all context lengths is of one model."""
    return compiled and device.type == "cpu" and batch_shapes(experiment.task, experiment.train) > 1


def models_that_fit(cost: StepCost, device: torch.device) -> int:
    """Number of models in free memory at the same time, at least one."""
    return max(1, int(SHARE_OF_MEMORY * free_memory(device) / cost.memory))


def compiling_pays(experiment: Experiment, device: torch.device) -> bool:
    """Whether a training has enough compiled steps for each program. From the settings alone: equal commands decide alike."""
    steps, lengths = experiment.train.steps, batch_shapes(experiment.task, experiment.train)
    if device.type not in ("cpu", "cuda") or steps < STEPS_PER_PROGRAM:
        return False
    # Tracing takes a second or two, and matters only between one program for all lengths and one for each.
    return steps >= STEPS_PER_PROGRAM * lengths or _steps_served(experiment, device) >= STEPS_PER_PROGRAM


def free_memory(device: torch.device) -> int:
    """Free bytes of a device, including cached bytes that torch would use again."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return int(psutil.virtual_memory().available)


def _longest(experiments: Sequence[Experiment], device: torch.device) -> Step:
    """Batch of a population with contexts of the longest training length."""
    train = experiments[0].train
    longest = replace(train, steps=1, min_length=train.max_length)
    return next(stream([(experiment.task, experiment.seed) for experiment in experiments], longest, device))


def _steps_served(experiment: Experiment, device: torch.device) -> int:
    """Number of steps whose length the first program for many lengths serves. Traced on the CPU.

    On a CPU the program is of a model that trains alone, on a GPU of a stack.
    """
    cpu, models = torch.device("cpu"), [experiment] * (1 if device.type == "cpu" else 2)
    serves = Population(models, cpu).served(_longest(models, cpu).tensors)
    lengths = Counter(training_lengths(experiment.task, experiment.train))
    return sum(steps for length, steps in lengths.items() if serves(experiment.task.sample(length, Random(1)).inputs.shape[1]))


def _too_large(experiment: Experiment, free: int) -> UsageError:
    train = experiment.train
    sizes = [f"train.batch={train.batch}", f"train.max_length={train.max_length}"]
    sizes += [f"{key}={value}" for key, value in experiment.record.protocol.changes if key.startswith("model.")]
    return UsageError(
        f"{experiment.record.title} does not fit into memory: a training step of one model takes more than the "
        f"{memory(free)} that are free, with {', '.join(sizes)}; lower one of these"
    )


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the memory of operator results. Raises MemoryError beyond a limit: the system would kill the whole command."""

    def __init__(self, limit: float = math.inf) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit = limit
        self.peak = self.alive = self.largest = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor):
                self._follow(result.untyped_storage())
        return results

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata  # its address, equal for all views
        if key in self._sizes:  # a view of an earlier result
            return
        self._sizes[key] = storage.nbytes()
        self.alive += storage.nbytes()
        self.largest = max(self.largest, storage.nbytes())
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key)
        if self.alive > self.limit:
            raise MemoryError

    def _forget(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)
