"""Readings of probes on one model, as rows: a number for each length, layer and head."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lgbench.results.columns import mean_of_known
from lgbench.results.exponents import Exponent, fitted
from lgbench.results.metrics import Metric
from lgbench.results.statistics import interval


class ProbeRow(NamedTuple):
    """One number: the mean over `n` contexts, None where the probe is not defined."""

    metric: str
    length: int
    layer: int | None
    """Counted from 1; None for a number of the whole model."""
    head: int | None
    """Counted from 1; None for a number of the whole layer."""
    value: float | None
    n: int


class Mean(NamedTuple):
    """The mean over the heads of a layer, and its 95 % interval, which is None where there is one number only."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class ModelRows:
    """All rows of one model, and what they are of."""

    model: str
    contexts_of: str
    """The source of the contexts: random tokens, or the name of a file."""
    contexts: int
    """Of each length."""
    seed: int
    dtype: str
    metrics: tuple[Metric, ...]
    rows: tuple[ProbeRow, ...]

    @property
    def lengths(self) -> list[int]:
        return sorted({row.length for row in self.rows})

    @property
    def layers(self) -> list[int | None]:
        """The layers that were read, in order; None, for the whole model, comes last."""
        return sorted({row.layer for row in self.rows}, key=lambda layer: (layer is None, layer or 0))

    def mean(self, metric: str, length: int, layer: int | None) -> Mean | None:
        """Over the heads of a layer; None where the probe has no value there."""
        known = np.array([row.value for row in self._at(metric, layer) if row.length == length and row.value is not None])
        if not known.size:
            return None
        low, high = (end.item() for end in interval(known[None]))
        several = known.size > 1
        return Mean(mean_of_known(known).item(), low if several else None, high if several else None, known.size)

    def exponent(self, metric: str, layer: int | None) -> Exponent | None:
        """Of the length, with its interval over the heads of a layer; None where a power law cannot be fitted to any head."""
        own = self._at(metric, layer)
        heads = sorted({row.head or 0 for row in own})
        lengths = sorted({row.length for row in own})
        values = np.full((len(lengths), len(heads)), np.nan)
        for row in own:
            if row.value is not None:
                values[lengths.index(row.length), heads.index(row.head or 0)] = row.value
        return fitted(np.array(lengths, dtype=np.float64), values) if len(lengths) > 1 else None

    def _at(self, metric: str, layer: int | None) -> list[ProbeRow]:
        return self._by_place.get((metric, layer), [])

    @cached_property
    def _by_place(self) -> dict[tuple[str, int | None], list[ProbeRow]]:
        """The rows by probe and layer, since tables and figures ask for every one of them."""
        found: dict[tuple[str, int | None], list[ProbeRow]] = defaultdict(list)
        for row in self.rows:
            found[row.metric, row.layer].append(row)
        return found
