"""Two entries against each other: differences paired by seed, per length and beyond the training range, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lgbench.errors import UsageError
from lgbench.ranking.boards import LOWER_IS_BETTER, Board, Column, Models, rounded
from lgbench.ranking.entries import find_entry
from lgbench.ranking.leaderboard import Results
from lgbench.ranking.statistics import CONFIDENCE, FEWEST_SEPARATED, Floats, holm, interval, paired


@dataclass(frozen=True)
class Difference:
    """One column: the means over the n seeds that both entries have, and the mean of first - second with its 95 % interval."""

    kind: str
    length: int | None
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    n: int
    p: float
    """Of the paired t-test; corrected (Holm) for the lengths of a board, or for the boards of a comparison."""

    separated: bool
    """Told from zero: by p, and by the interval."""


@dataclass(frozen=True)
class Comparison:
    """Two entries on one board."""

    name: str
    metric: str
    task_version: int
    protocol: str
    train_length: int
    first: str
    second: str
    overall: Difference
    """Beyond the training range, or in it where nothing beyond was measured."""
    lengths: tuple[Difference, ...]
    verdict: str


def compare(
    results: Results, first: str, second: str, metric: str, name: str | None = None, protocol: str | None = None
) -> list[Comparison]:
    """Two entries, named as on boards or short, on every board that has both.

    Raises UsageError where a name is unknown, or no board has both.
    """
    results.check(metric, name, protocol)
    boards = results.models(metric, name, protocol)
    known = {entry for _, models in boards for entry in models.entries}
    first, second = find_entry(first, known), find_entry(second, known)
    if first == second:
        raise UsageError(f"{first} cannot be compared with itself; name two entries")
    shared = [(about, models) for about, models in boards if _common(models, first, second, models.decisive)]
    if not shared:
        raise UsageError(f"{first} and {second} have no seed in common on any board; run both on one task, under one protocol")
    overall = _corrected([_difference(models, first, second, models.decisive) for _, models in shared])
    return [_comparison(board, models, first, second, o) for (board, models), o in zip(shared, overall, strict=True)]


def _comparison(board: Board, models: Models, first: str, second: str, overall: Difference) -> Comparison:
    columns = [column for column in models.columns if column[0] == "length" and _common(models, first, second, column)]
    lengths = _corrected([_difference(models, first, second, column) for column in columns])
    return Comparison(
        board.name,
        board.metric,
        board.task_version,
        board.protocol,
        board.train_length,
        first,
        second,
        overall,
        tuple(lengths),
        f"{_judged(board, first, second, overall)} {_at_lengths(lengths)}",
    )


def _common(models: Models, first: str, second: str, column: Column) -> int:
    """How many seeds have a value of both entries."""
    if not {first, second} <= set(models.entries):
        return 0
    pair = models.column(*column)[[models.entries.index(first), models.entries.index(second)]]
    return int(np.isfinite(pair).all(0).sum())


def _difference(models: Models, first: str, second: str, column: Column) -> Difference:
    """With its own p, not yet corrected for others."""
    pair: Floats = models.column(*column)[[models.entries.index(first), models.entries.index(second)]]
    pair = pair[:, np.isfinite(pair).all(0)]  # (2, common seeds)
    n = pair.shape[-1]
    differences = pair[0] - pair[1]
    low, high = (np.clip(end, -1, 1).item() for end in interval(differences))
    means = pair.mean(-1)
    return Difference(
        kind=column[0],
        length=column[1],
        first=rounded(means[0]),
        second=rounded(means[1]),
        difference=rounded(means[0] - means[1]),
        low=rounded(low) if n > 1 else None,
        high=rounded(high) if n > 1 else None,
        n=n,
        p=paired(differences).item(),
        separated=False,
    )


def _corrected(differences: Sequence[Difference]) -> list[Difference]:
    p = holm(np.array([difference.p for difference in differences])).tolist()
    return [replace(d, p=float(f"{new:.3g}"), separated=_told(d, new)) for d, new in zip(differences, p, strict=True)]


def _told(difference: Difference, p: float) -> bool:
    low, high = difference.low, difference.high
    return p < 1 - CONFIDENCE and low is not None and high is not None and (low > 0 or high < 0)


def _judged(board: Board, first: str, second: str, overall: Difference) -> str:
    """One sentence on who is better, if anybody is."""
    where = f"on {board.name} {'beyond' if overall.kind == 'score' else 'in'} the training range"
    if overall.n < FEWEST_SEPARATED:
        common = f"they have {overall.n} seeds in common, and it takes {FEWEST_SEPARATED}"
        return f"{first} and {second} cannot be told apart {where}: {common}."
    size = f"{board.metric} {overall.first:.4f} against {overall.second:.4f}, a difference of {_with_interval(overall)}"
    evidence = f"over {overall.n} seeds (p = {overall.p:.2g})"
    if not overall.separated:
        return f"{first} and {second} cannot be told apart {where}: {size} {evidence}."
    better, other = (first, second) if (overall.difference < 0) == LOWER_IS_BETTER[board.metric] else (second, first)
    return f"{better} is better than {other} {where}: {size} {evidence}."


def _at_lengths(lengths: Sequence[Difference]) -> str:
    """At which lengths, and for whom, as a run of sentences."""
    apart = [str(difference.length) for difference in lengths if difference.separated]
    if not apart:
        return f"At none of {len(lengths)} lengths alone are they separated."
    return f"Of {len(lengths)} lengths they are separated at {', '.join(apart)}."


def _with_interval(difference: Difference) -> str:
    return f"{difference.difference:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
