from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.plain_decoder import gelu_mlp, rms
from helpers.registries import parts_of
from torch import Tensor, nn

from lgbench import Answers, Signature, Tokens, Unsupported, Vectors
from lgbench.extensions.registry import Registry

NORMS = [
    *("attention-layer-norm", "attention-standardize", "no-norm"),
    *("peri-init-norm", "peri-norm", "post-norm", "pre-norm"),
]
LANGUAGE = Signature(Tokens(3), 3, Answers.EVERY_PREFIX)
SETS = Signature(Vectors(11), 10, Answers.LAST)
norms = pytest.mark.parametrize("norm", NORMS)


def build(registry: Registry, architecture: str, signature: Signature, norm: str, **options: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = registry.architectures[architecture].build(signature, parts_of(registry, norm), **options)
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.3 if parameter.dim() < 2 else 0.0, 0.5)
    return model


def tokens(n: int, length: int) -> Tensor:
    return torch.randint(3, (n, length), generator=torch.Generator().manual_seed(1))


def sets(n: int, items: int) -> Tensor:
    return torch.randn(n, items + 1, 11, generator=torch.Generator().manual_seed(2))


def items_reversed(inputs: Tensor) -> Tensor:
    """The query, last, stays where it is."""
    return torch.cat([inputs[:, :-1].flip(1), inputs[:, -1:]], 1)


@norms
def test_every_position_sees_the_whole_past(registry: Registry, norm: str) -> None:
    model = build(registry, "transformer", LANGUAGE, norm, layers=1).double()  # far positions may have little weight
    inputs = tokens(4, 12)
    for at in range(12):
        changed = inputs.clone()
        changed[:, at] = (changed[:, at] + 1) % 3
        assert (model(changed) - model(inputs))[:, -1].abs().max() > 1e-12


@norms
@pytest.mark.parametrize("options", [{"layers": 1}, {"layers": 2, "heads": 2}, {"layers": 3, "mlp": False}], ids=str)
def test_the_last_position_alone_is_what_a_full_computation_gives(
    registry: Registry, norm: str, options: dict[str, Any]
) -> None:
    last = build(registry, "transformer", SETS, norm, **options).double()
    full = build(registry, "transformer", replace(SETS, answers=Answers.EVERY_PREFIX), norm, **options).double()
    full.load_state_dict(last.state_dict())
    inputs = sets(5, 9).double()
    assert last(inputs).shape == (5, 1, 10)
    torch.testing.assert_close(last(inputs), full(inputs)[:, -1:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["no-norm", "pre-norm", "post-norm", "peri-init-norm"])
def test_set_attention_is_the_published_equations(registry: Registry, norm: str) -> None:
    model = build(registry, "set-attention", SETS, norm, width=16).double()
    inputs = sets(3, 7).double()
    weights = dict(model.named_parameters())
    for logits, context in zip(model(inputs), inputs, strict=True):
        items = [gelu_mlp("embed_item.0", weights, item) for item in context[:-1]]
        query = gelu_mlp("embed_query.0", weights, context[-1])
        if norm == "peri-init-norm":
            items = [rms(item, weights["embed_item.1.weight"]) for item in items]
            query = rms(query, weights["embed_query.1.weight"])
        scores = [(weights["query.weight"] @ query) @ (weights["key.weight"] @ item) for item in items]
        total = sum(score.exp() for score in scores)
        mixed = sum(s.exp() / total * (weights["value.weight"] @ item) for s, item in zip(scores, items, strict=True))
        if norm not in ("no-norm", "pre-norm"):
            (gain,) = (parameter for name, parameter in weights.items() if name.startswith("norm."))
            mixed = rms(mixed, gain)
        torch.testing.assert_close(logits[0], gelu_mlp("logits", weights, mixed))


def test_set_attention_is_as_wide_as_published(registry: Registry) -> None:
    model = build(registry, "set-attention", SETS, "no-norm")
    two_layers = [11 * 128 + 128 + 128 * 128 + 128] * 2 + [128 * 128 + 128 + 128 * 10 + 10]
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(two_layers) + 3 * 128 * 128


@norms
@pytest.mark.parametrize(("architecture", "options"), [("set-attention", {}), ("transformer", {"layers": 1})])
def test_the_order_of_the_items_does_not_matter(
    registry: Registry, norm: str, architecture: str, options: dict[str, Any]
) -> None:
    model = build(registry, architecture, SETS, norm, **options).double()
    inputs = sets(4, 9).double()
    torch.testing.assert_close(model(items_reversed(inputs)), model(inputs))
    shuffled = inputs[:, [*torch.randperm(9, generator=torch.Generator().manual_seed(0)).tolist(), 9]]
    torch.testing.assert_close(model(shuffled), model(inputs))


def test_two_causal_layers_can_tell_the_order(registry: Registry) -> None:
    model = build(registry, "transformer", SETS, "pre-norm", layers=2)
    assert (model(items_reversed(sets(4, 9))) - model(sets(4, 9))).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("architecture", "task", "options", "reason"),
    [
        ("set-attention", "dyck-2-3", {}, "answer at every prefix"),
        ("set-attention", "max-retrieval", {"width": 0}, "width must be at least 1, got 0"),
        ("transformer", "dyck-2-3", {"heads": 3}, "width must be a multiple of heads, got 32 and 3"),
        ("transformer", "dyck-2-3", {"width": -4}, "at least 1, got 2, 1 and -4"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(
    registry: Registry, architecture: str, task: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unsupported, match=reason):
        build(registry, architecture, registry.tasks[task].signature, "pre-norm", **options)


def test_set_attention_refuses_answers_at_marked_positions(registry: Registry) -> None:
    with pytest.raises(Unsupported, match="weights mark"):
        build(registry, "set-attention", replace(SETS, answers=Answers.MARKED), "no-norm")
