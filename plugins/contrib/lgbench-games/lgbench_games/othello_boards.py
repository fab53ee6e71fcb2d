"""Othello boards as sets of squares, one bit each: the moves of many games at once.

Bit 8 r + f of an int64 is the square in rank r + 1 and file f, a to h. Runs of discs are followed in three doublings.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

SQUARES = 64
CENTRE = (27, 28, 35, 36)
"""d4, e4, d5 and e5, on which the game starts."""
BLACK, WHITE = 1 << 28 | 1 << 35, 1 << 27 | 1 << 36
"""Discs at the start. Black moves first."""

FILE_A, RANK_8, ALL = 0x0101010101010101, 0xFF << 56, 2**64 - 1
NOT_A, NOT_H = ALL ^ FILE_A, ALL ^ FILE_A << 7
SHIFTS = (1, 7, 8, 9)
REACHED = {
    # Squares on which a step may end: none that is round the edge. To the right also none into which the sign moves.
    True: (NOT_A, NOT_H, ALL, NOT_A),
    False: (NOT_H, NOT_A & ~RANK_8, ALL & ~RANK_8, NOT_H & ~RANK_8),
}


@cache
def steps(left: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Shifts of four directions and the squares on which they may end, (4, 1) each."""
    masks = [mask - 2**64 if mask >= 2**63 else mask for mask in REACHED[left]]
    return torch.tensor(SHIFTS, device=device)[:, None], torch.tensor(masks, device=device)[:, None]


def runs(start: Tensor, discs: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    """Discs in an unbroken row from a start, by direction, and the squares one further: (n,), (n,) -> (4, n), (4, n)."""
    shift, reached = steps(left, start.device)
    move = torch.bitwise_left_shift if left else torch.bitwise_right_shift
    through = discs & reached
    run = move(start, shift) & through
    run |= move(run, shift) & through
    through &= move(through, shift)
    for _ in range(2):  # two more, then two more: six discs are the longest run between two others
        run |= move(run, 2 * shift) & through
    return run, move(run, shift) & reached


def union(sets: Tensor) -> Tensor:
    """(4, n) -> (n,)."""
    first, second, third, fourth = sets.unbind()
    return first | second | third | fourth


def legal(own: Tensor, other: Tensor) -> Tensor:
    """Squares on which a move turns at least one disc: (n,), (n,) -> (n,)."""
    ends = [union(runs(own, other, left)[1]) for left in (True, False)]
    return (ends[0] | ends[1]) & ~(own | other)


def turned(own: Tensor, other: Tensor, move: Tensor) -> Tensor:
    """Discs of the other player between a move and own discs; none for no move: (n,) each -> (n,)."""
    found = []
    for left in (True, False):
        run, ends = runs(move, other, left)
        found.append(union(run.masked_fill_((ends & own) == 0, 0)))
    return found[0] | found[1]


@cache
def members(device: torch.device) -> Tensor:
    """Which of eight squares are in a set, (256, 8) float32."""
    return (torch.arange(256, device=device)[:, None] >> torch.arange(8, device=device) & 1).float()


@cache
def ranked(device: torch.device) -> tuple[Tensor, Tensor]:
    """Number of squares in a set of eight, (256,), and the square of each rank in it, (256 * 8,)."""
    is_in = members(device).long()
    return is_in.sum(1), (1 - is_in).argsort(dim=1, stable=True).flatten()


def choose(sets: Tensor, level: Tensor) -> Tensor:
    """Square at a level from 0 to below 1 of each set, all squares alike; any square for an empty set: (n,), (n,) -> (n,)."""
    counts, places = ranked(sets.device)
    octets = sets >> torch.arange(0, SQUARES, 8, device=sets.device)[:, None] & 255  # (8, n)
    held = counts.index_select(0, octets.flatten()).view_as(octets)
    sums = held.cumsum(0)
    rank = (level * sums[-1]).long()
    octet = (sums <= rank).sum(0, keepdim=True).clamp_(max=7)
    within = (rank - sums.gather(0, octet) + held.gather(0, octet)).clamp_(0, 7)
    return (8 * octet + places.index_select(0, (octets.gather(0, octet) * 8 + within)[0]))[0]


def are_in(sets: Tensor) -> Tensor:
    """Which squares are in each set: (n,) -> (n, 64) float32."""
    octets = sets.contiguous().view(torch.uint8).int()  # the lowest first, as every machine has them
    return members(sets.device).index_select(0, octets).view(len(sets), SQUARES)


def play(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Random games: squares of the moves and sets of the legal squares after each, from levels in [0, 1), (n, length) each.

    A player without a move passes, which is no move. No square is legal once nobody has one, and then -1 is the move.
    """
    own = torch.full((len(levels),), BLACK, device=levels.device)
    other = torch.full_like(own, WHITE)
    options = legal(own, other)
    squares, after = [], []
    for level in levels.T:
        is_on = options != 0
        square = choose(options, level)
        move = torch.where(is_on, torch.bitwise_left_shift(torch.ones_like(own), square), 0)
        discs = turned(own, other, move)
        own, other = other & ~discs, own | discs | move
        options = legal(own, other)
        stuck = (options == 0).nonzero()[:, 0]
        if len(stuck):
            passed = legal(other[stuck], own[stuck])
            options[stuck] = passed
            swaps = stuck[passed != 0]
            own[swaps], other[swaps] = other[swaps], own[swaps]
        squares.append(torch.where(is_on, square, -1))
        after.append(options)
    return torch.stack(squares, 1), torch.stack(after, 1)
