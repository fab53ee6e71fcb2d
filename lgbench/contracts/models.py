"""Architectures and the parts that they are built from: norm schemes, attentions, position codes.

Shapes: B contexts, T positions, V classes, F input features; in attention H heads of D features, Q queries, K keys, and W, the
width of the residual stream.

The protocols here (`TensorModule`, `AttentionModule`, `EmbeddingModule`, `RotationModule`, `BiasModule`, `Model`) say how an
`nn.Module` is called. They are for mypy alone. torch gives `nn.Module.__call__` no signature, so mypy compares `forward`. Its
`*args` and keyword arguments stand for those that a module names itself, such as `query_input` or `tokens`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lgbench.contracts.options import Configurable
from lgbench.contracts.tasks import Signature

if TYPE_CHECKING:
    from torch import Tensor

Role = Literal["attention", "mlp"]
"""The role of a sublayer. One that mixes positions has the role "attention", also if it is recurrent or a state-space model.
One that treats every position alone has the role "mlp"."""

Matrix = Literal["query", "key", "value", "out", "up", "down"]
"""A weight matrix of a sublayer: the four projections of attention, and the two layers of an MLP."""


@dataclass(frozen=True)
class SublayerSpec:
    """Where in a model a sublayer stands."""

    role: Role
    layer: int
    """Counted from 1."""
    layers: int
    """How many layers the model has. A layer may have two sublayers, one of each role."""
    width: int
    """W, the width of the residual stream."""
    heads: int = 1
    """H, the heads of the sublayer's attention; 1 where it has none."""

    @property
    def head_dim(self) -> int:
        """D, the features of one head."""
        return self.width // self.heads


class TensorModule(Protocol):
    """An `nn.Module` from one tensor to another: a sublayer, and what the methods of :class:`NormScheme` return."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """As others call it."""

    def forward(self, x: Tensor, /) -> Tensor:
        """The methods of :class:`NormScheme` say the shapes."""


class NormScheme(Configurable):
    """Which norm stands where in a model. A scheme decides both the kind of norm and its place.

    An architecture calls the methods in this order: `embed`; then for each layer and each of its sublayers `gain` for every
    weight matrix, `query`, `key` and `head` where the sublayer is attention, and `residual`, or `output` where there is no
    residual connection; at the end `final`, if it has a norm before the logits.
    """

    @abstractmethod
    def embed(self, width: int) -> TensorModule:
        """The module after the embedding: (..., W) -> (..., W)."""

    @abstractmethod
    def residual(self, spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        """The sublayer within its residual connection: (..., T, W) -> (..., T, W).

        A sublayer may answer for the last position only, (..., 1, W). Then only the last position of the result counts, and
        `x + sublayer(x)` broadcasts to the right value there.
        """

    @abstractmethod
    def output(self, spec: SublayerSpec) -> TensorModule:
        """The module on a sublayer's output, (..., W) -> (..., W), in architectures without a residual connection."""

    @abstractmethod
    def final(self, width: int) -> TensorModule:
        """The module before the logits: (..., W) -> (..., W)."""

    def query(self, spec: SublayerSpec) -> TensorModule | None:
        """The module on the queries of each head, (B, H, Q, D) -> the same shape, before the position code; None for none."""
        return None

    def key(self, spec: SublayerSpec) -> TensorModule | None:
        """The module on the keys of each head, (B, H, K, D) -> the same shape, before the position code; None for none."""
        return None

    def head(self, spec: SublayerSpec) -> TensorModule | None:
        """The module on each head's output, (B, H, Q, D) -> the same shape, before the output projection; None for none."""
        return None

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        """The factor for the initial weights of one matrix of a sublayer, as DeepNorm has it; 1 leaves them as they are."""
        return 1.0


class Need(Enum):
    """An input that an attention needs besides queries, keys, values and bias."""

    ALL_QUERIES = "all_queries"
    """The queries of all K positions in `q`, also where only the last Q of them are asked for an answer. In cross attention `q`
    has the Q that are asked, since its queries are no positions of the keys.

    An attention that must know Q also asks for QUERY_INPUT.
    """
    QUERY_INPUT = "query_input"
    """The sublayer's input at the Q positions that are asked for an answer: a keyword argument, (B, Q, W)."""
    KEY_INPUT = "key_input"
    """The sublayer's input at all K positions of the keys: a keyword argument, (B, K, W)."""


@dataclass(frozen=True)
class AttentionSpec:
    """Where in a model an attention stands, and which position code goes with it."""

    layer: int
    """Counted from 1."""
    layers: int
    """How many layers the model has."""
    width: int
    """W, the width of the residual stream."""
    heads: int
    """H."""
    train_keys: int
    """How many keys the last query of the longest training input sees: n_train in the equations of attention."""
    has_bias: bool = False
    """Whether the position code adds a bias to the logits."""
    cross_attention: bool = False
    """Whether queries and keys come from different inputs. Otherwise the Q queries are those of the last Q of K positions."""
    unscaled: bool = False
    """Whether logits are plain dot products, not divided by sqrt(D)."""

    @property
    def head_dim(self) -> int:
        """D, the features of queries, keys and values."""
        return self.width // self.heads

    @property
    def scale(self) -> float:
        """The factor of dot products: 1 / sqrt(D), or 1 where `unscaled`."""
        return 1.0 if self.unscaled else self.head_dim**-0.5


