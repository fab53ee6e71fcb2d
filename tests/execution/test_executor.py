"""The seam between who knows what is left and who runs it: any executor makes the same run files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import pytest
import torch
import toys
from helpers.made_runs import made
from helpers.plain_training import CHEAP, CPU
from helpers.queues import checkpoint_of, left, take
from helpers.toy_registries import but, toys_and

from lgbench import Random, seeds
from lgbench.errors import RunFailed
from lgbench.execution import runner
from lgbench.execution.device import Execution
from lgbench.execution.executor import Done, InProcess
from lgbench.execution.progress import SilentProgress
from lgbench.execution.runner import run_plan
from lgbench.execution.work_queue import UNFINISHED
from lgbench.experiment.plan import Plan
from lgbench.results import run_files

SETTINGS = {key.replace(".", "_"): value for key, value in CHEAP.items()} | {"evaluate_max_length": 8}


class Reversed:
    """Takes everything first and runs the last population first."""

    def run(self, left, run_population) -> Iterator[Done]:
        everything = list(left)
        assert len(everything) > 1
        yield from InProcess().run(reversed(everything), run_population)


class InAThread:
    """Runs each population in another thread, and reports when all are through."""

    def run(self, left, run_population) -> Iterator[Done]:
        here = threading.get_ident()

        def done(locked) -> list[Done]:
            assert threading.get_ident() != here
            return list(InProcess().run([locked], run_population))

        with ThreadPoolExecutor(1) as threads:
            for outcomes in [*threads.map(done, list(left))]:
                yield from outcomes


def planned_grid(planned, known=None):
    """Two groups, each divided in two: four populations."""
    known = known or toys_and()
    return planned(known, ["toy-walk", "toy-largest"], "toy-table", (0, 1, 2), averagers=["toy-mean"], **SETTINGS)


def run(experiments, folder, executor=None, population=2):
    return run_plan(Plan(tuple(experiments), ()), Execution(CPU, False, population), folder, SilentProgress(), executor)


@pytest.fixture(scope="module")
def local(planned, tmp_path_factory) -> dict[str, str]:
    """The run files that this process makes, population after population."""
    folder = tmp_path_factory.mktemp("local")
    outcome = run(planned_grid(planned), folder)
    assert len(outcome.written) == 6 and not outcome.failed and not outcome.found
    return made(folder)


@pytest.mark.parametrize("executor", [InProcess(), Reversed(), InAThread()], ids=lambda executor: type(executor).__name__)
def test_every_executor_makes_the_same_run_files_to_the_bit_and_leaves_nothing_else(planned, local, tmp_path, executor):
    outcome = run(planned_grid(planned), tmp_path, executor)
    assert made(tmp_path) == local
    assert {path.name for path in outcome.written} == local.keys() and not outcome.failed and not outcome.found
    assert left(tmp_path) == set()


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
    key = seeds.key(1, "evaluate", "toy-failing", "contexts", 8)
    task.fails_at = task.sample(8, Random.stacked([key], experiments[0].evaluate.contexts)).inputs
    return experiments


@pytest.mark.parametrize("executor", [InProcess(), Reversed(), InAThread()], ids=lambda executor: type(executor).__name__)
def test_a_population_that_fails_is_reported_with_its_place_and_stops_no_other(planned, tmp_path, executor):
    experiments = failing_at(planned)
    outcome = run(experiments, tmp_path, executor, population=None)
    failed = [e for e in experiments if e.record.task == "toy-failing" and e.seed > 0]
    expected = {run_files.path_for(tmp_path, e.record) for e in experiments if e not in failed}
    assert set(outcome.written) == expected == set(run_files.find(tmp_path)) and len(failed) == 4
    assert len(outcome.failed) == 2
    for failure, entry in zip(sorted(outcome.failed, key=str), ("toy-fragile", "toy-table"), strict=True):
        assert isinstance(failure, RunFailed) and isinstance(failure.__cause__, ValueError)
        for said in ("toy-failing", entry, "3 models", "ValueError: no contexts today", "test_executor.py:"):
            assert said in str(failure)
    assert left(tmp_path) == set()
    again = run(experiments, tmp_path, executor=InProcess(), population=None)
    assert set(again.found) == expected and not again.written and len(again.failed) == 2


def test_a_first_step_that_fails_is_reported_before_any_executor_sees_it(planned, tmp_path):
    """And a plugin's error in one group stops no other."""
    seen = []

    class Watching(InProcess):
        def run(self, left, run_population):
            yield from super().run((seen.append(each) or each for each in left), run_population)

    def fails(self, length, random):
        raise ValueError("no contexts today")

    broken = toys_and(task=but(toys.Walk(), name="toy-none", family="toy-none", sample=toys.Walk.sample))
    experiments = planned(broken, ["toy-none", "toy-largest"], "toy-table", (0, 1), **SETTINGS)
    type(experiments[0].task).sample = fails
    outcome = run(experiments, tmp_path, Watching(), population=None)
    (failure,) = outcome.failed
    assert "toy-none" in str(failure) and "no contexts today" in str(failure)
    assert [each.experiments[0].record.task for each in seen] == ["toy-largest"] and len(outcome.written) == 2
    assert left(tmp_path) == set()


