"""Set complement: say which tokens have not been seen yet."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Generator

from lgbench import Answers, Batch, Budget, Signature, Task, Tokens


@final
class SetComplement(Task):
    """A context is a sequence of tokens without repetition out of v; the answer is uniform over those not in it.

    After 0 3 out of v = 4, the tokens 1 and 2 have probability 1/2 each:

    >>> task = SetComplement(size=4)
    >>> inputs, distribution = task.sample(1, 2, torch.Generator().manual_seed(3))
    >>> inputs.tolist(), distribution[0, -1].tolist()
    ([[0, 3]], [0.0, 0.5, 0.5, 0.0])

    Source: "Post-Norm can Resharpen Attention" (arXiv 2510.08341). The minimal model (one layer, attention only, one
    head, width v - 1) is published; v = 64 and training on up to 16 tokens are our choice.
    """

    name = family = "set-complement"
    version = 1
    train_lengths = (1, 16)
    budgets = {"standard": Budget(steps=3000, batch=64, lr=1e-2)}

    def __init__(self, size: int = 64) -> None:
        self.size = size
        self.signature = Signature(Tokens(size), size, Answers.EVERY_PREFIX)
        self.max_length = size - 1
        self.model = {"layers": 1, "heads": 1, "width": size - 1, "mlp": False}

    def sample(self, n: int, length: int, generator: Generator) -> Batch:
        """Prefixes of uniform permutations, (n, length), with p* (n, length, v)."""
        order = torch.rand(n, self.size, generator=generator, device=generator.device).argsort(-1)
        inputs = order[:, :length]
        unseen = 1 - F.one_hot(inputs, self.size).cumsum(1, dtype=torch.float32)
        return Batch(inputs, unseen / unseen.sum(-1, keepdim=True))
