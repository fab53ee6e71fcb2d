"""Models less one of their parts, as an lgbench plugin: the foils of findings on gated DeltaNet and on OLMo Hybrid.

    lgbench run --plugin leaderboards/inside/ablations.py --arch gated-deltanet-no-fade,olmo-hybrid-no-rope ...

What is left starts with the same weights as in the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Architecture, Attention, AttentionSpec, Parts, Signature, hookimpl
from lgbench_huggingface.entries import ARCHITECTURES, WithHeads
from lgbench_huggingface.network import Network
from lgbench_linear.delta_rule import delta_rule
from lgbench_linear.deltanet import GatedDeltaModule
from lgbench_linear.layers import split, unit
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention


class PartOfGatedDelta(Recurrence):
    """Gated DeltaNet with eigenvalues in [0, 1], with or without the decay of its state and the gate on its output."""

    def __init__(self, spec: AttentionSpec, fade: bool, gate: bool) -> None:
        super().__init__()
        whole = GatedDeltaModule(spec, largest_beta=1.0)
        self.heads, self.scale = spec.heads, spec.scale
        self.convolve, self.beta, self.norm = whole.convolve, whole.beta, whole.norm
        self.decay = whole.decay if fade else None
        self.gate = whole.gate if gate else None

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        q, k, v = self.convolve(torch.cat([q, k, v], -1)).chunk(3, -1)
        beta = self.beta(x).transpose(1, 2).sigmoid()
        log_decay = None if self.decay is None else self.decay(x)[1]
        mixed: Tensor = self.norm(delta_rule(self.scale * unit(q), unit(k), v, beta, log_decay))
        return mixed if self.gate is None else mixed * F.silu(split(self.gate(x), self.heads))


@final
class GatedDelta(Attention):
    """Gated DeltaNet without its decay, which is DeltaNet with a gate, or without its gate, which is DeltaNet with a decay."""

    needs = NEEDS

    def __init__(self, name: str, *, fade: bool, gate: bool) -> None:
        self.name, self.fade, self.gate = name, fade, gate
        self.about = f"Gated DeltaNet without its {'gate' if fade else 'decay'}."

    def build(self, spec: AttentionSpec) -> PartOfGatedDelta:
        require_self_attention(self.name, spec)
        return PartOfGatedDelta(spec, self.fade, self.gate)


class Ungated(nn.Module):
    """The norm on the outputs of a gated DeltaNet, without the gate that the library multiplies there."""

    def __init__(self, gated: Any) -> None:
        super().__init__()
        self.weight, self.epsilon = gated.weight, gated.variance_epsilon

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight, self.epsilon).to(x.dtype)


class Nothing(nn.Module):
    """A sublayer that adds nothing to the residual stream."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def without_rope(model: Any) -> None:
    model.rotary_emb = None


def without_gate(model: Any) -> None:
    for mixer in (layer.linear_attn for layer in model.layers if hasattr(layer, "linear_attn")):
        mixer.o_norm = Ungated(mixer.o_norm)
        mixer.g_proj = nn.Identity()  # its values are not read, and have the shape that the library expects


def without_qk_norm(model: Any) -> None:
    for attention in (layer.self_attn for layer in model.layers if hasattr(layer, "self_attn")):
        attention.q_norm = attention.k_norm = nn.Identity()


def without_mlp(model: Any) -> None:
    for layer in model.layers:
        layer.mlp = Nothing()
        if hasattr(layer, "self_attn"):
            layer.post_feedforward_layernorm = nn.Identity()
        else:  # here the norm that follows attention stands before the MLP
            layer.post_attention_layernorm = nn.Identity()


PARTS: Mapping[str, Callable[[Any], None]] = {
    "rope": without_rope,
    "gate": without_gate,
    "qk-norm": without_qk_norm,
    "mlp": without_mlp,
}


@final
class OlmoHybrid(Architecture):
    """OLMo Hybrid less one of its parts."""

    whole = next(entry for entry in ARCHITECTURES if isinstance(entry, WithHeads) and entry.name == "olmo-hybrid")
    defaults = whole.defaults
    ranges = whole.ranges

    def __init__(self, part: str) -> None:
        self.name, self.remove = f"olmo-hybrid-no-{part}", PARTS[part]
        self.about = f"OLMo Hybrid without its {part}."

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, heads: int = 1, width: int = 32) -> Network:
        network = self.whole.build(signature, parts, layers=layers, heads=heads, width=width)
        self.remove(network.language_model.model)
        return network


@hookimpl
def lgbench_architectures() -> list[Architecture]:
    return [OlmoHybrid(part) for part in PARTS]


@hookimpl
def lgbench_attentions() -> list[Attention]:
    return [
        GatedDelta("gated-deltanet-no-fade", fade=False, gate=True),
        GatedDelta("gated-deltanet-no-gate", fade=True, gate=False),
    ]
