"""Architectures and the parts that they are built from: norm schemes, attentions, position codes.

Shapes: B contexts, T positions, V classes, F input features; in attention H heads of D features, Q queries, K keys, and W, the
width of the residual stream.

The protocols (`TensorModule`, `AttentionModule`, `EmbeddingModule`, `RotationModule`, `BiasModule`, `Model`) are call
signatures of an `nn.Module`, for mypy alone. torch gives `nn.Module.__call__` no signature, so mypy compares `forward`.
`*args` and keyword arguments stand for named arguments of a module, such as `query_input` or `tokens`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lgbench.contracts.names import Configurable, Named, Role
from lgbench.contracts.tasks import Signature

if TYPE_CHECKING:
    from torch import Tensor

Matrix = Literal["query", "key", "value", "out", "up", "down"]
"""Weight matrix of a sublayer: the four projections of attention, and the two layers of an MLP."""


@dataclass(frozen=True)
class SublayerSpec:
    """Place of a sublayer in a model."""

    role: Role
    layer: int
    """Counted from 1."""
    layers: int
    """Number of layers of the model. A layer may have two sublayers, one of each role."""
    width: int
    """W, the width of the residual stream."""
    heads: int = 1
    """H, the number of attention heads; 1 without attention."""

    @property
    def head_dim(self) -> int:
        """D, the features of one head."""
        return self.width // self.heads


class TensorModule(Protocol):
    """`nn.Module` from one tensor to another: a sublayer, or a result of the methods of :class:`NormScheme`."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Call by other modules."""

    def forward(self, x: Tensor, /) -> Tensor:
        """For the shapes, see the methods of :class:`NormScheme`."""


