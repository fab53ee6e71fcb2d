"""How many seeds the boards of a results folder need: for a difference of 0.02 in the OOD mean, with 80 % power.

    python benchmarks/power.py leaderboards/runs --protocol standard

One line a family: the seeds that suffice for half, for three quarters and for nine tenths of its pairs, where two entries are
compared alone; and the same where an entry is compared with the baseline, corrected for all entries of the board.
"""

from __future__ import annotations

import argparse

import numpy as np

from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.columns import BoardValues
from lgbench.results.entries import BASELINE_ENTRY
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import CONFIDENCE, MOST_SEEDS, Floats, paired_t, seeds_needed

SHARES = (0.5, 0.75, 0.9)


def variances(models: BoardValues, against: str | None = None) -> Floats:
    """Variances of the differences of all pairs of raw entries, or of the pairs with one entry."""
    raw = [entry for entry in models.entries if "@" not in entry]
    values = models.column(models.ranked_by, raw)
    first, second = np.triu_indices(len(values), 1)
    if against is not None:
        with_it = raw.index(against)
        kept = (first == with_it) | (second == with_it)
        first, second = first[kept], second[kept]
    found = paired_t(values[first] - values[second]).variance
    return found[np.isfinite(found)]


def needed(found: Floats, difference: float, tests: int) -> str:
    """For shares of the pairs. More variance takes more seeds, so quantiles of one are quantiles of the other."""
    counts = [seeds_needed(difference, float(own), (1 - CONFIDENCE) / tests) for own in np.quantile(found, SHARES)]
    return " | ".join(f">{MOST_SEEDS}" if count is None else str(count) for count in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--protocol")
    parser.add_argument("--metric", default=PRIMARY_METRIC)
    parser.add_argument("--difference", type=float, default=0.02)
    asked = parser.parse_args()
    print("| family | entries | two alone: 50 % | 75 % | 90 % | against the baseline: 50 % | 75 % | 90 % |")
    print("| :-- | --: | --: | --: | --: | --: | --: | --: |")
    for about, models in Results(asked.results).models(asked.metric, None, asked.protocol):
        entries = sum("@" not in entry for entry in models.entries)
        if entries < 2:
            continue
        alone = needed(variances(models), asked.difference, 1)
        baseline = BASELINE_ENTRY in models.entries
        against = needed(variances(models, BASELINE_ENTRY), asked.difference, entries - 1) if baseline else "- | - | -"
        print(f"| {about.name} | {entries} | {alone} | {against} |")


if __name__ == "__main__":
    main()
