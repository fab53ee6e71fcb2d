"""Columns of a board from single values: means over tasks and over lengths, for every entry and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lgbench.contracts import NOT_CAUSAL, NOT_FINITE, SOUNDNESS
from lgbench.terminal import named_seeds

if TYPE_CHECKING:
    from lgbench.results.statistics import Floats  # which needs SciPy, and a run does not

Column = tuple[str, int | None]
"""A kind and a length. Kinds: "length", a single length; "ID", the mean over the training lengths of a board (in-distribution);
"OOD", the mean over all other lengths (out-of-distribution). The length of a mean is None."""

NotFitted = Mapping[str, Mapping[str, set[int]]]
"""Seeds without a fit, by entry and task; an empty set where all seeds have fitted."""

ID: Column = ("ID", None)
OOD: Column = ("OOD", None)

DIGITS = 6
"""Decimal places of the numbers of a board: more than any table shows, so that no number is rounded twice to what it shows."""


def _coded(column: pa.ChunkedArray) -> tuple[tuple[Any, ...], NDArray[np.intp]]:
    """Distinct values of a column, sorted, and the place of each row among the distinct values."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    places = np.empty(len(names), dtype=np.intp)
    places[order] = np.arange(len(names))
    return tuple(names[i] for i in order), places[_array(encoded.indices)]


def _array(column: pa.ChunkedArray | pa.Array) -> NDArray[Any]:
    """Numbers or switches of a column, any for null. The conversions of Arrow import pandas if it is installed: 0.4 s."""
    own = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    switches = pa.types.is_boolean(own.type)
    own = own.cast(pa.uint8()) if switches else own  # Arrow keeps switches as bits
    # Without the buffer of nulls, which DLPack refuses.
    found = np.from_dlpack(pa.Array.from_buffers(own.type, len(own), [None, own.buffers()[1]], offset=own.offset))
    return found.astype(bool) if switches else found


