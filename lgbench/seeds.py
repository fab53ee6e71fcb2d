"""Randomness is an argument: every generator is derived from a seed and a named purpose.

No global generator is read or set, except inside :func:`initial`, which puts it back.
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
    words = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator on `device` for one purpose of one seed."""
    return torch.Generator(device).manual_seed(derive(seed, *purpose))


@contextmanager
def initial(seed: int, *purpose: str | int) -> Iterator[None]:
    """Inside, `nn.Module`s built on the CPU take their initial weights from (seed, purpose).

    Ordinary modules draw from torch's global generator and offer no other way, so it is seeded here, and restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, *purpose))
        yield