def test_a_population_is_locked_when_an_executor_takes_it_and_free_when_it_ends(planned, tmp_path):
    experiments = planned_grid(planned)
    walks = [e for e in experiments if e.record.task == "toy-walk"]
    held = []

    class Watching:
        def run(self, left, run_population):
            for number, locked in enumerate(left):
                running = [path for path in (tmp_path / UNFINISHED).iterdir() if path.is_dir()]
                held.append((number, running == [locked.folder], take(tmp_path, locked.experiments)))
                yield from InProcess().run([locked], run_population)

    run(experiments, tmp_path, Watching())
    assert held == [(number, True, None) for number in range(4)]
    assert len(walks) == 3 and left(tmp_path) == set()


def test_an_interrupt_reaches_whoever_started_the_run_and_what_is_done_stays(planned, local, tmp_path):
    class Impatient:
        def run(self, left, run_population):
            for number, locked in enumerate(left):
                with locked:
                    if number == 2:
                        raise KeyboardInterrupt
                    yield Done(locked, list(run_population(locked.planned, locked.experiments, locked.folder)))

    with pytest.raises(KeyboardInterrupt):
        run(planned_grid(planned), tmp_path, Impatient())
    before = made(tmp_path)
    assert len(before) == 3 and before.items() <= local.items() and left(tmp_path) == set()
    run(planned_grid(planned), tmp_path)
    assert made(tmp_path) == local


def test_a_population_can_be_ended_by_another_thread_than_took_it(planned, tmp_path):
    """After an interrupt it can be taken at once, by this process too."""
    experiments = planned_grid(planned)
    locked = take(tmp_path, experiments[:3])

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt), locked:
            checkpoint_of(locked).write_text("a state")
            raise KeyboardInterrupt

    thread = threading.Thread(target=interrupted)
    thread.start()
    thread.join()
    with take(tmp_path, experiments[:3]) as again:
        assert again.folder == locked.folder and checkpoint_of(again).read_text() == "a state"


def test_a_run_that_another_process_wrote_in_the_meantime_is_found_and_not_written_again(planned, local, tmp_path):
    experiments = planned_grid(planned)

    class Late:
        """Somebody else finishes the runs of the first population while it is trained."""

        def run(self, left, run_population):
            for number, locked in enumerate(left):
                if number == 0:
                    run(experiments, tmp_path / "other")
                    for path in run_files.find(tmp_path / "other"):
                        path.rename(tmp_path / path.name)
                yield from InProcess().run([locked], run_population)

    outcome = run(experiments, tmp_path, Late())
    assert outcome.written == [] and {path.name for path in outcome.found} == local.keys()
    assert made(tmp_path) == local


def test_the_seconds_of_a_run_are_its_own_and_not_those_of_the_runs_before_it(toy_registry, planned, tmp_path, monkeypatch):
    """Each look at the clock is a second later: a test takes one, whichever model of a population it is of."""
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=count().__next__))
    outcome = run(planned(toy_registry, ["toy-largest"], ["toy-table"], (0, 1, 2), **SETTINGS), tmp_path, InProcess())
    seconds = [run_files.metadata(path)["seconds"] for path in outcome.written]
    assert len(seconds) == 3 and {each["total"] - each["train"] for each in seconds} == {1.0}


def test_a_damaged_file_whose_run_fails_again_is_not_called_done_before(planned, tmp_path):
    experiments = failing_at(planned)
    failed = next(e for e in experiments if e.record.task == "toy-failing" and e.seed == 1)
    damaged = run_files.path_for(tmp_path, failed.record)
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(b"half")
    outcome = run(experiments, tmp_path, InProcess(), population=None)
    assert outcome.failed and outcome.found == [] and damaged.read_bytes() == b"half"
