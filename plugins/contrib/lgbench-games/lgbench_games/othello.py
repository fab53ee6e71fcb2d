"""Othello: name the legal moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Batch, Facts, Random, Signature, Task, Tokens
from lgbench_games.othello_boards import CENTRE, SQUARES, are_in, play

FIELDS = [square for square in range(SQUARES) if square not in CENTRE]
"""Square of each token."""
OVER = len(FIELDS)
NAMES = [f"{'abcdefgh'[square % 8]}{square // 8 + 1}" for square in FIELDS]
AT_ONCE = 2**17
"""Numbers of p* made at once on a CPU: few enough to stay in its cache."""
WAYS = [(rank, file) for rank in (-1, 0, 1) for file in (-1, 0, 1) if rank or file]


@final
class Othello(Task):
    """A context is the moves of a random game; the answer is uniform over the legal moves.

    Every move is uniform over the legal ones. A player without one passes, and no token says so:

    >>> inputs, distribution, _ = Othello().sample(3, Random(1))
    >>> Othello().text(inputs[0])
    'f5 d6 c5'
    >>> [move for move, p in zip(Othello().answers, distribution[0, -1].tolist()) if p]
    ['b4', 'f4', 'b6', 'f6']

    A game may end early: from then on its moves are the token "over", and nothing is asked. So a prefix of a context is
    distributed as a shorter context is, and a length counts the games that are still on. Length counts moves; after 59 the
    60th, which is the last, is asked for. Source: Li et al. 2022 (arXiv 2210.13382), with 61 tokens and contexts of 59 moves;
    arXiv 2510.08341 v1 for generalization in length. Training on 20 moves is our choice.
    """

    name = family = "othello"
    version = 1
    signature = Signature(Tokens(OVER + 1), OVER + 1, Answers.EVERY_PREFIX)
    train_lengths = (1, 20)
    max_length = len(FIELDS) - 1
    lengths = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 59)
    facts = Facts("games", sources=("arXiv 2210.13382", "arXiv 2510.08341v1"))
    words = (*NAMES, "over")

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words

    def sample(self, length: int, random: Random) -> Batch:
        """Moves (n, length), with p* (n, length, 61): certainly "over", with the weight 0, once a game is over."""
        squares, options = play(random.uniform(length))
        token = torch.full((SQUARES + 1,), OVER, device=random.device)
        token[FIELDS] = torch.arange(OVER, device=random.device)
        distribution = torch.empty(random.n * length, OVER + 1, device=random.device)
        at_once = AT_ONCE // SQUARES if random.device.type == "cpu" else max(1, len(distribution))
        for p, sets in zip(*(torch.split(each, at_once) for each in (distribution, options.flatten())), strict=True):
            legal = are_in(sets)
            torch.cat([legal[:, :27], legal[:, 29:35], legal[:, 37:], (sets == 0).float()[:, None]], 1, out=p)
            p.div_(p.sum(1, keepdim=True))
        return Batch(token[squares], distribution.view(random.n, length, OVER + 1), (options != 0).float())

    def context(self, text: str) -> Tensor:
        inputs = super().context(text)
        for end, token in enumerate(inputs.tolist()):
            if token not in (replayed(inputs[:end].tolist()) or [OVER]):
                raise ValueError(f"{self.words[token]!r} is no legal move after {self.text(inputs[:end]) or 'the start'!r}")
        return inputs

    def reference(self, context: Tensor) -> Sequence[float] | None:
        found = replayed(context.tolist())
        return [(token in found) / len(found) for token in range(OVER + 1)] if found else None


def replayed(tokens: Sequence[int]) -> list[int]:
    """Tokens of the legal moves, by a plain replay."""
    discs = {27: 1, 36: 1, 28: 0, 35: 0}
    mover = 0

    def turned(square: int, player: int) -> list[int]:
        """Discs that a move of a player turns."""
        found = []
        for rank, file in WAYS if square not in discs else ():
            row, place = [], (square // 8 + rank, square % 8 + file)
            while discs.get(here := number(place)) == 1 - player:
                row.append(here)
                place = (place[0] + rank, place[1] + file)
            found += row if discs.get(here) == player else []
        return found

    for token in tokens:
        if token == OVER:
            return []
        square = FIELDS[token]
        mover = mover if turned(square, mover) else 1 - mover
        discs |= dict.fromkeys([square, *turned(square, mover)], mover)
        mover = 1 - mover
    for player in (mover, 1 - mover):
        if found := [token for token, square in enumerate(FIELDS) if turned(square, player)]:
            return found
    return []


def number(place: tuple[int, int]) -> int:
    """Number of a square; -1 beyond the edge."""
    rank, file = place
    return 8 * rank + file if 0 <= rank < 8 and 0 <= file < 8 else -1
