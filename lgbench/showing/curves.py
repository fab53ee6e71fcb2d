"""Curves of runs in a terminal, a line of blocks for each family and entry: the first look at what a run has found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from lgbench.experiment import Experiment

BLOCKS, TRAINED = "▁▂▃▄▅▆▇█", "│"
PLAIN_BLOCKS, PLAIN_TRAINED = "0123456789", "|"

MOST_LINES = 20
MOST_FILES = 500
"""No further line is drawn once so many are read, which takes less than a second."""

COLUMNS = ["metric", "weights", "length", "value", "in_training_range"]


class Group(NamedTuple):
    """What one line is about."""

    family: str
    protocol: str
    entry: str


class Curve(NamedTuple):
    """Shares of the right answer by length, means over all runs of a group."""

    shares: Mapping[int, float]
    trained: int | None
    """The longest of these lengths that is in the training range, None if none is."""


def lines(runs: Iterable[tuple[Experiment, Path]], encoding: str) -> list[str]:
    """What to print of runs that are done, in characters that `encoding` has; nothing where there is nothing to draw.

    A file that cannot be read is passed over: whoever ranks the results says so.
    """
    files: dict[Group, list[Path]] = {}
    for experiment, path in runs:
        files.setdefault(Group(experiment.family, experiment.protocol, experiment.entry), []).append(path)
    plain = not _has(encoding, BLOCKS + TRAINED)
    blocks, bar = (PLAIN_BLOCKS, PLAIN_TRAINED) if plain else (BLOCKS, TRAINED)
    drawn = {group: found for group in _first(files) if (found := curve(files[group]))}
    if not drawn:
        return []
    width = max(len(group.entry) for group in drawn)
    said = ["1 - TVD, the share of the right answer that survives, by length (mean over seeds, raw weights;"]
    said.append(f"{'in tenths' if plain else f'{blocks[0]} is 0, {blocks[-1]} is 1'}; training ends at {bar})")
    before = None
    for group, found in drawn.items():
        if before != group[:2]:
            said.append(f"{group.family}, protocol {group.protocol}, lengths {min(found.shares)} to {max(found.shares)}")
            before = group[:2]
        said.append(f"  {group.entry:<{width}}  {bars(found, blocks, bar)}  {_ends(found)}")
    if more := len(files) - len(drawn):
        said.append(f"  and {more} more")
    return said


def curve(paths: Iterable[Path]) -> Curve | None:
    """The mean over runs, at powers of two, the training length and the longest, as on boards; None without a number."""
    values: dict[int, list[float]] = {}
    trained = []
    for path in paths:
        with suppress(pa.ArrowException, OSError):
            rows = pq.read_table(path, columns=COLUMNS, partitioning=None)
            rows = rows.filter((pc.field("metric") == "tvd") & (pc.field("weights") == "raw"))
            own = zip(*(rows[name].to_pylist() for name in COLUMNS[2:]), strict=True)
            known = [(length, value, inside) for length, value, inside in own if length and value is not None]
            for length, value, _ in known:
                values.setdefault(length, []).append(1 - value)
            trained += [length for length, _, inside in known if inside]
    # A mean over other runs than its neighbour's would be a bend in the curve where no run has one.
    most = max(map(len, values.values()), default=0)
    lengths = sorted(length for length, own in values.items() if len(own) == most)
    last = max((length for length in trained if length in lengths), default=None)
    shown = [length for length in lengths if length & (length - 1) == 0 or length in (last, lengths[-1])]
    return Curve({length: fmean(values[length]) for length in shown}, last) if shown else None


def bars(curve: Curve, blocks: Sequence[str], trained: str) -> str:
    """A block for each length, on a scale from 0 to 1, and `trained` after the training length.

    >>> bars(Curve({8: 1.0, 16: 0.7, 32: 0.0}, 16), BLOCKS, TRAINED)
    '█▆│▁'
    """
    drawn = ""
    for length, share in curve.shares.items():
        drawn += blocks[min(max(int(share * len(blocks)), 0), len(blocks) - 1)]
        drawn += trained if length == curve.trained else ""
    return drawn


def _ends(curve: Curve) -> str:
    """The numbers at the training length and at the longest."""
    lengths = dict.fromkeys(length for length in (curve.trained, max(curve.shares)) if length is not None)
    return ", ".join(f"{curve.shares[length]:.4f} at {length}" for length in lengths)


def _first(files: Mapping[Group, Sequence[Path]]) -> list[Group]:
    """As many groups as are drawn, families and protocols together; the first however many files it has."""
    order = list(dict.fromkeys(group[:2] for group in files))
    groups: list[Group] = []
    read = 0
    for group in sorted(files, key=lambda group: order.index(group[:2])):
        read += len(files[group])
        if groups and (len(groups) == MOST_LINES or read > MOST_FILES):
            break
        groups.append(group)
    return groups


def _has(encoding: str, characters: str) -> bool:
    try:
        characters.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
