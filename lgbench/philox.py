"""Philox4x64-10: random bits as a function of a counter and a key, the same on every device.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), and their library Random123.
A block of 256 bits depends on a counter of four 64-bit words and a key of two. Any block can be computed without those before
it. On a CPU NumPy computes it in C; :func:`blocks` is the same function in tensor operations, for every other device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
"""Bits in a block."""
ROUNDS = 10
MULTIPLIERS = (0xCA5A826395121157, 0xD2E7470EE14C6C93)
"""Of the third and of the first word of the counter."""
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
"""The numbers that are added to the words of the key before each round but the first."""
LOW = 0xFFFFFFFF

Key = tuple[int, int]
"""Two whole numbers below 2^64."""


class Stretch(NamedTuple):
    """A stretch of blocks: so many (`length`) from number `first` on, of one call and branch."""

    first: int
    length: int
    call: int
    branch: int


def stretches(groups: Sequence[tuple[int, Key]], stretch: Stretch, device: torch.device, table: Tensor | None = None) -> Tensor:
    """The same stretch of blocks for each group, a (step, key): (groups, 4 length) int64, which hold 64 random bits each.

    The counter of a block is (1 + its number, call, step, branch). `table`: (groups, 3) int64 on the device, as
    :func:`table_of` makes it, for a device other than the CPU.
    """
    if device.type == "cpu":
        return _by_numpy(groups, stretch)
    step, *key = (table_of(groups, device) if table is None else table)[..., None].unbind(1)
    numbers = torch.arange(stretch.first + 1, stretch.first + 1 + stretch.length, device=device).expand(len(groups), -1)
    counter = [numbers, *(torch.full_like(numbers, word) for word in (stretch.call, stretch.branch))]
    return blocks((counter[0], counter[1], step.expand_as(numbers), counter[2]), (key[0], key[1])).flatten(1)


def table_of(groups: Sequence[tuple[int, Key]], device: torch.device) -> Tensor:
    """Steps and keys on a device, (groups, 3) int64. The copy does not wait for the device."""
    rows = [(step, signed(key[0]), signed(key[1])) for step, key in groups]
    return torch.tensor(rows).to(device, non_blocking=True)


def blocks(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """The blocks of counters, in tensor operations: (...) int64 words -> (..., 4). Words of the key broadcast.

    An int64 stands for the unsigned number with the same bits.
    """
    multipliers = torch.stack([torch.full_like(counter[0], signed(number)) for number in MULTIPLIERS])
    even, odd, keys = torch.stack(counter[::2]), torch.stack(counter[1::2]), torch.stack(key)
    weyl = torch.stack([torch.full_like(key[0], signed(number)) for number in WEYL])
    for turn in range(ROUNDS):
        high, low = _product(even.flip(0), multipliers)
        even, odd = high ^ odd ^ (keys + weyl * turn), low
    return torch.stack([even[0], odd[0], even[1], odd[1]], -1)


def _product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The high and the low 64 bits of the 128-bit products of unsigned numbers."""
    a_low, a_high, b_low, b_high = a & LOW, a >> 32 & LOW, b & LOW, b >> 32 & LOW
    middle = a_low * b_high + (a_low * b_low >> 32 & LOW)
    other = a_high * b_low + (middle & LOW)
    return a_high * b_high + (middle >> 32 & LOW) + (other >> 32 & LOW), a * b


def signed(word: int) -> int:
    """The int64 with the bits of an unsigned number."""
    return word - 2**64 if word >= 2**63 else word


def _by_numpy(groups: Sequence[tuple[int, Key]], stretch: Stretch) -> Tensor:
    found = np.empty((len(groups), 4 * stretch.length), dtype=np.uint64)
    generator = np.random.Philox(key=0)
    counter, key = np.empty(4, np.uint64), np.empty(2, np.uint64)
    state = generator.state
    state["state"] = {"counter": counter, "key": key}
    for row, (step, words) in zip(found, groups, strict=True):
        # NumPy counts up before it computes a block.
        counter[:], key[:] = (stretch.first, stretch.call, step, stretch.branch), words
        generator.state = state
        row[:] = generator.random_raw(len(row))
    return torch.from_numpy(found.view(np.int64))
