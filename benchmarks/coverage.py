"""How often the 95 % interval of one paired difference misses the truth, by four tests, on the spreads of the published boards.

    python benchmarks/coverage.py leaderboards/runs > benchmarks/coverage.csv
    python benchmarks/coverage.py benchmarks/coverage.csv

A simulated board has the raw entries of a published one, with the standard deviation of each over seeds, and equal means, so
the truth of each difference is 0; where one entry of a pair fails, the truth is its mean loss. The tests are the ordinary
paired t-test and three moderated ones (Smyth 2004; limma), which differ in the prior of the variance.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import digamma, polygamma, stdtrit

from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.leaderboard import Results

Floats = NDArray[np.float64]
Prior = tuple[Floats, Floats]
"""Variance and degrees of freedom of the prior, both broadcast against the variances of pairs (boards, pairs)."""

COLUMNS = ("errors", "seeds", "test", "pairs", "covered", "least", "most")
"""Columns of the file: coverage as the mean over boards, and on the board with the least and the most."""
SEEDS = (3, 5, 10)
PAIRS = ("all", "widest tenth", "narrowest tenth")
ENTRIES = 10
"""Smallest number of entries on a board whose spreads are simulated."""
BATCH = 250
LARGE = 1e4
"""Degrees of freedom of a prior of equal variances."""
JUMP = 10.0
"""Loss of a seed that fails, in median standard deviations of the board."""


@dataclass(frozen=True)
class Board:
    """Spreads of one published board."""

    name: str
    level: Floats
    """(E,): means of raw entries."""
    sd: Floats
    """(E,): standard deviations over seeds, without what all entries have in common."""


@dataclass(frozen=True)
class World:
    """Distribution of the errors of seeds."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    """Errors with mean 0 and standard deviation 1."""
    failing: float = 0.0
    """Probability of a seed to fail."""
    half: bool = False
    """Whether every second entry alone fails; then pairs of one entry that fails and one that does not are judged."""


def published(results: Results) -> dict[str, Floats]:
    """OOD means of raw entries (E, S) by family, NaN without a run: the larger boards of the newest `standard`."""
    every = results.models(PRIMARY_METRIC, None, "standard")
    newest = max((header.protocol for header, _ in every), key=lambda use: use.version)
    found = {}
    for header, models in every:
        raw = [entry for entry in models.entries if "@" not in entry]
        if header.protocol == newest and len(raw) >= ENTRIES:
            found[header.name] = models.column(models.ranked_by, raw)
    return found


def spreads(name: str, values: Floats) -> Board:
    """Spreads of a board, over the seeds that all entries have."""
    values = values[:, np.isfinite(values).all(0)]
    own = values - values.mean(1, keepdims=True)
    return Board(name, values.mean(1), (own - own.mean(0)).std(1, ddof=1))


def residuals(boards: Iterable[Floats]) -> Floats:
    """Errors of entries with ten seeds, each entry with standard deviation 1."""
    found = []
    for values in boards:
        ten = values[np.isfinite(values).sum(1) >= 10]
        own = ten - ten.mean(1, keepdims=True)
        found.append((own / own.std(1, keepdims=True)).ravel())
    errors: Floats = np.concatenate(found)
    return errors


def fitted(variances: Floats, freedom: float, trend: Floats | None = None) -> Prior:
    """Prior of the variances of each board (boards, pairs), by the moments of their logarithms, around a curve with `trend`."""
    variances = np.maximum(variances, 1e-5 * np.median(variances, -1, keepdims=True))
    logs = np.log(variances) - digamma(freedom / 2) + np.log(freedom / 2)
    if trend is None:
        middle, left = logs.mean(-1, keepdims=True), logs.shape[-1] - 1
    else:
        middle, left = logs @ (trend @ np.linalg.pinv(trend)).T, logs.shape[-1] - trend.shape[-1]
    excess = ((logs - middle) ** 2).sum(-1, keepdims=True) / left - polygamma(1, freedom / 2)
    half = _trigamma_inverse(np.maximum(excess, 2 / LARGE))
    return np.exp(middle + digamma(half) - np.log(half)), 2 * half


def robust(variances: Floats, freedom: float) -> Prior:
    """Prior of the winsorised logarithms, weaker for outliers (Phipson et al. 2016; fitFDistRobustly of limma)."""
    logs = np.log(np.maximum(variances, 1e-5 * np.median(variances, -1, keepdims=True)))
    weights, spreads, means = _winsorised(freedom)
    low, high = np.quantile(logs, [0.05, 0.9], axis=-1, keepdims=True)
    cut = np.clip(logs, low, high)
    weight = np.interp(cut.var(-1, ddof=1, keepdims=True), spreads[::-1], weights[::-1])
    scale = np.exp(cut.mean(-1, keepdims=True) - np.interp(weight, weights, means))
    tail = stats.f.sf(variances / scale, freedom, weight)
    rank = variances.argsort(-1).argsort(-1)
    beyond = (variances.shape[-1] - rank - 0.5) / variances.shape[-1]
    typical = np.minimum(tail / beyond, 1)
    smallest = np.log(np.maximum(tail.min(-1, keepdims=True), 1e-300))
    outlying = np.minimum(np.log(0.5) / smallest * weight, weight)
    return scale, typical * weight + (1 - typical) * outlying


def _winsorised(freedom: float) -> tuple[Floats, Floats, Floats]:
    """Degrees of freedom of a prior, and variance and mean of the winsorised logarithms of variances under each."""
    shares = (np.arange(2000) + 0.5) / 2000
    weights = np.geomspace(0.2, LARGE, 200)
    logs = np.log(stats.f.ppf(np.clip(shares, 0.05, 0.9), freedom, weights[:, None]))
    return weights, logs.var(-1), logs.mean(-1)


def _trigamma_inverse(values: Floats) -> Floats:
    y = 0.5 + 1 / values
    for _ in range(20):
        trigamma = polygamma(1, y)
        y = y + trigamma * (1 - trigamma / values) / polygamma(2, y)
    return y


def missed(world: World, board: Board, seeds: int, boards: int) -> Iterator[tuple[str, str, float]]:
    """Test, pairs, and the share of their intervals that miss the truth."""
    rng = np.random.default_rng(seeds)
    first, second = np.triu_indices(len(board.sd), 1)
    failing = np.full(len(board.sd), world.failing) * (1 - np.arange(len(board.sd)) % 2 if world.half else 1)
    jump = JUMP * np.median(board.sd)
    spread = np.sqrt(board.sd**2 + failing * (1 - failing) * jump**2)
    truth = jump * (failing[first] - failing[second])
    width = np.hypot(spread[first], spread[second])
    judged = truth != 0 if world.half else np.full(len(first), True)
    ends = np.quantile(width[judged], [0.1, 0.9])
    groups = dict(zip(PAIRS, (judged, judged & (width >= ends[1]), judged & (width <= ends[0])), strict=True))
    counts: dict[str, Floats] = {}
    for _ in range(boards // BATCH):
        shape = (BATCH, len(board.sd), seeds)
        values = board.sd[:, None] * world.draw(rng, shape) + jump * (rng.random(shape) < failing[:, None])
        variances, mean = _variances(values), (values.mean(-1)[:, first] - values.mean(-1)[:, second])
        for test, (variance, freedom) in _tests(variances, board, seeds).items():
            reach = stdtrit(freedom, 0.975) * np.sqrt(variance / seeds)
            counts[test] = counts.get(test, 0.0) + (np.abs(mean - truth) > reach).mean(0) / (boards // BATCH)
    for test, share in counts.items():
        yield from ((test, group, float(share[chosen].mean())) for group, chosen in groups.items())


def _variances(values: Floats) -> Floats:
    """Variances of the differences of all pairs of entries (boards, E, seeds) -> (boards, pairs)."""
    own = values - values.mean(-1, keepdims=True)
    products: Floats = own @ own.swapaxes(-1, -2) / (values.shape[-1] - 1)
    first, second = np.triu_indices(values.shape[1], 1)
    found: Floats = products[:, first, first] + products[:, second, second] - 2 * products[:, first, second]
    return found


def _tests(variances: Floats, board: Board, seeds: int) -> dict[str, tuple[Floats, Floats | float]]:
    """Variance and degrees of freedom of each test, for all pairs of raw entries."""
    free, entries = seeds - 1.0, len(board.sd)
    first, second = np.triu_indices(entries, 1)
    level = stats.zscore(board.level[first] + board.level[second])
    trend = np.stack([np.ones_like(level), level, level**2], 1)
    priors = {
        "one prior": fitted(variances, free),
        "robust prior": robust(variances, free),
        "trend with the mean": fitted(variances, free, trend),
    }
    found: dict[str, tuple[Floats, Floats | float]] = {
        name: ((weight * scale + free * variances) / (weight + free), np.minimum(free + weight, (entries - 1) * free))
        for name, (scale, weight) in priors.items()
    }
    return found | {"ordinary paired t": (variances, free)}


def table(path: Path) -> str:
    """Markdown table of a written file: coverage in percent, mean over the boards, of each of PAIRS."""
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    found = {(*(line[key] for key in COLUMNS[:4]),): f"{100 * float(line['covered']):.1f}" for line in lines}
    tests = dict.fromkeys(line["test"] for line in lines)
    rows = [
        [errors, seeds, *(", ".join(found[errors, seeds, test, pairs] for pairs in PAIRS) for test in tests)]
        for errors, seeds in dict.fromkeys((line["errors"], line["seeds"]) for line in lines)
    ]
    head = ["Errors", "seeds", *tests]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, [":--", *["--:"] * (1 + len(tests))], *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a results folder, or a written file to print as a table")
    parser.add_argument("--boards", type=int, default=1000)
    asked = parser.parse_args()
    if asked.results.endswith(".csv"):
        print(table(Path(asked.results)), end="")
        return
    values = published(Results(asked.results))
    boards = [spreads(*board) for board in values.items()]
    real = residuals(values.values())
    worlds = [
        World("normal", lambda rng, shape: rng.normal(size=shape)),
        World("as on the boards", lambda rng, shape: rng.choice(real, shape)),
    ]
    for half in (False, True):
        for failing in (0.1, 0.2):
            who = "one fails" if half else "both fail"
            worlds.append(World(f"{who} in {failing:.0%}", worlds[0].draw, failing, half))
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(COLUMNS)
    for world in worlds:
        for seeds in SEEDS:
            found: dict[tuple[str, str], list[float]] = {}
            for board in boards:
                for test, pairs, share in missed(world, board, seeds, asked.boards):
                    found.setdefault((test, pairs), []).append(1 - share)
            for (test, pairs), own in found.items():
                lines.writerow([world.name, seeds, test, pairs, *(f"{end:.4f}" for end in (np.mean(own), min(own), max(own)))])


if __name__ == "__main__":
    main()
