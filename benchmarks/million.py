"""The cost of a grid of 10^6 runs beside its training: planning, finding runs that are there, claims, run files, and boards.

Toy runs through lgbench's own code, all but the training: 5 tasks of one family, 1,000 seeds, and an entry for every 5,000
runs; in each file one metric at four lengths and its chance level. `plan` makes the plan. `claims` takes populations of 64 from
the work queue, writes their run files with lgbench's writer, and gives them back; `two` does so in two processes at once.
`again` is a dry run over a folder with every run. `first` opens and ranks a folder of which nothing is in the cache, `warm`
the same with that cache, and `compare` compares two entries.

Each stage has a process of its own. Its seconds and CPU seconds, which are those of both processes in `two`, are those after
the plan is made; its memory is the most of a process, the plan's included. The exponent is the slope of a line through the
logarithms. Files are not flushed to the disk one by one unless --flush says so, since that measures the disk.

    python benchmarks/million.py [--runs 10000,100000] [--stages plan,claims,again] [--folder /tmp/runs] [--flush]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from types import SimpleNamespace

import pyarrow  # noqa: F401  # imported before torch, as lgbench does
import torch
from rich.console import Console
from rich.table import Table
from sides import HERE, WIDTH
from torch import Tensor, nn

import lgbench_measurements
import lgbench_norms
import lgbench_optimizers
from lgbench import Answers, Architecture, Batch, Parts, Random, Signature, Task, Tokens, user_cache
from lgbench.execution.device import Execution
from lgbench.execution.executor import Done, RunPopulation
from lgbench.execution.forecast import Forecast
from lgbench.execution.progress import SilentProgress
from lgbench.execution.runner import PopulationRunner, run_plan
from lgbench.execution.scheduler import Assignment, Work, path_of
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, Request, plan
from lgbench.extensions.registry import Registry
from lgbench.measurement.score import Score
from lgbench.results import run_files
from lgbench.results.compare import compare
from lgbench.results.leaderboard import Results
from lgbench.results.rows import Measured, rows_of
from lgbench.training.curve import NO_CURVE

TASKS, SEEDS, POPULATION = 5, 1000, 64
STAGES = ("plan", "claims", "two", "again", "first", "warm", "compare")
SIGNATURE = Signature(Tokens(2), 2, Answers.EVERY_PREFIX)


class Toy(Task):
    """Coins."""

    family = "toy"
    version = 1
    signature = SIGNATURE
    train_lengths = (1, 8)
    max_length = 64

    def __init__(self, number: int) -> None:
        self.name = f"toy-{number}"

    def sample(self, length: int, random: Random) -> Batch:
        inputs = random.integers(2, length)
        return Batch(inputs, torch.full((*inputs.shape, 2), 0.5))


class ToyArchitecture(Architecture):
    """Logits from the latest token."""

    defaults = {"norm": "pre-norm"}

    def __init__(self, number: int) -> None:
        self.name = f"table-{number:03}"

    def build(self, signature: Signature, parts: Parts) -> nn.Module:
        return nn.Embedding(2, 2)


def planned(runs: int) -> Plan:
    entries = [ToyArchitecture(number) for number in range(runs // (TASKS * SEEDS))]
    registry = Registry()
    for module in (lgbench_measurements, lgbench_norms, lgbench_optimizers):
        registry.add(module, module.__name__, HERE)
    for task in map(Toy, range(TASKS)):
        registry.tasks.add(task, HERE)
    for entry in entries:
        registry.architectures.add(entry, HERE)
    changes = {"train.steps": "2", "evaluate.max_length": "64"}
    return plan(Request(["toy"], [entry.name for entry in entries], [], range(SEEDS), "quick", changes), registry)


@dataclass
class Writer:
    """An executor that trains nothing: it writes each run of a population with lgbench's writer."""

    runner: PopulationRunner
    values: Tensor

    @classmethod
    def into(cls, folder: Path, execution: Execution) -> "Writer":
        return cls(PopulationRunner(execution, folder, SilentProgress()), torch.rand(997, generator=torch.manual_seed(0)))

    def run(self, left: Iterable[Work | None], run_population: RunPopulation) -> Iterator[Done]:
        for work in left:
            if work is None:
                time.sleep(0.1)
                continue
            with work.claim:
                written = list(self.write(work.assignment))
            yield Done(work, written)

    def write(self, work: Assignment) -> Iterator[Path]:
        trained = SimpleNamespace(stack=work.models, compiled=False, resumed=False)
        for experiment in work.experiments:
            path = path_of(experiment, self.runner.folder)
            if not run_files.is_run(path, experiment.run_id):
                work.held.require()
                footer = self.runner._footer(experiment, trained) | {"seconds": {"train": 0.1, "total": 0.2}}
                run_files.write(path, rows_of(experiment, self.measured(experiment)), footer, scratch=work.held.folder)
                yield path

    def measured(self, experiment: Experiment) -> Measured:
        """Numbers that differ from entry to entry and from seed to seed."""
        draw = self.values[int(experiment.run_id, 16) % len(self.values)].item()
        level = int(experiment.record.architecture[-3:]) / 1000
        scores = [Score("raw", "tvd", length, 0.1 + level / 4 + draw / 10, 128) for length in (8, 16, 32, 64)]
        chance = [Score("chance", "tvd", length, 0.5, 128) for length in (8, 16, 32, 64)]
        return Measured(scores, {}, chance, NO_CURVE, 0, None)


