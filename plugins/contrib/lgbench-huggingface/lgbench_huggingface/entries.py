"""The architectures that have an entry of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from lgbench import Architecture, Parts, Signature
from lgbench_huggingface import settings as of
from lgbench_huggingface.network import Network, network
from lgbench_huggingface.settings import Settings, Sizes


@dataclass(frozen=True)
class Wrapped(Architecture):
    """An architecture of the package transformers, with its norms, positions and initial weights. It takes no parts."""

    name: str
    kind: str
    """`model_type` of its configuration."""
    settings: Callable[[Sizes], Settings]
    about: str
    ranges = {"layers": (1, 256), "heads": (1, 1024), "width": (1, 16384), "window": (1, 16384)}

    def network(self, signature: Signature, parts: Parts, sizes: Sizes) -> Network:
        """Raises Unsupported where the library refuses the sizes."""
        return network(self.kind, self.settings(sizes), signature, parts)


@final
class WithHeads(Wrapped):
    """An architecture whose layers have heads."""

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, heads: int = 1, width: int = 32) -> Network:
        return self.network(signature, parts, Sizes(layers, width, heads))


@final
class WithWindow(Wrapped):
    """An architecture some of whose layers attend to the last `window` positions alone."""

    def build(
        self, signature: Signature, parts: Parts, *, layers: int = 2, heads: int = 1, width: int = 32, window: int = 16
    ) -> Network:
        return self.network(signature, parts, Sizes(layers, width, heads, window))


@final
class WithoutHeads(Wrapped):
    """An architecture whose layers have no heads."""

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, width: int = 32) -> Network:
        return self.network(signature, parts, Sizes(layers, width))


PRE_NORM = "Norms: RMSNorm before each sublayer and at the end (pre-norm)"

ARCHITECTURES: tuple[Wrapped, ...] = (
    WithHeads(
        "llama",
        "llama",
        of.decoder,
        f"Llama (arXiv 2302.13971): rotary positions, gated MLP. {PRE_NORM}.",
    ),
    WithHeads(
        "qwen3",
        "qwen3",
        of.decoder,
        f"Qwen3 (arXiv 2505.09388): as Llama. {PRE_NORM}, and on each head's queries and keys.",
    ),
    WithWindow(
        "gemma2",
        "gemma2",
        of.gemma2,
        "Gemma 2 (arXiv 2408.00118): odd layers attend to the last `window` positions, even ones to all; attention logits "
        "are capped at 50, and those of the model at 30. Norms: RMSNorm before and after each sublayer (sandwich, "
        "peri-norm) and at the end.",
    ),
    WithWindow(
        "gemma3",
        "gemma3_text",
        of.gemma3,
        "Gemma 3 (arXiv 2503.19786): five layers that attend to the last `window` positions for each that attends to all, "
        "with rotary positions of two bases. Norms: RMSNorm before and after each sublayer (sandwich, peri-norm), at the "
        "end, and on each head's queries and keys.",
    ),
    WithHeads(
        "olmo2",
        "olmo2",
        of.decoder,
        "OLMo 2 (arXiv 2501.00656): as Llama. Norms: RMSNorm on each sublayer's output, inside the residual connection "
        "and not before the sublayer (output norms), at the end, and on the queries and keys of all heads together.",
    ),
    WithHeads(
        "gpt-neox",
        "gpt_neox",
        of.gpt_neox,
        "GPT-NeoX (arXiv 2204.06745): attention and MLP side by side, rotary positions on a quarter of each head. Norms: "
        "LayerNorm before each sublayer and at the end (pre-norm).",
    ),
    WithHeads(
        "gpt2",
        "gpt2",
        of.gpt2,
        "GPT-2 (Radford et al. 2019): learned positions, of which those beyond the training length stay as they were "
        "drawn. Norms: LayerNorm before each sublayer and at the end (pre-norm).",
    ),
    WithHeads(
        "smollm3",
        "smollm3",
        of.smollm3,
        f"SmolLM3 (Hugging Face 2025): as Llama, with every fourth layer, or the last one, without positions. {PRE_NORM}.",
    ),
    WithHeads(
        "diffllama",
        "diffllama",
        of.diffllama,
        "DiffLlama (arXiv 2410.05258): differential attention, the difference of two attentions, in Llama. Norms: RMSNorm "
        "before each sublayer and at the end (pre-norm), and on each head's output.",
    ),
    WithWindow(
        "gpt-oss",
        "gpt_oss",
        of.gpt_oss,
        "gpt-oss (arXiv 2508.10925): attention with a learned sink for each head, odd layers to the last `window` "
        f"positions, rotary positions scaled by YaRN, 2 of 4 experts in each MLP. {PRE_NORM}.",
    ),
    WithHeads(
        "lfm2",
        "lfm2",
        of.lfm2,
        f"LFM2 (Liquid AI 2025): two gated short convolutions for each attention. {PRE_NORM}, and on each head's queries "
        "and keys.",
    ),
    WithHeads(
        "qwen3-next",
        "qwen3_next",
        of.qwen3_next,
        "Qwen3-Next (Alibaba 2025): three layers of gated DeltaNet for each of gated attention; dense MLPs here, no "
        f"experts. {PRE_NORM}, on each head's queries and keys in attention, and on each head's output in gated DeltaNet.",
    ),
    WithHeads(
        "olmo-hybrid",
        "olmo_hybrid",
        of.olmo_hybrid,
        "OLMo Hybrid (Ai2 2026): three layers of gated DeltaNet with eigenvalues in [-1, 1] for each of attention. Norms: "
        "in layers of attention RMSNorm on each sublayer's output (output norms), and on the queries and keys of all "
        "heads together; in the others before each sublayer (pre-norm), and on each head's output; and at the end.",
    ),
    WithoutHeads(
        "mamba",
        "mamba",
        of.mamba,
        "Mamba (arXiv 2312.00752): a selective state-space model in each layer, without MLPs. Norms: RMSNorm before each "
        "layer and at the end (pre-norm).",
    ),
    WithHeads(
        "mamba2",
        "mamba2",
        of.mamba2,
        "Mamba-2 (arXiv 2405.21060): a state-space model with one decay for each head, without MLPs, twice as wide as the "
        "residual stream. Norms: RMSNorm before each layer and at the end (pre-norm), and on the gated output.",
    ),
    WithoutHeads(
        "falcon-mamba",
        "falcon_mamba",
        of.mamba,
        "Falcon Mamba (arXiv 2410.05355): as Mamba. Norms: RMSNorm before each layer and at the end (pre-norm), and "
        "without a gain on B, C and the step.",
    ),
    WithHeads(
        "falcon-h1",
        "falcon_h1",
        of.falcon_h1,
        f"Falcon-H1 (arXiv 2507.22448): attention and Mamba-2 side by side in each layer, then a gated MLP. {PRE_NORM}.",
    ),
    WithoutHeads(
        "rwkv",
        "rwkv",
        of.rwkv,
        "RWKV-4 (arXiv 2305.13048): a decay for each feature, and a shift by one token. Norms: LayerNorm after the "
        "embedding, before each sublayer and at the end (pre-norm).",
    ),
    WithHeads(
        "xlstm",
        "xlstm",
        of.xlstm,
        "xLSTM 7B (arXiv 2503.13427): mLSTM, a matrix-valued state with exponential gates, and gated MLPs; logits are "
        f"capped at 30. {PRE_NORM}, and LayerNorm on each head's output.",
    ),
    WithWindow(
        "recurrent-gemma",
        "recurrent_gemma",
        of.recurrent_gemma,
        "RecurrentGemma (arXiv 2404.07839): two layers of gated linear recurrence for each of attention to the last "
        f"`window` positions; logits are capped at 30. {PRE_NORM}.",
    ),
    WithHeads(
        "bloom",
        "bloom",
        of.bloom,
        "BLOOM (arXiv 2211.05100): ALiBi, a bias by distance. Norms: LayerNorm after the embedding, before each sublayer "
        "and at the end (pre-norm).",
    ),
)
