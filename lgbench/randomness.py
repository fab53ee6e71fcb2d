"""Random numbers as a function of seed, purpose, step and position: equal on every device and in every population.

The generator is Philox4x64-10. A block of 256 bits is a function of a counter of four 64-bit words and a key of two, so any
block can be computed alone. NumPy computes it in C on a CPU; :func:`blocks` is the same function in tensor operations, for
all other devices. Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), and
their library Random123.

Global generators stay untouched, except the CPU's inside :func:`seeded`, restored afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
"""Bits in a block."""
ROUNDS = 10
MULTIPLIERS = (0xCA5A826395121157, 0xD2E7470EE14C6C93)
"""Multipliers of the third and of the first word of the counter."""
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
"""Increments of the words of the key before each round except the first."""
LOW = 0xFFFFFFFF

Key = tuple[int, int]
"""Two integers from 0 to below 2^64."""


def key_of(seed: int, *purpose: str | int) -> tuple[int, int]:
    """Key for :class:`Random`, a hash of `seed` and all words of `purpose`, equal on every machine.

    >>> key_of(0, "train") == key_of(0, "train"), key_of(0, "train") == key_of(0, "evaluate")
    (True, False)
    """
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *purpose))).encode()).digest()  # a separator that no word has
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


@contextmanager
def seeded(seed: int, *purpose: str | int) -> Iterator[None]:
    """Context in which `nn.Module`s built on the CPU take their initial weights from (seed, purpose).

    Modules of torch draw only from the global generator, so the generator is seeded here and restored afterwards. Generators
    of other devices stay unchanged.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key_of(seed, *purpose)[0] >> 1)
        yield


class Stretch(NamedTuple):
    """Consecutive blocks of one call and branch: `length` blocks from number `first`."""

    first: int
    length: int
    call: int
    branch: int


def stretches(groups: Sequence[tuple[int, Key]], stretch: Stretch, table: Tensor | None) -> Tensor:
    """Random bits of one stretch of blocks for each group, a (step, key): (groups, 4 length) int64 with 64 random bits each.

    The counter of a block is (1 + its number, call, step, branch). `table`: result of :func:`table_of`, (groups, 3)
    int64 on the device; None for the CPU.
    """
    if table is None:
        return _by_numpy(groups, stretch)
    step, *key = table[..., None].unbind(1)
    numbers = torch.arange(stretch.first + 1, stretch.first + 1 + stretch.length, device=table.device).expand(len(groups), -1)
    counter = [numbers, *(torch.full_like(numbers, word) for word in (stretch.call, stretch.branch))]
    return blocks((counter[0], counter[1], step.expand_as(numbers), counter[2]), (key[0], key[1])).flatten(1)


def table_of(groups: Sequence[tuple[int, Key]], device: torch.device) -> Tensor:
    """Steps and keys on a device, (groups, 3) int64. The copy does not wait for the device."""
    rows = [(step, signed(key[0]), signed(key[1])) for step, key in groups]
    return torch.tensor(rows).to(device, non_blocking=True)


