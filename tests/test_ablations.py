"""The plugin of leaderboards/inside with models less one part: what is left is the whole model, or a known other one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from helpers.registries import parts_of

from lgbench import Answers, AttentionSpec, Signature, Tokens
from lgbench.extensions.registry import Registry

INSIDE = Path(__file__).parent.parent / "leaderboards" / "inside"
SPEC = AttentionSpec(layer=0, layers=2, width=12, heads=3, train_keys=8)
INSTALLED = Registry.load()
LAYERS = "language_model.model.layers"


@pytest.fixture
def ablations(monkeypatch):
    monkeypatch.syspath_prepend(INSIDE)
    return importlib.import_module("ablations")


@pytest.mark.parametrize(("fade", "gate", "name"), [(True, True, "gated-deltanet"), (False, False, "deltanet")])
def test_gated_deltanet_with_both_parts_is_itself_and_with_neither_is_deltanet(ablations, fade, gate, name):
    published = INSTALLED.attentions[name].build(SPEC)
    ours = ablations.PartOfGatedDelta(SPEC, fade, gate)
    ours.load_state_dict(published.state_dict())  # raises where names or shapes differ
    q, k, v = torch.randn(3, 2, 3, 9, 4).unbind()
    x = torch.randn(2, 9, 12)
    torch.testing.assert_close(
        ours(q, k, v, None, query_input=x, key_input=x), published(q, k, v, None, query_input=x, key_input=x)
    )


@pytest.mark.slow  # transformers are imported
@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("rope", set()),
        ("gate", {"0.linear_attn.g_proj.weight"}),
        ("qk-norm", {"1.self_attn.q_norm.weight", "1.self_attn.k_norm.weight"}),
        (
            "mlp",
            {f"{layer}.mlp.{name}_proj.weight" for layer in (0, 1) for name in ("gate", "up", "down")}
            | {"0.post_attention_layernorm.weight", "1.post_feedforward_layernorm.weight"},
        ),
    ],
)
def test_olmo_hybrid_loses_one_part_and_keeps_the_weights_of_the_others(ablations, part, gone):
    signature = Signature(Tokens(3), 3, Answers.EVERY_PREFIX)
    models = []
    for architecture in (INSTALLED.architectures["olmo-hybrid"], ablations.OlmoHybrid(part)):
        torch.manual_seed(5)
        models.append(architecture.build(signature, parts_of(INSTALLED), layers=2, heads=2, width=8))
    whole, less = (model.state_dict() for model in models)
    assert whole.keys() - less.keys() == {f"{LAYERS}.{name}" for name in gone} and less.keys() <= whole.keys()
    assert all(torch.equal(less[name], whole[name]) for name in less)
    tokens = torch.randint(3, (4, 9))
    assert not torch.allclose(models[0](tokens), models[1](tokens))
