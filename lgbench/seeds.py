"""Seeds and keys of random numbers, derived from a seed and a named purpose.

Global generators stay untouched, except the CPU's inside :func:`initial`, restored afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed as a hash of `seed` and all words of `purpose`, equal on every machine.

    >>> derive(0, "train") == derive(0, "train"), derive(0, "train") == derive(0, "evaluate")
    (True, False)
    """
    return int.from_bytes(_digest(seed, *purpose)[:8], "big") >> 1


def key(seed: int, *purpose: str | int) -> tuple[int, int]:
    """Key for :class:`lgbench.randomness.Random`, a hash of `seed` and all words of `purpose`, equal on every machine."""
    digest = _digest(seed, *purpose)
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def _digest(*words: str | int) -> bytes:
    return hashlib.sha256("\x1f".join(map(str, words)).encode()).digest()


@contextmanager
def initial(seed: int, *purpose: str | int) -> Iterator[None]:
    """Context in which `nn.Module`s built on the CPU take their initial weights from (seed, purpose).

    Modules of torch draw only from the global generator, so the generator is seeded here and restored afterwards. Generators
    of other devices stay unchanged.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
