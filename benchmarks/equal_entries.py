"""How often boards of entries that are all equal call any two of them significantly different: at most one board in twenty.

python benchmarks/equal_entries.py --boards 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from lgbench.results.statistics import CONFIDENCE, Floats, Moments, Spread, holm, moderated_t, spread
from lgbench.results.statistics.significance import ALONE

Draw = Callable[[np.random.Generator, int, int], Floats]
"""Values of entries (E, seeds), all with the same true mean."""


def lognormal(rng: np.random.Generator, shape: tuple[int, int], scale: float = 1.0) -> Floats:
    return rng.lognormal(0, scale, shape) - np.exp(scale**2 / 2)


def spreads(rng: np.random.Generator, entries: int) -> Floats:
    """Standard deviations of entries, of which the middle two thirds span a factor of seven."""
    return rng.lognormal(0, 1, (entries, 1))


WORLDS: dict[str, Draw] = {
    "normal": lambda rng, entries, seeds: rng.normal(size=(entries, seeds)),
    "lognormal": lambda rng, entries, seeds: lognormal(rng, (entries, seeds)),
    "normal, unequal spreads": lambda rng, entries, seeds: spreads(rng, entries) * rng.normal(size=(entries, seeds)),
    "normal, one entry ten times as wide": lambda rng, entries, seeds: (
        np.where(np.arange(entries)[:, None] == 0, 10, 1) * rng.normal(size=(entries, seeds))
    ),
    "normal, half of them ten times as wide": lambda rng, entries, seeds: (
        np.where(np.arange(entries)[:, None] < entries / 2, 10, 1) * rng.normal(size=(entries, seeds))
    ),
    "lognormal, unequal spreads": lambda rng, entries, seeds: spreads(rng, entries) * lognormal(rng, (entries, seeds)),
    "beta(0.5, 5)": lambda rng, entries, seeds: rng.beta(0.5, 5, (entries, seeds)),
    "failing or perfect": lambda rng, entries, seeds: (
        (rng.random((entries, seeds)) < 0.3) * (0.6 + 0.05 * rng.normal(size=(entries, seeds)))
    ),
}


def separated(values: Floats, known: Spread) -> bool:
    """Whether a board calls any two of its entries significantly different."""
    first, second = np.triu_indices(len(values), 1)
    p = moderated_t(Moments.of(values[first] - values[second]), known).p
    return bool((holm(p) < 1 - CONFIDENCE).any())


def shares(draw: Draw, entries: int, seeds: int, boards: int) -> tuple[float, float]:
    """The share of boards that separate anything, by the ordinary paired t-test and by the moderated one."""
    rng = np.random.default_rng(100 * entries + seeds)
    tables = (rng.normal(size=seeds) + draw(rng, entries, seeds) for _ in range(boards))
    found = [(separated(values, ALONE), separated(values, spread(values))) for values in tables]
    alone, moderated = np.mean(found, axis=0)
    return float(alone), float(moderated)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=1000)
    boards = parser.parse_args().boards
    print("| values | seeds | entries | paired t | moderated t |\n| :-- | --: | --: | --: | --: |")
    for world, draw in WORLDS.items():
        for seeds in (5, 10):
            for entries in (3, 6, 12, 40):
                alone, moderated = shares(draw, entries, seeds, boards)
                print(f"| {world} | {seeds} | {entries} | {alone:.1%} | {moderated:.1%} |", flush=True)


if __name__ == "__main__":
    main()