def _switch(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """Values of a switch, off for null; off in all rows without the column."""
    if name not in table.column_names:
        return np.zeros(len(table), dtype=bool)
    found: NDArray[np.bool_] = _array(table[name]) & _array(table[name].is_valid())
    return found


@dataclass(frozen=True)
class BoardValues:
    """Values of one board by entry and seed, before means over seeds."""

    entries: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    values: Floats
    """(E, S, T, L): value by entry, seed, task and length; NaN for missing values."""
    measured: NDArray[np.bool_]
    """(E, S, T, L): whether the metric was measured, with a defined value or without."""
    in_distribution: NDArray[np.bool_]
    """(T, L): whether a length is a training length of a task."""
    diverged: frozenset[tuple[str, int]]
    """Entry and seed of each diverged training, on any task."""
    not_causal: frozenset[tuple[str, int]] = frozenset()
    """Entry and seed of each model that is not causal, on any task."""
    not_finite: frozenset[tuple[str, int]] = frozenset()
    """Entry and seed of each model with non-finite answers, on any task."""
    unlearned: bool = False
    """Whether no model has fitted its training lengths, and no entry beats the context-free baseline on longer inputs."""
    not_fitted: NotFitted = field(default_factory=dict)
    """Seeds without a fit, where fits are known."""

    @classmethod
    def of_table(cls, table: pa.Table) -> BoardValues:
        """Values of a board from a table with a row for each value, in any order; of duplicates, the last value counts.

        Columns: entry, seed, task, length, value (null if undefined), and the switches in_distribution, diverged, not_causal
        and not_finite. A missing switch is off.
        """
        (entries, e), (seeds, s), (tasks, t), (lengths, n) = (
            _coded(table[name]) for name in ("entry", "seed", "task", "length")
        )
        value = _array(table["value"].cast(pa.float64())).copy()  # Arrow's memory is read-only
        value[~(np.isfinite(value) & _array(table["value"].is_valid()))] = np.nan
        values = np.full((len(entries), len(seeds), len(tasks), len(lengths)), np.nan)
        values[e, s, t, n] = value
        measured, trained = np.zeros(values.shape, dtype=bool), np.zeros(values.shape[2:], dtype=bool)
        measured[e, s, t, n] = True
        np.logical_or.at(trained, (t, n), _switch(table, "in_distribution"))
        diverged, not_causal, not_finite = (
            frozenset((entries[i], seeds[j]) for i, j in {*zip(e[own].tolist(), s[own].tolist(), strict=True)})
            for own in (_switch(table, name) for name in ("diverged", "not_causal", "not_finite"))
        )
        return cls(entries, seeds, tasks, lengths, values, measured, trained, diverged, not_causal, not_finite)

    @cached_property
    def columns(self) -> dict[Column, Floats]:
        """Means over tasks (E, S) for each column with any value; NaN for seeds without a value on every task.

        Rounded to 12 digits, against differences by the order of a sum.
        """
        if not self.tasks:
            return {}
        by_length = self.values.mean(2)  # (E, S, L); NaN where a task has no value
        trained = self.in_distribution.all(0)
        found: dict[Column, Floats] = {("length", length): by_length[..., i] for i, length in enumerate(self.lengths)}
        found |= {ID: mean_of_known(by_length[..., trained]), OOD: mean_of_known(by_length[..., ~trained])}
        return {column: values.round(12) for column, values in found.items() if np.isfinite(values).any()}

    def unsound(self, entry: str) -> str | None:
        """Reason against ranking an entry, such as "some of its answers are not finite on seed 3"; None for a sound entry."""
        reasons = [
            f"{SOUNDNESS[metric]} on {named_seeds(seeds)}"
            for metric, flagged in ((NOT_CAUSAL, self.not_causal), (NOT_FINITE, self.not_finite))
            if (seeds := sorted(seed for known, seed in flagged if known == entry))
        ]
        return " and ".join(reasons) or None

    @property
    def ranked_by(self) -> Column:
        """Ranking column: the OOD mean; the ID mean without OOD measurements, or if nothing was learned."""
        return ID if OOD not in self.columns or (self.unlearned and ID in self.columns) else OOD

    def column(self, column: Column, entries: Sequence[str]) -> Floats:
        """Values of a column (entries, S), in the order of `entries`."""
        found: Floats = self.columns[column][[self.entries.index(entry) for entry in entries]]
        return found

    def fits(self, entry: str) -> dict[int, bool] | None:
        """Whether each seed of an entry has fitted every task; None where fits are unknown."""
        known = self.not_fitted.get(entry, {})
        if set(known) != set(self.tasks):
            return None
        lost = set[int]().union(*known.values())
        return {seed: seed not in lost for seed in self.seeds_of(entry)}

    def never_fits(self, entry: str) -> bool:
        """Whether no seed of an entry has fitted every task; false where fits are unknown."""
        fits = self.fits(entry)
        return fits is not None and not any(fits.values())

    @property
    def measured_tasks(self) -> dict[tuple[str, int], int]:
        """Number of tasks on which the metric was measured, with a defined value or without, by entry and seed."""
        counts = self.measured.any(-1).sum(-1).tolist()
        named = zip(self.entries, counts, strict=True)
        return {(entry, seed): count for entry, own in named for seed, count in zip(self.seeds, own, strict=True)}

    def seeds_of(self, entry: str) -> tuple[int, ...]:
        """Seeds of an entry with a value in any column."""
        known = self._known[self.entries.index(entry)]
        return tuple(seed for seed, has in zip(self.seeds, known, strict=True) if has)

    @cached_property
    def _known(self) -> NDArray[np.bool_]:
        """(E, S): whether a seed of an entry has a value in any column."""
        known = np.zeros((len(self.entries), len(self.seeds)), dtype=bool)
        for values in self.columns.values():
            known |= np.isfinite(values)
        return known


def models_and_context_free(rows: pa.Table) -> tuple[BoardValues, BoardValues]:
    """Values of models, and the context-free baseline as one entry with one seed, from rows without entry and seed."""
    of_context_free = pc.is_null(rows["entry"])
    levels = BoardValues.of_table(rows.filter(of_context_free))
    return BoardValues.of_table(rows.filter(pc.invert(of_context_free))), replace(levels, entries=("context_free",), seeds=(0,))


def mean_of_known(values: Floats) -> Floats:
    """Mean of finite values over the last axis: (..., n) -> (...), NaN without finite values."""
    known = np.isfinite(values)
    counts = known.sum(-1)
    sums = np.where(known, values, 0).sum(-1)
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def rounded(value: float) -> float:
    """The value with DIGITS decimals; rounded to 12 decimals first, against effects of the last bits of a sum on ties."""
    return round(round(float(value), 12), DIGITS)


def ends(low: float | Floats, high: float | Floats, most: float = inf) -> tuple[float | None, float | None]:
    """Ends of one interval with DIGITS decimals, between -most and most; None for NaN."""
    first, last = (None if np.isnan(end) else rounded(np.clip(end, -most, most).item()) for end in (low, high))
    return first, last


def significant(value: float) -> float:
    """The value with six significant digits, for numbers of any size."""
    return float(f"{value:.6g}")
