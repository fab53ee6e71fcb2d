"""`lgbench run --dry-run`: it says what would run, writes nothing, and its numbers are those of the real thing."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from helpers.commands import changing, invoked
from helpers.in_process import InProcess, run_here
from helpers.plain_training import CPU
from helpers.planning import plan_of

import lgbench
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Forecast, GroupForecast, Scheduler, Stacking
from lgbench.execution.work_queue import WorkQueue
from lgbench.execution.workers import Setup
from lgbench.extensions.registry import Registry
from lgbench.training.cost import StepCost

SETTINGS = {"train.steps": 3, "train.batch": 2, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 16}
WORDS = ["run", "--task", "toy-walk,toy-even", "--arch", "toy-table", "--seeds", "0:3", "--protocol", "quick"]
CHANGES = changing(SETTINGS)
HOW = ["--no-compile", "--population", "2", "--workers", "2", "--average", "none"]


def dry(folder, *words: str):
    return invoked(*WORDS, *CHANGES, *HOW, "--results", folder, "--dry-run", *words)


def planned(arch: str = "toy-table"):
    changes = {key: str(value) for key, value in SETTINGS.items()}
    return plan_of(Registry.load(), ["toy-walk", "toy-even"], arch, seeds=(0, 1, 2), set=changes)


def forecast_on(folder) -> Forecast:
    return Forecast.of(Scheduler(planned().experiments, Setup(folder, Execution(CPU, False, 2)), ProgressDisplay()))


@pytest.mark.slow
def test_it_says_what_is_left_and_writes_nothing(toys_alone, tmp_path, monkeypatch):
    folder = tmp_path / "results"
    result = dry(folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "0 runs done before; 6 runs left"
    assert sum(int(re.search(r": (\d+) runs? in", line)[1]) for line in lines[1:-1]) == 6
    assert all(" ms a step, as measured, makes " in line for line in lines[1:-1])
    assert re.fullmatch(r"in all about .* with 2 workers; training takes about \d+ MB of .* free memory", lines[-1])
    assert not folder.exists()
    lgbench.run("toy-walk", "toy-table", average=[], seeds=(1,), protocol="quick", set=SETTINGS, results=folder)
    before = {path: path.read_bytes() for path in folder.rglob("*")}
    assert dry(folder).stdout.startswith("1 run done before; 5 runs left\n")
    assert {path: path.read_bytes() for path in folder.rglob("*")} == before


def test_it_does_not_say_that_it_compiles_for_it_compiles_nothing(toys_alone, tmp_path, monkeypatch):
    """Not on a terminal's other stream either. A line says what the run would do."""
    monkeypatch.setattr("lgbench.training.cost.STEPS_PER_PROGRAM", 1)
    words = ["--results", str(tmp_path), "--average", "none", "--workers", "1"]
    result = invoked(*WORDS, *CHANGES, *words, "--dry-run")
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout.count("; the step would be compiled, which takes less") == 2


def test_its_populations_are_those_that_would_be_trained(toys_alone, tmp_path):
    forecast, trained = forecast_on(tmp_path), []

    class Watching(InProcess):
        def submit(self, job):
            trained.append(job.population.runs)
            return super().submit(job)

    run_here(planned(), Execution(CPU, False, 2), tmp_path, kind=Watching)
    assert sum(group.populations for group in forecast.groups) == len(trained) == 4
    assert max(group.stacking.models for group in forecast.groups) == max(map(len, trained)) == 2


def test_populations_that_another_command_trains_are_begun_and_stay_its_own(toys_alone, tmp_path):
    experiments = planned().experiments
    WorkQueue(tmp_path, experiments, CPU).take({experiments[0].run_id: experiments[0]}, 1)
    before = sorted(tmp_path.rglob("*"))
    assert next(forecast_on(tmp_path).lines()) == "0 runs done before; 6 runs left, 1 of them begun"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_group_that_cannot_make_a_step_is_named_and_the_others_are_estimated(toys_alone, tmp_path, monkeypatch):
    def no_memory(population, device):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr("lgbench.execution.scheduler.step_seconds", no_memory)
    result = dry(tmp_path)
    assert result.exit_code == 1 and "would fail: RuntimeError: can't allocate memory" in result.output


@pytest.mark.parametrize(("workers", "seconds"), [(1, 40.0), (2, 20.0), (8, 10.0)])
def test_workers_share_the_time_and_none_is_shorter_than_a_population(workers, seconds):
    stacking = Stacking(StepCost(peak=30, largest=1, kept=20), models=2, compile=False)
    scheduler = SimpleNamespace(execution=SimpleNamespace(workers=workers))
    forecast = Forecast(scheduler, [GroupForecast("a", 7, stacking, 0.1, 10.0)])
    assert forecast.seconds == seconds and forecast.memory == 100 * min(4, workers)
