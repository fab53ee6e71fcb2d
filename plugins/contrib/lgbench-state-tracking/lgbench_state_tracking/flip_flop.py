"""Flip-flop: remember the last bit that was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens

WRITE, READ, IGNORE, ZERO, ONE = range(5)
LONGEST = 256
"""Most instructions in tests: the published 512 tokens."""


@final
class FlipFlop(Task):
    """A context is instructions to write, read or ignore, each with a bit; the answer to a read is the bit last written.

    An instruction ignores with the probability of the name, in percent, and else reads or writes alike; the first writes and
    the last reads. All other bits are random. Reads alone count:

    >>> inputs, distribution, weights = FlipFlop(50).sample(6, Random(1, seed=19))
    >>> FlipFlop(50).text(inputs[0])
    'w 1 w 0 i 0 r 0 w 1 r'
    >>> [FlipFlop(50).answers[right] for right in distribution[0, weights[0] > 0].argmax(-1)]
    ['0', '1']

    Length counts instructions, of two tokens each; the bit of the last one is only asked for. Source: Liu et al. 2023 (arXiv
    2306.00946), where FFL(0.8) is trained on at 256 instructions, and FFL(0.98) and FFL(0.1) are tested. Training on up to
    32 instructions and testing on 256 is our choice.
    """

    family = "flip-flop"
    version = 1
    signature = Signature(Tokens(5), 5, Answers.MARKED)
    train_lengths = (2, 32)
    budgets = {name: Budget(max_length=LONGEST) for name in ("short", "standard", "long", "paper")}
    facts = Facts("state tracking", "regular", True, sources=("arXiv 2306.00946",))
    words = ("w", "r", "i", "0", "1")

    def __init__(self, percent: int) -> None:
        self.name, self.percent = f"flip-flop-{percent}", percent
        self.about = f"the bit last written, where {percent} % of the instructions are to be ignored: FFL({percent / 100:g})"

        acts = (100 - percent) / 200
        self._chances = (
            (0.0, 0.0, 0.0, 0.5, 0.5),  # of the bit to write or to ignore
            (0.0, 0.0, 0.0, 1.0, 0.0),  # of the bit to read, 0
            (0.0, 0.0, 0.0, 0.0, 1.0),  # of the bit to read, 1
            (acts, acts, percent / 100, 0.0, 0.0),  # of an instruction
            (0.0, 1.0, 0.0, 0.0, 0.0),  # of the last instruction
        )

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words

    def sample(self, length: int, random: Random) -> Batch:
        """Instructions and bits (n, 2 L - 1), with p* (n, 2 L - 1, 5)."""
        if length < 2:
            raise ValueError(f"{self.name} has no context of length {length}: the first instruction writes, the last reads")
        drawn = random.integers(200, length)
        instructions = torch.where(drawn < 2 * self.percent, IGNORE, torch.where(drawn < 100 + self.percent, WRITE, READ))
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        places = torch.arange(length, device=random.device)
        bits, reads = random.integers(2, length), instructions == READ
        written = bits.gather(1, torch.where(instructions == WRITE, places, 0).cummax(-1).values)
        bits = torch.where(reads, written, bits)
        follows = torch.full_like(bits, 3)
        follows[:, -2] = 4
        cases = torch.stack([torch.where(reads, 1 + bits, 0), follows], -1).flatten(1)[:, :-1]
        inputs = torch.stack([instructions, ZERO + bits], -1).flatten(1)[:, :-1]
        weights = F.pad(reads[..., None].float(), (0, 1)).flatten(1)[:, :-1]
        return Batch(inputs, torch.tensor(self._chances, device=random.device)[cases], weights)

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """p* of a read; None elsewhere."""
        text = self.text(context)
        if not text.endswith("r"):
            return None
        acts = r"(i [01]|r \2)" if self.percent else r"(r \2)"
        if not re.fullmatch(rf"(w ([01])( {acts})* )+r", text):
            raise ValueError("expected instructions with a bit each: first w, and after r the bit last written")
        right = text[text.rindex("w") + 2]
        return [float(right == answer) for answer in self.words]

    def sources(self, inputs: Tensor) -> Tensor:
        """The bit last written, if a read is last."""
        places = torch.arange(inputs.shape[1], device=inputs.device)
        last = torch.where(inputs == WRITE, places, -2).amax(-1, keepdim=True)
        return (places == last + 1) & (inputs[:, -1:] == READ)

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"flip-flop-(\d+)", name)
        if not found:
            return None
        percent = int(found[1])
        if found[1] != str(percent) or percent > 99:
            raise ValueError("flip-flop-P takes the percentage of instructions to ignore, from 0 to 99, as in flip-flop-90")
        task = FlipFlop(percent)
        task.family = task.name  # asked for by hand: the mean over the family stays over the listed members
        return task
