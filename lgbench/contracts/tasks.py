"""Tasks: distributions over contexts with their exact next-token distributions.

Shapes: n contexts, T positions, A answers for each context, V classes, F input features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from lgbench.contracts.names import Named
from lgbench.errors import Unsupported

if TYPE_CHECKING:
    from torch import Tensor

    from lgbench.randomness import Random


@dataclass(frozen=True)
class Tokens:
    """Inputs (n, T) of int64 in [0, size); with position ids (n, T, 2), a token and the id of its position."""

    size: int
    positions: int | None = None
    """Number of position ids, which are in [0, positions); None for a task without ids, where a position is its place.

    Ids say which tokens belong together, such as digits of equal significance (position coupling, arXiv 2405.20671). Position
    codes read them, and models without a position code get the tokens alone.
    """


@dataclass(frozen=True)
class Vectors:
    """Inputs (n, T, width) of float32."""

    width: int


class Answers(Enum):
    """Positions of the answers of a task."""

    EVERY_PREFIX = "at every prefix"
    """A = T. Position T - 1 - k answers the prefix of the context without its last k positions."""
    MARKED = "at the positions that the batch's weights mark"
    """A = T. Every marked position counts for the whole context's length, as in copying or addition."""
    LAST = "once, at the last position"
    """A = 1."""


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a model: logits over `classes` classes at the positions of `answers`."""

    inputs: Tokens | Vectors
    classes: int
    answers: Answers


class Batch(NamedTuple):
    """Contexts with the right answers.

    inputs: (n, T) int64, (n, T, 2) int64 with position ids, or (n, T, F) float32. distribution: p*, (n, A, V) float32, with
    the sum 1 over V. weights: (n, A) float32, at least 0, weights of the answers in training and in measurements; None for
    equal weights.
    """

    inputs: Tensor
    distribution: Tensor
    weights: Tensor | None = None

    @property
    def positions(self) -> Tensor | None:
        """Position ids, (n, T) int64; None for a task without ids."""
        has_ids = self.inputs.ndim == 3 and not self.inputs.is_floating_point()
        return self.inputs[..., 1] if has_ids else None


@dataclass(frozen=True)
class Facts:
    """Published facts about the language or function of a task, by which boards group tasks. None where nothing is known.

    Raises TypeError for a fact of another type: no board could read the runs of such a task.
    """

    kind: str
    """Group on boards: "star-free", "regular with groups", "counter", "context-free", "context-sensitive", "recall", "state
    tracking", "games", or another."""
    chomsky: str | None = None
    """Least class in the Chomsky hierarchy: "regular", "deterministic context-free", "context-free" or "context-sensitive"."""
    star_free: bool | None = None
    """Whether a regular language is star-free: no group of more than one element in its syntactic monoid."""
    c_rasp: bool | None = None
    """Whether a program in C-RASP is published, which predicts that transformers without a position code generalize in length
    (arXiv 2410.02140)."""
    c_rasp_positions: bool | None = None
    """The same with absolute positions: a program in C-RASP[periodic, local]."""
    group: str | None = None
    """Group of the state transitions, such as "Z_2" or "S_5"."""
    sources: tuple[str, ...] = ()
    """Sources of the facts, such as "arXiv 2410.02140, table 1"."""

    def __post_init__(self) -> None:
        texts, answers = ("chomsky", "group"), ("star_free", "c_rasp", "c_rasp_positions")
        wanted = {"kind": str, **dict.fromkeys(texts, str | None), **dict.fromkeys(answers, bool | None)}
        for name, kind in wanted.items():
            if not isinstance(value := getattr(self, name), kind):
                expected = "True, False or None" if name in answers else "a text"
                raise TypeError(f"the fact {name} is {value!r}, expected {expected}")
        if isinstance(self.sources, str) or not all(isinstance(source, str) for source in self.sources):
            raise TypeError(
                f"the sources of facts are {self.sources!r}, expected a tuple of texts, as in ('arXiv 2410.02140',)"
            )


class Strings(NamedTuple):
    """Whole strings of one length, members and others of a language. inputs: (n, length + 1) int64; is_member: (n,) bool."""

    inputs: Tensor
    is_member: Tensor


@dataclass(frozen=True)
class Budget:
    """Budget of one protocol for one task. None keeps the protocol's own number.

    steps: optimizer steps. batch: contexts per step. lr: peak learning rate, or the base of the grid in a protocol with
    tuning. max_length: longest tested context.
    """

    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    max_length: int | None = None


