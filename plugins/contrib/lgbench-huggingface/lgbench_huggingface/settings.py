"""The settings of each architecture's configuration at given sizes. All that is not set here is the library's default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lgbench import Unsupported

Settings = Mapping[str, Any]

CHUNK = 64
"""Positions that recurrences compute at once, where the library's default is 256: inputs are padded to whole chunks."""
STATE = 16
"""Numbers in a state-space model's state for each of its features, as in Mamba."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model."""

    layers: int
    width: int
    """W, the width of the residual stream."""
    heads: int = 1
    window: int = 1
    """Positions that local attention sees, its own included."""

    def __post_init__(self) -> None:
        """Raises Unsupported for a size below 1."""
        if min(self.layers, self.width, self.heads, self.window) < 1:
            raise Unsupported("layers, heads, width and window must be at least 1")

    @property
    def head_dim(self) -> int:
        """D, the features of a head."""
        self.require_heads()
        return self.width // self.heads

    def require_heads(self) -> None:
        """Raises Unsupported where the heads cannot share the width."""
        if self.width % self.heads:
            raise Unsupported(f"width {self.width} is not a multiple of {self.heads} heads")

    @property
    def rotated_dim(self) -> int:
        """D, or one more: rotary positions rotate features in pairs. The projections lead from W to it and back."""
        return self.head_dim + self.head_dim % 2

    @property
    def gated(self) -> int:
        """The width within a gated MLP: its three matrices have about as many weights as two of width 4 W."""
        return 8 * max(1, round(self.width / 3))

    def every(self, period: int, usual: str, other: str) -> list[str]:
        """The kinds of the layers: each `period`-th is of the `other` kind, and in a shorter model the last one."""
        return [other if layer % min(period, self.layers) == 0 else usual for layer in range(1, self.layers + 1)]


def decoder(sizes: Sizes) -> dict[str, Any]:
    """Names that most configurations share: attention with as many heads of keys as of queries, and a gated MLP."""
    return {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "head_dim": sizes.rotated_dim,
        "intermediate_size": sizes.gated,
    }


def windowed(sizes: Sizes, period: int) -> dict[str, Any]:
    """Local attention in all layers but each `period`-th."""
    kinds = sizes.every(period, "sliding_attention", "full_attention")
    return {"sliding_window": sizes.window, "layer_types": kinds}


def gemma(sizes: Sizes, period: int) -> Settings:
    scale = {"query_pre_attn_scalar": sizes.rotated_dim}  # logits are divided by its root
    return decoder(sizes) | windowed(sizes, period) | scale


def gemma2(sizes: Sizes) -> Settings:
    return gemma(sizes, 2)


def gemma3(sizes: Sizes) -> Settings:
    return gemma(sizes, 6)


def gpt_neox(sizes: Sizes) -> Settings:
    sizes.require_heads()
    return {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": 4 * sizes.width,
    }


def gpt2(sizes: Sizes) -> Settings:
    sizes.require_heads()
    return {"n_embd": sizes.width, "n_layer": sizes.layers, "n_head": sizes.heads}


def bloom(sizes: Sizes) -> Settings:
    sizes.require_heads()
    return {"hidden_size": sizes.width, "n_layer": sizes.layers, "n_head": sizes.heads}


def smollm3(sizes: Sizes) -> Settings:
    return decoder(sizes) | {"no_rope_layer_interval": min(4, sizes.layers)}


def diffllama(sizes: Sizes) -> Settings:
    """Each head of the task's is two of half its features, rounded up to pairs, whose attention weights are subtracted."""
    twice = {"num_attention_heads": 2 * sizes.heads, "num_key_value_heads": 2 * sizes.heads}
    return decoder(sizes) | twice | {"head_dim": 2 * -(-sizes.head_dim // 4)}


def gpt_oss(sizes: Sizes) -> Settings:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": sizes.gated // 2}
    return decoder(sizes) | experts | windowed(sizes, 2)


def lfm2(sizes: Sizes) -> Settings:
    kinds = sizes.every(3, "conv", "full_attention")
    return decoder(sizes) | {"block_auto_adjust_ff_dim": False, "layer_types": kinds}


def delta(sizes: Sizes) -> dict[str, Any]:
    """Gated DeltaNet in layers that are not attention."""
    return {
        "linear_num_key_heads": sizes.heads,
        "linear_num_value_heads": sizes.heads,
        "linear_key_head_dim": sizes.head_dim,
        "linear_value_head_dim": sizes.head_dim,
        "layer_types": sizes.every(4, "linear_attention", "full_attention"),
    }


def qwen3_next(sizes: Sizes) -> Settings:
    dense = {"num_experts": 0, "mlp_only_layers": list(range(sizes.layers))}
    return decoder(sizes) | delta(sizes) | dense


def olmo_hybrid(sizes: Sizes) -> Settings:
    if sizes.layers < 2:
        raise Unsupported("olmo-hybrid needs 2 layers at least: one of attention, and one of gated DeltaNet")
    return decoder(sizes) | delta(sizes)


def mamba(sizes: Sizes) -> Settings:
    return {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers, "state_size": STATE}


def mamba2(sizes: Sizes) -> Settings:
    heads = {"num_heads": sizes.heads, "head_dim": 2 * sizes.head_dim, "n_groups": 1}
    return {**mamba(sizes), **heads, "chunk_size": CHUNK}


def falcon_h1(sizes: Sizes) -> Settings:
    ssm = {"mamba_d_ssm": sizes.width, "mamba_n_heads": sizes.heads, "mamba_d_head": sizes.head_dim, "mamba_d_state": STATE}
    return decoder(sizes) | ssm | {"mamba_chunk_size": CHUNK}


def rwkv(sizes: Sizes) -> Settings:
    if min(sizes.layers, sizes.width) < 2:
        raise Unsupported("rwkv needs 2 layers and a width of 2 at least: its initial values are spread evenly over both")
    return {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers}


def xlstm(sizes: Sizes) -> Settings:
    if sizes.width < 2 or sizes.width % sizes.heads or (sizes.width // 2) % sizes.heads:
        raise Unsupported(f"xlstm has half as many queries as values, and {sizes.heads} heads cannot share {sizes.width // 2}")
    exact = {"autocast_kernel_dtype": "float32"}  # where the library's default is bfloat16
    return {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers, "num_heads": sizes.heads} | exact


def recurrent_gemma(sizes: Sizes) -> Settings:
    # A single layer is recurrent: local attention alone would see nothing beyond its window.
    kinds = sizes.every(3, "recurrent", "attention") if sizes.layers > 1 else ["recurrent"]
    found = decoder(sizes) | {"lru_width": sizes.width, "attention_window_size": sizes.window, "block_types": kinds}
    del found["head_dim"]
    return found
