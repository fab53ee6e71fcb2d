"""The contracts between the core and its plugins: what a task is, an architecture and its parts, and an averager.

Shapes: n contexts (or B in a batch), T positions, V answer classes, F input features, P models in a population; in attention
H heads of D features, Q queries, K keys.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

CONTRACT = (1, 0)
"""The version of everything in this module and in :mod:`lgbench.hookspecs`; CONTRIBUTING.md has the rule of compatibility."""

METRICS = ("tvd", "accuracy", "roc_auc")
"""What every task is measured by; defined in :mod:`lgbench.metrics`."""

BASELINE = "transformer"
"""The architecture that an entry means when it names parts alone."""

PART_KINDS = ("norm", "attention", "position")
"""The kinds of parts of a model, in the order in which an entry names them."""

NAME = re.compile(r"(?![a-z0-9-]{101})[a-z0-9]+(-[a-z0-9]+)*")
"""What a plugin may call a thing, at most 100 letters: part of a file's name on any system, without a separator of entries."""

MEANT_OTHERWISE = ("all", "none", "raw")
"""Words of the command line and of results, for what no plugin provides."""

Role = Literal["attention", "mlp"]
Weights = dict[str, "Tensor"]
AverageState = dict[str, Weights]


@dataclass(frozen=True)
class Tokens:
    """Inputs (B, T) of int64 in [0, size)."""

    size: int


@dataclass(frozen=True)
class Vectors:
    """Inputs (B, T, width) of float32."""

    width: int


class Answers(Enum):
    """Where a task wants its answer."""

    EVERY_PREFIX = "at every prefix"
    LAST = "once, at the last position"


@dataclass(frozen=True)
class Signature:
    """What flows through a model: inputs in, a distribution over `classes` answers out, at `answers`."""

    inputs: Tokens | Vectors
    classes: int
    answers: Answers


class Batch(NamedTuple):
    """Contexts and what the right answer to each is.

    inputs: (n, T) int64 or (n, T, F) float32. distribution: p*, (n, A, V) float32 with A = T for tasks that answer
    at every prefix and A = 1 for tasks that answer at the last position.
    """

    inputs: Tensor
    distribution: Tensor


class Strings(NamedTuple):
    """Whole strings of one length, members of a language and others. inputs: (n, length + 1) int64; is_member: (n,) bool."""

    inputs: Tensor
    is_member: Tensor


@dataclass(frozen=True)
class Budget:
    """What one protocol spends on one task; None leaves the protocol's own number.

    steps: optimizer steps. batch: contexts a step. lr: peak learning rate. max_length: longest evaluated context.
    """

    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    max_length: int | None = None


class Task(ABC):
    """A distribution over contexts together with the exact next-token distribution p*(. | context).

    Length counts what the task is about: symbols read (a begin token not counted), tokens seen, items in a set (the
    query not counted). The last position of a context of length L is the one that has seen all L; if the task answers
    at every prefix, position T - 1 - k has seen L - k, and a prefix of a context must be distributed as a shorter
    context is, so that one pass measures every length.
    """

    name: str
    """Lower-case letters, digits and hyphens, as `NAME` has it."""
    about: str = ""
    """One sentence, where the class's docstring does not say what this object is."""
    family: str
    """Tasks that are reported together, `name` itself for a task that stands alone."""
    version: int
    """Raised whenever any number that the task yields could move."""
    signature: Signature
    train_lengths: tuple[int, int]
    """Shortest and longest context in training. A task that answers at every prefix trains on the longest."""
    max_length: int | None = None
    """Length beyond which no context exists, None where there is no bound."""
    model: Mapping[str, int | float | bool | str] = {}
    """Model sizes at which the task is studied, such as {"layers": 1}; an architecture takes the options it has."""
    budgets: Mapping[str, Budget] = {}
    """By protocol name, where the task needs other numbers than the protocol's own."""

    @abstractmethod
    def sample(self, n: int, length: int, generator: Generator) -> Batch:
        """Draw n independent contexts of exactly `length`, on the generator's device, with no other randomness."""

    @property
    def answers(self) -> tuple[str, ...]:
        """A short name for each of the V answers, in order."""
        return tuple(str(i) for i in range(self.signature.classes))

    def text(self, inputs: Tensor) -> str:
        """One context, (T,) or (T, F), as a reader would write it."""
        return str(inputs.tolist())

    def sibling(self, name: str) -> Task | None:
        """The task of that name where a family has more members than it lists (dyck-K-M), else None.

        Raises ValueError, saying what would work, where the name is of this family but no such task exists.
        """
        return None

    def brute_force(self, context: Tensor) -> Sequence[float] | None:
        """p* after one context, (T,) or (T, F), found by plain enumeration and not in the way that `sample` finds it.

        `lgbench check` holds `sample` to it on contexts of up to 8. None where there is no other way.
        """
        return None


class Language(Task):
    """A task whose contexts are prefixes of a formal language.

    Input token i < V - 1 is the symbol that answer i predicts; input token V - 1 is the begin token and answer V - 1
    the end of the string. A context of length L has T = L + 1 positions, the begin token first.
    """

    @abstractmethod
    def strings(self, n: int, length: int, generator: Generator) -> Strings:
        """Draw n strings of `length`: n // 2 members, uniform among all members of that length, the rest non-members.

        Raises ValueError where `length` is not among the testable ones (see `testable_length`).
        """

    @abstractmethod
    def testable_length(self, length: int) -> int:
        """The length nearest to `length`, the longer of two, that has both members and non-members."""