EXECUTION = Execution(torch.device("cpu"), compile=False, population=POPULATION)


def claims(experiments: Plan, folder: Path) -> None:
    outcome = run_plan(experiments, EXECUTION, folder, SilentProgress(), Writer.into(folder, EXECUTION))
    assert len(outcome.written) + len(outcome.found) == len(experiments.experiments) and not outcome.failed


def again(experiments: Plan, folder: Path) -> None:
    assert Forecast.of(experiments, EXECUTION, folder, SilentProgress()).done == len(experiments.experiments)


def rank(folder: Path) -> None:
    results = Results(folder)
    (board,) = results.boards("tvd")
    assert not results.left_out and len(board.rows) > 1


def measure(stage: str, runs: int, folder: Path) -> dict[str, float]:
    """One stage in this process."""
    made = planned(runs) if stage in ("claims", "two", "again") else None
    sides: dict[str, Callable[[], object]] = {
        "plan": lambda: planned(runs),
        "claims": lambda: claims(made, folder),
        "two": lambda: claims(made, folder),
        "again": lambda: again(made, folder),
        "first": lambda: rank(folder),
        "warm": lambda: rank(folder),
        "compare": lambda: compare(Results(folder), "table-000", "table-001", "tvd"),
    }
    seconds, cpu = time.perf_counter(), time.process_time()
    sides[stage]()
    seconds, cpu = time.perf_counter() - seconds, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def of_processes(stage: str, runs: int, folder: Path, flush: bool) -> dict[str, float]:
    """One stage in a new process, or in two."""
    command = [sys.executable, __file__, "--stage", stage, "--runs", str(runs), "--folder", str(folder)]
    command += ["--flush"] if flush else []
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2 if stage == "two" else 1)]
    found = [json.loads(process.communicate()[0]) for process in started]
    sums = {name: sum(own[name] for own in found) for name in found[0]}
    return sums | {"seconds": max(own["seconds"] for own in found), "mb": max(own["mb"] for own in found)}


def exponent(measured: dict[int, dict[str, float]], name: str) -> str:
    points = [(log(size), log(own[name])) for size, own in measured.items()]
    return f"{statistics.linear_regression(*zip(*points, strict=True)).slope:.2f}"


def table(found: dict[str, dict[int, dict[str, float]]]) -> Table:
    rows = Table(title="seconds / CPU seconds / MB of memory")
    sizes = sorted({size for own in found.values() for size in own})
    for heading in ("", *(f"{size:,}" for size in sizes), "exponent of CPU", "of memory"):
        rows.add_column(heading, justify="right" if heading else "left")
    for stage, own in found.items():
        cells = [f"{m['seconds']:.3g} / {m['cpu']:.3g} / {m['mb']:.0f}" if (m := own.get(size)) else "" for size in sizes]
        slopes = [exponent(own, name) if len(own) > 1 else "" for name in ("cpu", "mb")]
        rows.add_row(stage, *cells, *slopes)
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", default="10000,100000", help="numbers of runs, multiples of 10,000")
    options.add_argument("--stages", default=",".join(STAGES))
    options.add_argument("--folder", type=Path, help="where run files are, and stay; a temporary folder otherwise")
    options.add_argument("--flush", action="store_true")
    options.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if not chosen.flush:
        os.fsync = lambda handle: None
    if chosen.stage:
        print(json.dumps(measure(chosen.stage, int(chosen.runs), chosen.folder)))
        return
    users = os.environ.get(user_cache.VARIABLE)
    found: dict[str, dict[int, dict[str, float]]] = {stage: {} for stage in chosen.stages.split(",")}
    for runs in map(int, chosen.runs.split(",")):
        with tempfile.TemporaryDirectory() as temporary:
            os.environ[user_cache.VARIABLE] = users or f"{temporary}/cache"
            for stage in found:
                folder = (chosen.folder or Path(temporary)) / (f"{runs}-two" if stage == "two" else str(runs))
                found[stage][runs] = of_processes(stage, runs, folder, chosen.flush)
                print(f"{stage} {runs}", found[stage][runs], file=sys.stderr)
    Console(width=WIDTH).print(table(found))


if __name__ == "__main__":
    main()
