"""Induction heads: name the token that came after the trigger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens

LETTERS = 15
TRIGGER = LETTERS


@final
class InductionHeads(Task):
    """A context is random letters with a trigger among them and a trigger at the end; the answer is the letter after the first.

    >>> inputs, distribution, _ = InductionHeads().sample(8, Random(1))
    >>> InductionHeads().text(inputs[0]), InductionHeads().answers[distribution[0, 0].argmax()]
    ('k f ! a d c c !', 'a')

    Length counts all tokens, both triggers included. Source: Gu and Dao 2023 (arXiv 2312.00752), section 4.1.2, with 16 tokens
    and training on exactly 256. The trigger's place is uniform, which is our choice, as are tests to 1024 tokens (2^20 there).
    """

    name = family = "induction-heads"
    version = 1
    signature = Signature(Tokens(LETTERS + 1), LETTERS, Answers.LAST)
    train_lengths = (256, 256)
    lengths = (64, 128, 256, 512, 1024, 2048, 4096)
    budgets = {name: Budget(max_length=1024) for name in ("short", "standard")} | {"long": Budget(max_length=4096)}
    facts = Facts("recall", sources=("arXiv 2312.00752",))
    words = (*"abcdefghijklmno", "!")

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words[:LETTERS]

    def sample(self, length: int, random: Random) -> Batch:
        """Letters and two triggers (n, length), with p* (n, 1, 15). Three tokens are the fewest."""
        if length < 3:
            raise ValueError(f"{self.name} has no context of length {length}: two triggers and a letter are 3 tokens")
        inputs = random.integers(LETTERS, length)
        place = random.integers(length - 2, 1)
        inputs[:, -1] = TRIGGER
        inputs.scatter_(1, place, TRIGGER)
        return Batch(inputs, F.one_hot(inputs.gather(1, place + 1), LETTERS).float())

    def reference(self, context: Tensor) -> Sequence[float]:
        tokens = context.tolist()
        if tokens.count(TRIGGER) != 2 or tokens[-1] != TRIGGER or tokens[-2] == TRIGGER:
            raise ValueError("expected letters and two triggers, the second of them at the end, and a letter after the first")
        right = tokens[tokens.index(TRIGGER) + 1]
        return [float(letter == right) for letter in range(LETTERS)]

    def sources(self, inputs: Tensor) -> Tensor:
        """The letter after the first trigger."""
        return F.pad(inputs[:, :-1] == TRIGGER, (1, 0))
