"""Connect Four: name the columns that are not full, and know when somebody has won."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Batch, Facts, Random, Signature, Task, Tokens

COLUMNS, ROWS, FOUR = 7, 6, 4
OVER = COLUMNS
ROOM = ROWS + 1
"""Bits of a column in a board: its rows, from below, and one that stays empty, so that no line goes on in the next column."""
LINES = (1, ROOM, ROOM - 1, ROOM + 1)
"""From a square to its neighbour above, to the right, and on both diagonals."""


@final
class ConnectFour(Task):
    """A context is the columns in which two players drop discs in turn; the answer is uniform over the columns with room.

    Every move is uniform over them. A game is over when four discs of a player are in a line, or the board is full:

    >>> inputs, distribution, _ = ConnectFour().sample(10, Random(1, seed=89))
    >>> ConnectFour().text(inputs[0])
    '1 5 3 5 6 5 3 5 over over'
    >>> [[move for move, p in zip(ConnectFour().answers, q) if p] for q in distribution[0, 6:8].tolist()]
    [['1', '2', '3', '4', '5', '6', '7'], ['over']]

    The end is asked for once, after the last move. From then on moves are the token "over", and nothing is asked. So a prefix
    of a context is distributed as a shorter context is, and a length counts the games that were on before the last move.
    Length counts moves. Source: the rules of the game; all else is our choice, training on 20 of at most 42 moves too.
    """

    name = family = "connect-four"
    version = 1
    signature = Signature(Tokens(COLUMNS + 1), COLUMNS + 1, Answers.EVERY_PREFIX)
    train_lengths = (1, 20)
    max_length = COLUMNS * ROWS
    lengths = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32)  # of 100 random games 53 are on after 20 moves, 8 after 32
    facts = Facts("games")
    words = (*map(str, range(1, COLUMNS + 1)), "over")

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words

    def sample(self, length: int, random: Random) -> Batch:
        """Columns (n, length), with p* (n, length, 8)."""
        heights = torch.zeros(random.n, COLUMNS, dtype=torch.int64, device=random.device)
        own = other = torch.zeros(random.n, dtype=torch.int64, device=random.device)
        lines = torch.tensor(LINES, device=random.device)[:, None]
        is_on = torch.ones(random.n, dtype=torch.bool, device=random.device)
        columns, after = [], []
        for level in random.uniform(length).T:
            room = (heights < ROWS).cumsum(1)
            # Columns with no more room than the level before them, of which there is one less than the column's place.
            column = (room <= (level * room[:, -1]).long()[:, None]).sum(1, keepdim=True).clamp(max=COLUMNS - 1)
            height = heights.gather(1, column)
            disc = torch.bitwise_left_shift(is_on.long(), (ROOM * column + height)[:, 0])
            heights.scatter_(1, column, height + is_on[:, None])
            columns.append(torch.where(is_on, column[:, 0], OVER))
            own, other = other, own | disc
            pairs = other & other >> lines
            won = (pairs & pairs >> 2 * lines).any(0)
            is_on = is_on & ~won & (heights < ROWS).any(1)
            after.append(torch.cat([(heights < ROWS) & is_on[:, None], ~is_on[:, None]], 1))
        inputs, distribution = torch.stack(columns, 1), torch.stack(after, 1).float()
        return Batch(inputs, distribution / distribution.sum(-1, keepdim=True), (inputs != OVER).float())

    def context(self, text: str) -> Tensor:
        inputs = super().context(text)
        for end, token in enumerate(inputs.tolist()):
            p = self.reference(inputs[:end])
            if not (token == OVER if p is None else p[token]):
                raise ValueError(f"{self.words[token]!r} is no legal move after {self.text(inputs[:end]) or 'the start'!r}")
        return inputs

    def reference(self, context: Tensor) -> Sequence[float] | None:
        """A plain replay, in which every line of four squares is looked at."""
        tokens = context.tolist()
        grid: dict[tuple[int, int], int] = {}
        for turn, column in enumerate(tokens):
            if column == OVER:
                return None
            grid[column, sum(place == column for place, _ in grid)] = turn % 2
        won = any(
            len({grid.get((column + step * right, row + step * up), -1 - step) for step in range(FOUR)}) == 1
            for column, row in grid
            for right, up in ((0, 1), (1, 0), (1, -1), (1, 1))
        )
        open_columns = [column for column in range(COLUMNS) if (column, ROWS - 1) not in grid and not won] or [OVER]
        return [(token in open_columns) / len(open_columns) for token in range(OVER + 1)]
