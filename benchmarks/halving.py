"""What successive halving would save in tuning, and how often it would choose another rate: a replay of stored loss curves.

    python benchmarks/halving.py leaderboards/runs

After a share of the steps of each round of rates, the best rates so far go on to the end, and all others stop. The loss added
is that of the other rate less that of the chosen one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from lgbench.experiment.tuning import TENTHS, Tuning
from lgbench.results.stored_runs import stored

STOPS = (3, 5, 7)
"""Tenths of the steps."""
KEPT = (1, 2)


SEEDS = 5
"""Trainings for each tuning."""


def tunings(folder: Path) -> list[tuple[str, Tuning, float]]:
    """Family, tuning, and its share of all steps, of each entry on each task that was tuned with an open grid."""
    found = {}
    for path in sorted(folder.rglob("*.parquet")):
        for run in stored(path):
            record = run.record
            if record.tuning and record.tuning.open and record.tuning.runs:
                tuned = len(record.tuning.runs) * record.tuning.steps
                share = tuned / (tuned + SEEDS * record.train.steps)
                found[record.protocol, record.precision, record.task, record.entry] = record.family, record.tuning, share
    return list(found.values())


def rounds(tuning: Tuning) -> Iterator[tuple[float, ...]]:
    """Rates in the order in which they were due."""
    so_far = replace(tuning, runs=(), chosen=None)
    while further := so_far.further:
        yield further
        so_far = so_far.ended([*so_far.runs, *(run for run in tuning.runs if run.lr in further)])


def loss(tuning: Tuning, lr: float, tenth: int) -> float:
    """Mean loss of a rate in a tenth of the steps; infinite where a training diverged."""
    runs = [run for run in tuning.runs if run.lr == lr]
    at = [math.inf if run.diverged_step is not None else run.losses[tenth - 1] for run in runs]
    return math.fsum(math.inf if value is None else value for value in at) / len(runs)


def halved(tuning: Tuning, stop: int, kept: int) -> tuple[float, float]:
    """Rate chosen by halving, and steps as a share of those of the whole tuning."""
    alive: list[float] = []
    tenths = 0
    for rates in rounds(tuning):
        best = sorted({*alive, *rates}, key=lambda lr: loss(tuning, lr, stop))[:kept]
        alive += (on := [lr for lr in rates if lr in best])
        tenths += TENTHS * len(on) + stop * (len(rates) - len(on))
    return min(alive, key=lambda lr: (loss(tuning, lr, TENTHS), lr)), tenths / (TENTHS * len(tuning.tried))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", type=Path)
    found = tunings(options.parse_args().results)
    families = sorted({family for family, *_ in found})
    whole = sum(share for *_, share in found) / len(found)
    print(f"{len(found)} entries and tasks; tuning takes {whole:.0%} of all steps")
    head = ["steps before the stop", "rates kept", "steps of tuning", "another rate", *families, "most loss added, nats"]
    print(f"| {' | '.join(head)} |")
    print("|" + " --: |" * len(head))
    for stop, kept in product(STOPS, KEPT):
        outcomes = [(family, tuning, *halved(tuning, stop, kept)) for family, tuning, _ in found]
        others = {family: [lr != t.chosen for own, t, lr, _ in outcomes if own == family] for family in families}
        every = [lr != tuning.chosen for _, tuning, lr, _ in outcomes]
        added = max(loss(tuning, lr, TENTHS) - tuning.loss(tuning.best) for _, tuning, lr, _ in outcomes)
        shares = " | ".join(f"{sum(of) / len(of):.0%}" for of in (every, *others.values()))
        steps = sum(share for *_, share in outcomes) / len(outcomes)
        print(f"| {stop / TENTHS:.0%} | {kept} | {steps:.0%} | {shares} | {added:.4f} |")


if __name__ == "__main__":
    main()
