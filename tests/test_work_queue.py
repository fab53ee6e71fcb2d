from __future__ import annotations

import json
import os
from dataclasses import replace
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
import toys
from conftest import CPU, TESTS, simulated, write_rows
from toy_registries import but, toys_and

from lgbench.execution import lease
from lgbench.execution.claim import RECORD, Claim, PopulationRecord
from lgbench.execution.device import Execution
from lgbench.execution.lease import name_of
from lgbench.execution.progress import SilentProgress
from lgbench.execution.provenance import made_by
from lgbench.execution.runner import run_plan
from lgbench.execution.scheduler import path_of
from lgbench.execution.work_queue import UNFINISHED, WorkQueue, by_id
from lgbench.experiment.plan import Plan
from lgbench.extensions.loading import Distribution
from lgbench.results import run_files

MADE_BY = {"lgbench": "1", "torch": "2", "device": "cpu"}


@pytest.fixture(scope="module")
def runs(toy_registry, planned):
    """Ten experiments that are one stack."""
    return planned(toy_registry, "toy-walk", "toy-table", seeds=range(10), train_steps=2)


def queue_on(folder: Path, experiments) -> WorkQueue:
    """As a command that asks for these experiments has them."""
    return WorkQueue(folder, experiments)


def take(folder: Path, experiments, most: int = 100, made_by=MADE_BY) -> Claim | None:
    return queue_on(folder, experiments).take(by_id(experiments), most, lambda members: made_by)


def finish(folder: Path, experiments) -> None:
    for experiment in experiments:
        write_rows(path_of(experiment, folder), simulated({8: 0.5}, run_id=experiment.run_id))


DEAD = f"{lease._machine()}-{2**22}-1-abcdef"  # no system gives a process that number
"""The holder's part of the name of a folder whose process was killed."""


def abandon(claim: Claim, checkpoint: bool = True) -> Path:
    """Leave a claim as a killed process does: everything stays, under a name that says which process it was."""
    if checkpoint:
        claim.checkpoint.write_text("a state")
    claim.lease._end()
    return claim.folder.rename(claim.folder.with_name(f"{name_of(claim.folder)}.{DEAD}"))


def at_rest(folder: Path) -> Path:
    """A population's folder when nobody holds it."""
    return folder.with_name(name_of(folder))


