"""Selective copying: say again, in order, the letters that stand among noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Facts, Random, Signature, Task, Tokens

LETTERS = 14
NOISE, ASK = LETTERS, LETTERS + 1
COPIED = 16


@final
class SelectiveCopying(Task):
    """A context is 16 letters at random places among noise, then 16 question marks; the answers are the letters in order.

    >>> inputs, distribution, weights = SelectiveCopying().sample(20, Random(1))
    >>> SelectiveCopying().text(inputs[0])
    '. j f g . a . c c c k l i b m n a f g . ? ? ? ? ? ? ? ? ? ? ? ? ? ? ? ?'
    >>> "".join(SelectiveCopying().answers[right] for right in distribution[0, -16:].argmax(-1))
    'jfgacccklibmnafg'

    Length counts letters and noise. Source: Gu and Dao 2023 (arXiv 2312.00752), section 4.1.1: 16 letters, 16 tokens with
    noise, and training on exactly 4096. Training on 16 to 64 is our choice, so that length is what changes.
    """

    name = family = "selective-copying"
    version = 1
    signature = Signature(Tokens(LETTERS + 2), LETTERS, Answers.MARKED)
    train_lengths = (COPIED, 64)
    facts = Facts("recall", sources=("arXiv 2312.00752",))
    words = (*"abcdefghijklmn", ".", "?")

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words[:LETTERS]

    def sample(self, length: int, random: Random) -> Batch:
        """Letters, noise and question marks (n, length + 16), with p* (n, length + 16, 14): uniform where nothing is asked.

        A context shorter than 16 is letters alone.
        """
        copied = min(length, COPIED)
        letters, places = random.integers(LETTERS, copied), random.permutations(length, copied)
        inputs = letters.new_full((random.n, length + copied), NOISE)
        inputs[:, length:] = ASK
        inputs.scatter_(1, places.sort(1).values, letters)
        unknown = torch.full((random.n, length, LETTERS), 1 / LETTERS, device=random.device)
        distribution = torch.cat([unknown, F.one_hot(letters, LETTERS).float()], 1)
        weights = (torch.arange(length + copied, device=random.device) >= length).float()
        return Batch(inputs, distribution, weights.expand(random.n, -1))

    def reference(self, context: Tensor) -> Sequence[float] | None:
        tokens = context.tolist()
        asked = tokens.count(ASK)
        if not asked:
            return None
        read = tokens[:-asked]
        letters = [token for token in read if token < LETTERS]
        if ASK in read or len(letters) != min(len(read), COPIED) or asked > len(letters):
            raise ValueError(
                f"expected {COPIED} letters among noise, or fewer without noise, and no more question marks than letters"
            )
        right = letters[asked - 1]
        return [float(letter == right) for letter in range(LETTERS)]

    def sources(self, inputs: Tensor) -> Tensor:
        """The letter that the last question mark asks for."""
        is_letter = inputs < LETTERS
        return is_letter & (is_letter.cumsum(1) == (inputs == ASK).sum(1, keepdim=True))
