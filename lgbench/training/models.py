"""The models of a population: as functions from inputs to logits, while they train and once they are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from lgbench.contracts import Weights
from lgbench.training.curve import Curve
from lgbench.training.precision import answered


@dataclass(frozen=True)
class Models:
    """The models of a population. `weights`: by variant ("raw" and each averager), tensors with a leading P."""

    skeleton: nn.Module
    weights: dict[str, Weights]
    buffers: Weights
    precision: str
    """The precision in which the models compute."""

    def models(self, index: int) -> dict[str, Callable[[Tensor], Tensor]]:
        """One model of the population, with each variant of its weights."""
        return {variant: self.model(variant, index) for variant in self.weights}

    def on(self, skeleton: nn.Module) -> Models:
        """The same weights, computing by another module of the same architecture."""
        return Models(skeleton, self.weights, self.buffers, self.precision)

    def model(self, variant: str, index: int) -> Callable[[Tensor], Tensor]:
        """One model of the population, as a function from inputs to logits. It is in the mode in which the skeleton is."""
        state = {name: tensor[index] for name, tensor in (self.weights[variant] | self.buffers).items()}

        def compute(inputs: Tensor) -> Tensor:
            found: Tensor = functional_call(self.skeleton, state, (inputs,))
            return found

        return lambda inputs: answered(compute, inputs, self.precision)


@dataclass(frozen=True)
class Trained(Models):
    """A trained population, in evaluation mode."""

    measured: Mapping[int, Any]
    """The measurements made at each of the points, by step."""
    curve: Curve
    diverged: list[int | None]
    """The first step with a loss that is not finite, or the last where its update left weights that are not."""
    stack: int
    """How many models were trained together, those that filled the stack included."""
    compiled: bool
    """Whether the training step was compiled."""
    resumed: bool
    """Whether training went on from a checkpoint."""
    seconds: float
    """Seconds that training took, in earlier processes too, and what was measured on the way."""
