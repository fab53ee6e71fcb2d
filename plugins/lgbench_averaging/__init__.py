"""EMA and BEMA of the weights (arXiv 2508.00180), as a plugin.

    alpha_t = (rho + gamma t)^-eta      beta_t = (rho + gamma t)^-kappa
    mu_ema <- (1 - beta_t) mu_ema + beta_t theta_t;   mu <- mu_ema + alpha_t (theta_t - theta_0)

with t the optimizer step. How often the update is made (phi) is the protocol's `train.average_every`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lgbench import Averager, Schedule, State, Weights, hookimpl


def float_copies(weights: Weights) -> Weights:
    """Copies in at least float32: averages of small changes vanish in less."""
    return {name: w.detach().to(torch.promote_types(w.dtype, torch.float32), copy=True) for name, w in weights.items()}


def mixed(average: Weights, weights: Weights, beta: Tensor) -> Weights:
    """(1 - beta) average + beta weights."""
    return {name: mean + beta * (weights[name].detach() - mean) for name, mean in average.items()}


@final
@dataclass(frozen=True)
class Ema(Averager):
    """Exponential moving average with BEMA's decay beta_t, so that the two differ by the bias correction alone.

    mu <- (1 - beta_t) mu + beta_t theta_t, beta_t = (rho + gamma t)^-kappa
    """

    name: str = "ema"
    kappa: float = 0.5
    gamma: float = 1.0
    rho: float = 10.0

    def start(self, weights: Weights, schedule: Schedule) -> State:
        return {"ema": float_copies(weights)}

    def update(self, state: State, weights: Weights, step: Tensor) -> State:
        return {"ema": mixed(state["ema"], weights, (self.rho + self.gamma * step) ** -self.kappa)}

    def weights(self, state: State) -> Weights:
        return state["ema"]

    def reference(self, start: float, path: Sequence[tuple[int, float]], schedule: Schedule) -> float:
        return lagging(self, start, path)


@final
@dataclass(frozen=True)
class Bema(Averager):
    """Bias-corrected exponential moving average (arXiv 2508.00180), with the published defaults (tau = 0).

    mu_ema <- (1 - beta_t) mu_ema + beta_t theta_t, mu <- mu_ema + alpha_t (theta_t - theta_0),
    alpha_t = (rho + gamma t)^-eta, beta_t = (rho + gamma t)^-kappa

    Formula and absolute t as in TRL's BEMACallback. While t is small alpha_t is large (0.175 at t = 6,000), so after
    short training BEMA can be worse than the raw weights.
    """

    name: str = "bema"
    kappa: float = 0.5
    eta: float = 0.2
    gamma: float = 1.0
    rho: float = 10.0

    def start(self, weights: Weights, schedule: Schedule) -> State:
        """theta_0, mu_ema and mu."""
        return {part: float_copies(weights) for part in ("origin", "ema", "corrected")}

    def update(self, state: State, weights: Weights, step: Tensor) -> State:
        age = self.rho + self.gamma * step
        ema = mixed(state["ema"], weights, age**-self.kappa)
        alpha = age**-self.eta
        corrected = {name: mean + alpha * (weights[name].detach() - state["origin"][name]) for name, mean in ema.items()}
        return {"origin": state["origin"], "ema": ema, "corrected": corrected}

    def weights(self, state: State) -> Weights:
        return state["corrected"]

    def reference(self, start: float, path: Sequence[tuple[int, float]], schedule: Schedule) -> float:
        step, latest = path[-1]
        alpha: float = (self.rho + self.gamma * step) ** -self.eta
        return lagging(self, start, path) + alpha * (latest - start)


def lagging(average: Ema | Bema, start: float, path: Sequence[tuple[int, float]]) -> float:
    """mu_ema as a sum: every weight times its beta_t, times 1 - beta of each later update."""
    total, left = 0.0, 1.0
    for step, weight in reversed(path):
        beta = (average.rho + average.gamma * step) ** -average.kappa
        total += left * beta * weight
        left *= 1 - beta
    return total + left * start


@hookimpl
def lgbench_averagers() -> Iterable[Averager]:
    return Ema(), Bema()