class NormScheme(ABC):
    """Which normalization stands where. One object owns both kind and placement: no block asks which norm it has."""

    name: str
    about: str = ""

    @abstractmethod
    def embed(self, dim: int) -> nn.Module:
        """What stands on the embedding: (..., dim) -> (..., dim)."""

    @abstractmethod
    def residual(self, dim: int, sublayer: nn.Module, role: Role) -> nn.Module:
        """The sublayer in its residual connection: (..., T, dim) -> (..., T, dim).

        A sublayer may answer for the last position only, (..., 1, dim); then only the last position of what
        comes back counts, and `x + sublayer(x)` broadcasts to the right value there.
        """

    @abstractmethod
    def output(self, dim: int, role: Role) -> nn.Module:
        """What stands on a sublayer's output alone, for architectures without a residual connection."""

    @abstractmethod
    def final(self, dim: int) -> nn.Module:
        """What stands before the logits."""


@dataclass(frozen=True)
class Place:
    """Where in a model an attention stands, with the position code that goes with it."""

    layer: int
    """Counted from 1."""
    width: int
    """Of the stream."""
    heads: int
    train_keys: int
    """How many keys the last query of the longest input in training sees: n_train in the equations of attention."""
    biased: bool = False
    """Whether the position code adds something to the logits."""
    crossing: bool = False
    """Whether queries come from elsewhere than keys. Otherwise the Q queries are those of the last Q of the K positions."""
    plain: bool = False
    """Whether logits are plain dot products, not divided by sqrt(D)."""

    @property
    def head_dim(self) -> int:
        """D, of queries, keys and values."""
        return self.width // self.heads

    @property
    def scale(self) -> float:
        """What dot products are multiplied by: 1 / sqrt(D), or 1."""
        return 1.0 if self.plain else self.head_dim**-0.5


class Attention(ABC):
    """How queries find keys, and what they take from them. Projections belong to the architecture."""

    name: str
    about: str = ""
    every_query: bool = False
    """Whether it looks at the queries of all positions, also where an answer is wanted for the last ones only."""

    @abstractmethod
    def build(self, place: Place) -> nn.Module:
        """A module (q, k, v, asking, bias) -> what each asking position takes, (B, H, Q, D).

        q (B, H, Q, D), or (B, H, K, D) with `every_query`; k, v (B, H, K, D). asking (B, Q, width) is what the sublayer read
        at the positions for which an answer is wanted. bias, (H, Q, K) with as many rows as q has or broadcasting to it, is
        added to place.scale q . k before anything else is done to that; None for none. Query i of Q sees the keys 0 to
        K - Q + i, so that a single query sees all of them; :mod:`lgbench.attending` has the mask. Training calls the module in
        training mode, through vmap; testing in evaluation mode. Raises :class:`lgbench.Unsupported` with the reason where it
        cannot stand in that place.
        """


class Position(ABC):
    """How a model knows where in its input a token stands. What it leaves out acts as no position code does."""

    name: str
    about: str = ""

    def embed(self, width: int, positions: int) -> nn.Module | None:
        """What stands on the embedding, (B, T, width) -> (B, T, width) with T at most `positions`; None for nothing."""
        return None

    def turn(self, place: Place) -> nn.Module | None:
        """What is done to queries and keys before they meet, (q, k) -> (q, k) of the same shapes; None for nothing.

        q (B, H, Q, D) are those of the last Q of the K positions of k (B, H, K, D). Each is turned by its own
        position alone: what follows it changes nothing. Raises :class:`lgbench.Unsupported`.
        """
        return None

    def bias(self, place: Place) -> nn.Module | None:
        """What is added to the logits of attention, a module (q, k) -> (H, Q, K); None for nothing.

        Raises :class:`lgbench.Unsupported`.
        """
        return None


@dataclass(frozen=True)
class Parts:
    """What a model is put together from. Parts of kinds that the architecture does not take are None."""

    norm: NormScheme
    attention: Attention
    position: Position
    train_positions: int
    """Positions of the longest input in training."""
    test_positions: int
    """Positions of the longest input that the model will be given."""


class Architecture(ABC):
    """A way to build a model for a signature."""

    name: str
    about: str = ""
    defaults: Mapping[str, str] = {}
    """The kinds of parts that it takes, of `PART_KINDS`, and the part meant where an entry names none of that kind."""

    @abstractmethod
    def build(self, signature: Signature, parts: Parts, *args: Any, **options: Any) -> nn.Module:
        """A model (B, T) or (B, T, F) -> logits (B, A, V), A as in :class:`Batch`.

        Options are keyword-only parameters with defaults of int, float, bool or str; `--set model.NAME=VALUE` reaches
        them. Raises :class:`lgbench.Unsupported` with the reason where the architecture cannot serve the signature, the
        parts or the options.
        """


class Averager(ABC):
    """A running average of the weights. Tensors may carry a leading population dimension: every operation is elementwise.

    A state is tensors under two names, a part and a weight, such as state["ema"]["logits.weight"]. Their names, shapes and
    dtypes never change after `start`, so that a checkpoint can hold them and an update can be captured once.
    """

    name: str
    about: str = ""

    @abstractmethod
    def start(self, weights: Weights) -> AverageState:
        """The state before training, from the initial weights. Must not keep references to them."""

    @abstractmethod
    def update(self, state: AverageState, weights: Weights, step: Tensor) -> AverageState:
        """The state after `step` optimizer steps, a float64 of no dimensions on the device of the weights.

        The harness calls it at every multiple of `train.average_every`.
        """

    @abstractmethod
    def weights(self, state: AverageState) -> Weights:
        """The averaged weights, names and shapes as given to `start`."""

    def definition(self, start: float, path: Sequence[tuple[int, float]]) -> float | None:
        """The average of one weight by the published formula, written plainly: what `lgbench check` holds `update` to.

        `start` is the initial weight, `path` the steps at which updates are made and the weight after each. None where
        there is no other way than `update`.
        """
        return None
