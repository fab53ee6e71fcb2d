"""Optimizers and averagers of weights.

P counts the models of a population, N the trained parameters of one model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
