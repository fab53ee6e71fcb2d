from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CPU, TESTS

from lgbench.experiment import Plan
from lgbench.running.claims import RECORD, UNFINISHED, Claim, Claims
from lgbench.running.execution import Execution
from lgbench.running.grid import path_of
from lgbench.running.runner import run_plan
from lgbench.running.watcher import Silent

MADE_BY = {"lgbench": "1", "torch": "2", "device": "cpu"}


@pytest.fixture(scope="module")
def runs(toy_registry, planned):
    """Ten experiments that are one stack."""
    return planned(toy_registry, "toy-walk", "toy-table", seeds=range(10), train_steps=2)


def claims_on(folder: Path, experiments) -> Claims:
    """As a command that asks for these experiments has them."""
    return Claims(folder, {experiment: path_of(experiment, folder) for experiment in experiments})


def take(folder: Path, experiments, most: int = 100, made_by=MADE_BY) -> Claim | None:
    return claims_on(folder, experiments).take(experiments, most, made_by)


def finish(folder: Path, experiments) -> None:
    for experiment in experiments:
        path_of(experiment, folder).touch()


def abandon(claim: Claim, checkpoint: bool = True) -> Path:
    """What a killed process leaves: everything but the lock, which the operating system takes from it."""
    if checkpoint:
        claim.checkpoint.write_text("a state")
    claim.lock.release()
    return claim.folder


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


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_claim_that_fails_leaves_nothing(tmp_path, runs, checkpoint):
    with pytest.raises(ValueError), take(tmp_path, runs) as claim:
        if checkpoint:
            claim.checkpoint.write_text("a state")
        raise ValueError
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
    assert claim.checkpoint.exists()
    with take(tmp_path, runs, most=4) as again:
        assert again.experiments == claim.experiments
        assert again.checkpoint.read_text() == "a state"
    assert left(tmp_path) == set()


def test_what_is_taken_is_taken_from_everyone_else(tmp_path, runs):
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


def test_what_has_a_file_is_not_taken(tmp_path, runs):
    finish(tmp_path, runs[2:5])
    with take(tmp_path, runs) as claim:
        assert claim.experiments == [*runs[:2], *runs[5:]]
        finish(tmp_path, claim.experiments)
    assert take(tmp_path, runs) is None
    assert left(tmp_path) == set()


@pytest.mark.parametrize(
    ("most", "sizes"), [(4, [4, 3, 3]), (10, [10]), (100, [10]), (9, [5, 5]), (5, [5, 5]), (3, [3, 3, 2, 2]), (1, [1] * 10)]
)
def test_parts_are_as_few_and_as_equal_as_can_be(tmp_path, runs, most, sizes):
    taken = []
    while claim := take(tmp_path, runs, most):
        with claim:
            finish(tmp_path, claim.experiments)
        taken.append(claim.experiments)
    assert [len(experiments) for experiments in taken] == sizes
    assert [experiment for experiments in taken for experiment in experiments] == list(runs)