class NormScheme(Configurable):
    """Kinds and places of the norms of a model.

    An architecture calls the methods in this order: `embed`; then for each sublayer of each layer `gain` for every weight
    matrix, `query`, `key` and `head` for attention, and `residual`, or `output` without a residual connection; at the end
    `final`, if the architecture has a norm before the logits.

    The setting `train.dropout` acts on sublayers given to `residual`, and before the module of `output`, on (B, T, W).
    """

    @abstractmethod
    def embed(self, width: int) -> TensorModule:
        """Module after the embedding: (..., W) -> (..., W)."""

    @abstractmethod
    def residual(self, spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        """Sublayer within its residual connection: (..., T, W) -> (..., T, W).

        A sublayer may answer for the last position only, (..., 1, W). Then only the last position of the result counts, where
        `x + sublayer(x)` broadcasts to the right value.
        """

    @abstractmethod
    def output(self, spec: SublayerSpec) -> TensorModule:
        """Module on the output of a sublayer, (..., W) -> (..., W), in architectures without a residual connection."""

    @abstractmethod
    def final(self, width: int) -> TensorModule:
        """Module before the logits: (..., W) -> (..., W)."""

    def query(self, spec: SublayerSpec) -> TensorModule | None:
        """Module on the queries of each head, (B, H, Q, D) -> the same shape, before the position code; None for no norm."""
        return None

    def key(self, spec: SublayerSpec) -> TensorModule | None:
        """Module on the keys of each head, (B, H, K, D) -> the same shape, before the position code; None for no norm."""
        return None

    def head(self, spec: SublayerSpec) -> TensorModule | None:
        """Module on the output of each head, (B, H, Q, D) -> the same shape, before the output projection; None for no norm."""
        return None

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        """Factor for the initial weights of one matrix of a sublayer, as in DeepNorm; 1 for no change."""
        return 1.0


class Need(Enum):
    """Further input of an attention besides queries, keys, values and bias."""

    ALL_QUERIES = "all_queries"
    """Queries of all K positions in `q`, also if only the last Q positions are asked for an answer. In cross attention, `q` has
    only the Q asked queries, since queries are no positions of the keys.

    An attention in need of Q also asks for QUERY_INPUT.
    """
    QUERY_INPUT = "query_input"
    """Input of the sublayer at the Q positions that are asked for an answer: a keyword argument, (B, Q, W)."""
    KEY_INPUT = "key_input"
    """Input of the sublayer at all K positions of the keys: a keyword argument, (B, K, W)."""


@dataclass(frozen=True)
class AttentionSpec:
    """Place of an attention in a model, and properties of its position code."""

    layer: int
    """Counted from 1."""
    layers: int
    """Number of layers of the model."""
    width: int
    """W, the width of the residual stream."""
    heads: int
    """H."""
    train_keys: int
    """Number of keys of the last query of the longest training input: n_train in the equations of attention."""
    has_bias: bool = False
    """Whether the position code adds a bias to the logits."""
    cross_attention: bool = False
    """Whether queries and keys come from different inputs. Otherwise the Q queries belong to the last Q of K positions."""
    unscaled: bool = False
    """Whether logits are plain dot products, not divided by sqrt(D)."""

    @property
    def head_dim(self) -> int:
        """D, the features of queries, keys and values."""
        return self.width // self.heads

    @property
    def scale(self) -> float:
        """Factor of dot products: 1 / sqrt(D), or 1 if `unscaled`."""
        return 1.0 if self.unscaled else self.head_dim**-0.5


class AttentionModule(Protocol):
    """`nn.Module` from :meth:`Attention.build`, from queries, keys, values and a bias to outputs."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, /, **needed: Tensor) -> Tensor:
        """Call by architectures."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, /, *args: Any, **needed: Any) -> Tensor:
        """Output at each of the Q positions: (B, H, Q, D).

        q (B, H, Q, D), or (B, H, K, D) with Need.ALL_QUERIES; k and v (B, H, K, D). `bias` is added to scale q . k before
        any other operation on the logits; its shape broadcasts to (B, H, Q, K), with as many rows as q; None for no bias.
        `needed` has the tensors named by :attr:`Attention.needs`. Query i of Q sees the keys 0 to K - Q + i, so a single
        query sees all keys; :mod:`lgbench.attending` has the mask.
        """


class Attention(Configurable):
    """Attention from queries, keys and values to outputs. The projections belong to the architecture."""

    needs: frozenset[Need] = frozenset()
    """Further inputs of the module besides q, k, v and bias."""

    @abstractmethod
    def build(self, spec: AttentionSpec) -> AttentionModule:
        """Module for one layer.

        Training calls the module in training mode, through `torch.func.vmap`; testing in evaluation mode. Raises
        :class:`lgbench.Unsupported`, with the reason, for a `spec` that the attention does not support.
        """


class EmbeddingModule(Protocol):
    """`nn.Module` from :meth:`Position.embed`: (B, T, W) -> (B, T, W)."""

    def __call__(self, x: Tensor, /, **tokens: Tensor) -> Tensor:
        """Call by architectures."""

    def forward(self, x: Tensor, /, *args: Any, **tokens: Any) -> Tensor:
        """`tokens` has the item `tokens`, (B, T) int64, for a code that reads tokens; otherwise it is empty."""


class RotationModule(Protocol):
    """`nn.Module` from :meth:`Position.rotate`, from queries and keys to queries and keys of the same shapes."""

    def __call__(self, q: Tensor, k: Tensor, /, **tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Call by architectures."""

    def forward(self, q: Tensor, k: Tensor, /, *args: Any, **tokens: Any) -> tuple[Tensor, Tensor]:
        """q: queries of the last Q of K positions, (B, H, Q, D). k: (B, H, K, D)."""


class BiasModule(Protocol):
    """`nn.Module` from :meth:`Position.bias`, from queries and keys to a bias."""

    def __call__(self, q: Tensor, k: Tensor, /, **tokens: Tensor) -> Tensor:
        """Call by architectures."""

    def forward(self, q: Tensor, k: Tensor, /, *args: Any, **tokens: Any) -> Tensor:
        """q (B, H, Q, D), k (B, H, K, D) -> (H, Q, K), or (B, H, Q, K) for a bias that depends on the context."""


class Position(Configurable):
    """Position code: information for a model about the positions of tokens. Every method is optional."""

    reads_tokens: bool = False
    """Whether the modules also get the token ids of all positions, as the keyword argument `tokens`, (B, K) int64."""

    reads_positions: bool = False
    """Whether the modules take position ids of a task, as the keyword argument `positions`, (B, K) int64.

    The argument is missing for a task without ids, where key j stands at position j. A code that acts and does not read ids
    is refused for a task with ids.
    """

    def embed(self, width: int, positions: int) -> EmbeddingModule | None:
        """Module after the embedding, for positions below `positions`; None for no module."""
        return None

    def rotate(self, spec: AttentionSpec) -> RotationModule | None:
        """Module on queries and keys before the dot products, such as a rotation; None for no module.

        The result for a query or a key does not depend on later positions. Raises :class:`lgbench.Unsupported`.
        """
        return None

    def bias(self, spec: AttentionSpec) -> BiasModule | None:
        """Module for a bias on the logits; None for no bias. Raises :class:`lgbench.Unsupported`."""
        return None


@dataclass(frozen=True)
class Parts:
    """Parts of a model. A part of a kind without use in the architecture is None."""

    norm: NormScheme
    attention: Attention
    position: Position
    train_positions: int
    """Positions of the longest training input."""
    test_positions: int
    """Positions of the longest input in testing."""


class Model(Protocol):
    """`nn.Module` from :meth:`Architecture.build`, from inputs to logits."""

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """Call by lgbench."""

    def forward(self, inputs: Tensor, /) -> Tensor:
        """(B, T) or (B, T, F) -> logits (B, A, V), with A as :class:`lgbench.Answers` says."""


class Architecture(Named):
    """Builder of models for signatures."""

    defaults: Mapping[str, str] = MappingProxyType({})
    """Default part of each kind that the architecture takes: norm, attention, position. An entry may name another part."""
    reads_positions: bool = False
    """Whether models read the position ids of a task themselves, in inputs (B, T, 2). Otherwise the position code alone gets
    them, and models get the tokens (B, T)."""
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Least and greatest value by option; `math.inf` for no greatest value. A value out of range is refused before a model is
    built. An integer without a range is at most 16384 away from 0."""

    @abstractmethod
    def build(self, signature: Signature, parts: Parts, *args: Any, **options: Any) -> Model:
        """Model with fresh weights.

        Options are keyword-only parameters with defaults of type int, float, bool or str; `--set model.OPTION=VALUE` sets
        them. Raises :class:`lgbench.Unsupported`, with the reason, for a signature, parts or options that the architecture
        does not support.
        """