class Task(Named):
    """A distribution over contexts together with the exact next-token distribution p*(. | context).

    Length counts the units of the task: symbols (without a begin token), tokens, or items of a set (without the query). The
    last position of a context of length L has seen all L units. For a task with an answer at every prefix, position
    T - 1 - k has seen L - k. A prefix of a context must then have the distribution of a shorter context, so a single pass
    measures every length.
    """

    family: str
    """Label of tasks reported together; the task's own `name` for a single task."""
    version: int
    """Raise the version whenever any number of the task could change."""
    signature: Signature
    train_lengths: tuple[int, int]
    """Shortest and longest context in training. A task that answers at every prefix trains on the longest."""
    max_length: int | None = None
    """Length of the longest existing context; None without a limit."""
    lengths: tuple[int, ...] | None = None
    """Lengths on boards; None for powers of two, the training length and the longest tested length."""
    model: Mapping[str, int | float | bool | str] = MappingProxyType({})
    """Model sizes for this task, such as {"layers": 1}. An architecture ignores unknown options."""
    budgets: Mapping[str, Budget] = MappingProxyType({})
    """Budgets by the protocol's name, for tasks in need of other numbers than the protocol's own. Tasks differ too much for one
    number of steps, and the core knows no task by name."""

    words: tuple[str, ...] = ()
    """Name of each input token, in order, for texts of contexts; empty for numbers."""
    facts: Facts | None = None
    """Published facts, in the metadata of every run."""

    @abstractmethod
    def sample(self, length: int, random: Random) -> Batch:
        """Draw `random.n` independent contexts of exactly `length`, on `random.device`.

        Every random number comes from `random`, whose methods give each context its own numbers. Contexts of a batch must be
        independent of each other.
        """

    @property
    def answers(self) -> tuple[str, ...]:
        """A short name for each of the V classes, in order."""
        return tuple(str(i) for i in range(self.signature.classes))

    def text(self, inputs: Tensor) -> str:
        """One context, as a row of `inputs`, as readable text: `words` with blanks between them, or else numbers."""
        tokens = inputs if inputs.ndim == 1 else inputs[:, 0]
        return " ".join(self.words[token] for token in tokens.tolist()) if self.words else str(inputs.tolist())

    def context(self, text: str) -> Tensor:
        """Context, as a row of `inputs`, from text in the format of :meth:`text`, for `lgbench predict`.

        Numbers may also be separated by commas. Raises ValueError with a sentence about the expected format, and
        :class:`lgbench.Unsupported` for vectors or position ids, which a task reads from text in a method of its own.
        """
        import torch

        inputs = self.signature.inputs
        if not isinstance(inputs, Tokens) or inputs.positions is not None:
            read = "tokens with position ids" if isinstance(inputs, Tokens) else "vectors"
            raise Unsupported(
                f"it reads {read}, and does not say how to write them as text: its class needs a method `context`"
            )
        said, names = text.strip().removeprefix("[").removesuffix("]").replace(",", " "), tuple(map(str, range(inputs.size)))
        shown = f"the numbers from 0 to {inputs.size - 1}, as in '0 1'"
        if self.words:
            said, names = text, self.words
            shown = f"{' '.join(names[:20])}{' and others' if len(names) > 20 else ''}, with blanks between them"
        known = {name: token for token, name in enumerate(names)}
        for word in said.split():
            if word not in known:
                raise ValueError(f"{word!r} is none of its tokens, which are {shown}")
        if not said.split():
            raise ValueError(f"it reads at least one token, of {shown}")
        return torch.tensor([known[word] for word in said.split()])

    def sibling(self, name: str) -> Task | None:
        """Task by name for a family with unlisted members (dyck-K-M), else None.

        The core asks only for names with this task's family and a hyphen as their prefix. None for a name of another form
        (dyck-first). The result has exactly the requested name. Its family is this family or its own name; in results it is a
        family of its own either way. Raises ValueError, with a remedy, for an impossible task (dyck-0-3).
        """
        return None

    def sources(self, inputs: Tensor) -> Tensor | None:
        """Positions relevant to the answer at the last position: (n, T) or (n, T, F) -> (n, T) bool.

        Examples: the largest item, the queried key, the open bracket to close. Probes compare these positions with a model's
        attention. A context may have no relevant position. None for a task without this information.
        """
        return None

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """p* after one context, (T,) or (T, F), by another method than in `sample`, such as plain enumeration.

        `lgbench check` compares `sample` with this reference on contexts of length up to 8, or of the shortest length in
        training if that is longer. None without another method. Raises ValueError, with a sentence, or gives zeros for an
        impossible context, such as one that a user gives to `lgbench predict`.
        """
        return None


class Language(Task):
    """A task whose contexts are prefixes of a formal language.

    Input token i < V - 1 is the symbol of class i. Input token V - 1 is the begin token, and class V - 1 is the end of the
    string. A context of length L has T = L + 1 positions, the begin token first.
    """

    def context(self, text: str) -> Tensor:
        """Begin token and the symbols of the text, with or without blanks between symbols."""
        import torch

        symbols = self.answers[:-1]
        found: list[int] = []
        rest = "" if text.strip() == "(empty)" else text.strip()
        while rest:
            # A symbol may begin with another.
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

        Raises ValueError for an untestable length; see `testable_length`.
        """

    @abstractmethod
    def testable_length(self, length: int) -> int:
        """Length nearest to `length` with both members and non-members; the longer of two."""
