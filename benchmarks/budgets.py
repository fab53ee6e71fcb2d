"""How long a training must be before the order of entries no longer depends on its length.

Trains seven entries that differ in kind on every task: four norm schemes, rotary positions, stick-breaking attention and an
LSTM. Each is trained with 1, 2, 4 and 8 times the steps of a protocol. The budget of a task is the shortest training after
which no doubling changes the mean OOD TVD of any entry by more than 0.02, or the longest that costs a norm scheme at most 40
core-seconds. Runs are kept in a folder, so that the same command goes on with them. With --publish, the runs of tasks on which
all entries are trained join those in budgets.csv, and benchmarks/budgets.md is written anew from it. That page also names
the tasks that are to come.

    python benchmarks/budgets.py FOLDER [--tasks tomita-1 ...] [--factors 1 2 4 8] [--seeds 2] [--read] [--publish]
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import msgspec

import lgbench
from lgbench.contracts import PRIMARY_METRIC
from lgbench.experiment.protocols import DEFAULT_PROTOCOL, protocol_named
from lgbench.extensions.registry import Registry
from lgbench.results import run_files

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm")
OTHERS = ("rope", "stick-breaking", "lstm")
SETTLED, MAX_SECONDS = 0.02, 40.0

DATA = Path(__file__).with_suffix(".csv")
PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Figures of training lengths

What longer training changes: each cell has the mean OOD TVD of two seeds, and in brackets the mean ID TVD. A task settles at a
number of steps from which on no doubling changes the OOD TVD of any entry by more than 0.02. Core-seconds are of the slowest
norm scheme, tests included. [How long to train](../docs/explanation/budgets.md) says what follows.
"""


@dataclass(frozen=True)
class Trained:
    """One run: how it was trained, and the outcome."""

    task: str
    entry: str
    steps: int
    seed: int
    ood: float
    """Mean TVD over the lengths of a board beyond the training range."""
    id: float
    """The same over those within it."""
    seconds: float
    """Of one core, for one model, tests included."""

    def key(self) -> tuple[str, str, int, int]:
        return self.task, self.entry, self.steps, self.seed


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--protocol", default=DEFAULT_PROTOCOL)
    options.add_argument("--tasks", nargs="+", default=["all"])
    options.add_argument("--factors", nargs="+", type=int, default=[1, 2, 4, 8])
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--workers", type=int)
    options.add_argument("--read", action="store_true", help="train nothing, and show what is there")
    options.add_argument("--publish", action="store_true", help=f"write {DATA.name} and {PAGE.name}")
    chosen = options.parse_args()
    registry = Registry.load()
    tasks = registry.tasks.names() if chosen.tasks == ["all"] else chosen.tasks
    normal = {name: protocol_named(chosen.protocol).settings(registry.tasks.found(name).thing)[0].steps for name in tasks}
    if not chosen.read:
        for factor in sorted(chosen.factors):
            for steps in sorted(set(normal.values())):
                train([task for task in tasks if normal[task] == steps], steps * factor, chosen)
    found = sorted(read(chosen.folder), key=Trained.key)
    print("".join(tables(found)))
    if chosen.publish:
        whole = [run for _, runs in by_task(found) if finished(runs, len(chosen.factors), chosen.seeds) for run in runs]
        every = {run.key(): run for run in [*published(), *whole]}
        with DATA.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Trained)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(every[key]) for key in sorted(every))
        lacking = [task for task in registry.tasks.names() if task not in {run.task for run in every.values()}]
        rest = f"To come: {', '.join(lacking)}.\n" if lacking else ""
        PAGE.write_text(f"{HEAD}\n{''.join(tables(published()))}{rest}".rstrip() + "\n", encoding="utf-8")


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


