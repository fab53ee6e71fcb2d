"""Tasks: distributions over contexts with their exact next-token distributions.

Shapes: n contexts, T positions, A answers for each context, V classes, F input features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from lgbench.randomness import Random


@dataclass(frozen=True)
class Tokens:
    """Inputs (n, T) of int64 in [0, size)."""

    size: int


@dataclass(frozen=True)
class Vectors:
    """Inputs (n, T, width) of float32."""

    width: int


class Answers(Enum):
    """Where a task asks for an answer."""

    EVERY_PREFIX = "at every prefix"
    """A = T. The answer at position T - 1 - k is the answer to the context's prefix that is k shorter."""
    MARKED = "at the positions that the batch's weights mark"
    """A = T. Every marked position counts for the whole context's length, as in copying or addition."""
    LAST = "once, at the last position"
    """A = 1."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model: it reads `inputs` and gives logits over `classes` classes where `answers` says."""

    inputs: Tokens | Vectors
    classes: int
    answers: Answers


class Batch(NamedTuple):
    """Contexts and the right answer to each.

    inputs: (n, T) int64 or (n, T, F) float32. distribution: p*, (n, A, V) float32, which sums to 1 over V. weights: (n, A)
    float32, at least 0, by how much each answer counts in training and in measurements; None where all count alike.
    """

    inputs: Tensor
    distribution: Tensor
    weights: Tensor | None = None


class Strings(NamedTuple):
    """Whole strings of one length, members and others of a language. inputs: (n, length + 1) int64; is_member: (n,) bool."""

    inputs: Tensor
    is_member: Tensor


@dataclass(frozen=True)
class Budget:
    """The budget of one protocol for one task. None keeps the protocol's own number.

    steps: optimizer steps. batch: contexts per step. lr: peak learning rate, or the one of which all that are tried are
    multiples. max_length: longest tested context.
    """

    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    max_length: int | None = None


class Task(ABC):
    """A distribution over contexts together with the exact next-token distribution p*(. | context).

    Length counts what the task is about: symbols read (without a begin token), tokens seen, items in a set (without the
    query). The last position of a context of length L has seen all L. If the task answers at every prefix, position T - 1 - k
    has seen L - k, and a prefix of a context must be distributed as a shorter context is: then one pass measures every length.
    """

    name: str
    """Lower-case letters, digits and hyphens; see :data:`lgbench.contracts.names.NAME`."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""
    family: str
    """Tasks that are reported together. A task that stands alone has its own `name` here."""
    version: int
    """Raise it whenever any number that the task gives could change."""
    signature: Signature
    train_lengths: tuple[int, int]
    """Shortest and longest context in training. A task that answers at every prefix trains on the longest."""
    max_length: int | None = None
    """The length beyond which no context exists; None if there is no such length."""
    lengths: tuple[int, ...] | None = None
    """The lengths that boards show; None for powers of two, the training length and the longest tested length."""
    model: Mapping[str, int | float | bool | str] = MappingProxyType({})
    """Model sizes for this task, such as {"layers": 1}. An architecture takes the options that it has."""
    budgets: Mapping[str, Budget] = MappingProxyType({})
    """By the protocol's name, where the task needs other numbers than the protocol's own: tasks differ too much for one number
    of steps, and the core knows none of them by name."""

    @abstractmethod
    def sample(self, length: int, random: Random) -> Batch:
        """Draw `random.n` independent contexts of exactly `length`, on `random.device`.

        Every random number comes from `random`, whose methods give each context numbers of its own. A context must not depend
        on the others that it is drawn with.
        """

    @property
    def answers(self) -> tuple[str, ...]:
        """A short name for each of the V classes, in order."""
        return tuple(str(i) for i in range(self.signature.classes))

    def text(self, inputs: Tensor) -> str:
        """One context, (T,) or (T, F), as a reader would write it."""
        return str(inputs.tolist())

    def context(self, text: str) -> Tensor:
        """One context, (T,) or (T, F), that a reader wrote as :meth:`text` writes them. `lgbench predict` asks for it.

        Raises ValueError with a sentence about what the task reads. Without a method of its own, a task reads the numbers of
        its tokens, with blanks or commas between them.
        """
        import torch

        if not isinstance(self.signature.inputs, Tokens):
            raise ValueError("it reads vectors, and does not say how to write them as text")
        size, words = self.signature.inputs.size, text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) < size):
                raise ValueError(f"{word!r} is none of its tokens, which are the numbers from 0 to {size - 1}, as in '0 1'")
        if not words:
            raise ValueError(f"it reads at least one token, a number from 0 to {size - 1}, as in '0 1'")
        return torch.tensor([int(word) for word in words])

    def sibling(self, name: str) -> Task | None:
        """The task of that name where a family has more members than it lists (dyck-K-M), else None.

        Only names that begin with this task's family and a hyphen are asked for. The answer has exactly that name, and this
        family or, where boards show it alone, its own name as its family. Raises ValueError, with what would work, where no
        such task exists.
        """
        return None

    def sources(self, inputs: Tensor) -> Tensor | None:
        """The positions that matter for the answer at the last position: (n, T) or (n, T, F) -> (n, T) bool.

        The largest item, the key that is asked for, the open bracket that may be closed. Probes compare it with where a model
        looks. A context without such a position has none. None where the task does not say.
        """
        return None

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """p* after one context, (T,) or (T, F), found in another way than `sample` finds it, such as plain enumeration.

        `lgbench check` compares `sample` with it on contexts of length up to 8. None where there is no other way.
        """
        return None


class Language(Task):
    """A task whose contexts are prefixes of a formal language.

    Input token i < V - 1 is the symbol that class i predicts. Input token V - 1 is the begin token, and class V - 1 is the end
    of the string. A context of length L has T = L + 1 positions, the begin token first.
    """

    def context(self, text: str) -> Tensor:
        """The symbols that stand in the text, with blanks between them or without, and the begin token before them."""
        import torch

        symbols = self.answers[:-1]
        found: list[int] = []
        rest = "" if text.strip() == "(empty)" else text.strip()
        while rest:
            symbol = max((each for each in symbols if rest.startswith(each)), key=len, default="")
            if not symbol:
                known = " ".join(symbols[:20]) + (" and others" if len(symbols) > 20 else "")
                raise ValueError(f"{rest.split()[0]!r} begins with none of its symbols, which are {known}")
            found.append(symbols.index(symbol))
            rest = rest.removeprefix(symbol).lstrip()
        return torch.tensor([len(symbols), *found])

    @abstractmethod
    def strings(self, length: int, random: Random) -> Strings:
        """Draw n = `random.n` strings of `length`: n // 2 members, uniform among all members of that length, then non-members.

        Raises ValueError where `length` cannot be tested; see `testable_length`.
        """

    @abstractmethod
    def testable_length(self, length: int) -> int:
        """The length nearest to `length`, the longer of two, that has both members and non-members."""
