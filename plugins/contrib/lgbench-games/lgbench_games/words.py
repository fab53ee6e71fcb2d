"""Contexts as words: a name for each token, written and read."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench import Task


class Words(Task):
    """A task whose tokens have names, which its texts show with blanks between them."""

    words: tuple[str, ...]
    """Name of each token, in order."""

    def text(self, inputs: Tensor) -> str:
        return " ".join(self.words[token] for token in inputs.tolist())

    def context(self, text: str) -> Tensor:
        """Context from names of tokens with blanks between them."""
        tokens = {word: token for token, word in enumerate(self.words)}
        unknown = [word for word in text.split() if word not in tokens]
        if unknown or not text.split():
            found = f"{unknown[0]!r} is none of its tokens" if unknown else "there is no token"
            raise ValueError(f"{found}, expected names from {' '.join(self.words)}, with blanks between them")
        return torch.tensor([tokens[word] for word in text.split()])
