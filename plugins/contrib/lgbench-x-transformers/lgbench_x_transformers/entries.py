"""The options that are entries: each by itself, in the library's plain decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from lgbench import Architecture, Parts, Signature, Unsupported
from lgbench_x_transformers.network import Network, Options

PREFIX = "xt-"
"""Names have it, for parts of other plugins are called rope and alibi, too."""


@final
@dataclass(frozen=True)
class XTransformer(Architecture):
    """The decoder of x-transformers with one option."""

    name: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sized: Callable[[int], Options] = lambda head_dim: {}
    """More options, from the features of a head."""
    ranges = {"layers": (1, 256), "heads": (1, 1024), "width": (1, 16384)}

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, heads: int = 1, width: int = 32) -> Network:
        if min(layers, heads, width) < 1:
            raise Unsupported(f"layers, heads and width must be at least 1, got {layers}, {heads} and {width}")
        if width % heads:
            raise Unsupported(f"width must be a multiple of heads, got {width} and {heads}")
        try:
            return Network(signature, layers, heads, width, self.at(width // heads))
        except AssertionError as error:
            raise Unsupported(f"x-transformers cannot have {self.name} in this size: {error}") from error

    def at(self, head_dim: int) -> Options:
        """The options of the library for heads of so many features. Raises Unsupported."""
        return {**self.options, **self.sized(head_dim)}


def _rotated(head_dim: int) -> Options:
    """All features of a head are rotated, in pairs; by default the library rotates half of them."""
    if head_dim % 2:
        raise Unsupported(f"rotary positions rotate pairs of features, and a head has {head_dim}")
    return {"rotary_emb_dim": head_dim}


def _entry(name: str, about: str, sized: Callable[[int], Options] = lambda head_dim: {}, **options: Any) -> XTransformer:
    return XTransformer(PREFIX + name, about, options, sized)


ARCHITECTURES = (
    _entry(
        "plain",
        "No option: a causal decoder without a position code. LayerNorm without biases before each sublayer and at the end "
        "(pre-norm); softmax attention; a GELU MLP of 4 x width.",
    ),
    # Norms.
    _entry("rms-norm", "RMSNorm in place of LayerNorm (arXiv 1910.07467).", use_rmsnorm=True),
    _entry(
        "sandwich-norm",
        "A norm before and after each sublayer, inside the residual connection (arXiv 2105.13290).",
        sandwich_norm=True,
    ),
    _entry("post-norm", "A norm after each residual connection, and none at the end (arXiv 1706.03762).", pre_norm=False),
    _entry("dynamic-tanh", "tanh(a x) with a learned a in place of each norm (DyT, arXiv 2503.10622).", use_dynamic_tanh=True),
    _entry("qk-norm", "Queries and keys as unit vectors, with a factor of 10 (arXiv 2010.04245).", attn_qk_norm=True),
    # Positions.
    _entry("rope", "Rotary positions (arXiv 2104.09864), on all features of a head.", _rotated, rotary_pos_emb=True),
    _entry("xpos", "Rotary positions with a decay (arXiv 2212.10554), on all features of a head.", _rotated, rotary_xpos=True),
    _entry("alibi", "A bias that falls linearly with the distance (arXiv 2108.12409).", alibi_pos_bias=True),
    _entry(
        "t5",
        "A learned bias for each of 32 ranges of distances, those beyond 128 in one (arXiv 1910.10683).",
        rel_pos_bias=True,
    ),
    _entry("dynamic-bias", "A bias that an MLP computes from the distance (arXiv 2108.00154).", dynamic_pos_bias=True),
    _entry(
        "pope", "Polar positions: the angle of a feature is the position's alone (PoPE, arXiv 2509.10534).", polar_pos_emb=True
    ),
    _entry(
        "cope",
        "Contextual positions: a query counts the keys that it opens a gate for, up to 16 (CoPE, arXiv 2405.18719).",
        attn_use_cope=True,
    ),
    _entry(
        "forgetting",
        "A gate in each position lets all that came before fade (Forgetting Transformer, arXiv 2503.02130).",
        attn_data_dependent_alibi=True,
    ),
    # Attention.
    _entry("softclamp", "Logits of attention capped softly at 50 (Gemma 2, arXiv 2408.00118).", attn_softclamp_logits=True),
    _entry(
        "talking-heads",
        "Heads are mixed linearly before and after the softmax (arXiv 2003.02436).",
        attn_pre_talking_heads=True,
        attn_post_talking_heads=True,
    ),
    _entry("selective", "A token tells later ones which keys they need not see (arXiv 2410.02703).", attn_selective=True),
    _entry("memory-kv", "4 learned keys and values that every query sees (arXiv 1907.01470).", attn_num_mem_kv=4),
    _entry(
        "laser", "Attention to the exponentials of values, of which it takes the logarithm (arXiv 2411.03493).", attn_laser=True
    ),
    _entry(
        "value-residual",
        "Values of later layers are mixed with those of the first (arXiv 2410.17897).",
        add_value_residual=True,
    ),
    _entry(
        "residual-attention",
        "Logits of a layer are added to those of the next (RealFormer, arXiv 2012.11747).",
        residual_attn=True,
    ),
    # The MLP and the residual stream.
    _entry(
        "swiglu",
        "A gated MLP with SiLU (arXiv 2002.05202), with three matrices of the usual sizes.",
        ff_glu=True,
        ff_swish=True,
    ),
    _entry("relu-squared", "An MLP with squared ReLU (Primer, arXiv 2109.08668).", ff_relu_squared=True),
    _entry("macaron", "Half an MLP before each attention and half after it (arXiv 1906.02762).", macaron=True),
    _entry(
        "hyper-connections",
        "4 residual streams, mixed anew for each sublayer by doubly stochastic matrices (arXiv 2409.19606, 2512.24880).",
        num_residual_streams=4,
    ),
)
