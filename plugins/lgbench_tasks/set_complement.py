"""Set complement: say which tokens have not been seen yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Generator, Tensor

from lgbench import Answers, Batch, Budget, Signature, Task, Tokens


@final
class SetComplement(Task):
    """A context is a sequence of tokens without repetition out of v; the answer is uniform over those not in it.

    After 2 3 out of v = 4, the tokens 0 and 1 have probability 1/2 each:

    >>> task = SetComplement(size=4)
    >>> inputs, distribution, _ = task.sample(1, 2, torch.Generator().manual_seed(3))
    >>> inputs.tolist(), distribution[0, -1].tolist()
    ([[2, 3]], [0.5, 0.5, 0.0, 0.0])

    Source: "Post-Norm can Resharpen Attention" (arXiv 2510.08341). The minimal model (one layer, attention only, one
    head, width v - 1) is published; v = 64 and training on up to 16 tokens are our choice.
    """

    name = family = "set-complement"
    version = 2
    train_lengths = (1, 16)
    budgets = {"standard": Budget(steps=3000, batch=64, lr=1e-2)}

    def __init__(self, size: int = 64) -> None:
        self.size = size
        self.signature = Signature(Tokens(size), size, Answers.EVERY_PREFIX)
        self.max_length = size - 1
        self.model = {"layers": 1, "heads": 1, "width": size - 1, "mlp": False}

    def sample(self, n: int, length: int, generator: Generator) -> Batch:
        """Prefixes of uniform permutations, (n, length), with p* (n, length, v)."""
        device = generator.device
        inputs = torch.empty(n, length, dtype=torch.int64, device=device)
        p = torch.empty(n, length, self.size, device=device)
        order = torch.arange(self.size, device=device)[:, None].repeat(1, n)  # Fisher-Yates on every column
        unseen = torch.ones(n, self.size, device=device)
        for step in range(length):
            chosen = torch.randint(step, self.size, (1, n), generator=generator, device=device)
            inputs[:, step] = order.gather(0, chosen)[0]
            order.scatter_(0, chosen, order[step : step + 1].clone())
            unseen.scatter_(1, inputs[:, step, None], 0.0)
            torch.mul(unseen, 1 / (self.size - 1 - step), out=p[:, step])
        return Batch(inputs, p)

    def reference(self, context: Tensor) -> Sequence[float]:
        seen = set(context.tolist())
        return [0.0 if token in seen else 1 / (self.size - len(seen)) for token in range(self.size)]