class AttentionModule(Protocol):
    """The `nn.Module` that :meth:`Attention.build` returns, from queries, keys, values and a bias to outputs."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, /, **needed: Tensor) -> Tensor:
        """As architectures call it."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, /, *args: Any, **needed: Any) -> Tensor:
        """The output at each of the Q positions: (B, H, Q, D).

        q (B, H, Q, D), or (B, H, K, D) with Need.ALL_QUERIES; k and v (B, H, K, D). `bias` is added to scale q . k before
        anything else happens to the logits; its shape is (B, H, Q, K), or broadcasts to it, with as many rows as q has; None
        for none. `needed` has the tensors that :attr:`Attention.needs` names. Query i of Q sees the keys 0 to K - Q + i, so
        a single query sees all of them; :mod:`lgbench.attending` has the mask.
        """


class Attention(Configurable):
    """How queries find keys, and what they read of the values. The projections belong to the architecture."""

    needs: frozenset[Need] = frozenset()
    """The inputs that the module needs besides q, k, v and bias."""

    @abstractmethod
    def build(self, spec: AttentionSpec) -> AttentionModule:
        """The module for one layer.

        Training calls it in training mode, through `torch.func.vmap`; testing calls it in evaluation mode. Raises
        :class:`lgbench.Unsupported`, with the reason, where the attention cannot work as `spec` says.
        """


class EmbeddingModule(Protocol):
    """The `nn.Module` that :meth:`Position.embed` returns: (B, T, W) -> (B, T, W)."""

    def __call__(self, x: Tensor, /, **tokens: Tensor) -> Tensor:
        """As architectures call it."""

    def forward(self, x: Tensor, /, *args: Any, **tokens: Any) -> Tensor:
        """`tokens` is empty, or has the item `tokens`, (B, T) int64, where the code reads tokens."""


class RotationModule(Protocol):
    """The `nn.Module` that :meth:`Position.rotate` returns, from queries and keys to queries and keys of the same shapes."""

    def __call__(self, q: Tensor, k: Tensor, /, **tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As architectures call it."""

    def forward(self, q: Tensor, k: Tensor, /, *args: Any, **tokens: Any) -> tuple[Tensor, Tensor]:
        """q (B, H, Q, D) are the queries of the last Q of the K positions of k (B, H, K, D)."""


class BiasModule(Protocol):
    """The `nn.Module` that :meth:`Position.bias` returns, from queries and keys to a bias."""

    def __call__(self, q: Tensor, k: Tensor, /, **tokens: Tensor) -> Tensor:
        """As architectures call it."""

    def forward(self, q: Tensor, k: Tensor, /, *args: Any, **tokens: Any) -> Tensor:
        """q (B, H, Q, D), k (B, H, K, D) -> (H, Q, K), or (B, H, Q, K) where the bias depends on the context."""


class Position(Configurable):
    """How a model knows where a token stands. The methods that a code leaves out do nothing."""

    reads_tokens: bool = False
    """Whether its modules also get the token ids of all positions, as the keyword argument `tokens`, (B, K) int64."""

    def embed(self, width: int, positions: int) -> EmbeddingModule | None:
        """The module after the embedding, for T at most `positions`; None for none."""
        return None

    def rotate(self, spec: AttentionSpec) -> RotationModule | None:
        """The module that changes queries and keys before their dot products; None for none.

        It changes each query and key by its own position alone: later positions do not matter. Raises
        :class:`lgbench.Unsupported`.
        """
        return None

    def bias(self, spec: AttentionSpec) -> BiasModule | None:
        """The module whose result is added to the logits; None for none. Raises :class:`lgbench.Unsupported`."""
        return None


@dataclass(frozen=True)
class Parts:
    """The parts that a model is built from. A part of a kind that the architecture does not take is None."""

    norm: NormScheme
    attention: Attention
    position: Position
    train_positions: int
    """Positions of the longest training input."""
    test_positions: int
    """Positions of the longest input that the model will get."""


class Model(Protocol):
    """The `nn.Module` that :meth:`Architecture.build` returns, from inputs to logits."""

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """As lgbench calls it."""

    def forward(self, inputs: Tensor, /) -> Tensor:
        """(B, T) or (B, T, F) -> logits (B, A, V), with A as :class:`lgbench.Answers` says."""


class Architecture(ABC):
    """A way to build a model for a signature."""

    name: str
    """Lower-case letters, digits and hyphens; see :data:`lgbench.contracts.names.NAME`."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""
    defaults: Mapping[str, str] = MappingProxyType({})
    """The kinds of parts that it takes (norm, attention, position), and its part where an entry names none of that kind."""
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """The least and the greatest value of its options, by their names; `math.inf` for no greatest. A user's value beyond is
    refused before a model is built. A whole number without a range may be up to 16384 from 0."""

    @abstractmethod
    def build(self, signature: Signature, parts: Parts, *args: Any, **options: Any) -> Model:
        """A model with fresh weights.

        Options are keyword-only parameters with defaults of type int, float, bool or str; `--set model.OPTION=VALUE` sets
        them. Raises :class:`lgbench.Unsupported`, with the reason, where the architecture cannot serve the signature, the
        parts or the options.
        """
