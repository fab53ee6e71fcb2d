"""Contexts for language models: random tokens, or pieces of a text.

Shapes: n contexts, T positions, N tokens of a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lgbench.errors import UsageError
from lgbench.randomness import Random, key_of

PURPOSE = "probe"

MOST_DIGITS = 20
"""More than any token number has. Python reads no number of thousands of digits."""

MAX_TOKENS = 2**27
"""Of the contexts of all lengths, which are drawn before the first is read: 1 GiB."""


class Contexts(ABC):
    """Where contexts come from. Seed and length decide them, on every machine."""

    name: str
    """Their name in tables and files."""

    @abstractmethod
    def draw(self, length: int, n: int, seed: int) -> Tensor:
        """(n, T) int64. Raises UsageError where there are not enough tokens."""


@dataclass(frozen=True)
class RandomTokens(Contexts):
    """Independent tokens, each equally likely."""

    vocabulary: int
    name: str = "random tokens"

    def draw(self, length: int, n: int, seed: int) -> Tensor:
        return Random.stacked([key_of(seed, PURPOSE, "tokens", length)], n).integers(self.vocabulary, length)


@dataclass(frozen=True)
class Pieces(Contexts):
    """Pieces of a text that do not overlap, spread over all of it."""

    tokens: Tensor
    """(N,) int64."""
    name: str
    """The file's."""

    def draw(self, length: int, n: int, seed: int) -> Tensor:
        share = len(self.tokens) // n
        if share < length:
            needs = f"{n} contexts of {length} tokens need {n * length}, and {self.name} has {len(self.tokens)}"
            raise UsageError(f"{needs}: {_way_out(share, len(self.tokens) // length)}")
        # Each context has a share of the text to itself, and begins anywhere in it.
        starts = torch.arange(n) * share
        starts += Random.stacked([key_of(seed, PURPOSE, "pieces", length)], n).integers(share - length + 1)
        return self.tokens[starts[:, None] + torch.arange(length)]


def _way_out(longest: int, most: int) -> str:
    ways = [f"--lengths up to {longest}"] if longest else []
    ways += [f"--contexts {most}"] if most else []
    return f"use {' or '.join(ways)}" if ways else "use a longer text"


def text_of(path: Path) -> str:
    """A text file. Raises UsageError where it cannot be read as one."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {str(path)!r} as a text: {reason}") from error


def numbers_of(text: str, path: Path, vocabulary: int) -> Tensor:
    """Token numbers with white space between them, in a file: (N,) int64. Raises UsageError for anything else."""
    words = text.split()
    wrong = next((word for word in words if not _is_number(word, vocabulary)), None)
    if wrong is not None:
        expected = f"expected token numbers from 0 to {vocabulary - 1} with white space between them"
        raise UsageError(f"{str(path)!r} has {wrong[:40]!r}: {expected}")
    return torch.tensor([int(word) for word in words], dtype=torch.int64)


def _is_number(word: str, vocabulary: int) -> bool:
    return word.isascii() and word.isdigit() and len(word) < MOST_DIGITS and int(word) < vocabulary


def check_lengths(lengths: tuple[int, ...], limit: int | None, contexts: int) -> None:
    """Raises UsageError for a length that no context has or that the model cannot read, and for too many tokens."""
    if not lengths or min(lengths) < 1:
        raise UsageError("--lengths names a length below 1; use lengths such as 16:4096 or 16,100,500")
    longest = max(lengths)
    if limit is not None and longest > limit:
        over = f"the model reads {limit} positions at most (max_position_embeddings), and --lengths asks for {longest}"
        raise UsageError(f"{over}: use --lengths up to {limit}")
    if (tokens := contexts * sum(lengths)) > MAX_TOKENS:
        many = f"{contexts} contexts of each length have {tokens} tokens, and {MAX_TOKENS} is the most"
        raise UsageError(f"{many}: use fewer --contexts or shorter --lengths")
