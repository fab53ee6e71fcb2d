"""Opening a results folder and ranking its runs, from a hundred run files to the largest number, in steps of about three.

Simulated runs, written by lgbench itself: 4 families of 5 tasks, 5 seeds, as many entries as it takes; in each file three
metrics of three weight variants at 32 lengths, the context-free baseline and a training curve, 344 rows. `boards` is
Results(folder).boards("tvd"), `command` a whole `lgbench leaderboard`, the start of Python included. The reference is DuckDB's
own `select count(*)`, which opens every run file and reads no row. Sides take turns, each in a process of its own; files come
from the memory of the operating system, not from a disk.

    python benchmarks/leaderboard.py [--largest 10000] [--rounds 3]
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lgbench.experiment.contexts import spaced_lengths
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions
from lgbench_measurements import lgbench_measurements

FAMILIES, TASKS, SEEDS = 4, 5, 5
LENGTHS, TRAINED, CURVE = 32, 8, 25
VARIANTS = ("raw", "ema", "bema")
STEPS = 1000


def runs(count: int) -> Iterator[tuple[str, str, str, int, str]]:
    """Family, task, entry, seed and id of `count` runs; all families are complete for every multiple of a hundred."""
    for index in range(count):
        entry, place = divmod(index, FAMILIES * TASKS * SEEDS)
        task, seed = divmod(place, SEEDS)
        family = f"family-{task // TASKS}"
        yield family, f"{family}-task-{task % TASKS}", f"transformer+norm-{entry}", seed, f"{index:016x}"


def measurements() -> pa.Table:
    """The columns that are the same in every run."""
    shown = spaced_lengths(1, TRAINED, LENGTHS - 1)
    scored = [*product(VARIANTS, ("tvd", "accuracy", "roc_auc"), range(LENGTHS)), *product(["chance"], ["tvd"], shown)]
    scores = [
        {"weights": w, "metric": m, "metric_version": 1, "step": STEPS, "length": n, "n": 128}
        | {"in_distribution": n <= TRAINED, "on_boards": n in shown}
        for w, m, n in scored
    ]
    curve = [
        {"weights": "raw", "metric": m, "step": STEPS // CURVE * (k + 1), "n": STEPS // CURVE}
        for m, k in product(("train_loss", "gradient_norm"), range(CURVE))
    ]
    names = ["weights", "metric", "metric_version", "step", "length", "n", "in_distribution", "on_boards"]
    return pa.Table.from_pylist(scores + curve, schema=pa.schema([SCHEMA.field(name) for name in names]))


def simulate(folder: Path, counts: range) -> None:
    """Write the runs from counts.start to counts.stop."""
    same, described = measurements(), descriptions(lgbench_measurements())
    unchanged = pa.array([[]] * same.num_rows, SCHEMA.field("changes").type)
    values = [pa.array(draw) for draw in np.random.default_rng(0).random((64, same.num_rows))]
    everything = list(runs(counts.stop))[counts.start :]
    for family, task, entry, seed, run_id in track(everything, f"writing {counts.stop} run files", transient=True):
        labels = {"run_id": run_id, "entry": entry, "task": task, "family": family, "protocol": "standard"}
        columns = dict(zip(same.column_names, same.columns, strict=True))
        columns |= {name: pa.repeat(label, same.num_rows) for name, label in labels.items()}
        columns |= {"seed": pa.repeat(seed, same.num_rows), "changes": unchanged, "plugins": unchanged}
        columns |= {name: pa.repeat(1, same.num_rows) for name in ("task_version", "protocol_version")}
        columns |= {name: pa.nulls(same.num_rows) for name in ("layer", "head", "diverged_step")}
        columns |= {"value": values[int(run_id, 16) % len(values)]}
        table = pa.table({name: columns[name] for name in SCHEMA.names})
        protocol = {"name": "standard", "version": 1, "changes": []}
        experiment = labels | {
            "task_version": 1,
            "averagers": VARIANTS[1:],
            "protocol": protocol,
            "plugins": [],
            "seed": seed,
            "train": {"steps": STEPS, "max_length": TRAINED, "lr": 0.003},
            "evaluate": {"max_length": LENGTHS - 1},
        }
        environment = {"lgbench": "0.1.0", "python": "3.11.7", "git_commit": "0" * 40, "device": "cpu", "threads": 1}
        about = {"experiment": experiment, "environment": environment, "seconds": {"train": 23.6, "total": 28.8}}
        about["measurements"] = described
        run_files.write(folder / f"{task}.{entry}.seed-{seed}.{run_id}.parquet", table.cast(SCHEMA), about)


def count(folder: Path) -> int:
    """The reference: how many rows there are, by DuckDB alone."""
    sql = "select count(*) from read_parquet($files)"
    return int(duckdb.connect().execute(sql, {"files": f"{folder}/*.parquet"}).fetchall()[0][0])


def rank(folder: Path) -> int:
    """The side that is timed: how many entries the boards have."""
    return sum(len(board.rows) for board in Results(folder).boards("tvd"))


def command(folder: Path) -> int:
    """All of it, as a user has it; the size of its output."""
    script = Path(sys.executable).with_name("lgbench")
    arguments = ["leaderboard", "--results", str(folder), "--format", "json"]
    return len(subprocess.run([script, *arguments], check=True, capture_output=True).stdout)


SIDES: dict[str, Callable[[Path], int]] = {"count(*)": count, "boards": rank, "command": command}


def timed(side: str, folder: Path) -> tuple[float, float]:
    """Seconds, and the most memory of this process or, for a command, of the one that it starts, in MB."""
    started = time.perf_counter()
    SIDES[side](folder)
    seconds = time.perf_counter() - started
    whose = resource.RUSAGE_CHILDREN if side == "command" else resource.RUSAGE_SELF
    return seconds, resource.getrusage(whose).ru_maxrss / 1024


def measure(folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds and MB of every side, each time in a new process: this script with --side."""
    found: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, results in found.items():
            process = [sys.executable, __file__, "--side", side, "--folder", str(folder)]
            results.append(json.loads(subprocess.run(process, check=True, stdout=subprocess.PIPE).stdout))
    return {
        side: (statistics.median(s for s, _ in results), statistics.median(m for _, m in results))
        for side, results in found.items()
    }


def compare(largest: int, rounds: int) -> Table:
    """All sides at all sizes, and the exponents of the power laws through their seconds."""
    sizes = [size for power in range(2, 10) for size in (10**power, 3 * 10**power) if size <= largest]
    table = Table(title=f"DuckDB {duckdb.__version__}, median of {rounds} rounds: seconds (MB at most)")
    for name in ("run files", "rows", *SIDES):
        table.add_column(name, justify="right")
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        for before, size in zip([0, *sizes], sizes, strict=False):
            simulate(Path(name), range(before, size))
            results = measure(Path(name), rounds)
            for side, (taken, _) in results.items():
                seconds[side].append(taken)
            cells = [f"{taken:.2f} ({memory:.0f})" for taken, memory in results.values()]
            table.add_row(f"{size:,}", f"{size * measurements().num_rows:,}", *cells)
    if len(sizes) < 2:
        return table
    table.add_section()
    logarithms = [math.log(size) for size in sizes]
    slopes = [statistics.linear_regression(logarithms, [math.log(s) for s in taken]).slope for taken in seconds.values()]
    table.add_row("exponent", "", *(f"{slope:.2f}" for slope in slopes))
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--largest", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.side:
        print(json.dumps(timed(chosen.side, chosen.folder)))
    else:
        Console(width=110).print(compare(chosen.largest, chosen.rounds))


if __name__ == "__main__":
    main()
