"""Optimizers and averagers of weights.

P counts the models of a population, N the trained parameters of one model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lgbench.contracts.options import Configurable

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
"""Tensors by the name of the parameter, each with a leading P."""
State = dict[str, Weights]
"""Tensors under two names, a part and a parameter, such as state["ema"]["logits.weight"].

Names, shapes and dtypes never change after the start, so that a checkpoint can hold a state and a step can be captured once.
"""


class Optimizer(Configurable):
    """A rule that turns gradients into new weights, as pure functions of tensors.

    The harness owns the schedule of the learning rate, and which weights decay. An elementwise optimizer gets all parameters of
    the population as one tensor, (P, N), under the name "all": one operation is faster than one for each parameter. Any other
    optimizer gets each parameter by its name, (P, *shape).
    """

    elementwise: bool = True
    """Whether each weight's update depends on that weight alone, and not on the shape of its matrix."""

    @abstractmethod
    def start(self, weights: Weights) -> State:
        """The state before the first step, such as moments of zeros."""

    @abstractmethod
    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        """State and weights after one step.

        lr: the learning rates of this step, broadcasting to each weight. decay: the weight decay, broadcasting to each
        weight, 0 for parameters of fewer than two dimensions, such as gains and biases. step: optimizer steps including this
        one, (1,) float64. Nothing may be changed in place, and nothing may wait for the device.
        """


@dataclass(frozen=True)
class Schedule:
    """How long a training is, and how often averages are updated."""

    steps: int
    """Optimizer steps of the whole training."""
    every: int
    """Steps between two updates of the averages: the setting `train.average_every`."""


class Averager(ABC):
    """A running average of the weights. Every operation is elementwise, since tensors have a leading P."""

    name: str
    """Lower-case letters, digits and hyphens; see :data:`lgbench.contracts.names.NAME`."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""

    @abstractmethod
    def start(self, weights: Weights, schedule: Schedule) -> State:
        """The state before training, from copies of the initial weights."""

    @abstractmethod
    def update(self, state: State, weights: Weights, step: Tensor) -> State:
        """The state after `step` optimizer steps, a float64 without dimensions on the device of the weights.

        The harness calls it at every multiple of `schedule.every`, with copies of the weights.
        """

    @abstractmethod
    def weights(self, state: State) -> Weights:
        """The averaged weights, with names and shapes as `start` got them."""

    def reference(self, start: float, path: Sequence[tuple[int, float]], schedule: Schedule) -> float | None:
        """The average of one weight by the published formula, in another way than `update` finds it.

        `start` is the initial weight; `path` has the steps of the updates and the weight at each. `lgbench check` compares
        `update` with it. None where there is no other way.
        """
        return None
