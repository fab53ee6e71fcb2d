"""Toys with a budget under a published protocol, and real runs of them to be submitted, forged and verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import toys

from helpers.in_process import run_here
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.registries import with_essentials
from lgbench import Budget, Task, hookimpl
from lgbench.execution import device
from lgbench.execution.device import Execution
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BUDGETS = {name: Budget(steps=20, batch=4, lr=0.02, max_length=8) for name in ("short", "quick")}


class SmallWalk(toys.Walk):
    name, family, budgets = "small-walk", "small", BUDGETS


class SmallEven(toys.Even):
    name, family, budgets = "small-even", "small", BUDGETS


class Alone(toys.Largest):
    name, family, budgets = "alone", "alone", BUDGETS


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    return SmallWalk(), SmallEven(), Alone()


def registry(version: str = "1.0") -> Registry:
    """The essentials, the toys, and the tasks above as a plugin of that version."""
    module = ModuleType("small")
    module.lgbench_tasks = lgbench_tasks
    found = with_essentials()
    found.add(toys, "toys", Distribution("lgbench-toys", "1.2.3", installed="index"))
    found.add(module, "small", Distribution("lgbench-small", version, installed="index"))
    assert not found.problems()
    return found


@pytest.fixture(scope="session")
def installed() -> Registry:
    """The registry above, for tests that add nothing to it."""
    return registry()


def make(
    folder: Path,
    archs: Sequence[str] = ("toy-table",),
    seeds: Sequence[int] = range(5),
    installed: Registry | None = None,
    **request: Any,
) -> list[Path]:
    """Real runs of a checkout without changes."""
    keeps = request.pop("save_weights", False)
    execution = Execution(CPU, compile=False, population=request.pop("population", None), save_weights=keeps)
    asked = {"average": "toy-mean", "seeds": seeds, "protocol": "short"} | request
    known = installed or registry()
    planned = plan_of(known, asked.pop("task", "small"), archs, **asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "git_commit", lambda: COMMIT)
        outcome = run_here(planned, execution, folder, loaded=known.loaded())
    assert not outcome.failed
    return outcome.written


def forged(
    path: Path,
    to: Path,
    metadata: Callable[[dict[str, Any]], object] = lambda metadata: None,
    rows: Callable[[list[dict[str, Any]]], object] = lambda rows: None,
) -> Path:
    """A run file with changes made in place to its metadata and its rows, and nothing else put right."""
    about, table = run_files.metadata(path), run_files.read(path).to_pylist()
    metadata(about)
    rows(table)
    run_files.write(to, pa.Table.from_pylist(table, schema=SCHEMA), about)
    return to


def identity(experiment: dict[str, Any]) -> dict[str, Any]:
    """The fields that a run's id is taken from: the experiment without the outcome of a tuning, and without an idle dropout."""
    experiment = {**experiment, "train": {k: v for k, v in experiment["train"].items() if k != "dropout" or v}}
    if experiment["tuning"] is None:
        return {name: value for name, value in experiment.items() if name != "tuning"}
    train = {name: value for name, value in experiment["train"].items() if name != "lr"}
    return {**experiment, "train": train, "tuning": {name: experiment["tuning"][name] for name in ("grid", "seeds", "steps")}}


def put_right(path: Path, to: Path, metadata: Callable[[dict[str, Any]], object]) -> Path:
    """As a careful forger does it: the entry and the run id follow the metadata, and so do the rows."""
    about = run_files.metadata(path)
    metadata(about)
    experiment = about["experiment"]
    experiment["entry"] = f"{experiment['architecture']}+{experiment['norm']}"
    content = json.dumps(identity(experiment), sort_keys=True)
    same = {name: experiment[name] for name in ("task", "family", "task_version", "entry", "seed")}
    same["run_id"] = hashlib.sha256(content.encode()).hexdigest()[:16]
    protocol = experiment["protocol"]
    same |= {
        "protocol": protocol["name"],
        "protocol_version": protocol["version"],
        "changes": [tuple(pair) for pair in protocol["changes"]],
    }
    table = [row | same for row in run_files.read(path).to_pylist()]
    run_files.write(to, pa.Table.from_pylist(table, schema=SCHEMA), about)
    return to
