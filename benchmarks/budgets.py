"""How long a training must be before the order of entries no longer depends on its length.

Trains seven entries that differ in kind (four norm schemes, rotary positions, stick-breaking attention, an LSTM) on every task
with 1, 2, 4 and 8 times the steps of a protocol, and compares the mean OOD TVD of each entry from one length of training to
the next. The budget of a task is the shortest training after which doubling it changes that of no entry by more than 0.02, or
the longest that costs at most 40 core-seconds a model. Runs are kept in a folder, so that the same command goes on with them.

    python benchmarks/budgets.py FOLDER [--protocol standard] [--tasks tomita-1 ...] [--factors 1 2 4 8] [--seeds 2] [--read]
"""

import argparse
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from sides import WIDTH

import lgbench
from lgbench.contracts import PRIMARY_METRIC
from lgbench.experiment.protocols import protocol_named
from lgbench.extensions.registry import Registry
from lgbench.results import run_files

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm")
OTHERS = ("rope", "stick-breaking", "lstm")
SETTLED, MAX_SECONDS = 0.02, 40.0


class Run(NamedTuple):
    """What one run file says here."""

    entry: str
    factor: float
    tvd: float
    """The mean over the lengths of a board beyond the training range."""
    in_range: float
    """The same over those within it."""
    seconds: float
    """Of one core, for one model, tests included."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--protocol", default="standard")
    options.add_argument("--tasks", nargs="+", default=["all"])
    options.add_argument("--factors", nargs="+", type=int, default=[1, 2, 4, 8])
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--workers", type=int)
    options.add_argument("--read", action="store_true", help="show what is there, and train nothing")
    chosen = options.parse_args()
    registry = Registry.load()
    tasks = registry.tasks.names() if chosen.tasks == ["all"] else chosen.tasks
    normal = {name: protocol_named(chosen.protocol).settings(registry.tasks.found(name).thing)[0].steps for name in tasks}
    if not chosen.read:
        for factor in sorted(chosen.factors):
            for steps in sorted(set(normal.values())):
                train([task for task in tasks if normal[task] == steps], steps * factor, chosen)
    show(chosen.folder, normal)


def train(tasks: list[str], steps: int, chosen: argparse.Namespace) -> None:
    """All entries with so many steps, in one grid."""
    try:
        lgbench.run(
            tasks,
            [*NORMS, *OTHERS],
            average=[],
            seeds=range(chosen.seeds),
            protocol=chosen.protocol,
            set={"train.steps": steps},
            workers=chosen.workers,
            results=chosen.folder,
        )
    except lgbench.LgbenchError as error:
        print(error, flush=True)
    print(f"{steps} steps on {', '.join(tasks)}: done", flush=True)


def read(folder: Path, normal: dict[str, int]) -> dict[str, list[Run]]:
    """By task."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        footer, rows = run_files.metadata(path), run_files.read(path).to_pylist()
        record, steps = footer["experiment"], footer["experiment"]["train"]["steps"]
        last = [
            row
            for row in rows
            if row["metric"] == PRIMARY_METRIC and row["weights"] == "raw" and row["on_boards"] and row["step"] == steps
        ]
        beyond = [row["value"] for row in last if not row["in_distribution"]]
        within = [row["value"] for row in last if row["in_distribution"]]
        seconds = footer["seconds"]["train"] / footer["execution"]["population"]
        testing = footer["seconds"]["total"] - footer["seconds"]["train"]
        found[record["task"]].append(
            Run(record["entry"], steps / normal[record["task"]], fmean(beyond), fmean(within), seconds + testing)
        )
    return found


def show(folder: Path, normal: dict[str, int]) -> None:
    """Print a table for each task: OOD TVD by entry and factor, what doubling changes, and the budget that follows."""
    for task, runs in read(folder, normal).items():
        factors = sorted({run.factor for run in runs})
        means = {
            (entry, factor): fmean(own)
            for entry in dict.fromkeys(run.entry for run in runs)
            for factor in factors
            if (own := [run.tvd for run in runs if (run.entry, run.factor) == (entry, factor)])
        }
        table = Table(title=f"{task}: mean OOD TVD by steps (ID in brackets)")
        table.add_column("")
        for factor in factors:
            table.add_column(f"{factor * normal[task]:.0f}", justify="right")
        for entry in dict.fromkeys(run.entry for run in runs):
            cells = []
            for factor in factors:
                own = [run for run in runs if (run.entry, run.factor) == (entry, factor)]
                cells.append(f"{fmean(r.tvd for r in own):.3f} ({fmean(r.in_range for r in own):.3f})" if own else "")
            table.add_row(entry, *cells)
        seconds = {factor: max(run.seconds for run in runs if run.factor == factor) for factor in factors}
        table.add_row("core-seconds, at most", *(f"{seconds[factor]:.0f}" for factor in factors))
        Console(width=WIDTH).print(table)
        print(verdict(factors, means, seconds, normal[task]))


def verdict(factors: list[float], means: dict[tuple[str, float], float], seconds: dict[float, float], steps: int) -> str:
    """The budget of a task, in a sentence."""
    settled = None
    for factor, twice in reversed(list(pairwise(factors))):
        entries = [entry for entry, at in means if at == factor and (entry, twice) in means]
        if not entries or max(abs(means[entry, twice] - means[entry, factor]) for entry in entries) > SETTLED:
            break
        settled = factor  # and no later doubling changes more: entries that have not begun to learn do not change either
    if settled:
        return f"settled at {settled * steps:.0f} steps: no doubling from there on changes an entry by more than {SETTLED}\n"
    cheap = [factor for factor in factors if seconds[factor] <= MAX_SECONDS]
    longest = (
        f"{max(cheap) * steps:.0f} steps cost at most {MAX_SECONDS:.0f} core-seconds" if cheap else "every training costs more"
    )
    return f"not settled at {factors[-1] * steps:.0f} steps; {longest}\n"


if __name__ == "__main__":
    main()
