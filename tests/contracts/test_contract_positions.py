"""Published position codes with a bias of each context, or that read token ids, as plugins, held to plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.checking import assert_sound
from helpers.number_positions import ROWS, SEPARATOR, SLOPE, ByNumber
from helpers.plain_decoder import PlainDecoder, Weights, built_in_and, contexts, decoder, with_parts
from helpers.plain_training import CPU
from torch import Tensor, nn

from lgbench import AttentionSpec, Position, Unsupported, UsageError
from lgbench.attending import visible
from lgbench.extensions.registry import Registry
from lgbench.training.train import train


class ContextualBias(nn.Module):
    """q_i . e[p_ij] with p_ij the sum of sigmoid(q_i . k_l) for l from j to i, and e interpolated between whole numbers."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(ROWS, head_dim))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        gates = (q @ k.mT).sigmoid() * visible(q, k)
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=ROWS - 1)  # (B, H, Q, K)
        below = position.detach().floor().clamp(max=ROWS - 2)
        share, below = position - below, below.long()
        scores = q @ self.table.T  # (B, H, Q, ROWS)
        return (1 - share) * scores.gather(-1, below) + share * scores.gather(-1, below + 1)


class Cope(Position):
    """Contextual position encoding: positions count what the gates of the query let pass (arXiv 2405.18719)."""

    name = "cope"

    def bias(self, spec: AttentionSpec) -> nn.Module:
        if spec.cross_attention:
            raise Unsupported("cope counts the keys between a key and its query, and cross attention has no such order")
        return ContextualBias(spec.head_dim)


def contextual(scope: str, weights: Weights, q: list[Tensor], k: list[Tensor], i: int, j: int, tokens: list[int]) -> float:
    position = min(sum(1 / (1 + math.exp(-float(q[i] @ k[between]))) for between in range(j, i + 1)), ROWS - 1)
    table = weights[f"{scope}.bias.table"]
    below, above = math.floor(position), math.ceil(position)
    embedding = table[below] if above == below else (above - position) * table[below] + (position - below) * table[above]
    return float(q[i] @ embedding)


def place(tokens: list[int], i: int) -> int:
    """Place of token i in its number, from 1, by walking back; 0 for a separator."""
    length = 0
    while i - length >= 0 and tokens[i - length] != SEPARATOR:
        length += 1
    return length


def with_rows(weights: Weights, x: Tensor, tokens: list[int]) -> Tensor:
    rows = weights["position.rows"]
    return torch.stack([x[i] + rows[min(place(tokens, i), ROWS - 1)] for i in range(len(tokens))])


def as_complex_numbers(x: Tensor, i: int, tokens: list[int]) -> Tensor:
    pairs = len(x) // 2
    turns = [complex(math.cos(a), math.sin(a)) for a in (place(tokens, i) * 100 ** (-p / pairs) for p in range(pairs))]
    rotated = [complex(float(x[2 * p]), float(x[2 * p + 1])) * turns[p] for p in range(pairs)]
    return torch.tensor([part for number in rotated for part in (number.real, number.imag)], dtype=x.dtype)


def by_separators(scope: str, weights: Weights, q: list[Tensor], k: list[Tensor], i: int, j: int, tokens: list[int]) -> float:
    return -SLOPE * tokens[j + 1 : i + 1].count(SEPARATOR)


ALL = ByNumber("by-number", ("embed", "rotate", "bias"))
METHODS: dict[Position, PlainDecoder] = {
    Cope(): PlainDecoder(bias=contextual),
    ByNumber("abacus", ("embed",)): PlainDecoder(embed=with_rows),
    ByNumber("coupled", ("rotate",)): PlainDecoder(rotate=as_complex_numbers),
    ByNumber("separators", ("bias",)): PlainDecoder(bias=by_separators),
    ALL: PlainDecoder(embed=with_rows, rotate=as_complex_numbers, bias=by_separators),
}
methods = pytest.mark.parametrize("position", METHODS, ids=lambda position: position.name)
SOME = torch.tensor([[2, 0, 1, 1, 0, 0, 1], [0, 1, 2, 2, 3, 4, 2], [1, 1, 1, 1, 1, 1, 2]])


@methods
def test_a_model_with_the_code_is_the_published_one(registry: Registry, position: Position) -> None:
    model = decoder(registry, with_parts(registry, position=position), layers=2)
    for tokens in (contexts(), SOME):
        torch.testing.assert_close(model(tokens), METHODS[position](model, tokens))


def test_a_population_of_models_with_other_contexts_each_reads_its_own_tokens(planned) -> None:
    both = planned(built_in_and(position=ALL), ["tomita-3", "tomita-4"], "by-number", train_steps=3, train_batch=4)
    together = train(both, CPU)
    for index, experiment in enumerate(both):
        for name, weight in train([experiment], CPU).weights["raw"].items():
            torch.testing.assert_close(together.weights["raw"][name][index], weight[0], rtol=1e-4, atol=1e-5)


def test_a_code_that_reads_tokens_is_refused_where_there_are_none(planned) -> None:
    with pytest.raises(UsageError, match="abacus.*reads token ids, and the task has vectors"):
        planned(built_in_and(position=ByNumber("abacus", ("embed",))), "max-retrieval", "abacus")


def test_no_tokens_are_kept_after_a_model_has_answered(registry: Registry) -> None:
    model = decoder(registry, with_parts(registry, position=ALL))
    model(SOME)
    assert model.tokens.found == {}


@pytest.mark.slow
@methods
def test_a_published_position_code_passes_all_checks(position: Position, recwarn) -> None:
    assert_sound(position)