def left(folder: Path) -> set[str]:
    """Everything under a folder that is no run file."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".parquet"}


def test_a_claim_that_is_finished_leaves_run_files_alone(tmp_path, runs):
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        claim.checkpoint.write_text("a state")
        finish(tmp_path, runs)
    assert left(tmp_path) == set()
    assert len(list(tmp_path.iterdir())) == 10


def test_a_claim_that_fails_leaves_nothing_where_there_is_no_checkpoint(tmp_path, runs):
    with pytest.raises(ValueError), take(tmp_path, runs):
        raise ValueError
    assert left(tmp_path) == set()


def test_a_claim_that_fails_keeps_its_checkpoint_until_all_runs_are_written(tmp_path, runs):
    """A disk that is full costs nothing that was trained."""
    with pytest.raises(OSError), take(tmp_path, runs, most=4) as claim:
        claim.checkpoint.write_text("a state")
        raise OSError(ENOSPC, "no space left")
    with take(tmp_path, runs) as again:
        assert again.experiments == claim.experiments and again.checkpoint.read_text() == "a state"
        finish(tmp_path, runs)
    assert left(tmp_path) == set()


def test_an_interrupt_leaves_nothing_where_there_is_no_checkpoint(tmp_path, runs):
    with pytest.raises(KeyboardInterrupt), take(tmp_path, runs):
        raise KeyboardInterrupt
    assert left(tmp_path) == set()


def test_an_interrupt_once_runs_are_written_keeps_who_was_trained_together(tmp_path, runs):
    """A smaller stack would round otherwise, and the rest end with other numbers."""
    with pytest.raises(KeyboardInterrupt), take(tmp_path, runs, most=4):
        finish(tmp_path, runs[:1])
        raise KeyboardInterrupt
    with take(tmp_path, runs, most=100) as claim:
        assert claim.experiments == list(runs[:4])
        finish(tmp_path, runs)
    assert left(tmp_path) == set()


def test_an_interrupt_keeps_the_checkpoint_and_the_same_command_goes_on_from_it(tmp_path, runs):
    with pytest.raises(KeyboardInterrupt), take(tmp_path, runs, most=4) as claim:
        claim.checkpoint.write_text("a state")
        raise KeyboardInterrupt
    assert (at_rest(claim.folder) / claim.checkpoint.name).exists()
    with take(tmp_path, runs, most=4) as again:
        assert again.experiments == claim.experiments
        assert again.checkpoint.read_text() == "a state"
    assert left(tmp_path) == set()


def test_nobody_else_can_take_a_run_that_is_taken(tmp_path, runs):
    with take(tmp_path, runs, most=4) as mine:
        with take(tmp_path, runs, most=100) as yours:
            assert set(mine.experiments) | set(yours.experiments) == set(runs)
            assert not set(mine.experiments) & set(yours.experiments)
            assert take(tmp_path, runs) is None
            assert take(tmp_path, runs[:1]) is None
        assert mine.checkpoint.parent.exists() and not yours.checkpoint.parent.exists()
        with take(tmp_path, runs) as again:
            assert again.experiments == yours.experiments
    assert left(tmp_path) == set()


@pytest.mark.parametrize("content", ["empty", "cut short", "of another run"])
def test_a_file_that_is_no_whole_file_of_a_run_does_not_count(tmp_path, runs, content):
    finish(tmp_path, runs)
    path = path_of(runs[3], tmp_path)
    other = path_of(runs[4], tmp_path).read_bytes()
    path.write_bytes({"empty": b"", "cut short": path.read_bytes()[:-9], "of another run": other}[content])
    with take(tmp_path, runs) as claim:
        assert claim.experiments == [runs[3]]


def test_a_run_that_has_a_file_is_not_taken(tmp_path, runs):
    finish(tmp_path, runs[2:5])
    with take(tmp_path, runs) as claim:
        assert claim.experiments == [*runs[:2], *runs[5:]]
        finish(tmp_path, claim.experiments)
    assert take(tmp_path, runs) is None
    assert left(tmp_path) == set()


@pytest.mark.parametrize(
    ("most", "sizes"), [(4, [4, 4, 2]), (10, [10]), (100, [10]), (9, [9, 1]), (3, [3, 3, 3, 1]), (1, [1] * 10)]
)
def test_a_population_has_as_many_members_as_there_are_up_to_its_stack(tmp_path, runs, most, sizes):
    taken = []
    while claim := take(tmp_path, runs, most):
        with claim:
            finish(tmp_path, claim.experiments)
        taken.append(claim.experiments)
    assert [len(experiments) for experiments in taken] == sizes
    assert [experiment for experiments in taken for experiment in experiments] == list(runs)


def test_taking_a_population_looks_at_its_own_runs_alone(tmp_path, runs, monkeypatch):
    """Or a grid of n runs would take n looks for each population, and nobody could afford a large one."""
    looked: list[str] = []
    is_run = run_files.is_run
    monkeypatch.setattr(run_files, "is_run", lambda path, run: looked.append(run) or is_run(path, run))
    left, queue = by_id(runs), queue_on(tmp_path, runs)
    for taken in (runs[:2], runs[2:4]):
        with queue.take(left, 2, lambda members: MADE_BY) as claim:
            assert claim.experiments == list(taken)
            assert set(looked) == {experiment.run_id for experiment in taken}
            finish(tmp_path, taken)
        looked.clear()
        for experiment in taken:
            del left[experiment.run_id]


def test_an_abandoned_population_is_gone_on_with_as_it_was(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with take(tmp_path, runs, most=3) as claim:  # less fits into memory now
        assert claim.experiments == list(runs[:4]) and name_of(claim.folder) == name_of(folder)
        assert claim.checkpoint.read_text() == "a state"
        assert take(tmp_path, runs[:4]) is None


def test_an_abandoned_population_comes_before_what_is_free(tmp_path, runs):
    with take(tmp_path, runs, most=4):
        folder = abandon(take(tmp_path, runs, most=3))
    with take(tmp_path, runs, most=100) as claim:
        assert name_of(claim.folder) == name_of(folder) and claim.experiments == list(runs[4:7])
        with take(tmp_path, runs, most=100) as other:
            assert other.experiments == [*runs[:4], *runs[7:]]


def test_an_abandoned_population_without_a_checkpoint_has_the_same_members_too(tmp_path, runs):
    abandon(take(tmp_path, runs, most=4), checkpoint=False)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs[:4]) and not claim.checkpoint.exists()


def test_an_abandoned_population_keeps_its_members_though_some_have_files(tmp_path, runs):
    """Killed while it was evaluated; trained with others, a model's numbers would differ by rounding."""
    abandon(take(tmp_path, runs, most=4))
    finish(tmp_path, runs[:3])
    with take(tmp_path, runs) as claim:
        assert claim.checkpoint.exists() and claim.experiments == list(runs[:4])


