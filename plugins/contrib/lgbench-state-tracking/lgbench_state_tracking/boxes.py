"""Boxes: name what is in a box after objects have been put, moved and removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens

OBJECTS, BOXES = 8, 7
ALL, ASK = OBJECTS, OBJECTS + BOXES + 2
PLACES = OBJECTS + 1
"""Token of the first box; the token after the last box is the place outside."""
OUTSIDE = BOXES
PLACE = "([1-7]|out)"
TEXT = re.compile(" ".join(f"{what} {PLACE}" for what in "abcdefgh") + rf"( ([a-h] {PLACE} {PLACE}|all [1-7] [1-7]))* \? [1-7]")


@final
class Boxes(Task):
    """A context is where 8 objects are, L operations, and a box; the answer is uniform over the objects in it.

    An operation is what moves, from where and to where: one object put into a box, moved to another or removed, or all that is
    in a box, moved to another. An empty box has the answer "nothing":

    >>> inputs, distribution, _ = Boxes().sample(3, Random(1, seed=36))
    >>> Boxes().text(inputs[0])
    'a 3 b 6 c out d 4 e 2 f 3 g 3 h 4 g 3 out all 3 7 h 4 out ? 7'
    >>> [what for what, p in zip(Boxes().answers, distribution[0, 0].tolist()) if p]
    ['a', 'f']

    Length counts operations. Source: after Kim and Schuster 2023 (arXiv 2305.02363), with 7 boxes, up to 12 operations and
    these kinds of them, among them "Move the contents". Our choice: 8 objects, uniform places at the start, no limit to what
    a box holds, and the operations. An object is drawn: outside it is put into a box; in a box, with probability 1/3 each, it
    is removed, it is moved, or all of its box is moved.
    """

    name = family = "boxes"
    version = 1
    signature = Signature(Tokens(ASK + 1), OBJECTS + 1, Answers.LAST)
    train_lengths = (1, 12)
    budgets = {name: Budget(max_length=128) for name in ("quick", "short", "standard", "long", "paper")}
    facts = Facts("state tracking", sources=("arXiv 2305.02363",))
    words = (*"abcdefgh", "all", *map(str, range(1, BOXES + 1)), "out", "?")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.words[:OBJECTS], "nothing")

    def sample(self, length: int, random: Random) -> Batch:
        """Places, operations and a box (n, 3 L + 18), with p* (n, 1, 9)."""
        n, objects = random.n, torch.arange(OBJECTS, device=random.device)
        places, asked = random.integers(BOXES + 1, OBJECTS), random.integers(BOXES, 1)
        start = torch.stack([objects.expand(n, -1), PLACES + places], -1).flatten(1)
        drawn = random.integers(OBJECTS, length).T, random.integers(3, length).T
        boxes, steps = random.integers(BOXES, length).T, 1 + random.integers(BOXES - 1, length).T
        operations = torch.empty(n, length, 3, dtype=torch.int64, device=random.device)
        for step, (moved, kind, box, further) in enumerate(zip(*drawn, boxes, steps, strict=True)):
            source = places.gather(1, moved[:, None])[:, 0]
            inside, together = source < OUTSIDE, (kind == 2) & (source < OUTSIDE)
            target = torch.where(inside, torch.where(kind == 0, OUTSIDE, (source + further) % BOXES), box)
            moves = torch.where(together[:, None], places == source[:, None], objects == moved[:, None])
            places = torch.where(moves, target[:, None], places)
            what = torch.where(together, ALL, moved)
            torch.stack([what, PLACES + source, PLACES + target], -1, out=operations[:, step])
        question = F.pad(PLACES + asked, (1, 0), value=ASK)
        within = F.pad((places == asked).float(), (0, 1))
        within[:, -1] = within.sum(-1) == 0
        return Batch(torch.cat([start, operations.flatten(1), question], 1), (within / within.sum(-1, keepdim=True))[:, None])

    def reference(self, context: Tensor) -> Sequence[float]:
        """Sets of objects, as the operations say."""
        if not TEXT.fullmatch(self.text(context)):
            raise ValueError("expected the places of a to h, operations of what, from where and to where, then ? and a box")
        tokens = context.tolist()
        held: dict[int, set[int]] = {place: set() for place in range(PLACES, ASK)}
        for what, place in zip(tokens[: 2 * OBJECTS : 2], tokens[1 : 2 * OBJECTS : 2], strict=True):
            held[place].add(what)
        steps = tokens[2 * OBJECTS : -2]
        for what, source, target in zip(steps[::3], steps[1::3], steps[2::3], strict=True):
            moves = set(held[source]) if what == ALL else {what}
            if not moves <= held[source]:
                raise ValueError(f"{self.words[what]} is not in {self.words[source]} when it is moved")
            if not moves or source == target:
                raise ValueError(f"{' '.join(self.words[token] for token in (what, source, target))!r} moves nothing")
            held[source] -= moves
            held[target] |= moves
        found = held[tokens[-1]] or {OBJECTS}
        return [(what in found) / len(found) for what in range(OBJECTS + 1)]
