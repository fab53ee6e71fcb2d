"""Tiers and rank intervals: what follows from which entries are significantly better than which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from lgbench.results.statistics.intervals import CONFIDENCE, Floats
from lgbench.results.statistics.moderated import Pairs, holm, moderated_t, spread_of

Relation = NDArray[np.bool_]
"""(E, E): [i, j] says that entry i is significantly better than entry j."""


class Standing(NamedTuple):
    """Where an entry stands among others. Tiers count from 1."""

    tier: int
    best_rank: int
    """The best rank of the entry's rank interval."""
    worst_rank: int
    better_than: tuple[int, ...]
    """The entries, by index, that this one is significantly better than."""


def standings(values: Floats) -> list[Standing]:
    """Standings of entries (E, seeds). A lower mean is better.

    Every pair is tested, paired by seed, and all pairs are corrected together (Holm). An entry's rank interval follows from the
    numbers of entries that are significantly better and worse (rank confidence sets: Mogstad et al. 2024), its tier from
    :func:`layers`.
    """
    better = without_circles(significantly_better(values))
    above, below = better.sum(0), better.sum(1)
    return [
        Standing(tier, int(above[i]) + 1, len(values) - int(below[i]), tuple(np.flatnonzero(better[i]).tolist()))
        for i, tier in enumerate(layers(better))
    ]


def significantly_better(values: Floats) -> Relation:
    """Of entries (E, seeds)."""
    pairs = Pairs.of(values)
    real = holm(moderated_t(pairs.moments, spread_of(pairs, values)).p) < 1 - CONFIDENCE
    lower = np.nan_to_num(pairs.moments.mean) < 0
    better = np.zeros((len(values), len(values)), dtype=bool)
    better[pairs.first, pairs.second] = real & lower
    better[pairs.second, pairs.first] = real & ~lower
    return better


def without_circles(better: Relation) -> Relation:
    """The relation without what contradicts itself.

    Where all entries have the same seeds, better means a lower mean, and there is no circle. Where they have not, each pair has
    seeds of its own, and a may be better than b, b than c, and c than a. The entries of such a circle are then not
    significantly different from each other; each still is from entries outside.
    """
    _, circle = connected_components(better, connection="strong")
    found: Relation = better & (circle[:, None] != circle)
    return found


def layers(better: Relation) -> list[int]:
    """The tier of each entry: one more than the largest tier number among the entries that are better, 1 if there are none.

    The relation has no circle. Two entries of a tier are never better or worse than each other. An entry that is neither better
    nor worse than any other changes nobody's tier.
    """
    tiers = np.ones(len(better), dtype=int)
    left = np.ones(len(better), dtype=bool)
    tier = 0
    while left.any():
        tier += 1
        first = left & ~better[left].any(0)  # nobody who is left is better
        assert first.any(), "a circle"
        tiers[first] = tier
        left &= ~first
    return [int(tier) for tier in tiers]
