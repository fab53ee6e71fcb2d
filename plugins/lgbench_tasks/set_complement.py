"""Set complement: say which tokens have not been seen yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Batch, Budget, Random, Signature, Task, Tokens


@final
class SetComplement(Task):
    """A context is a sequence of tokens without repetition out of v; the answer is uniform over those not in it.

    After 2 3 out of v = 4, the tokens 0 and 1 have probability 1/2 each:

    >>> task = SetComplement(size=4)
    >>> inputs, distribution, _ = task.sample(2, Random(1, seed=43))
    >>> inputs.tolist(), distribution[0, -1].tolist()
    ([[2, 3]], [0.5, 0.5, 0.0, 0.0])

    Source: "Post-Norm can Resharpen Attention" (arXiv 2510.08341). The minimal model (one layer, attention only, one
    head, width v - 1) is published; v = 64 and training on up to 16 tokens are our choice.
    """

    name = family = "set-complement"
    version = 4
    train_lengths = (1, 16)
    lengths = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56)  # at 63 one legal token is left, and no model finds it
    budgets = {
        "short": Budget(steps=3000, batch=64, lr=1e-2),
        "standard": Budget(steps=9000, batch=64, lr=1e-2),
        "long": Budget(batch=64, lr=1e-2),
    }

    def __init__(self, size: int = 64) -> None:
        self.size = size
        self.signature = Signature(Tokens(size), size, Answers.EVERY_PREFIX)
        self.max_length = size - 1
        self.model = {"layers": 1, "heads": 1, "width": size - 1, "mlp": False}

    def sample(self, length: int, random: Random) -> Batch:
        """Prefixes of uniform permutations, (n, length), with p* (n, length, v)."""
        inputs = random.permutations(self.size, length)
        # As float32, for so comparing writes 0 and 1 where p* is to be.
        steps = torch.arange(length, dtype=torch.float32, device=random.device)
        seen_at = torch.full((random.n, self.size), torch.inf, device=random.device)
        seen_at.scatter_(1, inputs, steps.expand_as(inputs))
        p = torch.empty(random.n, length, self.size, device=random.device)
        torch.gt(seen_at[:, None, :], steps[:, None], out=p)  # 1 where a token is unseen
        return Batch(inputs, p.mul_(1 / (self.size - 1 - steps[:, None])))

    def context(self, text: str) -> Tensor:
        inputs = super().context(text)
        if len(inputs) != len(set(inputs.tolist())) or len(inputs) > self.size - 1:
            raise ValueError(
                f"no token may come twice, and at most {self.size - 1} of the {self.size} may come, as in '3 0 17'"
            )
        return inputs

    def reference(self, context: Tensor) -> Sequence[float]:
        seen = set(context.tolist())
        return [0.0 if token in seen else 1 / (self.size - len(seen)) for token in range(self.size)]
