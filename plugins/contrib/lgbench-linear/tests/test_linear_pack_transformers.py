"""Methods that the package transformers has: the same weights give the same outputs. Skipped where it is not installed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from linear_pack_cases import BY_NAME, built, call, spec_of
from torch import Tensor, nn

from lgbench_linear.layers import split

pytestmark = pytest.mark.slow  # its import takes seconds
HEADS, DIM, LENGTH = 3, 4, 150
WIDTH = HEADS * DIM


@pytest.fixture
def models() -> Any:
    """The module transformers.models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers").models


def ours(module: nn.Module, projections: dict[str, Tensor], x: Tensor) -> Tensor:
    """The attention between the projections of the transformer."""
    q, k, v = (split(x @ projections[part].T, HEADS) for part in ("q", "k", "v"))
    mixed = call(module, q, k, v, x)
    return mixed.transpose(1, 2).flatten(2) @ projections["o"].T


def projections() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {part: torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5 for part in ("q", "k", "v", "o")}


def inputs() -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(4))


def taps(weight: Tensor) -> list[Tensor]:
    """Weights of a short convolution as those of conv1d, (W, 1, 4), for q, k and v."""
    return [part.permute(1, 2, 0).reshape(WIDTH, 1, 4) for part in weight.chunk(3, -1)]


def load(theirs: nn.Module, **weights: Tensor) -> None:
    """All weights of a module, whose names are written with __ for a point."""
    theirs.load_state_dict({name.replace("__", "."): weight for name, weight in weights.items()})


@torch.no_grad()
def test_mamba_2_is_that_of_transformers(models: Any) -> None:
    config = models.mamba2.Mamba2Config(
        hidden_size=WIDTH, expand=1, num_heads=HEADS, head_dim=DIM, state_size=DIM, n_groups=HEADS, chunk_size=32
    )
    theirs = models.mamba2.modeling_mamba2.Mamba2Mixer(config, 0).eval()
    module, p, x = built(BY_NAME["mamba-2"], spec_of(HEADS, DIM), torch.float32), projections(), inputs()
    w = dict(module.named_parameters())
    q, k, v = taps(w["convolve.weight"])
    bias_q, bias_k, bias_v = (part.flatten() for part in w["convolve.bias"].view(HEADS, -1).chunk(3, -1))
    load(
        theirs,
        in_proj__weight=torch.cat([w["gate.weight"], p["v"], p["k"], p["q"], w["decay.project.weight"]]),
        conv1d__weight=torch.cat([v, k, q]),
        conv1d__bias=torch.cat([bias_v, bias_k, bias_q]),
        A_log=w["decay.log_rate"],
        dt_bias=w["decay.bias"],
        D=w["skip"],
        norm__weight=w["gain"],
        out_proj__weight=p["o"],
    )
    torch.testing.assert_close(ours(module, p, x), theirs(x), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_gated_deltanet_is_that_of_qwen3_next(models: Any) -> None:
    config = models.qwen3_next.Qwen3NextConfig(
        hidden_size=WIDTH,
        linear_num_key_heads=HEADS,
        linear_num_value_heads=HEADS,
        linear_key_head_dim=DIM,
        linear_value_head_dim=DIM,
        rms_norm_eps=1e-5,
    )
    theirs = models.qwen3_next.modeling_qwen3_next.Qwen3NextGatedDeltaNet(config, 0).eval()
    module, p, x = built(BY_NAME["gated-deltanet"], spec_of(HEADS, DIM), torch.float32), projections(), inputs()
    w = dict(module.named_parameters())
    by_head = [each.view(HEADS, DIM, WIDTH) for each in (p["q"], p["k"], p["v"], w["gate.weight"])]
    load(
        theirs,
        in_proj_qkvz__weight=torch.cat(by_head, 1).reshape(-1, WIDTH),
        in_proj_ba__weight=torch.stack([w["beta.weight"], w["decay.project.weight"]], 1).reshape(-1, WIDTH),
        conv1d__weight=torch.cat(taps(w["convolve.weight"])),
        A_log=w["decay.log_rate"],
        dt_bias=w["decay.bias"],
        norm__weight=w["norm.weight"],
        out_proj__weight=p["o"],
    )
    torch.testing.assert_close(ours(module, p, x), theirs(x), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_mlstm_is_that_of_xlstm(models: Any) -> None:
    config = models.xlstm.xLSTMConfig(
        hidden_size=WIDTH, num_heads=HEADS, qk_dim_factor=1.0, chunk_size=32, autocast_kernel_dtype="float32"
    )
    theirs = models.xlstm.modeling_xlstm.xLSTMLayer(config).eval()
    module, p, x = built(BY_NAME["mlstm"], spec_of(HEADS, DIM), torch.float32), projections(), inputs()
    w = dict(module.named_parameters())
    load(
        theirs,
        q__weight=p["q"],
        k__weight=p["k"],
        v__weight=p["v"],
        out_proj__weight=p["o"],
        ogate_preact__weight=w["output_gate.weight"],
        igate_preact__weight=w["input_gate.weight"],
        igate_preact__bias=w["input_gate.bias"],
        fgate_preact__weight=w["forget_gate.weight"],
        fgate_preact__bias=w["forget_gate.bias"],
        multihead_norm__weight=w["gain"],
    )
    torch.testing.assert_close(ours(module, p, x), theirs(x)[0], atol=2e-5, rtol=1e-4)
