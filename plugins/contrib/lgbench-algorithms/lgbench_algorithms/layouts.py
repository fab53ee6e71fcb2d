"""Two layouts of a question and its answer: empty tokens after the question, and the answer written symbol by symbol."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Random, Signature, Task, Tokens

END = "end"
"""Name of the class that ends an answer. It is the last class, and no symbol of a question."""


class Problem(Task):
    """A function from a question to a fixed answer; subclasses say which question, and layouts where the answer is read.

    An answer ends with the class "end" where there is one. Symbols after the end fill a batch and do not count.
    """

    version = 1
    symbols: Sequence[str]
    """Names of the symbols of a question; symbol i is the input token i."""
    outputs: Sequence[str]
    """Names of the classes."""
    extra: Sequence[str]
    """Names of the layout's own input tokens, after the symbols."""
    question: str | None = None
    """Regular expression of a question, with a blank between two symbols; None where any symbols are one."""
    where = Answers.MARKED
    positions: int | None = None
    """Number of position ids, for a task with ids."""

    def __init__(self) -> None:
        self.words = (*self.symbols, *self.extra)
        self.signature = Signature(Tokens(len(self.words), self.positions), len(self.outputs), self.where)

    @abstractmethod
    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        """Random questions (n, Q) and their answers (n, A), as numbers of symbols and of classes."""

    def drawn(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        """Questions and answers of `draw`. Raises ValueError for a length below that of the shortest question in training."""
        if length < self.train_lengths[0]:
            raise ValueError(f"{self.name} has no question of length {length}: the shortest has {self.train_lengths[0]}")
        return self.draw(length, random)

    @abstractmethod
    def solve(self, question: str) -> Sequence[str]:
        """Answer to one question by plain Python. The question has a blank between two symbols.

        Raises ValueError for a question of the right form that is never asked, such as a string without a majority.
        """

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(self.outputs)

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """p* by plain Python; None where nothing is asked, and after a wrong symbol of a written answer."""
        words = self.text(context).split()
        asked, read = self.parted(words)
        if read is None:
            return None
        question = " ".join(asked)
        is_one = re.fullmatch(self.question, question) if self.question else asked and set(asked) <= set(self.symbols)
        if not is_one:
            raise ValueError(f"{question!r} is no question of this task" if asked else "it has no question")
        answer = list(self.solve(question))
        if read >= len(answer) or words[len(words) - read :] not in (["_"] * read, answer[:read]):
            return None
        return [float(name == answer[read]) for name in self.outputs]

    @abstractmethod
    def parted(self, words: Sequence[str]) -> tuple[Sequence[str], int | None]:
        """Question of a context, and how many answers come before the one at its end; None before the first answer."""

    def certain(self, answers: Tensor) -> Tensor:
        """Distribution with all of the mass on one class: (n, A) -> (n, A, V)."""
        zeros = torch.zeros(*answers.shape, len(self.outputs), device=answers.device)
        return zeros.scatter_(-1, answers[..., None], 1.0)

    def placed(self, answers: Tensor, before: int) -> tuple[Tensor, Tensor]:
        """Distribution (n, before + A, V) and weights (n, before + A) of answers (n, A) after `before` other positions."""
        distribution = self.certain(F.pad(answers, (before, 0)))
        counts = torch.ones_like(answers, dtype=torch.float32)
        if END in self.outputs:
            ends = answers == len(self.outputs) - 1
            counts = (ends.cumsum(1) - ends.long() == 0).float()
        return distribution, F.pad(counts, (before, 0))


class EmptyTokens(Problem):
    """A question of the Chomsky benchmark, and as many empty tokens as the answer has symbols, which is read there."""

    extra = ("_",)
    train_lengths = (1, 40)
    max_length = 500
    budgets: Mapping[str, Budget] = MappingProxyType({"paper": Budget(lr=3e-4)})
    """Published are 1 M steps of 128 contexts at the best of the rates 1e-4, 3e-4 and 5e-4."""

    def sample(self, length: int, random: Random) -> Batch:
        """Questions with empty tokens, (n, Q + A), with p* (n, Q + A, V); (n, 1, V) for an answer of one symbol."""
        question, answers = self.drawn(length, random)
        inputs = F.pad(question, (0, answers.shape[1]), value=len(self.symbols))
        if self.where is Answers.LAST:
            return Batch(inputs, self.certain(answers))
        return Batch(inputs, *self.placed(answers, question.shape[1]))

    def parted(self, words: Sequence[str]) -> tuple[Sequence[str], int | None]:
        empty = len(list(takewhile("_".__eq__, reversed(words))))
        return words[: len(words) - empty], empty - 1 if empty else None


class Written(Problem):
    """A begin token, a question, a separator, and the answer, which a model reads as it writes it (teacher forcing).

    Class i is the symbol i, except the end of the answer, the last class.
    """

    extra = ("begin", "=")
    train_lengths = (1, 50)
    max_length = 150

    def sample(self, length: int, random: Random) -> Batch:
        """Begin token, question, separator and answer, (n, 1 + Q + A), with p* (n, 1 + Q + A, V)."""
        question, answers = self.drawn(length, random)
        begin = len(self.symbols)
        written = answers[:, :-1]
        written = torch.where(written == self.end, begin, written)  # a filler, after the end
        inputs = F.pad(F.pad(question, (1, 0), value=begin), (0, 1), value=begin + 1)
        return Batch(torch.cat([inputs, written], 1), *self.placed(answers, question.shape[1] + 1))

    @property
    def end(self) -> int:
        """The class that ends an answer."""
        return len(self.outputs) - 1

    def ended(self, answers: Tensor) -> Tensor:
        """Answers (n, A) of one length with their end, (n, A + 1)."""
        return F.pad(answers, (0, 1), value=self.end)

    def parted(self, words: Sequence[str]) -> tuple[Sequence[str], int | None]:
        if "=" not in words:
            return words, None
        separator = words.index("=")
        if words[0] != "begin":
            raise ValueError("it does not begin with the token begin")
        return words[1:separator], len(words) - separator - 1
