"""Training: optimizers, averagers of weights, executors, which train populations elsewhere, and loggers of trainings.

P counts the models of a population, N the trained parameters of one model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_type_hints

from lgbench.contracts.names import Configurable, Named

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
"""Tensors by the name of the parameter, each with a leading P."""
State = dict[str, Weights]
"""Tensors under two names, a part and a parameter, such as state["ema"]["logits.weight"].

Names, shapes and dtypes never change after the start, so that a checkpoint can hold a state and a step can be captured once.
"""


class Optimizer(Configurable):
    """Update rule from gradients to new weights, as pure functions of tensors.

    The harness owns the schedule of the learning rate and the choice of weights with decay. An elementwise optimizer gets all
    parameters of the population as one tensor, (P, N), under the name "all": one operation is faster than one per parameter.
    Any other optimizer gets each parameter by name, (P, *shape).
    """

    elementwise: bool = True
    """Whether the update of a weight depends on no other weight and not on the shape of its matrix."""

    @abstractmethod
    def start(self, weights: Weights) -> State:
        """State before the first step, such as moments of zeros."""

    @abstractmethod
    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        """State and weights after one step.

        lr: learning rates of this step, broadcasting to each weight. decay: weight decay, broadcasting to each weight, 0 for
        parameters of fewer than two dimensions, such as gains and biases. step: optimizer steps including this one,
        (1,) float64. The method changes nothing in place and never waits for the device.
        """


@dataclass(frozen=True)
class Schedule:
    """Length of a training, and interval of the updates of averages."""

    steps: int
    """Optimizer steps of the whole training."""
    every: int
    """Steps between two updates of the averages: the setting `train.average_every`."""


class Averager(Named):
    """Running average of the weights. Every operation is elementwise, since tensors have a leading P."""

    @abstractmethod
    def start(self, weights: Weights, schedule: Schedule) -> State:
        """State before training, from copies of the initial weights."""

    @abstractmethod
    def update(self, state: State, weights: Weights, step: Tensor) -> State:
        """State after `step` optimizer steps, a scalar float64 tensor on the device of the weights.

        The harness calls this method at every multiple of `schedule.every`, with copies of the weights.
        """

    @abstractmethod
    def weights(self, state: State) -> Weights:
        """Averaged weights, with the names and shapes from `start`."""

    def reference(self, start: float, path: Sequence[tuple[int, float]], schedule: Schedule) -> float | None:
        """Average of one weight by the published formula, independent of `update`.

        start: initial weight. path: step and weight of each update. `lgbench check` compares `update` with this reference.
        None without an independent formula.
        """
        return None


class Submitted(Protocol):
    """A function that was submitted. Futures of `concurrent.futures` are such objects."""

    def done(self) -> bool:
        """Whether the function has ended. Called several times a second."""

    def result(self) -> Any:
        """Its return value. Raises an exception if the function was lost, for example with its machine."""

    def cancel(self) -> Any:
        """Stop the function, if possible also in the middle."""


@dataclass(frozen=True)
class Pool:
    """An engine that is ready."""

    submit: Callable[[Callable[[], Any]], Submitted]
    """Starts a function without arguments. The function and its return value can be pickled."""
    workers: int
    """Number of functions that are submitted at the same time."""


@dataclass(frozen=True)
class Demand:
    """What a command needs of an engine."""

    workers: int | None
    """Number of populations to train at the same time, from --workers; None for the engine's choice."""
    gpu: bool
    """Whether each function needs a GPU. Otherwise it needs one core, and threads are limited by `environ`."""
    environ: dict[str, str]
    """Environment variables for the processes of the functions."""
    folder: Path
    """Hidden folder for files of the engine, beside the run files. Need not exist."""


class Executor(Named):
    """An engine. The options of a user are the fields of a frozen dataclass that extends this class.

    A field has a default and the type str, int, float or bool, or one of these or None. `--executor-option jobs=4` sets it.
    `__post_init__` may raise :class:`lgbench.UsageError` for values out of range. Submitted functions train one population
    each, and one process may train one population at a time.
    """

    @abstractmethod
    def open(self, demand: Demand) -> AbstractContextManager[Pool]:
        """The engine, until the context ends. The end of the context stops all functions that still run.

        Raises :class:`lgbench.UsageError` with the reason why the engine cannot be used.
        """


def option_types(executor: Executor) -> dict[str, Any]:
    """Types of an executor's options by name."""
    if not is_dataclass(executor):
        return {}
    hints = get_type_hints(type(executor))
    return {field.name: hints[field.name] for field in fields(executor)}


Setting = str | int | float | bool | None


@dataclass(frozen=True)
class LoggedRun:
    """One run of lgbench: one model with one seed."""

    name: str
    """The name of its run file without the suffix."""
    tags: Mapping[str, str]
    """By "task", "family", "entry", "seed", "protocol" and "run_id"."""
    config: Mapping[str, Setting]
    """Settings that decide the numbers of the run, under names such as "train.lr" and "model.layers"."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    status: Literal["finished", "failed", "stopped"]
    """Stopped: by an interrupt, or since another command trains the run. A stopped run may be resumed."""
    reason: str = ""
    """Sentence for failed and stopped runs."""
    diverged_step: int | None = None
    """First step of a diverged training; None for other trainings."""


class OpenRun(ABC):
    """Open run of a logger."""

    handle: str
    """Identifier of the run for :meth:`Logger.resume` in another process. Kept beside the checkpoint."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep finite numbers of an optimizer step. Steps never fall; each number comes once.

        Names are "train_loss" and "gradient_norm", and "tvd/raw/64" for the TVD of the raw weights at length 64.
        """

    @abstractmethod
    def end(self, end: RunEnd) -> None:
        """Close the run after everything logged is stored."""


class Logger(Named):
    """A place where people keep their trainings. Import its library inside the methods, since every command loads plugins.

    All methods are called from a thread of the process that trains. A slow call delays no training step. After an exception,
    or 60 s after the end of a population, the logger is called no more, and training goes on. Loggers must leave torch alone.
    """

    def missing(self) -> str | None:
        """Reason why the logger cannot be used here, such as "foo is not installed: pip install foo"; None if usable."""
        return None

    @abstractmethod
    def start(self, run: LoggedRun) -> OpenRun:
        """Begin a run. Several runs are open at the same time. An exception is shown to the user, and training goes on."""

    def resume(self, run: LoggedRun, handle: str) -> OpenRun | None:
        """Open a run again, after its training was resumed. None if the logger cannot; then :meth:`start` is called."""
        return None
