"""Published norm schemes, attentions and position codes unlike those that are built in, as plugins, held to plain loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.breaking import assert_sound
from helpers.number_positions import ROWS, SEPARATOR, SLOPE, ByNumber
from helpers.plain_decoder import (
    TOKENS,
    PlainDecoder,
    Sublayer,
    Weights,
    built_in_and,
    contexts,
    decoder,
    rms,
    standard,
    with_parts,
)
from helpers.plain_training import CPU
from helpers.toy_registries import Weighted
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Matrix, Need, NormScheme, Position, SublayerSpec, Unsupported, UsageError
from lgbench.attending import masked_logits, visible
from lgbench.extensions.registry import Registry
from lgbench.training.train import train
from lgbench_norms import SCHEMES

LAYERS = 4
PRE, POST = (next(scheme for scheme in SCHEMES if scheme.name == name) for name in ("pre-norm", "post-norm"))


class LikePreNorm(NormScheme):
    """Pre-norm, of which a scheme changes something."""

    def embed(self, width: int) -> nn.Module:
        return PRE.embed(width)

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        return PRE.residual(spec, sublayer)

    def output(self, spec: SublayerSpec) -> nn.Module:
        return PRE.output(spec)

    def final(self, width: int) -> nn.Module:
        return PRE.final(width)


class QueryKeyNorm(LikePreNorm):
    """RMSNorm on the queries and keys of each head (arXiv 2010.04245, as in arXiv 2405.09818)."""

    name = "query-key-norm"

    def query(self, spec: SublayerSpec) -> nn.Module:
        return nn.RMSNorm(spec.head_dim, eps=1e-6)

    def key(self, spec: SublayerSpec) -> nn.Module:
        return nn.RMSNorm(spec.head_dim, eps=1e-6)


class HeadNorm(LikePreNorm):
    """Zero mean and unit variance of each head's output, as the GroupNorm of RetNet (arXiv 2307.08621)."""

    name = "head-norm"

    def head(self, spec: SublayerSpec) -> nn.Module:
        return nn.LayerNorm(spec.head_dim, elementwise_affine=False)


class Scaled(nn.Module):
    """LN(alpha x + F(x)), at the positions for which the sublayer answers."""

    def __init__(self, alpha: float, sublayer: nn.Module, width: int) -> None:
        super().__init__()
        self.alpha, self.sublayer, self.norm = alpha, sublayer, nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        change = self.sublayer(x)
        return self.norm(self.alpha * x[..., -change.shape[-2] :, :] + change)


class DeepNorm(LikePreNorm):
    """x <- LN(alpha x + F(x)), alpha = (2 N)^(1/4), initial weights times (8 N)^(-1/4) (arXiv 2203.00555, decoder-only)."""

    name = "deep-norm"

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        return Scaled((2 * spec.layers) ** 0.25, sublayer, spec.width)

    def final(self, width: int) -> nn.Module:
        return nn.Identity()

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        return 1.0 if matrix in ("query", "key") else (8 * spec.layers) ** -0.25


class Doubling(Position):
    """Doubles queries and keys, so that it matters whether a norm stands before it or after it."""

    name = "doubling"

    def rotate(self, spec) -> nn.Module:
        class Double(nn.Module):
            def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
                return 2 * q, 2 * k

        return Double()


def deep(scope: str, layer: int, weights: Weights, x: Tensor, sublayer: Sublayer) -> Tensor:
    return standard((2 * LAYERS) ** 0.25 * x + sublayer(x))


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
SOME = torch.tensor([[2, 0, 1, 1, 0, 0, 1], [0, 1, 2, 2, 3, 4, 2], [1, 1, 1, 1, 1, 1, 2]])
DOUBLED = PlainDecoder(rotate=lambda x, position, tokens: 2 * x)
QUERY_KEY = {
    "query": lambda scope, weights, q: rms(q, weights[f"{scope}.norm_query.weight"]),
    "key": lambda scope, weights, k: rms(k, weights[f"{scope}.norm_key.weight"]),
}
METHODS: list[tuple[str, Any, PlainDecoder]] = [
    ("norm", QueryKeyNorm(), replace(DOUBLED, **QUERY_KEY)),
    ("norm", HeadNorm(), replace(DOUBLED, head=lambda scope, weights, x: standard(x))),
    ("norm", DeepNorm(), replace(DOUBLED, residual=deep, final=lambda weights, x: x)),
    ("attention", Forgetting(), PlainDecoder(mix=forgetting)),
    ("position", Cope(), PlainDecoder(bias=contextual)),
    ("position", ByNumber("abacus", ("embed",)), PlainDecoder(embed=with_rows)),
    ("position", ByNumber("coupled", ("rotate",)), PlainDecoder(rotate=as_complex_numbers)),
    ("position", ByNumber("separators", ("bias",)), PlainDecoder(bias=by_separators)),
    ("position", ALL, PlainDecoder(embed=with_rows, rotate=as_complex_numbers, bias=by_separators)),
]
methods = pytest.mark.parametrize(("kind", "part", "plain"), [pytest.param(*each, id=each[1].name) for each in METHODS])


@methods
def test_a_model_with_the_part_is_the_published_one(registry: Registry, kind: str, part: Any, plain: PlainDecoder) -> None:
    parts = with_parts(registry, **({"position": Doubling()} if kind == "norm" else {}), **{kind: part})
    model = decoder(registry, parts, layers=LAYERS)
    for tokens in (contexts(), SOME):
        torch.testing.assert_close(model(tokens), plain(model, tokens))


