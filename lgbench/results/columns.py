"""From single values to the columns of a board: means over tasks and over lengths, for every entry and seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lgbench.results.statistics import Floats, Spread  # which needs SciPy, and a run does not

Column = tuple[str, int | None]
"""A kind and a length. The kinds: "length", a single length; "ID" and "OOD", the means over the lengths of a board that models
are trained on (in-distribution), and over those that they are not (out-of-distribution). The length of a mean is None."""

ID: Column = ("ID", None)
OOD: Column = ("OOD", None)

DIGITS = 4
"""Decimal places of the numbers of a board."""


class Value(NamedTuple):
    """The value of one metric for one model on one task at one length that boards show."""

    entry: str
    seed: int
    task: str
    length: int
    in_distribution: bool
    """Whether models are trained on this length."""
    value: float | None
    """None where the metric is not defined."""
    diverged: bool = False
    """Whether the training diverged."""
    looks_ahead: bool = False
    """Whether answers of the model change with what comes after them."""
    not_finite: bool = False
    """Whether some answers are not finite although the training did not diverge."""


@dataclass(frozen=True)
class Values:
    """Many of :class:`Value`, in columns: a large board has millions, and an object for each would fill the memory."""

    axes: tuple[tuple[Any, ...], ...]
    """Entries, seeds, tasks and lengths, each once and sorted."""
    index: tuple[NDArray[np.intp], ...]
    """The place of each value on each axis."""
    in_distribution: NDArray[np.bool_]
    value: Floats
    """NaN where the metric is not defined, or not finite."""
    flags: tuple[NDArray[np.bool_], ...]
    """Diverged, looks ahead, not finite."""

    @classmethod
    def of(cls, found: Iterable[Value]) -> Values:
        columns = list(zip(*found, strict=True)) or [()] * len(Value._fields)
        return cls.of_table(pa.table([pa.array(own, kind) for own, kind in zip(columns, _TYPES, strict=True)], Value._fields))

    @classmethod
    def of_table(cls, table: pa.Table) -> Values:
        """From a table with the fields of :class:`Value` as columns."""
        coded = [_coded(table[name]) for name in Value._fields[:4]]
        value = table["value"].cast(pa.float64()).to_numpy().copy()
        value[~np.isfinite(value)] = np.nan
        in_distribution, *flags = (
            table[name].fill_null(False).to_numpy() for name in ("in_distribution", "diverged", "looks_ahead", "not_finite")
        )
        return cls(tuple(names for names, _ in coded), tuple(index for _, index in coded), in_distribution, value, tuple(flags))

    def flagged(self, flag: int) -> frozenset[tuple[str, int]]:
        """Entry and seed of the values that have a flag."""
        entries, seeds, *_ = self.axes
        places = {*zip(*(index[self.flags[flag]].tolist() for index in self.index[:2]), strict=True)}
        return frozenset((entries[e], seeds[s]) for e, s in places)


_TYPES = (pa.string(), pa.int64(), pa.string(), pa.int64(), pa.bool_(), pa.float64(), *[pa.bool_()] * 3)
"""Of the fields of :class:`Value`."""


def _coded(column: pa.ChunkedArray) -> tuple[tuple[Any, ...], NDArray[np.intp]]:
    """The values of a column, each once and sorted, and the place of each row among them."""
    encoded = column.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    places = np.empty(len(names), dtype=np.intp)
    places[order] = np.arange(len(names))
    return tuple(names[i] for i in order), places[encoded.indices.to_numpy()]


@dataclass(frozen=True)
class BoardValues:
    """The values of one board before anything is averaged over seeds."""

    entries: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    values: Floats
    """(E, S, T, L): of each entry, seed, task and length; NaN where there is none."""
    measured: NDArray[np.bool_]
    """(E, S, T, L): whether the metric was measured, also where it is not defined."""
    in_distribution: NDArray[np.bool_]
    """(T, L): whether models are trained on a length of a task."""
    diverged: frozenset[tuple[str, int]]
    """Entry and seed of each training that diverged, on any task."""
    looks_ahead: frozenset[tuple[str, int]] = frozenset()
    """Entry and seed of each model that looks ahead, on any task."""
    not_finite: frozenset[tuple[str, int]] = frozenset()
    """Entry and seed of each model with answers that are not finite, on any task."""
    unlearned: bool = False
    """Whether no model has fitted the lengths that it was trained on, and no entry beats chance on longer ones."""

    @classmethod
    def of_table(cls, table: pa.Table) -> BoardValues:
        """From a table with the fields of :class:`Value` as columns."""
        return cls.of(Values.of_table(table))

    @classmethod
    def of(cls, found: Values) -> BoardValues:
        """From values in any order. Where several are of the same model, task and length, the last one counts."""
        values = np.full([len(names) for names in found.axes], np.nan)
        values[found.index] = found.value
        measured, trained = np.zeros(values.shape, dtype=bool), np.zeros(values.shape[2:], dtype=bool)
        measured[found.index] = True
        np.logical_or.at(trained, found.index[2:], found.in_distribution)
        entries, seeds, tasks, lengths = found.axes
        diverged, looks_ahead, not_finite = map(found.flagged, range(3))
        return cls(entries, seeds, tasks, lengths, values, measured, trained, diverged, looks_ahead, not_finite)

    @cached_property
    def columns(self) -> dict[Column, Floats]:
        """(E, S) for each column in which any seed has a value: means over tasks, of seeds that have a value on every task.

        Rounded to 12 digits, so that values are equal if they differ by the order of a sum alone.
        """
        if not self.tasks:
            return {}
        by_length = self.values.mean(2)  # (E, S, L); NaN where a task has no value
        trained = self.in_distribution.all(0)
        found: dict[Column, Floats] = {("length", length): by_length[..., i] for i, length in enumerate(self.lengths)}
        found |= {ID: mean_of_known(by_length[..., trained]), OOD: mean_of_known(by_length[..., ~trained])}
        return {column: values.round(12) for column, values in found.items() if np.isfinite(values).any()}

    def unsound(self, entry: str) -> str | None:
        """Why an entry cannot be ranked, such as "its answers are not finite on seed 3"; None if it can be."""
        reasons = [
            f"{reason} on {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
            for reason, flagged in (
                ("its answers change with what comes after them", self.looks_ahead),
                ("some of its answers are not finite", self.not_finite),
            )
            if (seeds := sorted(seed for known, seed in flagged if known == entry))
        ]
        return " and ".join(reasons) or None

    @property
    def ranked_by(self) -> Column:
        """The column that orders entries: the OOD mean; the ID mean where nothing OOD was measured, or nothing was learned."""
        return ID if OOD not in self.columns or (self.unlearned and ID in self.columns) else OOD

    def column(self, column: Column, entries: Sequence[str]) -> Floats:
        """(entries, S), in the order of `entries`."""
        found: Floats = self.columns[column][[self.entries.index(entry) for entry in entries]]
        return found

    def spread(self, column: Column) -> Spread:
        """The variance of a difference in a column, estimated from the pairs of all entries that can be ranked."""
        if column not in self._spreads:
            from lgbench.results.statistics import spread

            sound = [entry for entry in self.entries if self.unsound(entry) is None]
            self._spreads[column] = spread(self.column(column, sound))
        return self._spreads[column]

    @cached_property
    def _spreads(self) -> dict[Column, Spread]:
        return {}

    def seeds_of(self, entry: str) -> tuple[int, ...]:
        """The seeds of an entry that have a value in any column."""
        known = self._known[self.entries.index(entry)]
        return tuple(seed for seed, has in zip(self.seeds, known, strict=True) if has)

    @cached_property
    def _known(self) -> NDArray[np.bool_]:
        """(E, S): whether a seed of an entry has a value in any column."""
        known = np.zeros((len(self.entries), len(self.seeds)), dtype=bool)
        for values in self.columns.values():
            known |= np.isfinite(values)
        return known


def mean_of_known(values: Floats) -> Floats:
    """The mean over the last axis, of the values that are finite: (..., n) -> (...), NaN where none is."""
    known = np.isfinite(values)
    counts = known.sum(-1)
    sums = np.where(known, values, 0).sum(-1)
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def rounded(value: float) -> float:
    """To four digits; twice, so that a value halfway between two does not follow the last bits of a sum."""
    return round(round(float(value), 12), DIGITS)


def significant(value: float) -> float:
    """With six significant digits, for numbers of any size."""
    return float(f"{value:.6g}")