def test_an_abandoned_population_is_gone_on_with_as_it_was(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with take(tmp_path, runs, most=3) as claim:  # less fits into memory now
        assert claim.experiments == list(runs[:4]) and claim.folder == folder
        assert claim.checkpoint.read_text() == "a state"
        assert take(tmp_path, runs[:4]) is None


def test_an_abandoned_population_comes_before_what_is_free(tmp_path, runs):
    with take(tmp_path, runs, most=4):
        folder = abandon(take(tmp_path, runs, most=3))
    with take(tmp_path, runs, most=100) as claim:
        assert claim.folder == folder and claim.experiments == list(runs[4:7])
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
    assert (folder / "checkpoint.safetensors").read_text() == "a state"
    with take(tmp_path, runs) as claim:
        assert claim.checkpoint.exists() and claim.folder == folder


def test_an_abandoned_population_is_not_gone_on_with_while_another_process_has_one_of_its_members(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with take(tmp_path, runs[:1]) as other:
        with take(tmp_path, runs) as claim:
            assert not claim.checkpoint.exists() and not set(claim.experiments) & set(other.experiments)
        assert folder.exists()


def test_an_abandoned_population_whose_runs_are_all_there_is_removed(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    finish(tmp_path, runs[:4])
    with take(tmp_path, runs) as claim:
        assert not claim.checkpoint.exists() and claim.experiments == list(runs[4:])
        assert not folder.exists()
    assert left(tmp_path) == set()


def test_an_abandoned_population_that_others_asked_for_is_left_to_them(tmp_path, runs):
    folder = abandon(take(tmp_path, runs[:4]))
    with take(tmp_path, runs[5:]) as claim:
        assert claim.experiments == list(runs[5:])
    assert (folder / "checkpoint.safetensors").read_text() == "a state"


@pytest.mark.parametrize("version", ["lgbench", "torch", "device", "a-plugin"])
def test_an_abandoned_population_of_other_versions_is_trained_afresh(tmp_path, runs, version):
    abandon(take(tmp_path, runs))
    with take(tmp_path, runs, made_by=MADE_BY | {version: "3"}) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert json.loads((claim.folder / RECORD).read_text())["made_by"] == MADE_BY | {version: "3"}
        finish(tmp_path, runs)
    assert left(tmp_path) == set()


def test_a_folder_that_was_being_made_when_its_process_was_killed_is_removed(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    (folder / RECORD).rename(folder / f"{RECORD}.partial")
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert not folder.exists()
    assert left(tmp_path) == set()


UNUSABLE = {
    "empty": "",
    "cut short": '{"runs": ["a"',
    "no text": b"\xff\xfe",
    "nested too deeply": "[" * 100_000,
    "a list": "[]",
    "nothing": "null",
    "one key more": '{"runs": ["a"], "made_by": {}, "since": 3}',
    "one key less": '{"runs": ["a"]}',
    "runs that are a text": '{"runs": "a", "made_by": {}}',
    "runs that are no texts": '{"runs": [1], "made_by": {}}',
    "makers that are a list": '{"runs": ["a"], "made_by": ["torch"]}',
    "versions that are no texts": '{"runs": ["a"], "made_by": {"torch": 2}}',
}


def spoil(folder: Path, record: str | bytes) -> None:
    (folder / RECORD).write_bytes(record if isinstance(record, bytes) else record.encode())


@pytest.mark.parametrize("record", UNUSABLE.values(), ids=UNUSABLE)
def test_an_abandoned_population_whose_record_is_unusable_is_removed_and_trained_afresh(tmp_path, runs, record):
    folder = abandon(take(tmp_path, runs, most=4))
    spoil(folder, record)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and not claim.checkpoint.exists()
        assert not folder.exists()
    assert left(tmp_path) == set()


@pytest.mark.parametrize("record", UNUSABLE.values(), ids=UNUSABLE)
def test_a_population_that_is_held_stays_whatever_its_record_is(tmp_path, runs, record):
    held = take(tmp_path, runs, most=4)
    held.checkpoint.write_text("a state")
    spoil(held.folder, record)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs) and claim.folder != held.folder
    claims_on(tmp_path, runs).clear()
    assert held.checkpoint.read_text() == "a state"
    abandon(held)
    claims_on(tmp_path, runs).clear()
    assert left(tmp_path) == set()


def test_a_population_that_is_held_without_a_usable_record_is_not_trained_a_second_time(tmp_path, runs):
    """Its folder has the name that just these runs give it."""
    with take(tmp_path, runs) as held:
        spoil(held.folder, "")
        assert take(tmp_path, runs) is None
        assert (held.folder / RECORD).exists()
    with take(tmp_path, runs) as claim:
        assert claim.folder == held.folder


def test_a_record_is_on_the_disk_before_it_gets_its_name(tmp_path, runs, monkeypatch):
    seen = []

    def fsync(handle):
        (partial,) = (tmp_path / UNFINISHED).glob(f"*/{RECORD}.partial")
        assert os.fstat(handle).st_ino == partial.stat().st_ino
        assert not partial.with_name(RECORD).exists()
        seen.append(json.loads(partial.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    with take(tmp_path, runs) as claim:
        assert seen == [json.loads((claim.folder / RECORD).read_text())]
        assert seen[0] == {"runs": [experiment.run_id for experiment in runs], "made_by": MADE_BY}


def test_locks_of_killed_processes_are_in_nobodys_way(tmp_path, runs):
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / f"{UNFINISHED}.lock").touch()
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs)
    assert left(tmp_path) == set()


def test_an_abandoned_population_that_other_commands_finish_is_removed(tmp_path, toy_registry, runs):
    abandon(take(tmp_path, runs[:4]))
    for part in (runs[:2], runs[2:4]):
        assert not run_plan(Plan(part, ()), toy_registry, Execution(CPU, False), tmp_path, Silent()).failed
    assert left(tmp_path) == set()


HOLDS = """
import sys
sys.path.insert(0, sys.argv[1])
import toys
from pathlib import Path
from test_claims import path_of, take
from lgbench.experiment import Request, plan
from lgbench.registry import Distribution, Registry

registry = Registry()
registry.add(toys, "toys", Distribution("lgbench-toys", "1.2.3"))
runs = plan(Request(["toy-walk"], ["toy-table"], (), range(10), "quick", {"train.steps": "2"}), registry).experiments
claim = take(Path(sys.argv[2]), runs, most=4)
print("took", *(experiment.seed for experiment in claim.experiments), flush=True)
sys.stdin.read()
"""


def test_another_process_keeps_what_it_took_until_it_is_killed(tmp_path, runs):
    command = [sys.executable, "-c", HOLDS, str(TESTS), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "took 0 1 2 3\n"
            with take(tmp_path, runs) as claim:
                assert claim.experiments == list(runs[4:])
            assert take(tmp_path, runs[:4]) is None
        finally:
            os.kill(other.pid, signal.SIGKILL)
    with take(tmp_path, runs) as claim:
        assert claim.experiments == list(runs[:4])


TAKES_ALL = (
    HOLDS.partition("claim = take")[0]
    + """
folder, name = Path(sys.argv[2]), sys.argv[3]
while claim := take(folder, runs, most=1):
    with claim:
        (experiment,) = claim.experiments
        with path_of(experiment, folder).open("a") as file:
            file.write(name)
"""
)


def test_processes_that_take_and_finish_at_the_same_time_do_everything_once(tmp_path):
    """Nothing is held for long here, so that the lock which is removed with the last claim is fought over."""
    commands = [[sys.executable, "-c", TAKES_ALL, str(TESTS), str(tmp_path), name] for name in "ab"]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    names = [path.read_text() for path in tmp_path.glob("*.parquet")]
    assert len(names) == 10 and all(name in ("a", "b") for name in names)
    assert left(tmp_path) == set()
