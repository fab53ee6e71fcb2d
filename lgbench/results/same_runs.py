"""Whether two files of one run say the same: the rule for runs that were made twice, or copied.

The footers of two machines differ in seconds and versions, and one of them may have measured more. Two files agree if every
number that both have is the same.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_KEY = ("weights", "metric", "metric_version", "step", "length", "layer", "head")
"""The columns that tell which number a row is."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of two files of one run."""

    different: str | None
    """The first number that differs, in words; None where all that both have are equal to the bit."""
    first_lacks: int
    """How many numbers only the second has."""


def compared(first: pa.Table, second: pa.Table) -> Comparison:
    """Compare the rows of two files of one run."""
    one, two = _numbers(first), _numbers(second)
    shared = one.keys() & two.keys()
    different = next((key for key in one if key in shared and _bits(one[key]) != _bits(two[key])), None)
    said = None if different is None else f"{_named(different)} is {_shown(one[different])} and {_shown(two[different])}"
    return Comparison(said, len(two) - len(shared))


_Number = tuple[float | None, int | None, int | None]


def _numbers(rows: pa.Table) -> dict[tuple[Any, ...], _Number]:
    """Value, count and step of divergence of each row."""
    keys = zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True)
    values = zip(*(rows.column(name).to_pylist() for name in ("value", "n", "diverged_step")), strict=True)
    return dict(zip(keys, values, strict=True))


def _bits(number: _Number) -> tuple[bytes | None, int | None, int | None]:
    """Two values that are not numbers are equal if their bits are."""
    value, *others = number
    return None if value is None else struct.pack("<d", value), others[0], others[1]


def _named(key: tuple[Any, ...]) -> str:
    weights, metric, _, step, length, layer, head = key
    at = [f"{name} {value}" for name, value in (("length", length), ("layer", layer), ("head", head)) if value is not None]
    return f"{metric} ({weights}) {' '.join([f'after step {step}', *(f'at {each}' for each in at)])}"


def _shown(number: _Number) -> str:
    value, n, diverged = number
    return f"{value!r} (n {n}{'' if diverged is None else f', diverged at step {diverged}'})"
