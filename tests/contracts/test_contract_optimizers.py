"""Optimizers as plugins: AdamW against torch's own, and Muon by the shapes of matrices."""

from __future__ import annotations

import pytest
import torch
from helpers.breaking import assert_sound
from helpers.plain_decoder import built_in_and
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.trainings import numbers, resumed_at
from torch import Tensor, nn

from lgbench import Optimizer, State, Weights
from lgbench.training.train import train
from lgbench_optimizers import AdamW


def orthogonal(matrices: Tensor) -> Tensor:
    """By five steps of Newton and Schulz, with the published coefficients, over the last two dimensions."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + 1e-7)
    for _ in range(5):
        product = x @ x.mT
        x = 3.4445 * x + (-4.7750 * product + 2.0315 * product @ product) @ x
    return x.mT if tall else x


class Muon(Optimizer):
    """Momentum made orthogonal for matrices, its sign for everything else (arXiv 2502.16982)."""

    name = "muon"
    elementwise = False

    def start(self, weights: Weights) -> State:
        return {"momentum": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        momentum = {name: 0.9 * state["momentum"][name] + g for name, g in gradients.items()}
        change = {name: orthogonal(m) if m.ndim == 3 else m.sign() for name, m in momentum.items()}  # (P, rows, columns)
        updated = {name: w - lr[name] * (change[name] + decay[name] * w) for name, w in weights.items()}
        return {"momentum": momentum}, updated


def test_training_goes_on_from_a_checkpoint_to_the_bit(tmp_path) -> None:
    asked = {"average": ("ema",), "seeds": (0, 1), "set": {"train.steps": "8", "train.batch": "4"}, "optimizer": "muon"}
    experiments = plan_of(built_in_and(optimizer=Muon()), "tomita-4", "transformer", **asked).experiments
    assert numbers(resumed_at(5, experiments, tmp_path / "checkpoint", CPU)) == numbers(train(experiments, CPU))


@pytest.mark.parametrize("elementwise", [True, False])
@pytest.mark.parametrize("options", [{}, {"beta1": 0.5, "beta2": 0.7, "epsilon": 1e-3}])
def test_adamw_is_torchs_own(elementwise: bool, options: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"matrix": (3, 4), "vector": (5,), "number": ()}
    given = {name: torch.randn(2, *shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
    decays = {"matrix": 0.3, "vector": 0.0, "number": 0.0}
    theirs = {name: nn.Parameter(weight.clone()) for name, weight in given.items()}
    betas = (options.get("beta1", 0.9), options.get("beta2", 0.999))
    groups = [{"params": [theirs[name]], "weight_decay": decays[name]} for name in shapes]
    reference = torch.optim.AdamW(groups, betas=betas, eps=options.get("epsilon", 1e-8))
    ours, weights = AdamW().configured(**options), joined(given) if elementwise else given
    decay = {name: torch.full_like(weight, decays[name]) for name, weight in given.items()}
    decay = joined(decay) if elementwise else decay
    state = ours.start(weights)
    for step in range(1, 31):
        rate = 0.1 * step / 30
        drawn = {name: torch.randn(2, *shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
        for name, parameter in theirs.items():
            parameter.grad = drawn[name]
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        lr = {name: torch.full((2, *[1] * (w.ndim - 1)), rate, dtype=torch.float64) for name, w in weights.items()}
        gradients = joined(drawn) if elementwise else drawn
        state, weights = ours.update(state, weights, gradients, lr, decay, torch.tensor([step], dtype=torch.float64))
    expected = {name: parameter.detach() for name, parameter in theirs.items()}
    expected = joined(expected) if elementwise else expected
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-12, atol=1e-12)


def joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As an elementwise optimizer gets them."""
    return {"all": torch.cat([tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None] for tensor in tensors.values()], 1)}


@pytest.mark.slow
def test_a_published_optimizer_passes_all_checks(recwarn) -> None:
    assert_sound(Muon())
