"""How often a board of equal entries leaves an entry out of those that may be the best: at most in one of twenty cases.

python benchmarks/equal_entries.py --boards 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from lgbench.results.statistics import Floats, standings

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


def shares(draw: Draw, entries: int, seeds: int, boards: int) -> tuple[float, float]:
    """Share of entries with a best rank above 1, mean over boards, and share of boards with any entry like that."""
    rng = np.random.default_rng(100 * entries + seeds)
    found = []
    for _ in range(boards):
        values = rng.normal(size=seeds) + draw(rng, entries, seeds)
        values = values[values.mean(-1).argsort()]
        found.append([standing.best_rank > 1 for standing in standings(values, np.full(entries, True))])
    behind = np.array(found)
    return float(behind.mean()), float(behind.any(-1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=1000)
    boards = parser.parse_args().boards
    print("| values | seeds | entries | an entry is left out | any entry is left out |\n| :-- | --: | --: | --: | --: |")
    for world, draw in WORLDS.items():
        for seeds in (5, 10):
            for entries in (3, 12, 40, 100):
                one, any_of_them = shares(draw, entries, seeds, boards)
                print(f"| {world} | {seeds} | {entries} | {one:.1%} | {any_of_them:.1%} |", flush=True)


if __name__ == "__main__":
    main()
