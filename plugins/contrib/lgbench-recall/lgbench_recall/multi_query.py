"""Multi-query associative recall: name the value of every key that comes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens

VOCABULARY = 256
VALUES = VOCABULARY // 2
"""Keys are the tokens from 1 to VALUES - 1, values those from VALUES on. The token 0 only fills."""
POSITIONS = 16
"""Positions for each pair."""
POWER = 0.01
"""A query stands in slot g with a weight of (g + 1)^(POWER - 1), so short gaps are frequent."""
LONGEST = 32
"""Most pairs in tests: 512 positions."""


@final
class MultiQueryRecall(Task):
    """A context is L pairs of a key and a value, and then each key again, among fillers; the answers are its value.

    Keys are distinct, and so are values. After the pairs come 7 L slots of two tokens, drawn from the whole vocabulary.
    The first token of one slot for each key is the key, which alone is asked about, and its value does not follow:

    >>> inputs, distribution, weights = MultiQueryRecall().sample(1, Random(1, seed=3))
    >>> inputs[0].tolist(), weights[0].nonzero().flatten().tolist()
    ([1, 166, 148, 107, 96, 76, 167, 241, 1, 212, 81, 183, 5, 91, 84, 15], [8])
    >>> MultiQueryRecall().answers[distribution[0, 8].argmax()]
    '166'

    Length counts pairs. Source: Arora et al. 2023 (arXiv 2312.04927) and its code, in which 4, 8 and 16 pairs have 16 positions
    each, and the nearest slots are the most likely. A vocabulary of 256 (8192 there), 16 positions for every number of pairs
    and training on up to 8 pairs are our choice.
    """

    name = family = "multi-query-recall"
    version = 1
    signature = Signature(Tokens(VOCABULARY), VALUES, Answers.MARKED)
    train_lengths = (1, 8)
    max_length = VALUES - 1
    budgets = {name: Budget(max_length=LONGEST) for name in ("quick", "short", "standard", "long", "paper")}
    facts = Facts("recall", sources=("arXiv 2312.04927",))

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(str(VALUES + value) for value in range(VALUES))

    def sample(self, length: int, random: Random) -> Batch:
        """Pairs and slots (n, 16 L), with p* (n, 16 L, 128): uniform where nothing is asked."""
        keys, values = 1 + random.permutations(VALUES - 1, length), random.permutations(VALUES, length)
        slots = (POSITIONS - 2) // 2 * length
        weight = torch.arange(1, slots + 1, dtype=torch.float64, device=random.device) ** (POWER - 1)
        # The order of waiting times with these rates is that of draws without replacement with these weights.
        waiting = -random.uniform(slots, dtype=torch.float64).log() / weight
        queries = 2 * length + 2 * waiting.argsort(dim=1, stable=True)[:, :length]
        inputs = random.integers(VOCABULARY, POSITIONS * length)
        inputs[:, : 2 * length] = torch.stack([keys, VALUES + values], -1).flatten(1)
        inputs.scatter_(1, queries, keys)
        distribution = torch.full((*inputs.shape, VALUES), 1 / VALUES, device=random.device)
        right = F.one_hot(values, VALUES).float()
        distribution.scatter_(1, queries[..., None].expand_as(right), right)
        weights = torch.zeros(inputs.shape, device=random.device).scatter_(1, queries, 1.0)
        return Batch(inputs, distribution, weights)

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """The value of the key at the end, which is the first token of a slot; None after a token that is no key."""
        *tokens, query = context.tolist()
        held: dict[int, int] = {}
        for key, value in zip(tokens[::2], tokens[1::2], strict=False):
            if not 0 < key < VALUES <= value or key in held or value in held.values():
                break
            held[key] = value
        if len(tokens) % 2 or query not in held:
            return None
        return [float(VALUES + value == held[query]) for value in range(VALUES)]