def read(folder: Path) -> Iterator[Trained]:
    """The trainings of a folder, from its run files."""
    for path in folder.glob("*.parquet"):
        metadata, rows = run_files.metadata(path), run_files.read(path).to_pylist()
        record, steps = metadata["experiment"], metadata["experiment"]["train"]["steps"]
        last = [
            row
            for row in rows
            if row["metric"] == PRIMARY_METRIC and row["weights"] == "raw" and row["on_boards"] and row["step"] == steps
        ]
        beyond = [row["value"] for row in last if not row["in_distribution"]]
        within = [row["value"] for row in last if row["in_distribution"]]
        training = metadata["seconds"]["train"] / metadata["execution"]["population"]
        testing = metadata["seconds"]["total"] - metadata["seconds"]["train"]
        means = round(fmean(beyond), 4), round(fmean(within), 4)
        yield Trained(record["task"], record["entry"], steps, record["seed"], *means, round(training + testing, 1))


def published() -> list[Trained]:
    """The trainings in budgets.csv, none where there is no such file."""
    if not DATA.exists():
        return []
    with DATA.open(newline="") as file:
        return msgspec.convert(list(csv.DictReader(file)), list[Trained], strict=False)


def by_task(found: Sequence[Trained]) -> list[tuple[str, list[Trained]]]:
    """The runs of each task, in alphabetical order."""
    groups = defaultdict(list)
    for run in found:
        groups[run.task].append(run)
    return sorted(groups.items())


def finished(runs: Sequence[Trained], lengths: int, seeds: int) -> bool:
    """Whether each entry is trained on the task for so many numbers of steps, each with so many seeds."""
    trained = {(run.entry, run.steps, run.seed) for run in runs}
    entries, steps = {run.entry for run in runs}, {run.steps for run in runs}
    every = {(entry, n, seed) for entry in entries for n in steps for seed in range(seeds)}
    return len(entries) == len(NORMS + OTHERS) and len(steps) >= lengths and every <= trained


def tables(found: Sequence[Trained]) -> Iterator[str]:
    """For each task, in Markdown: OOD TVD by entry and steps, the cost, and the budget that follows."""
    for task, runs in by_task(found):
        steps = sorted({run.steps for run in runs})
        entries = sorted({run.entry for run in runs})
        cells = defaultdict(list)
        for run in runs:
            cells[run.entry, run.steps].append(run)
        lines = [[f"{task}: steps", *(f"{n:,}" for n in steps)], [":--", *["--:"] * len(steps)]]
        for entry in entries:
            own = [cells[entry, n] for n in steps]
            lines.append([f"`{entry}`", *(f"{mean(each, 'ood'):.3f} ({mean(each, 'id'):.3f})" if each else "" for each in own)])
        seconds = costs(runs, steps)
        lines.append(["core-seconds of a norm scheme", *(f"{seconds[n]:.0f}" for n in steps)])
        means = {key: mean(own, "ood") for key, own in cells.items() if own}
        yield "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{task}: {verdict(means, steps, seconds)}.\n\n"


def mean(runs: Sequence[Trained], name: str) -> float:
    return fmean(getattr(run, name) for run in runs)


def costs(runs: Sequence[Trained], steps: Sequence[int]) -> dict[int, float]:
    """Seconds of the slowest norm scheme by steps, at the fastest pace that each was seen at: others may use the machine."""
    pace: dict[str, float] = defaultdict(lambda: float("inf"))
    for run in runs:
        if run.entry.removeprefix("transformer+") in NORMS:
            pace[run.entry] = min(pace[run.entry], run.seconds / run.steps)
    return {n: max(pace.values(), default=float("nan")) * n for n in steps}


def verdict(means: dict[tuple[str, int], float], steps: Sequence[int], seconds: dict[int, float]) -> str:
    """The budget of a task, in words."""
    settled = None
    for fewer, more in reversed(list(pairwise(steps))):
        changes = [abs(means[entry, more] - own) for (entry, n), own in means.items() if n == fewer and (entry, more) in means]
        if not changes or max(changes) > SETTLED:
            break
        settled = fewer  # and no later doubling changes more: entries that have not begun to learn do not change either
    if settled:
        return f"settled at {settled:,} steps, from which on no doubling changes an entry by more than {SETTLED}"
    affordable = MAX_SECONDS * steps[0] / seconds[steps[0]]
    return f"not settled at {steps[-1]:,} steps; {MAX_SECONDS:.0f} core-seconds are {affordable:,.0f} steps"


if __name__ == "__main__":
    main()
