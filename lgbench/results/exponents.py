"""Power laws in the length: fitted exponents of the values of an entry, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lgbench.results.boards import Row
from lgbench.results.columns import mean_of_known
from lgbench.results.statistics import Floats, interval


@dataclass(frozen=True)
class Exponent:
    """Mean exponent over n seeds or heads, and its 95 % interval, None for n = 1."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        """Label of a legend, such as "N^-0.49 [-0.52, -0.46]"."""
        ends = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"N^{self.mean:.2f}{ends}"


def exponents(lengths: Floats, values: Floats) -> Floats:
    """Slopes (S,) of log values (L, S) over log lengths (L,), by least squares; NaN for columns with a value not above 0."""
    if len(lengths) < 2:
        return np.full(values.shape[1], np.nan)
    known = np.where(values > 0, values, np.nan)
    x = np.log(lengths) - np.log(lengths).mean()
    slopes: Floats = x @ np.log(known) / (x @ x)
    return slopes


def exponent(row: Row) -> Exponent | None:
    """Exponent of an entry over all lengths of its board; None without a fit for any seed."""
    cells = [cell for cell in row.cells if cell.kind == "length" and cell.length]
    if len(cells) < 2:
        return None
    values = np.array([[np.nan if v is None else v for v in cell.values] for cell in cells], dtype=np.float64)
    return fitted(np.array([cell.length for cell in cells], dtype=np.float64), values)


def fitted(lengths: Floats, values: Floats) -> Exponent | None:
    """Mean exponent over the columns of values (L, S) at lengths (L,); None without a fit for any column."""
    found = exponents(lengths, values)
    n = int(np.isfinite(found).sum())
    if not n:
        return None
    low, high = (end.item() for end in interval(found[None]))
    return Exponent(mean_of_known(found).item(), low if n > 1 else None, high if n > 1 else None, n)
