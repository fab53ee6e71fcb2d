"""Parts that watch what an architecture gives them, and in which order it calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from lgbench.attending import masked_logits
from lgbench.contracts import Attention, AttentionSpec, Matrix, Need, NormScheme, Position, SublayerSpec, TensorModule
from lgbench.extensions.conformance.check import expect
from lgbench.extensions.conformance.probes import kind_of


class ProbingAttention(Attention):
    """Softmax attention that needs everything, and checks what it gets."""

    name = "probing-attention"
    needs = frozenset(Need)

    def build(self, spec: AttentionSpec) -> _ProbingModule:
        return _ProbingModule(spec)


class _ProbingModule(nn.Module):
    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, **needed: Tensor) -> Tensor:
        """(B, H, Q, D) for the Q positions that `query_input` has."""
        batch, keys = k.shape[0], k.shape[2]
        lacking = [need.value for need in (Need.QUERY_INPUT, Need.KEY_INPUT) if need.value not in needed]
        expect(not lacking, f"it does not give an attention the {' and '.join(lacking)} that it needs")
        queries = needed["query_input"].shape[1]
        rows = queries if self.spec.cross_attention else keys
        shapes = {"query_input": (batch, queries, self.spec.width), "key_input": (batch, keys, self.spec.width)}
        for name, shape in shapes.items():
            expect(needed[name].shape == shape, f"it gives an attention a {name} of {kind_of(needed[name])}, expected {shape}")
        expect(q.shape[2] == rows, f"an attention that needs all queries gets {q.shape[2]} of {rows}")
        return (masked_logits(q, k, bias, self.spec.scale).softmax(-1) @ v)[:, :, -queries:]


class ProbingPosition(Position):
    """A position code that reads tokens everywhere, and gives a bias for each context."""

    name = "probing-position"
    reads_tokens = True

    def __init__(self) -> None:
        self.calls: dict[str, list[Tensor | None]] = {"embed": [], "rotate": [], "bias": []}

    def embed(self, width: int, positions: int) -> _Probe:
        return _Probe(self.calls["embed"], lambda x: x)

    def rotate(self, spec: AttentionSpec) -> _Probe:
        return _Probe(self.calls["rotate"], lambda q, k: (q, k))

    def bias(self, spec: AttentionSpec) -> _Probe:
        return _Probe(self.calls["bias"], lambda q, k: q.new_zeros(*q.shape[:3], k.shape[2]))


class _Probe(nn.Module):
    """Keeps the tokens of each call."""

    def __init__(self, calls: list[Tensor | None], answer: Callable[..., Any]) -> None:
        super().__init__()
        self.calls, self.answer = calls, answer

    def forward(self, *given: Tensor, tokens: Tensor | None = None) -> Any:
        self.calls.append(tokens)
        return self.answer(*given)


class Call(NamedTuple):
    """A call of a method of a norm scheme."""

    method: str
    spec: SublayerSpec | None = None


class _Sum(nn.Module):
    """x + sublayer(x), at the positions for which the sublayer answers."""

    def __init__(self, sublayer: TensorModule) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        change = self.sublayer(x)
        return x[..., -change.shape[-2] :, :] + change


class ProbingNorm(NormScheme):
    """No norm anywhere. Keeps every call of its methods, in order."""

    name = "probing-norm"

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def embed(self, width: int) -> TensorModule:
        self.calls.append(Call("embed"))
        return nn.Identity()

    def residual(self, spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        self.calls.append(Call("residual", spec))
        return _Sum(sublayer)

    def output(self, spec: SublayerSpec) -> TensorModule:
        self.calls.append(Call("output", spec))
        return nn.Identity()

    def final(self, width: int) -> TensorModule:
        self.calls.append(Call("final"))
        return nn.Identity()

    def query(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("query", spec))

    def key(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("key", spec))

    def head(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("head", spec))

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        self.calls.append(Call("gain", spec))
        return 1.0
