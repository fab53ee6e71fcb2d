"""Published attentions that need the input at the keys, or options, as plugins, held to plain loops."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from helpers.checking import assert_sound
from helpers.plain_decoder import PlainDecoder, Weights, built_in_and, contexts, decoder, with_parts
from helpers.plain_training import CPU
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Need, Unsupported, UsageError
from lgbench.attending import masked_logits
from lgbench.extensions.registry import Registry
from lgbench.training.train import train


class ForgettingAttention(nn.Module):
    """softmax(z_ij + sum of log f_l for j < l <= i) v, with f_l = sigmoid(w . x_l + b) for each head."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.scale = spec.scale
        self.gate = nn.Linear(spec.width, spec.heads)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, key_input: Tensor) -> Tensor:
        forgotten = F.logsigmoid(self.gate(key_input)).mT.cumsum(-1)  # (B, H, K)
        decay = forgotten[..., -q.shape[-2] :, None] - forgotten[..., None, :]
        return (masked_logits(q, k, bias, self.scale) + decay).softmax(-1) @ v


class Forgetting(Attention):
    """The forgetting transformer's attention: keys fade by gates of the tokens after them (arXiv 2503.02130)."""

    name = "forgetting"
    needs = frozenset({Need.KEY_INPUT})

    def build(self, spec: AttentionSpec) -> nn.Module:
        if spec.cross_attention:
            raise Unsupported("forgetting needs a query at the position of every key, and cross attention has none there")
        return ForgettingAttention(spec)


def forgetting(scope: str, weights: Weights, h: int, x: Tensor, z: list[float]) -> list[float]:
    """Weights of the values for the query after as many keys as there are logits."""
    gate, offset = weights[f"{scope}.attend.gate.weight"][h], weights[f"{scope}.attend.gate.bias"][h]
    kept = [1 / (1 + math.exp(-float(gate @ row + offset))) for row in x[: len(z)]]
    faded = [math.exp(logit) * math.prod(kept[j + 1 :]) for j, logit in enumerate(z)]
    return [one / sum(faded) for one in faded]


METHODS: dict[Attention, PlainDecoder] = {Forgetting(): PlainDecoder(mix=forgetting)}
methods = pytest.mark.parametrize("attention", METHODS, ids=lambda attention: attention.name)


@methods
def test_a_model_with_the_attention_is_the_published_one(registry: Registry, attention: Attention) -> None:
    model = decoder(registry, with_parts(registry, attention=attention), layers=2)
    torch.testing.assert_close(model(contexts()), METHODS[attention](model, contexts()))


@pytest.mark.parametrize("queries", [1, 2, 6])
def test_a_gate_of_every_key_counts_whichever_queries_are_asked_also_beside_a_bias_of_each_context(queries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 6, 2, dtype=torch.float64, generator=generator)
    bias, x = (torch.randn(2, *shape, dtype=torch.float64, generator=generator) for shape in ((2, 6, 6), (6, 4)))
    module = Forgetting().build(AttentionSpec(1, 1, 4, 2, 6)).double()
    weights = module.state_dict(prefix=".attend.")
    with torch.no_grad():
        taken = module(q[:, :, -queries:], k, v, bias[:, :, -queries:], key_input=x)
    for b, h, i in product(range(2), range(2), range(queries)):
        at = 6 - queries + i
        z = [float(q[b, h, at] @ k[b, h, j] / 2**0.5 + bias[b, h, at, j]) for j in range(at + 1)]
        expected = sum(w * v[b, h, j] for j, w in enumerate(forgetting("", weights, h, x[b], z)))
        torch.testing.assert_close(taken[b, h, i], expected)


def test_an_attention_that_needs_self_attention_is_refused_elsewhere_with_the_reason(planned) -> None:
    with pytest.raises(UsageError, match="set-attention.forgetting.* cross attention"):
        planned(built_in_and(attention=Forgetting()), "max-retrieval", "set-attention+forgetting")


@methods
def test_a_population_trains_as_its_models_alone(attention: Attention, planned) -> None:
    registry = built_in_and(attention=attention)
    both = planned(registry, "tomita-3", attention.name, seeds=(0, 1), train_steps=3, train_batch=4)
    together = train(both, CPU)
    for index, experiment in enumerate(both):
        for name, weight in train([experiment], CPU).weights["raw"].items():
            torch.testing.assert_close(together.weights["raw"][name][index], weight[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@methods
def test_a_published_attention_passes_all_checks(attention: Attention, recwarn) -> None:
    assert_sound(attention)
