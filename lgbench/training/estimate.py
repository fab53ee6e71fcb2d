"""The cost of a training and its tests, known before anything large is allocated: operators run on tensors without numbers.

Shapes: B contexts of a batch, T positions, A answers for each context, V classes.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lgbench import seeds
from lgbench.contracts import Tokens
from lgbench.experiment.building import Trial
from lgbench.experiment.experiment import Experiment
from lgbench.training import cost
from lgbench.training.cost import Cost
from lgbench.training.data import CHUNK, draw_batch
from lgbench.training.population import Population

CPU = torch.device("cpu")

DIRECT = 256
"""Positions up to which a step is followed as it is. Models that go from position to position have operators for each."""

FIRST = 64
"""The shortest of the three lengths from which the cost of a longer one is extrapolated."""


SMALL_POSITIONS, SMALL_LENGTH, SMALL_MODEL = 2**13, 2**9, 10**7
"""Positions of a batch, positions of a context and parameters up to which a step may simply be run, in a tenth of the time."""

BYTES_BY_ROW = 48
"""Bytes that a step keeps of each feature at each position: about three times as many as measured on the built-in models."""


def step_cost(experiment: Experiment) -> Cost:
    """The cost of one training step of one model at the longest training length.

    Nothing large is allocated, and no number of the training depends on it. A step that is surely small is run. A larger one
    runs on tensors without numbers. If the model cannot do that, since it branches on a value, it is run on a few contexts and
    on twice as many, and the cost of a batch follows from these. Raises what building or running the model raises.
    """
    shapes = Shapes.of(experiment, experiment.train.max_length)
    if _is_small(experiment, shapes):
        found = _stepped(experiment, experiment.train.batch)
    else:
        try:
            with without_numbers():
                found = at_length(lambda positions: _traced(experiment, shapes.resized(positions)), shapes.positions)
        except Exception:  # what a model cannot do here, it may do with numbers; if not, the error is raised there
            few = max(1, min(experiment.train.batch, SMALL_POSITIONS // shapes.positions) // 2)
            found = _extrapolated([_stepped(experiment, n) for n in (few, 2 * few)], (few, 2 * few), experiment.train.batch)
    return replace(found, kept=found.kept + min(experiment.train.steps, CHUNK) * shapes.bytes)


def traces_all_lengths(experiment: Experiment) -> bool:
    """Whether the training step can be traced for batches of all lengths at once. Computes nothing."""
    batch = Shapes.of(experiment, experiment.train.max_length).batch()
    return Population([experiment], CPU).traces_all_lengths([tensor[None] for tensor in batch])


def pass_memory(experiment: Experiment, positions: int, contexts: int) -> int:
    """Bytes that testing one model takes besides its contexts: the weights of all variants, and a pass over so many contexts.

    0 where a pass is surely small, or where the model cannot run on tensors without numbers.
    """
    if positions <= SMALL_LENGTH + 1 and size_of(experiment).parameters <= SMALL_MODEL:
        return 0

    def passed(length: int) -> Cost:
        model = experiment.build().eval()
        weights = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        inputs = _inputs(experiment, contexts, length)
        with torch.inference_mode():
            return cost.measure(lambda: model(inputs), weights * (1 + len(experiment.averagers)))

    experiment.parts_to_build()
    try:
        with without_numbers():
            found = at_length(passed, positions)
    except Exception:  # what a model cannot do here, it may do with numbers
        return 0
    return found.peak + found.kept


def _inputs(experiment: Experiment, contexts: int, positions: int) -> Tensor:
    """Inputs of a task, of so many positions."""
    kind = experiment.task.signature.inputs
    if isinstance(kind, Tokens):
        return torch.zeros(contexts, positions, dtype=torch.int64)
    return torch.zeros(contexts, positions, kind.width)


class Size(NamedTuple):
    """How large a model is."""

    parameters: int
    """Numbers in its parameters and buffers."""
    rows: int
    """Rows of its parameters: about how many features it has at a position, of all layers together."""


def size_of(experiment: Experiment) -> Size:
    """Raises Unsupported for a model that the memory cannot hold."""
    experiment.parts_to_build()
    with seeds.initial(experiment.seed, "weights"), Trial():
        model = experiment.build()
        tensors = [*model.parameters(), *model.buffers()]
        return Size(sum(tensor.numel() for tensor in tensors), sum(tensor.shape[0] for tensor in tensors if tensor.ndim))


def _is_small(experiment: Experiment, shapes: Shapes) -> bool:
    """Whether a step surely takes less than a quarter of the free memory."""
    positions = experiment.train.batch * shapes.positions
    if positions > SMALL_POSITIONS or shapes.positions > SMALL_LENGTH:
        return False
    size = size_of(experiment)
    return size.parameters <= SMALL_MODEL and positions * size.rows * BYTES_BY_ROW < cost.free_memory(CPU) // 4


@dataclass(frozen=True)
class Shapes:
    """The tensors of a training batch of one model: inputs, targets and, where the task gives some, weights."""

    tensors: tuple[tuple[torch.Size, torch.dtype], ...]
    """Of each its shape, (B, T, ...), and its type."""
    positions: int
    """T of the inputs."""

    @classmethod
    def of(cls, experiment: Experiment, length: int) -> Shapes:
        """Draws one context."""
        training = experiment.train
        one = draw_batch(experiment.task, [0], length, [0], replace(training, batch=1), CPU)  # (1, 1, 1, ...)
        found = tuple((torch.Size([training.batch, *tensor.shape[3:]]), tensor.dtype) for tensor in one)
        return cls(found, one[0].shape[3])

    @property
    def bytes(self) -> int:
        return sum(shape.numel() * dtype.itemsize for shape, dtype in self.tensors)

    def resized(self, positions: int) -> Shapes:
        """The same batch with another T."""

        def of(shape: torch.Size) -> torch.Size:
            return torch.Size([shape[0], positions if shape[1] == self.positions else shape[1], *shape[2:]])

        return Shapes(tuple((of(shape), dtype) for shape, dtype in self.tensors), positions)

    def batch(self) -> tuple[Tensor, ...]:
        return tuple(torch.empty(shape, dtype=dtype) for shape, dtype in self.tensors)


def _traced(experiment: Experiment, shapes: Shapes) -> Cost:
    """The cost of a step on tensors without numbers, but for the batches that are drawn ahead."""
    population = Population([experiment], CPU)
    kept = sum(tensor.nbytes for tensor in population.tensors().values())
    batch = shapes.batch()
    with torch.no_grad():
        return cost.measure(lambda: population.advance(*(tensor[None] for tensor in batch)), kept)


def _stepped(experiment: Experiment, contexts: int) -> Cost:
    """The cost of a real step on so many contexts, but for the batches that are drawn ahead."""
    population, training = Population([experiment], CPU), experiment.train
    kept = sum(tensor.nbytes for tensor in population.tensors().values())
    batch = draw_batch(experiment.task, [0], training.max_length, [0], replace(training, batch=contexts), CPU)
    with torch.no_grad():
        return cost.measure(lambda: population.advance(*(tensor[0] for tensor in batch)), kept)


def at_length(of: Callable[[int], Cost], positions: int) -> Cost:
    """The cost at so many positions: followed as it is, or extrapolated where there are operators for each position."""
    if positions <= DIRECT:
        return of(positions)
    short = [of(FIRST), of(2 * FIRST)]
    if short[0].operators == short[1].operators:
        return of(positions)
    return _extrapolated([*short, of(3 * FIRST)], (FIRST, 2 * FIRST, 3 * FIRST), positions)


def _extrapolated(found: Sequence[Cost], sizes: Sequence[int], size: int) -> Cost:
    """The polynomial through these costs of several sizes, at another size. Attention is of the second degree in the length."""

    def at(numbers: Sequence[int]) -> int:
        total = 0.0
        for i, number in enumerate(numbers):
            share = 1.0
            for j, other in enumerate(sizes):
                share *= (size - other) / (sizes[i] - other) if i != j else 1.0
            total += share * number
        return max(round(total), max(numbers))

    return Cost(**{each.name: at([getattr(cost, each.name) for cost in found]) for each in fields(Cost)})


@contextmanager
def without_numbers() -> Iterator[None]:
    """Inside, tensors have shapes and types, and no numbers: nothing is allocated.

    A function that keeps its results, as `functools.cache` makes one, would hand such a tensor to a training later. So all
    such functions of plugins forget what they kept.
    """
    with torch.random.fork_rng(devices=[]), FakeTensorMode(allow_non_fake_inputs=True):
        yield
    for each in gc.get_objects():
        if type(each) is functools._lru_cache_wrapper and str(each.__module__).partition(".")[0] not in _NOT_PLUGINS:
            each.cache_clear()


_NOT_PLUGINS = {"lgbench", "numpy", "sympy", "torch", *sys.stdlib_module_names}
"""Packages whose functions keep no tensors, or know better."""