def blocks(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Blocks of counters, in tensor operations: (...) int64 words -> (..., 4). Words of the key broadcast.

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
    """High and low 64 bits of the 128-bit products of unsigned numbers."""
    # Masked, because >> keeps the sign of an int64.
    a_low, a_high, b_low, b_high = a & LOW, a >> 32 & LOW, b & LOW, b >> 32 & LOW
    middle = a_low * b_high + (a_low * b_low >> 32 & LOW)
    other = a_high * b_low + (middle & LOW)
    return a_high * b_high + (middle >> 32 & LOW) + (other >> 32 & LOW), a * b


def signed(word: int) -> int:
    """Int64 with the bits of an unsigned number."""
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


AT_ONCE = 2**17
"""Table lookups and summed probabilities at once on a CPU: few enough for its cache."""
MAX_HIGH = 2**31
"""Largest bound of :meth:`Random.integers`."""


class Random:
    """Random numbers for n contexts. Every method draws new numbers for each context: a tensor with a leading n.

    The numbers of a context depend neither on the other contexts of a draw nor on the device, provided that methods are called
    in the same order whatever their results. A loop that draws until a condition holds needs :meth:`branch`. `random[8:]` has
    numbers for all contexts except the first eight.

    >>> Random(3, seed=0).integers(10, 5)
    tensor([[6, 3, 4, 0, 2],
            [1, 1, 7, 8, 6],
            [1, 9, 9, 0, 3]])
    """

    def __init__(self, n: int, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self._set([(0, key_of(seed))], n, 0, torch.device(device))

    @classmethod
    def stacked(
        cls, keys: Sequence[Key], contexts: int, steps: Sequence[int] = (0,), first: int = 0, device: torch.device | str = "cpu"
    ) -> Random:
        """Random numbers for all contexts of each key at each step, in the order step, key, context.

        n = steps * keys * contexts. The contexts of a key and a step have the numbers from `first` on.
        """
        made = cls.__new__(cls)
        made._set([(step, key) for step in steps for key in keys], contexts, first, torch.device(device))
        return made

    def _set(self, groups: Sequence[tuple[int, Key]], contexts: int, first: int, device: torch.device) -> None:
        self.n = len(groups) * contexts
        self.device = device
        self._groups, self._contexts, self._first = groups, contexts, first
        self._table = None if device.type == "cpu" else table_of(groups, device)
        self._branch, self._branches, self._calls = 0, count(1), count()
        self._rows = slice(None)

    def __getitem__(self, contexts: slice) -> Random:
        """Random numbers for a range of the contexts. A method call of either object counts as a call of both."""
        rows = range(len(self._groups) * self._contexts)[self._rows][contexts]
        if rows.step != 1:
            raise ValueError("contexts are chosen by their first and their last: random[3:8]")
        return self._changed(n=len(rows), _rows=slice(rows.start, rows.stop))

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Uniform in [0, 1), (n, *shape): multiples of 2^-24 as float32, or of 2^-53 as float64."""
        bits, spare, digits = (32, 8, 24) if dtype is torch.float32 else (64, 11, 53)
        # The shift keeps the sign, so that half of the numbers lie below 0.
        return self._bits(bits, shape).bitwise_right_shift_(spare).to(dtype).mul_(2.0**-digits).add_(0.5)

    def integers(self, high: int | Tensor, *shape: int) -> Tensor:
        """Integers from 0 to below `high`, at most 2^31, a number or a broadcastable tensor: (n, *shape) int64.

        The probability of each is within 2^-32 of 1 / high.
        """
        if isinstance(high, int) and not 1 <= high <= MAX_HIGH:
            raise ValueError(f"there are no integers from 0 to below {high} here: `high` is from 1 to 2^31")
        # The bits are signed, from -2^31 on.
        return self._bits(32, shape).long().add_(2**31).mul_(high).bitwise_right_shift_(32)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, (n, *shape) float32: multiples of 1/256 from -4.33 to 4.33.

        Each number is one of 65,536 equally likely quantiles, rounded. The quantiles come from a table, since logarithms and
        cosines differ between devices. A sum of squares below 256 is exact in float32, in any order of addition.
        """
        bits, table = self._bits(16, shape).view(torch.uint16).flatten(), quantiles(self.device)
        found = torch.empty(bits.shape, dtype=torch.float32, device=self.device)
        at_once = AT_ONCE if self.device.type == "cpu" else max(1, len(bits))
        for index, numbers in zip(torch.split(bits, at_once), torch.split(found, at_once), strict=True):
            torch.index_select(table, 0, index.int(), out=numbers)  # torch takes no indices of 16 bits
        return found.view(self.n, *shape)

    def permutations(self, size: int, first: int | None = None) -> Tensor:
        """First elements, by default all, of random permutations of 0 to size - 1: (n, first) int64."""
        wanted = size if first is None else first
        left = torch.arange(size, size - wanted, -1, device=self.device)
        places = (self.integers(left, wanted) + (size - left)).T.contiguous()
        # Fisher and Yates: each column is an order, and place i swaps with one that is not before it.
        order = torch.arange(size, device=self.device)[:, None].repeat(1, self.n)
        chosen = torch.empty_like(places)
        for place in range(wanted):
            other = places[place : place + 1]
            torch.gather(order, 0, other, out=chosen[place : place + 1])
            # A copy, because scatter_ would write into what it reads.
            order.scatter_(0, other, order[place : place + 1].clone())
        return chosen.T

    def categorical(self, distribution: Tensor) -> Tensor:
        """Index drawn from each distribution: (n, *shape, V) -> (n, *shape) int64. An index of probability 0 is never drawn.

        Sums are in float64, so the order of addition on a device does not matter.
        """
        shape = distribution.shape[1:-1]
        # With the half, neither 0 nor 1 is drawn.
        level = self._bits(32, shape).double().add_(2**31 + 0.5).mul_(2.0**-32).view(-1, 1)
        index = torch.empty_like(level, dtype=torch.int64)
        flat = distribution.reshape(-1, distribution.shape[-1])
        certain = flat.device.type == "cpu"  # to ask a GPU would wait for it
        rows = max(1, AT_ONCE // flat.shape[-1]) if certain else max(1, len(flat))
        places = torch.arange(flat.shape[-1], dtype=torch.float32, device=flat.device)
        for p, u, drawn in zip(*(torch.split(t, rows) for t in (flat, level, index)), strict=True):
            # Where each distribution has one answer, as in most tasks, a product finds it faster.
            certain = certain and bool((p.amax(-1) == 1).all()) and int(p.count_nonzero()) == len(p)
            if certain:
                drawn.copy_((p.float() @ places)[:, None])
                continue
            cumulative = p.cumsum(-1, dtype=torch.float64)
            torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True, out=drawn)
        return index.view(self.n, *shape)

    def branch(self) -> Random:
        """Further random numbers for the same contexts, in any amount: later draws from this object stay the same."""
        return self._changed(_branch=next(self._branches), _calls=count())

    def _changed(self, **attributes: object) -> Random:
        made = type(self).__new__(type(self))
        vars(made).update(vars(self), **attributes)
        return made

    def _bits(self, bits: int, shape: Sequence[int]) -> Tensor:
        """Random numbers of 16, 32 or 64 bits, (n, *shape) int16, int32 or int64. Each call has bits of its own."""
        each = prod(shape)
        start, end = self._first * each * bits, (self._first + self._contexts) * each * bits
        first = start // BLOCK
        stretch = Stretch(first, max(1, -(-end // BLOCK) - first), next(self._calls), self._branch)
        words = stretches(self._groups, stretch, self._table)
        numbers = words.view({16: torch.int16, 32: torch.int32, 64: torch.int64}[bits])
        numbers = numbers[:, start // bits - first * (BLOCK // bits) :][:, : self._contexts * each]
        return numbers.reshape(len(self._groups) * self._contexts, *shape)[self._rows]


def device_of_data(device: torch.device) -> torch.device:
    """Device of the data for models on `device`: the same device, or the CPU for MPS, which lacks float64."""
    return torch.device("cpu") if device.type == "mps" else device


@cache
def quantiles(device: torch.device) -> Tensor:
    """Quantiles (i + 1/2) / 65,536 of the normal distribution, rounded to multiples of 1/256: (65536,) float32."""
    levels = (torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16
    exact: Tensor = torch.special.ndtri(levels)
    return (exact * 2**8).round().div(2**8).float().to(device)
