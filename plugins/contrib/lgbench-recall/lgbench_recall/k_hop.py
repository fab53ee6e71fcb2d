"""k-hop induction: look up the letter after the last occurrence, k times over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Facts, Random, Signature, Task, Tokens

LETTERS = 4
HOPS = 16
UNDEFINED = LETTERS
"""Answer where a hop leads nowhere."""


@final
class KHop(Task):
    """A context is a number of hops k and letters without equal neighbours; the answer is the letter k hops before the last.

    A hop goes from a letter to the last earlier occurrence of the same letter, and from there one place on. A letter that
    has not occurred before leads nowhere, which is answered with ~, and so is the number alone:

    >>> inputs, distribution, _ = KHop().sample(9, Random(1, seed=6))
    >>> KHop().text(inputs[0]), "".join(KHop().answers[right] for right in distribution[0].argmax(-1))
    ('1 a c a b c d a b a', '~~~c~a~bcb')

    Length counts letters. Source: Sanford et al. 2024 (arXiv 2402.09268) and its code, with 4 letters, k from 0 to 16, training
    on 98 letters and an answer at every place. No hop means the letter itself.
    """

    name = family = "k-hop"
    version = 1
    signature = Signature(Tokens(LETTERS + HOPS + 1), LETTERS + 1, Answers.EVERY_PREFIX)
    train_lengths = (1, 98)
    facts = Facts("recall", sources=("arXiv 2402.09268",))
    words = (*"abcd", *map(str, range(HOPS + 1)))

    @property
    def answers(self) -> tuple[str, ...]:
        return (*"abcd", "~")

    def sample(self, length: int, random: Random) -> Batch:
        """The number and letters, (n, length + 1), with p* (n, length + 1, 5)."""
        hops = random.integers(HOPS + 1, 1)
        steps = 1 + random.integers(LETTERS - 1, length)  # never back to the same letter
        letters = (random.integers(LETTERS, 1) + steps.cumsum(1)) % LETTERS
        known = F.pad(letters, (0, 1), value=UNDEFINED)
        right = F.pad(known.gather(1, destinations(letters, hops)), (1, 0), value=UNDEFINED)
        return Batch(torch.cat([LETTERS + hops, letters], 1), F.one_hot(right, LETTERS + 1).float())

    def reference(self, context: Tensor) -> Sequence[float]:
        hops, *letters = context.tolist()
        equal = any(one == other for one, other in pairwise(letters))
        if hops < LETTERS or equal or max(letters, default=0) >= LETTERS:
            raise ValueError(f"expected a number of hops from 0 to {HOPS}, and letters without equal neighbours")
        place = len(letters) - 1
        for _ in range(hops - LETTERS):
            earlier = [other for other in range(place) if letters[other] == letters[place]]
            place = earlier[-1] + 1 if earlier else -1
        right = letters[place] if place >= 0 else UNDEFINED
        return [float(right == letter) for letter in range(LETTERS + 1)]

    def sources(self, inputs: Tensor) -> Tensor:
        """The letter to which the hops lead."""
        place = destinations(inputs[:, 1:], inputs[:, :1] - LETTERS)[:, -1:]
        return torch.arange(inputs.shape[1], device=inputs.device) == torch.where(place < inputs.shape[1] - 1, place + 1, -1)


def destinations(letters: Tensor, hops: Tensor) -> Tensor:
    """Place reached from each place: letters (n, L), hops (n, 1) -> (n, L), L where a hop leads nowhere."""
    n, length = letters.shape
    places = torch.arange(length, device=letters.device)
    kinds = torch.arange(LETTERS, device=letters.device)[:, None]
    latest = torch.where(letters[:, None] == kinds, places, -1).cummax(-1).values
    before = F.pad(latest, (1, -1), value=-1).gather(1, letters[:, None])[:, 0]
    hop = F.pad(torch.where(before < 0, length, before + 1), (0, 1), value=length)
    reached = places.expand(n, -1)
    for bit in range(HOPS.bit_length()):  # hops of 1, 2, 4, 8 and 16
        reached = torch.where((hops >> bit & 1).bool(), hop.gather(1, reached), reached)
        hop = hop.gather(1, hop)
    return reached
