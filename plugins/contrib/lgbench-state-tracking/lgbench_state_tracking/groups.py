"""Finite groups: cyclic, symmetric and alternating groups and their products, with elements as numbers from 0."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from math import factorial, prod

import torch
from torch import Tensor

Element = tuple[tuple[int, ...], ...]
"""For each factor a permutation: the places where 0 to n - 1 go."""


def order(name: str) -> int:
    """Number of elements of a group, named as z60, s5, a5 or, for a product, a4xz5."""
    return prod(_order(factor[0], int(factor[1:])) for factor in name.split("x"))


def _order(kind: str, n: int) -> int:
    return {"z": n, "s": factorial(n), "a": max(1, factorial(n) // 2)}[kind]


def title(name: str) -> str:
    """Name in the literature.

    >>> title("a4xz5")
    'A_4 x Z_5'
    """
    return " x ".join(f"{factor[0].upper()}_{factor[1:]}" for factor in name.split("x"))


@cache
def elements(name: str) -> tuple[Element, ...]:
    """Elements in the order of their numbers, which is lexicographic. The identity has the number 0.

    >>> elements("a3")
    (((0, 1, 2),), ((1, 2, 0),), ((2, 0, 1),))
    """
    return tuple(product(*(_permutations(factor[0], int(factor[1:])) for factor in name.split("x"))))


def _permutations(kind: str, n: int) -> list[tuple[int, ...]]:
    if kind == "z":
        return [tuple((place + shift) % n for place in range(n)) for shift in range(n)]
    return [order for order in permutations(range(n)) if kind == "s" or _is_even(order)]


def _is_even(order: tuple[int, ...]) -> bool:
    return sum(a > b for place, b in enumerate(order) for a in order[:place]) % 2 == 0


@cache
def table(name: str, device: torch.device) -> Tensor:
    """Numbers of the products, (order^2,) int64: element a and then b at a * order + b."""
    products, size = torch.zeros(1, 1, dtype=torch.int64), 1
    for factor in name.split("x"):
        own = _table(factor)
        products = products[:, None, :, None] * len(own) + own[None, :, None, :]
        size *= len(own)
        products = products.reshape(size, size)
    return products.flatten().to(device)


def _table(factor: str) -> Tensor:
    """Products in one factor, (order, order): both permutations as numbers to the base n, which are in order."""
    places = torch.tensor([element[0] for element in elements(factor)])
    if factor[0] == "z":
        return (places[:, None, 0] + places[None, :, 0]) % len(places)
    base = places.shape[1] ** torch.arange(places.shape[1]).flip(0)
    both = places[:, places].movedim(0, 1)  # [a, b]
    return torch.searchsorted((places * base).sum(-1), (both * base).sum(-1))
