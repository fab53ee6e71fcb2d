"""Methods that other packs have too: two independent codes give the same logits with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lgbench_attention
import lgbench_norms
import lgbench_positions
import lgbench_transformer
from lgbench import Answers, Parts, Signature, Tokens, Vectors
from lgbench_x_transformers import ARCHITECTURES
from lgbench_x_transformers.network import Network

ENTRIES = {entry.name: entry for entry in ARCHITECTURES}
LAYERS, HEADS, WIDTH, CLASSES, LENGTH = 2, 2, 16, 4, 60
PROVIDED: dict[str, Any] = {
    thing.name: thing
    for things in (
        lgbench_norms.lgbench_norms(),
        lgbench_attention.lgbench_attentions(),
        lgbench_positions.lgbench_positions(),
        lgbench_transformer.lgbench_attentions(),
        lgbench_transformer.lgbench_positions(),
        lgbench_transformer.lgbench_architectures(),
    )
    for thing in things
}
RMS = {"use_rmsnorm": True}
"""The norm of lgbench's schemes, where the library's usual one is LayerNorm."""


def theirs(name: str, signature: Signature, **options: Any) -> Network:
    entry = ENTRIES[name]
    return Network(signature, LAYERS, HEADS, WIDTH, {**entry.at(WIDTH // HEADS), **options})


def ours(signature: Signature, norm: str = "pre-norm", attention: str = "softmax", position: str = "nope") -> nn.Module:
    """lgbench's transformer, with weights unlike its initial ones."""
    parts = Parts(PROVIDED[norm], PROVIDED[attention], PROVIDED[position], 30, LENGTH)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = PROVIDED["transformer"].build(signature, parts, layers=LAYERS, heads=HEADS, width=WIDTH)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    assert isinstance(model, nn.Module)
    return model.eval()


def load(network: Network, model: nn.Module) -> None:
    """Give the library's network the weights of lgbench's transformer, every one of them once."""
    from x_transformers.x_transformers import Attention, FeedForward, RMSNorm

    left = list(model.named_parameters())

    def taken(ending: str) -> Tensor:
        """The first weight that is left, which must have this name."""
        name, weight = left.pop(0)
        assert name.endswith(ending), (name, ending)
        return weight.detach()

    def copy(place: Tensor, weight: Tensor) -> None:
        assert place.shape == weight.shape
        place.copy_(weight)

    def norm(module: Any) -> None:
        if module is not None:
            assert isinstance(module, RMSNorm)
            copy(module.g, taken("weight") - 1)  # the library's gain is an offset from 1

    with torch.no_grad():
        copy(network.embed.weight, taken("embedding.weight"))
        if isinstance(network.embed, nn.Linear):
            copy(network.embed.bias, taken("embedding.bias"))
        for (before, after, total), block, _ in network.body.layers:  # type: ignore[union-attr]
            norm(before)
            if isinstance(block, Attention):
                for place in (block.to_q, block.to_k, block.to_v, block.to_out):
                    copy(place.weight, taken(".weight"))
            else:
                assert isinstance(block, FeedForward)
                for place in (layer for layer in block.modules() if isinstance(layer, nn.Linear)):
                    copy(place.weight, taken(".weight"))
                    copy(place.bias, taken(".bias"))
            norm(after)
            norm(total)
        if list(network.body.final_norm.parameters()):
            norm(network.body.final_norm)
        copy(network.logits.weight, taken("weight"))
    assert not left


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is not supported:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        ("xt-rms-norm", {}, {}),
        ("xt-post-norm", RMS, {"norm": "post-norm"}),
        ("xt-sandwich-norm", RMS, {"norm": "peri-norm"}),
        ("xt-rope", RMS, {"position": "rope"}),
        ("xt-xpos", RMS, {"position": "xpos"}),
        ("xt-alibi", RMS, {"position": "alibi"}),
        ("xt-selective", RMS, {"attention": "selective"}),
    ],
)
@pytest.mark.parametrize(
    "signature", [Signature(Tokens(5), CLASSES, Answers.EVERY_PREFIX), Signature(Vectors(3), CLASSES, Answers.LAST)]
)
@torch.no_grad()
def test_the_same_weights_give_the_logits_of_lgbenchs_own_parts(
    name: str, options: dict[str, Any], parts: dict[str, str], signature: Signature
) -> None:
    network, model = theirs(name, signature, **options).eval(), ours(signature, **parts)
    load(network, model)
    generator = torch.Generator().manual_seed(2)
    tokens = isinstance(signature.inputs, Tokens)
    inputs = torch.randint(5, (3, LENGTH), generator=generator) if tokens else torch.randn(3, LENGTH, 3, generator=generator)
    torch.testing.assert_close(network(inputs), model(inputs), atol=1e-4, rtol=1e-4)
