"""Small results that have everything a page shows: tiers, flags, averages, protocols, baselines, trainings, a hostile name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import lgbench_measurements
from helpers.run_files import measured_by_all, simulated, write_rows
from lgbench.contracts import Facts
from lgbench.reports import site
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions

HOSTILE = "</script><!--<img src=x onerror=alert(1)>"
BEST, EVEN, POOR = "best+norm", "even+norm", "poor+norm"
TASKS = {"alpha-1": "alpha", "alpha-2": "alpha", "beta": "beta"}
SEEDS = range(5)
LENGTHS = (2, 4, 8, 16, 32, 63)
EARLY_STEPS, EARLY_LENGTHS = (1, 2), (8, 16)
"""Where models were tested while they trained. The end is step 5."""
LEVELS = {BEST: 0.02, EVEN: 0.021, POOR: 0.15, HOSTILE: 0.3}
DIVERGED = (HOSTILE, 2)
CLASSES = {"alpha-1": "star-free", "alpha-2": "counter", "beta": "counter"}
DESCRIBED = {
    "alpha-1": {
        "about": f"the first task {HOSTILE}",
        "rule": ["What both tasks share.", "As in arXiv 0000.00000, with a TVD."],
        "reads": "reads 2 tokens, answers with one of 3, once, at the last position",
        "trained": "trained on lengths up to 8",
        "class": None,
        "published": "star-free (arXiv 0000.00001)",
        "samples": [{"context": "<b>01</b>", "answers": [("0", 0.25), ("end", 0.75)], "left_out": 4}],
    }
}
"""The description of one task, in which HTML is only text."""
CHANGES = {"train.lr": "0.1"}
CHANGED = "quick/1 train.lr=0.1"
CONTEXT_FREE = {length: 0.4 + length / 1000 for length in LENGTHS}
"""The context-free baseline of TVD on every task. No other metric of these runs has one."""


class Made(NamedTuple):
    """The results and their page, made once for all tests of a process. Tests must not write into the folder."""

    folder: Path
    results: Results
    files: Mapping[str, str]


@cache
def made(folder: Path) -> Made:
    folder = write_all(folder / "site" / "results")
    results = Results(folder)
    return Made(folder, results, site.pages(results, tasks=DESCRIBED))


def write_all(folder: Path) -> Path:
    """Every entry with five seeds on every task, the best one with an average; and one run with a setting of its own."""
    for task in TASKS:
        for number, entry in enumerate(LEVELS):
            for seed in SEEDS:
                write_run(folder, task, entry, seed, number)
    write_run(folder, "beta", BEST, 0, 99, CHANGES)
    return folder


def write_run(
    folder: Path, task: str, entry: str, seed: int, number: int, changes: Mapping[str, str] = MappingProxyType({})
) -> None:
    run_id = f"{list(TASKS).index(task):04x}{number:08x}{seed:04x}"
    same = {
        "run_id": run_id,
        "task": task,
        "family": TASKS[task],
        "entry": entry,
        "seed": seed,
        "changes": list(changes.items()),
    }
    same["diverged_step"] = 15 if (entry, seed) == DIVERGED else None
    rows = [*_scores(same), *simulated(CONTEXT_FREE, weights="chance", **same), *_training(same)]
    write_rows(folder / f"{run_id}.parquet", rows, **metadata(task, entry, seed, changes))


def metadata(task: str, entry: str, seed: int, changes: Mapping[str, str]) -> dict[str, Any]:
    """As the runner writes it; one task has larger batches, and one seed an older torch."""
    return {
        "experiment": {
            "task": task,
            "family": TASKS[task],
            "task_version": 1,
            "entry": entry,
            "architecture": "arch",
            "norm": "norm",
            "attention": None,
            "position": None,
            "optimizer": "adamw",
            "options": [["model.width", 32], ["optimizer.beta1", 0.9]],
            "averagers": ["ema"] if entry == BEST else [],
            "protocol": {"name": "quick", "version": 1, "changes": [list(change) for change in changes.items()]},
            "train": {"batch": 60 if task == "beta" else 30, "lr": 0.003},
            "evaluate": {"contexts": 4},
            "plugins": [],
            "seed": seed,
        },
        "plugins": [
            {"name": name, "version": version, "source": "", "installed": "index", "origin": None, "takes_part": True}
            for name, version in (("lgbench", "0.1.0"), (entry, "1.2.3"))
        ],
        "measurements": measured_by_all(),
        "facts": asdict(Facts(CLASSES[task])),
        "execution": {"population": 5, "compiled": False, "resumed": False},
        "seconds": {"train": 1.25 + seed, "total": 2.5 + seed},
        "environment": {
            "lgbench": "0.1.0",
            "torch": "2.6.0" if seed == 4 else "2.7.0",
            "python": "3.11.7",
            "git_commit": None,
            "device": "cpu (x86_64)",
            "threads": 1,
            "date": f"2026-11-2{seed}T09:14:23+00:00",
        },
    }


def tvd_of(task: str, entry: str, seed: int, weights: str = "raw") -> dict[int, float]:
    """TVD at each length; 1 for a training that diverged."""
    level = LEVELS[entry] * (1.5 if weights == "ema" else 1)
    noise = np.random.default_rng([seed, round(level * 1000), *task.encode()])
    tvd = {length: min(1.0, level * (1 + length / 32) * (1 + 0.05 * noise.standard_normal())) for length in LENGTHS}
    return dict.fromkeys(LENGTHS, 1.0) if (entry, seed) == DIVERGED else tvd


def _scores(same: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for weights in ("raw", "ema") if same["entry"] == BEST else ("raw",):
        tvd = tvd_of(same["task"], same["entry"], same["seed"], weights)
        for metric, value in {"tvd": lambda d: d, "accuracy": lambda d: 1 - d, "roc_auc": lambda d: 1 - d / 2}.items():
            yield from simulated({length: value(d) for length, d in tvd.items()}, weights=weights, metric=metric, **same)
        for step in EARLY_STEPS:  # TVD alone
            values = {length: min(1.0, tvd[length] * (6 - step)) for length in EARLY_LENGTHS}
            yield from simulated(values, weights=weights, step=step, **same)


def _training(same: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in (10, 20, 30):
        lost = same["diverged_step"] is not None and step > same["diverged_step"]
        for metric, value in {"train_loss": 2.0 / step + 0.00001 * same["seed"], "gradient_norm": 100.0 / step**2}.items():
            value = float("nan") if lost else value
            (row,) = simulated({0: value}, metric=metric, **same | {"step": step})
            yield row | {"length": None, "in_distribution": None, "on_boards": None, "metric_version": None}


PROBED = {1: {8: 2.0, 16: 1.0}, 2: {8: 4.0, 16: 3.0}}
"""By layer and length, what the first head of the first seed reads. The second head reads 1 more, a further seed 10 more."""


def probed(folder: Path) -> Path:
    """Three seeds with a probe of two layers and two heads, and one of the whole model."""
    for seed in range(3):
        rows = simulated({8: 0.1, 16: 0.2}, entry="arch+norm", seed=seed, run_id=f"{seed:016x}")
        for layer, values in PROBED.items():
            for head in (1, 2):
                read = {length: value + (head - 1) + 10 * seed for length, value in values.items()}
                same = {"entry": "arch+norm", "seed": seed, "run_id": f"{seed:016x}", "layer": layer, "head": head}
                rows += simulated(read, metric="attention_entropy", **same)
        rows += simulated({8: seed, 16: math.nan}, metric="logit_gap", entry="arch+norm", seed=seed, run_id=f"{seed:016x}")
        about = {"experiment": {}, "measurements": descriptions(lgbench_measurements.lgbench_measurements())}
        write_rows(folder / f"{seed}.parquet", rows, **about)
    write_rows(folder / "other.parquet", simulated({8: 0.1, 16: 0.2}, entry="other", run_id="f" * 16))
    return folder
