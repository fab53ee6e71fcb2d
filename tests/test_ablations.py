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


def mixed(module, x):
    """Outputs for random queries, keys and values."""
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 3, 9, 4).unbind()
    return module(q, k, v, None, query_input=x, key_input=x)


@pytest.fixture
def ablations(monkeypatch):
    monkeypatch.syspath_prepend(INSIDE)
    return importlib.import_module("ablations")


@pytest.mark.parametrize(("fade", "gate", "name"), [(True, True, "gated-deltanet"), (False, False, "deltanet")])
def test_gated_deltanet_with_both_parts_is_itself_and_with_neither_is_deltanet(ablations, fade, gate, name):
    published = INSTALLED.attentions[name].build(SPEC)
    ours = ablations.PartOfGatedDelta(SPEC, fade, gate)
    ours.load_state_dict(published.state_dict())  # raises where names or shapes differ
    x = torch.randn(2, 9, 12)
    torch.testing.assert_close(mixed(ours, x), mixed(published, x))


OPENED = {
    "mamba-2": {"gate.weight": 1.2784645 / 12},
    "mlstm": {"output_gate.weight": 100.0},
    "rwkv-7": {"gate.down.weight": 0.0, "gate.up.weight": 2 / 12},
}
"""Weights with which an input of ones gives a gate of 1: SiLU(1.2784645), sigmoid(1200), the mean of twelve 2 sigmoid(0)."""


@pytest.mark.parametrize("name", OPENED)
def test_a_recurrence_without_its_gate_is_the_whole_one_with_a_gate_of_one(monkeypatch, name):
    monkeypatch.syspath_prepend(INSIDE)
    ungated = {each.name: each for each in importlib.import_module("ungated").lgbench_attentions()}[f"{name}-no-gate"]
    modules = []
    for attention in (INSTALLED.attentions[name], ungated):
        torch.manual_seed(5)
        modules.append(attention.build(SPEC))
    whole, less = modules
    ones = torch.ones(2, 9, 12)
    assert all(torch.equal(weights, whole.state_dict()[name]) for name, weights in less.state_dict().items())
    assert not torch.allclose(mixed(whole, ones), mixed(less, ones))
    for weights, value in OPENED[name].items():
        torch.nn.init.constant_(whole.get_parameter(weights), value)
    torch.testing.assert_close(mixed(whole, ones), mixed(less, ones))


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
