"""Columns of run files and submission files, numbers in their rows, the key of their metadata, and the checksum of a file.

The checksum is the SHA-256 of all bytes of the file, with zeros in place of the digits of the checksum itself. Any changed bit
of rows or metadata is found at the price of reading the bytes, before Parquet sees them.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import pyarrow as pa

METADATA_KEY = b"lgbench"
"""Key, in the metadata of a Parquet file, of the JSON about a run or a submission."""

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("entry", pa.string()),  # architecture and parts, joined by plus signs
        ("task", pa.string()),
        ("family", pa.string()),
        ("task_version", pa.int32()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int32()),
        ("changes", pa.map_(pa.string(), pa.string())),  # settings that --set changed, and their values
        ("plugins", pa.map_(pa.string(), pa.string())),  # packages that decide the number, with their versions and sources
        ("seed", pa.int64()),
        ("weights", pa.string()),  # raw, the name of an averager, or "chance" for the context-free baseline
        ("metric", pa.string()),  # the name of a measurement; train_loss, gradient_norm
        ("metric_version", pa.int32()),  # null for the training curve
        ("step", pa.int32()),  # optimizer steps done
        ("length", pa.int32()),  # null for the training curve
        ("layer", pa.int32()),  # of a probe, counted from 1; null for a number of the whole model
        ("head", pa.int32()),  # of a probe, counted from 1; null for a number of the whole layer
        ("value", pa.float64()),  # null where the metric is not defined
        ("n", pa.int32()),  # answers, strings or steps that the value summarizes
        ("in_distribution", pa.bool_()),  # whether models are trained on this length; null for the training curve
        ("on_boards", pa.bool_()),  # whether boards show this length; null for the training curve
        ("diverged_step", pa.int32()),  # the step at which the training diverged, null if it did not
    ]
)


class Place(NamedTuple):
    """Place of a number among the rows of a run."""

    weights: str
    metric: str
    metric_version: int | None
    step: int
    length: int | None
    """None for the training curve."""
    layer: int | None
    """Layer of a probe; None for a number of the whole model."""
    head: int | None

    def __str__(self) -> str:
        if self.length is None:
            return f"{self.metric} at step {self.step}"
        return f"{self.metric} ({self.weights}){self.inside} at length {self.length} after step {self.step}"

    @property
    def inside(self) -> str:
        """Layer and head for a sentence, after a space; empty for a number of the whole model."""
        layer = "" if self.layer is None else f" in layer {self.layer}"
        return layer if self.head is None else f"{layer}, head {self.head}"


class Number(NamedTuple):
    """A value, None if undefined, over `n` contexts, strings or steps."""

    value: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.value!r} (n {self.n})"


def numbers_in(rows: pa.Table) -> dict[Place, Number]:
    """The numbers in the rows of a run."""
    places, numbers = ([rows[name].to_pylist() for name in kind._fields] for kind in (Place, Number))
    return dict(zip(map(Place, *places), map(Number, *numbers), strict=True))


CHECKSUM = "checksum"
ZEROS = "0" * 64
_SEAL = re.compile(rb'"checksum": "([0-9a-f]{64})"')
_SEAL_BEGINS = b'"checksum": "'


def sealed(content: bytes) -> bytes:
    """Bytes of a file with the checksum in place of the zeros."""
    place = _stated(content)
    assert place
    start, end = place.span(1)
    return content[:start] + hashlib.sha256(content).hexdigest().encode() + content[end:]


def is_sealed(content: bytes) -> bool | None:
    """Whether the checksum of a file is correct; None without a checksum."""
    stated = _stated(content)
    if stated is None:
        return None
    start, end = stated.span(1)
    digest = hashlib.sha256(memoryview(content)[:start])
    digest.update(ZEROS.encode())
    digest.update(memoryview(content)[end:])
    return digest.hexdigest().encode() == stated[1]


def _stated(content: bytes) -> re.Match[bytes] | None:
    """Last checksum in a file. The metadata of Parquet are at the end, and rows may contain anything."""
    place = len(content)
    while (place := content.rfind(_SEAL_BEGINS, 0, place)) >= 0:
        if stated := _SEAL.match(content, place):
            return stated
    return None
