"""Scheduler: every run has a file or a reason, in whatever order populations end and whoever else writes files."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import torch
import toys
from helpers.commands import left
from helpers.in_process import InProcess, run_here
from helpers.made_runs import made
from helpers.plain_training import CHEAP, CPU
from helpers.queues import abandon, finish, take
from helpers.toy_registries import but, toys_and

from lgbench import Random
from lgbench.errors import RunFailed
from lgbench.execution import runner
from lgbench.execution.device import Execution
from lgbench.execution.workers import Outcome
from lgbench.randomness import key_of
from lgbench.results import run_files
from lgbench.training import checkpoint

SETTINGS = {key.replace(".", "_"): value for key, value in CHEAP.items()} | {"evaluate_max_length": 8}


class Reversed(InProcess):
    """Takes everything first and runs the last population first."""

    workers = 100

    def __init__(self, train) -> None:
        super().__init__(train)
        self.taken = []

    def submit(self, job):
        self.taken.append(job)
        return SimpleNamespace(done=lambda: self.taken[-1] is job, result=self.trained)

    def trained(self):
        return super().submit(self.taken.pop()).result()


def planned_grid(planned):
    """Two groups, each divided in two: four populations."""
    return planned(toys_and(), ["toy-walk", "toy-largest"], "toy-table", (0, 1, 2), averagers=["toy-mean"], **SETTINGS)


def run(experiments, folder, kind=InProcess, population=2):
    return run_here(experiments, Execution(CPU, False, population), folder, kind=kind)


@pytest.fixture(scope="module")
def local(planned, tmp_path_factory) -> dict[str, str]:
    """The run files that this process makes, population after population."""
    folder = tmp_path_factory.mktemp("local")
    outcome = run(planned_grid(planned), folder)
    assert len(outcome.written) == 6 and not outcome.failed and not outcome.found
    return made(folder)


def test_the_order_of_populations_changes_no_bit_and_nothing_else_is_left(planned, local, tmp_path):
    outcome = run(planned_grid(planned), tmp_path, Reversed)
    assert made(tmp_path) == local
    assert {path.name for path in outcome.written} == local.keys() and not outcome.failed and not outcome.found
    assert left(tmp_path) == []


class Failing(toys.Walk):
    """Cannot be tested with one seed: its second model fails, once the first one's file is written."""

    name = family = "toy-failing"
    fails_at: torch.Tensor | None = None

    def sample(self, length, random):
        batch = super().sample(length, random)
        if self.fails_at is not None and torch.equal(batch.inputs, self.fails_at):
            raise ValueError("no contexts today")
        return batch


def failing_at(planned):
    task = Failing()
    known = toys_and(task=task)
    experiments = planned(known, ["toy-failing", "toy-largest"], ["toy-table", "toy-fragile"], (0, 1, 2), **SETTINGS)
    key = key_of(1, "evaluate", "toy-failing", "contexts", 8)
    task.fails_at = task.sample(8, Random.stacked([key], experiments[0].evaluate.contexts)).inputs
    return experiments


def test_a_population_that_fails_is_reported_with_its_place_and_stops_no_other(planned, tmp_path):
    experiments = failing_at(planned)
    outcome = run(experiments, tmp_path, population=None)
    failed = [e for e in experiments if e.record.task == "toy-failing" and e.seed > 0]
    expected = {run_files.path_for(tmp_path, e.record) for e in experiments if e not in failed}
    assert set(outcome.written) == expected == set(run_files.find(tmp_path)) and len(failed) == 4
    assert len(outcome.failed) == 2
    for failure, entry in zip(sorted(outcome.failed, key=str), ("toy-fragile", "toy-table"), strict=True):
        assert isinstance(failure, RunFailed) and isinstance(failure.__cause__, ValueError)
        for said in ("toy-failing", entry, "3 models", "ValueError: no contexts today", "test_scheduler.py:"):
            assert said in str(failure)
    assert left(tmp_path) == []
    again = run(experiments, tmp_path, population=None)
    assert set(again.found) == expected and not again.written and len(again.failed) == 2


def test_a_population_of_a_killed_process_that_lacks_memory_now_is_trained_in_halves(planned, tmp_path):
    """Also where its first run has a file already."""
    experiments = planned(toys_and(), "toy-walk", "toy-table", (0, 1, 2, 3), **SETTINGS)
    abandon(take(tmp_path, experiments, most=4))
    finish(tmp_path, experiments[:1])
    sizes = []

    class Poor(InProcess):
        def submit(self, job):
            sizes.append(job.population.models)
            ended = Future()
            ended.set_result(Outcome(MemoryError()))
            return ended if len(sizes) == 1 else super().submit(job)

    outcome = run(experiments, tmp_path, Poor, population=None)
    assert not outcome.failed and len(outcome.written) == 3 and sizes[0] == 4 and max(sizes[1:]) == 2


def test_a_test_that_lacks_memory_fails_its_runs_and_keeps_the_training(planned, tmp_path, monkeypatch):
    """Models are tested one by one, so the test of a smaller population needs as much."""

    def evaluate(*arguments):
        raise MemoryError("no memory is left")

    experiments = planned(toys_and(), "toy-walk", "toy-table", (0, 1, 2, 3), **SETTINGS)
    monkeypatch.setattr(runner, "evaluate", evaluate)
    monkeypatch.setattr(checkpoint, "WORTH_SECONDS", 0.0)
    outcome = run(experiments, tmp_path, population=None)
    (failure,) = outcome.failed
    assert "no memory is left, in the test of toy-table+toy-nothing on toy-walk seed 0: free memory" in str(failure)
    assert any(name.endswith("checkpoint.safetensors") for name in left(tmp_path))
    monkeypatch.undo()
    assert len(run(experiments, tmp_path, population=None).written) == 4


def test_a_first_step_that_fails_is_reported_before_any_pool_sees_it(planned, tmp_path):
    """And a plugin's error in one group stops no other."""
    seen = []

    class Watching(InProcess):
        def submit(self, job):
            seen.append(job)
            return super().submit(job)

    def fails(self, length, random):
        raise ValueError("no contexts today")

    broken = toys_and(task=but(toys.Walk(), name="toy-none", family="toy-none", sample=toys.Walk.sample))
    experiments = planned(broken, ["toy-none", "toy-largest"], "toy-table", (0, 1), **SETTINGS)
    type(experiments[0].task).sample = fails
    outcome = run(experiments, tmp_path, Watching, population=None)
    (failure,) = outcome.failed
    assert "toy-none" in str(failure) and "no contexts today" in str(failure)
    assert [each.population.runs[0].task for each in seen] == ["toy-largest"] and len(outcome.written) == 2
    assert left(tmp_path) == []


def test_a_damaged_file_whose_run_fails_again_is_not_called_done_before(planned, tmp_path):
    experiments = failing_at(planned)
    failed = next(e for e in experiments if e.record.task == "toy-failing" and e.seed == 1)
    damaged = run_files.path_for(tmp_path, failed.record)
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(b"half")
    outcome = run(experiments, tmp_path, population=None)
    assert outcome.failed and outcome.found == [] and damaged.read_bytes() == b"half"