def test_a_command_that_asks_for_more_goes_on_with_what_is_abandoned(tmp_path, runs):
    abandon(take(tmp_path, runs[2:5]))
    with take(tmp_path, runs) as claim:
        assert claim.checkpoint.exists() and claim.experiments == list(runs[2:5])
        with take(tmp_path, runs) as other:
            assert not other.checkpoint.exists() and set(other.experiments) == set(runs) - set(runs[2:5])


def test_a_command_that_asks_for_a_part_trains_it_afresh_and_leaves_the_abandoned_one(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with take(tmp_path, runs[:2]) as claim:
        assert not claim.checkpoint.exists() and claim.experiments == list(runs[:2])
        finish(tmp_path, runs[:2])
    assert (at_rest(folder) / "checkpoint.safetensors").read_text() == "a state"
    with take(tmp_path, runs) as claim:
        assert claim.checkpoint.exists() and name_of(claim.folder) == name_of(folder)


def test_an_abandoned_population_is_not_gone_on_with_while_another_process_has_one_of_its_members(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with take(tmp_path, runs[:1]) as other:
        with take(tmp_path, runs) as claim:
            assert not claim.checkpoint.exists() and not set(claim.experiments) & set(other.experiments)
        assert at_rest(folder).exists()


def test_an_abandoned_population_whose_runs_are_all_there_is_removed(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    finish(tmp_path, runs[:4])
    with take(tmp_path, runs) as claim:
        assert not claim.checkpoint.exists() and claim.experiments == list(runs[4:])
        assert not folder.exists() and not at_rest(folder).exists()
    assert left(tmp_path) == set()


def test_an_abandoned_population_that_others_asked_for_is_left_to_them(tmp_path, runs):
    folder = abandon(take(tmp_path, runs[:4]))
    with take(tmp_path, runs[5:]) as claim:
        assert claim.experiments == list(runs[5:])
    assert (at_rest(folder) / "checkpoint.safetensors").read_text() == "a state"


def test_the_versions_that_take_part_are_those_of_all_members(tmp_path, planned):
    """Two plugins may bring tasks of one shape, whose models are one population."""

    def take_all(wanted):
        return queue_on(tmp_path, wanted).take(by_id(wanted), 100, lambda members: made_by(members, CPU))

    known = toys_and(Distribution("other", "1"), task=but(toys.Walk(), name="toy-other", family="toy-other"))
    experiments = planned(known, ["toy-walk", "toy-other"], "toy-table")
    assert made_by(experiments, CPU).items() >= {"lgbench-toys": "1.2.3", "other": "1", "device": "cpu"}.items()
    abandon(take_all(experiments))
    upgraded = [replace(each, plugins={**each.plugins, "other": "2"}) for each in experiments[1:]]
    with take_all([experiments[0], *upgraded]) as claim:
        assert claim.experiments == list(experiments) and not claim.checkpoint.exists()
    abandon(take_all(experiments))
    with take_all(experiments) as claim:
        assert claim.experiments == list(experiments) and claim.checkpoint.exists()


@pytest.mark.parametrize("version", ["lgbench", "torch", "device", "a-plugin"])
def test_an_abandoned_population_of_other_versions_is_trained_afresh(tmp_path, runs, version):
    abandon(take(tmp_path, runs))
    with take(tmp_path, runs, made_by=MADE_BY | {version: "3"}) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert json.loads((claim.folder / RECORD).read_text())["made_by"] == MADE_BY | {version: "3"}
        finish(tmp_path, runs)
    queue_on(tmp_path, runs).clear()
    assert left(tmp_path) == set()


def test_a_folder_that_was_being_made_when_its_process_was_killed_is_removed(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    (folder / RECORD).rename(folder / f".{RECORD}.a1b2c3.partial")
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert not folder.exists() and not at_rest(folder).exists()
    assert left(tmp_path) == set()


def test_a_population_whose_record_the_disk_does_not_give_now_keeps_what_was_trained(tmp_path, runs, monkeypatch):
    folder = abandon(take(tmp_path, runs, most=4))
    read = Path.read_text

    def broken(path, **options):
        if path.name == RECORD:
            raise OSError(EIO, "Input/output error")
        return read(path, **options)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(Path, "read_text", broken)
        take(tmp_path, runs)
    monkeypatch.undo()
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs[:4]) and claim.checkpoint.read_text() == "a state"
        assert name_of(claim.folder) == name_of(folder)


@pytest.mark.parametrize(
    "failing", [OSError(ENOSPC, "No space left"), KeyboardInterrupt()], ids=["a full disk", "an interrupt"]
)
def test_a_population_that_cannot_be_begun_leaves_nothing_and_its_runs_free(tmp_path, runs, monkeypatch, failing):
    def fails(*arguments):
        raise failing

    with monkeypatch.context() as patch, pytest.raises(type(failing)):
        patch.setattr(PopulationRecord, "write", fails)
        take(tmp_path, runs)
    queue_on(tmp_path, runs).clear()
    assert left(tmp_path) == set()
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs)


UNUSABLE = {
    "empty": "",
    "cut short": '{"files": {"a"',
    "no text": b"\xff\xfe",
    "nested too deeply": "[" * 100_000,
    "a list": "[]",
    "nothing": "null",
    "one key more": '{"files": {"a": "a.parquet"}, "models": 1, "made_by": {}, "since": 3}',
    "one key less": '{"files": {"a": "a.parquet"}, "models": 1}',
    "files that are a text": '{"files": "a", "models": 1, "made_by": {}}',
    "files that are no texts": '{"files": {"a": 1}, "models": 1, "made_by": {}}',
    "files in another folder": '{"files": {"a": "../a.parquet"}, "models": 1, "made_by": {}}',
    "runs in another folder": '{"files": {"../a": "a.parquet"}, "models": 1, "made_by": {}}',
    "models that are a text": '{"files": {"a": "a.parquet"}, "models": "1", "made_by": {}}',
    "more files than models": '{"files": {"a": "a.parquet"}, "models": 0, "made_by": {}}',
    "makers that are a list": '{"files": {"a": "a.parquet"}, "models": 1, "made_by": ["torch"]}',
    "versions that are no texts": '{"files": {"a": "a.parquet"}, "models": 1, "made_by": {"torch": 2}}',
}


def spoil(folder: Path, record: str | bytes) -> None:
    (folder / RECORD).write_bytes(record if isinstance(record, bytes) else record.encode())


@pytest.mark.parametrize("record", UNUSABLE.values(), ids=UNUSABLE)
def test_an_abandoned_population_whose_record_is_unusable_is_removed_and_trained_afresh(tmp_path, runs, record):
    folder = abandon(take(tmp_path, runs, most=4))
    spoil(folder, record)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert not folder.exists() and not at_rest(folder).exists()
    assert left(tmp_path) == set()


@pytest.mark.parametrize("record", UNUSABLE.values(), ids=UNUSABLE)
def test_a_population_that_is_held_stays_whatever_its_record_is(tmp_path, runs, record):
    held = take(tmp_path, runs, most=4)
    held.checkpoint.write_text("a state")
    spoil(held.folder, record)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs[4:])
    queue_on(tmp_path, runs).clear()
    assert held.checkpoint.read_text() == "a state"
    abandon(held)
    queue_on(tmp_path, runs).clear()
    assert left(tmp_path) == set()


def test_a_record_is_on_the_disk_before_it_gets_its_name(tmp_path, runs, monkeypatch):
    seen = []

    def fsync(handle):
        (partial,) = (tmp_path / UNFINISHED).glob(f"*/.{RECORD}.*")
        assert os.fstat(handle).st_ino == partial.stat().st_ino
        assert not partial.with_name(RECORD).exists()
        seen.append(json.loads(partial.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    with take(tmp_path, runs) as claim:
        assert seen == [json.loads((claim.folder / RECORD).read_text())]
        files = {experiment.run_id: path_of(experiment, tmp_path).name for experiment in runs}
        assert seen[0] == {"files": files, "models": 100, "made_by": MADE_BY}


def test_an_abandoned_population_that_other_commands_finish_is_removed(tmp_path, runs):
    abandon(take(tmp_path, runs[:4]))
    for part in (runs[:2], runs[2:4]):
        assert not run_plan(Plan(part, ()), Execution(CPU, False), tmp_path, SilentProgress()).failed
    assert left(tmp_path) == set()


HOLDS = """
import signal, sys
sys.path.insert(0, sys.argv[1])
import toys
from pathlib import Path
from test_work_queue import finish, queue_on, take
from lgbench.experiment.plan import Request, plan
from toy_registries import toys_and

known = toys_and()
runs = plan(Request(["toy-walk"], ["toy-table"], (), range(10), "quick", {"train.steps": "2"}), known).experiments
claim = take(Path(sys.argv[2]), runs, most=4)
print("took", *(experiment.seed for experiment in claim.experiments), flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_another_process_keeps_what_it_took_until_it_is_killed(tmp_path, warm, runs):
    with warm.start([TESTS, tmp_path], HOLDS) as other:
        assert other.stdout.readline() == "took 0 1 2 3\n", other.stderr.read()
        with take(tmp_path, runs) as claim:
            assert claim.experiments == list(runs[4:])
        assert take(tmp_path, runs[:4]) is None
        other.kill()
        assert other.wait() == -9
        with take(tmp_path, runs) as claim:
            assert claim.experiments == list(runs[:4])


TAKES_ALL = (
    HOLDS.partition("claim = take")[0]
    + """
folder, name = Path(sys.argv[2]), sys.argv[3]
while claim := take(folder, runs, most=1):
    with claim:
        (experiment,) = claim.experiments
        with (folder / f"{experiment.run_id}.made").open("a") as file:
            file.write(name)
        finish(folder, [experiment])
queue_on(folder, runs).clear()  # as every command does at its end: it may have begun to claim what the other finished
"""
)


@pytest.mark.slow
def test_processes_that_take_and_finish_at_the_same_time_do_everything_once(tmp_path, warm):
    """Nothing is held for long here, so that the folders which are removed with the last claim are fought over."""
    one, two = (warm.start([TESTS, tmp_path, name], TAKES_ALL) for name in "ab")
    with one, two:
        said = [process.communicate() for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0), said
    made = list(tmp_path.glob("*.made"))
    assert len(made) == 10 and all(path.read_text() in ("a", "b") for path in made)
    assert left(tmp_path) == {path.name for path in made}
