"""The numbers of one test, seed by seed, from the boards of a results folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from lgbench.claims.claim import ClaimTest
from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import BoardHeader
from lgbench.results.columns import ID, OOD, Models
from lgbench.results.exponents import exponents
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import ALONE, Floats, Spread, spread


@dataclass(frozen=True)
class Sample:
    """The numbers of one test from the runs on one board."""

    differences: Floats
    """(n,): first - second, of the seeds that have both."""
    spread: Spread
    """The variance of such a difference, estimated from all pairs of the board."""
    first: float
    second: float
    """The means over these seeds."""
    seeds: dict[str, frozenset[int]]
    """By entry of the test, the seeds that have a value."""
    tasks: int
    sign: int
    """1 where lower is better, -1 where higher is."""
    most: float
    """The largest difference that the metric can have."""
    reason: str = ""
    """Why nothing can be concluded although there are runs; empty if something can be."""

    @property
    def n(self) -> int:
        return len(self.differences)


def samples(results: Results, task: str, test: ClaimTest) -> dict[ProtocolUse, Sample]:
    """By protocol, the numbers of the newest versions of the task and the metric that have any. The metric must be known."""
    if task not in results.task_names:
        return {}
    found: dict[ProtocolUse, Sample] = {}
    for board, models in results.models(test.metric, task):
        sample = _sample(board, models, test)
        if sample and (board.protocol not in found or (sample.n and not found[board.protocol].n)):
            found[board.protocol] = sample
    return found


def _sample(board: BoardHeader, models: Models, test: ClaimTest) -> Sample | None:
    """None where the board has neither entry."""
    variants = {entry: _variants(entry, models) for entry in test.entries}
    if not any(variants.values()):
        return None
    missing = np.full((1, len(models.seeds)), np.nan)
    values = {entry: _values(models, test, own[0]) if own else missing for entry, own in variants.items()}
    known = {entry: np.isfinite(own).all(0) for entry, own in values.items()}
    seeds = {entry: frozenset(np.array(models.seeds)[own].tolist()) for entry, own in known.items()}
    first = _of_seeds(models, test, values[test.entry])
    if test.against is not None:
        second = _of_seeds(models, test, values[test.against])
    else:
        second = np.full_like(first, test.exponent or 0.0)
    common = np.isfinite(first) & np.isfinite(second)
    reasons = [*_several(variants), *_unsound(models, variants), *_unmeasured(models, test)]
    if test.exponent is not None:
        reasons += _unfitted(models, test, values[test.entry])
    return Sample(
        differences=(first - second)[common],
        spread=_spread(models, test),
        first=first[common].mean().item() if common.any() else np.nan,
        second=second[common].mean().item() if common.any() else np.nan,
        seeds=seeds,
        tasks=len(models.tasks),
        sign=board.metric.sign,
        most=np.inf if test.against is None else board.metric.highest - board.metric.lowest,
        reason="; ".join(reasons),
    )


def _variants(entry: str, models: Models) -> list[str]:
    """The entries of a board that are this one: several where several versions of a package made them."""
    base, _, weights = entry.partition("@")
    suffix = f")@{weights}" if weights else ")"
    return [known for known in models.entries if known == entry or (known.startswith(f"{base} (") and known.endswith(suffix))]


def _several(variants: dict[str, list[str]]) -> list[str]:
    return [
        f"{entry} was made by several versions of a package: {', '.join(own)}; put runs that belong together into a folder"
        for entry, own in variants.items()
        if len(own) > 1
    ]


def _unsound(models: Models, variants: dict[str, list[str]]) -> list[str]:
    """Numbers of a model that looks ahead, or of answers that are not finite, mean nothing."""
    return [
        f"{entry} is not ranked: {reason}" for own in variants.values() for entry in own if (reason := models.unsound(entry))
    ]


def _unmeasured(models: Models, test: ClaimTest) -> list[str]:
    lacking = sorted(set(_lengths(models, test)) - set(models.lengths))
    return [f"the board has no length {', '.join(map(str, lacking))}"] if lacking else []


def _lengths(models: Models, test: ClaimTest) -> list[int]:
    if not isinstance(test.lengths, str):
        return list(test.lengths)
    trained = np.asarray(models.in_distribution.all(0)).tolist()
    wanted = {"ID": (True,), "OOD": (False,), "all": (True, False)}[test.lengths]
    return [length for length, own in zip(models.lengths, trained, strict=True) if own in wanted]


def _unfitted(models: Models, test: ClaimTest, values: Floats) -> list[str]:
    """Seeds without a power law are not left out, for those that are left would tell another story."""
    at = [str(length) for length, own in zip(_lengths(models, test), values, strict=False) if (own <= 0).any()]
    where = f"length{'s'[: len(at) > 1]} {', '.join(at)}"
    return [f"{test.metric} of {test.entry} is not above 0 at {where}, so no power law fits it"] if at else []


def _values(models: Models, test: ClaimTest, entry: str) -> Floats:
    """(L, S): the value of each seed at each length of the test, or (1, S) its mean; NaN where there is none."""
    named = {"ID": ID, "OOD": OOD}.get(test.lengths) if test.exponent is None and _is_name(test.lengths) else None
    columns = [("length", length) for length in _lengths(models, test)] if named is None else [named]
    if not columns or any(column not in models.columns for column in columns):
        return np.full((1, len(models.seeds)), np.nan)
    return np.stack([models.column(column, [entry])[0] for column in columns])


def _of_seeds(models: Models, test: ClaimTest, values: Floats) -> Floats:
    """(S,): the number of each seed, of its values (L, S); NaN where there is none."""
    if test.exponent is None:
        means: Floats = values.mean(0)
        return means
    if len(values) < 2:  # it was not measured at all lengths of the test
        return np.full(values.shape[1], np.nan)
    return exponents(np.array(_lengths(models, test)), values)


def _numbers(models: Models, test: ClaimTest, entry: str) -> Floats:
    return _of_seeds(models, test, _values(models, test, entry))


def _spread(models: Models, test: ClaimTest) -> Spread:
    """As boards have it. An exponent is compared with a number, which no other pair of the board is."""
    if test.exponent is not None:
        return ALONE
    named = {"ID": ID, "OOD": OOD}.get(test.lengths) if _is_name(test.lengths) else None
    if named is not None:
        return models.spread(named) if named in models.columns else ALONE
    sound = [_numbers(models, test, entry) for entry in models.entries if models.unsound(entry) is None]
    return spread(np.stack(sound)) if len(sound) > 1 else ALONE


def _is_name(lengths: str | tuple[int, ...]) -> TypeGuard[str]:
    return isinstance(lengths, str)
