"""Randomness is an argument: every key of :class:`lgbench.randomness.Random` is derived from a seed and a named purpose.

No global generator is read or set, except the CPU's inside :func:`initial`, which puts it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed that depends on `seed` and every word of `purpose`, the same on every machine.

    >>> derive(0, "train") == derive(0, "train"), derive(0, "train") == derive(0, "evaluate")
    (True, False)
    """
    return int.from_bytes(_digest(seed, *purpose)[:8], "big") >> 1


def key(seed: int, *purpose: str | int) -> tuple[int, int]:
    """A key of :mod:`lgbench.randomness` that depends on `seed` and every word of `purpose`, the same on every machine."""
    digest = _digest(seed, *purpose)
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def _digest(*words: str | int) -> bytes:
    return hashlib.sha256("\x1f".join(map(str, words)).encode()).digest()


@contextmanager
def initial(seed: int, *purpose: str | int) -> Iterator[None]:
    """Inside, `nn.Module`s built on the CPU take their initial weights from (seed, purpose).

    Ordinary modules draw from torch's global generator and offer no other way, so it is seeded here, and restored. The
    generators of other devices stay as they are.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
