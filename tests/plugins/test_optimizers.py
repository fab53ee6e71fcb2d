"""AdamW against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lgbench_optimizers import AdamW


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