@pytest.mark.slow
@methods
def test_a_published_part_passes_all_checks(kind: str, part: Any, plain: PlainDecoder, recwarn) -> None:
    assert_sound(part)


def initial(registry: Registry, scheme: NormScheme, layers: int) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = with_parts(registry, norm=scheme)
        model = registry.architectures["transformer"].build(TOKENS, parts, layers=layers, heads=2, width=8)
        return {name: weight for name, weight in model.state_dict().items() if "sublayer" in name}


@pytest.mark.parametrize("layers", [1, 3])
def test_initial_weights_are_multiplied_by_the_gain_of_their_matrix(registry: Registry, layers: int) -> None:
    plain, gained = initial(registry, POST, layers), initial(registry, DeepNorm(), layers)
    assert plain.keys() == gained.keys()
    for name, weight in plain.items():
        changed = name.endswith("weight") and ".query." not in name and ".key." not in name
        torch.testing.assert_close(gained[name], weight * ((8 * layers) ** -0.25 if changed else 1.0), rtol=1e-6, atol=0)


class Asked(LikePreNorm):
    """Writes down which of its methods are called, and with what."""

    name = "asked"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattribute__(self, method: str) -> Any:
        found = super().__getattribute__(method)
        if method not in ("embed", "residual", "output", "final", "query", "key", "head", "gain"):
            return found

        def noted(*arguments: Any) -> Any:
            self.calls.append((method, *(a for a in arguments if not isinstance(a, nn.Module))))
            return found(*arguments)

        return noted


def of_attention(spec: SublayerSpec, *matrices: Matrix) -> Iterator[tuple[Any, ...]]:
    yield from (("gain", spec, matrix) for matrix in matrices)
    yield from ((slot, spec) for slot in ("query", "key", "head"))


def test_a_scheme_is_asked_in_the_order_of_the_contract(registry: Registry) -> None:
    scheme = Asked()
    decoder(registry, with_parts(registry, norm=scheme), layers=2)
    expected: list[tuple[Any, ...]] = [("embed", 8)]
    for layer in (1, 2):
        attention, mlp = SublayerSpec("attention", layer, 2, 8, 2), SublayerSpec("mlp", layer, 2, 8)
        expected += [*of_attention(attention, "query", "key", "value", "out"), ("residual", attention)]
        expected += [("gain", mlp, "up"), ("gain", mlp, "down"), ("residual", mlp)]
    assert scheme.calls == [*expected, ("final", 8)]


def test_without_a_residual_connection_a_scheme_is_asked_in_the_same_order(registry: Registry) -> None:
    scheme, spec = Asked(), SublayerSpec("attention", 1, 1, 128)
    parts = with_parts(registry, norm=scheme, position=None)
    registry.architectures["set-attention"].build(registry.tasks["max-retrieval"].signature, parts)
    assert scheme.calls == [("embed", 128), ("embed", 128), *of_attention(spec, "query", "key", "value"), ("output", spec)]


@pytest.mark.parametrize("scheme", [QueryKeyNorm(), HeadNorm()], ids=lambda scheme: scheme.name)
def test_norms_of_queries_keys_and_heads_act_in_set_attention_too(registry: Registry, scheme: NormScheme) -> None:
    signature, width = registry.tasks["max-retrieval"].signature, 16
    parts = with_parts(registry, norm=scheme, position=None)
    model = registry.architectures["set-attention"].build(signature, parts, width=width).double()
    inputs = torch.randn(3, 6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    items, query = model.embed_item(inputs[:, :-1]), model.embed_query(inputs[:, -1])
    q, k, v = model.query(query), model.key(items), model.value(items)
    if scheme.name == "query-key-norm":
        q, k = rms(q), rms(k)
    taken = (torch.einsum("bw,bkw->bk", q, k).softmax(-1)[..., None] * v).sum(1)
    taken = standard(taken) if scheme.name == "head-norm" else taken
    torch.testing.assert_close(model(inputs), model.logits(taken)[:, None])


def test_a_population_of_models_with_other_contexts_each_reads_its_own_tokens(planned) -> None:
    both = planned(built_in_and(position=ALL), ["tomita-3", "tomita-4"], "by-number", train_steps=3, train_batch=4)
    together = train(both, CPU)
    for index, experiment in enumerate(both):
        for name, weight in train([experiment], CPU).weights["raw"].items():
            torch.testing.assert_close(together.weights["raw"][name][index], weight[0], rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("backend", "targets"), [("eager", "exact"), ("inductor", "sampled")])
def test_codes_that_read_tokens_and_weights_of_answers_compile(planned, monkeypatch, backend: str, targets: str) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    settings = {"train_steps": 6, "train_batch": 8, "train_targets": targets, "model_width": 8, "model_layers": 1}
    experiments = planned(built_in_and(task=Weighted(), position=ALL), "toy-weighted", "by-number", seeds=(0, 1), **settings)
    said: list[str] = []
    compiled = train(experiments, CPU, compile=True, say=said.append)
    assert compiled.compiled, said
    for name, weight in train(experiments, CPU).weights["raw"].items():
        torch.testing.assert_close(compiled.weights["raw"][name], weight, rtol=1e-3, atol=1e-4)


def test_a_code_that_reads_tokens_is_refused_where_there_are_none(planned) -> None:
    with pytest.raises(UsageError, match="abacus.*reads token ids, and the task has vectors"):
        planned(built_in_and(position=ByNumber("abacus", ("embed",))), "max-retrieval", "abacus")


def test_no_tokens_are_kept_after_a_model_has_answered(registry: Registry) -> None:
    model = decoder(registry, with_parts(registry, position=ALL))
    model(SOME)
    assert model.tokens.found == {}
