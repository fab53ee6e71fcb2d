from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import lgbench_positions
from lgbench import AttentionSpec, JsonFile, Position
from lgbench.attending import masked_logits
from lgbench.conformance.check import Check
from lgbench.noise import Noise
from lgbench.testing import checks
from lgbench_positions.calibrated import Calibrated

LINES = '{"layers": [[{"diagonals": {"0": 0.5, "2": 0.25}}, {"columns": {"1": 0.5}}]]}'
POSITIONS = {position.name: position for position in lgbench_positions.lgbench_positions()}
POSITIONS["abc"] = Calibrated(JsonFile(LINES))
SPEC = AttentionSpec(layer=1, layers=1, width=10, heads=2, train_keys=8)
EVERY = pytest.mark.parametrize("name", POSITIONS)
LENGTH, ROWS = 8, 20


class SmallModel(nn.Module):
    """One attention over an embedding, with a position code in embed, rotate and bias."""

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.project = nn.Linear(SPEC.width, 2 * SPEC.width)
        self.embed = position.embed(SPEC.width, ROWS)
        self.rotate = position.rotate(SPEC)
        self.bias = position.bias(SPEC)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) -> weights of attention (B, H, T, T)."""
        x = x if self.embed is None else self.embed(x)
        q, k = self.project(x).unflatten(-1, (2, SPEC.heads, SPEC.head_dim)).movedim(-3, 0).transpose(-2, -3)
        if self.rotate is not None:
            q, k = self.rotate(q, k)
        bias = None if self.bias is None else self.bias(q, k)
        return masked_logits(q, k, bias).softmax(-1)


def model_of(name: str) -> SmallModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SmallModel(POSITIONS[name]).train()
        for module in model.modules():
            if isinstance(module, Noise):
                module.value.uniform_()
    return model


def contexts() -> Tensor:
    return torch.randn(4, LENGTH, SPEC.width, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check for check in checks(lgbench_positions) if "one graph" not in check.name])  # see below
def test_it_keeps_the_contract(check: Check) -> None:
    assert "vmap cannot" not in (check() or "")


@pytest.mark.slow  # a graph takes seconds
@EVERY
def test_forward_is_one_graph(name: str) -> None:
    model, x = model_of(name), contexts()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)
    torch.testing.assert_close(compiled(x), model(x))


@EVERY
def test_equal_tokens_differ_by_their_position(name: str) -> None:
    model = model_of(name).eval()
    x = contexts()[:1, :1].expand(1, LENGTH, SPEC.width)
    last = model(x)[0, :, -1]
    assert (last - 1 / LENGTH).abs().max() > 1e-4
