"""Work queue: populations are taken once, and those of killed processes are trained by the same models together."""

from __future__ import annotations

import json
from dataclasses import replace
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
import toys
from helpers.commands import left
from helpers.folders import TESTS
from helpers.plain_training import CPU
from helpers.queues import abandon, checkpoint_of, finish, queue_on, take, taken
from helpers.toy_registries import but, toys_and

from lgbench.execution import work_queue
from lgbench.execution.work_queue import RECORD, PlannedPopulation
from lgbench.extensions.loading import Distribution


@pytest.fixture(scope="module")
def runs(toy_registry, planned):
    """Ten experiments that can train together."""
    return planned(toy_registry, "toy-walk", "toy-table", seeds=range(10), train_steps=2)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_population_that_stops_without_a_checkpoint_leaves_nothing(tmp_path, runs, error):
    with pytest.raises(error), taken(tmp_path, runs):
        raise error
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(ENOSPC, "no space left"), KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_a_population_that_stops_keeps_its_checkpoint_until_all_runs_are_written(tmp_path, runs, error):
    with pytest.raises(type(error)), taken(tmp_path, runs, most=4) as population:
        checkpoint_of(population).write_text("a state")
        raise error
    with taken(tmp_path, runs) as again:
        assert again.experiments == list(runs[:4]) and checkpoint_of(again).read_text() == "a state"
        finish(tmp_path, runs)
    assert left(tmp_path) == []


def test_an_interrupt_after_the_first_run_file_keeps_the_members_together(tmp_path, runs):
    """A smaller stack would round otherwise, and the rest end with other numbers."""
    with pytest.raises(KeyboardInterrupt), taken(tmp_path, runs, most=4):
        finish(tmp_path, runs[:1])
        raise KeyboardInterrupt
    with taken(tmp_path, runs, most=100) as population:
        assert population.experiments == list(runs[:4])
        finish(tmp_path, runs)
    assert left(tmp_path) == []


def test_a_run_that_is_taken_is_taken_by_no_one_else(tmp_path, runs):
    with taken(tmp_path, runs, most=4) as mine:
        with taken(tmp_path, runs, most=100) as yours:
            assert [*mine.experiments, *yours.experiments] == list(runs)
            assert take(tmp_path, runs) is None and take(tmp_path, runs[:1]) is None
        assert mine.folder.exists() and not yours.folder.exists()
        with taken(tmp_path, runs) as again:
            assert again.experiments == yours.experiments
    assert left(tmp_path) == []


def test_a_run_that_has_a_file_is_not_taken(tmp_path, runs):
    finish(tmp_path, runs[2:5])
    with taken(tmp_path, runs) as population:
        assert population.experiments == [*runs[:2], *runs[5:]]
        finish(tmp_path, population.experiments)
    assert take(tmp_path, runs) is None
    assert left(tmp_path) == []


@pytest.mark.parametrize(("most", "sizes"), [(4, [4, 4, 2]), (10, [10]), (100, [10]), (1, [1] * 10)])
def test_a_population_has_as_many_members_as_there_are_up_to_its_stack(tmp_path, runs, most, sizes):
    found = []
    while population := take(tmp_path, runs, most):
        finish(tmp_path, population.experiments)
        population.release()
        found.append(population.experiments)
    assert [len(experiments) for experiments in found] == sizes
    assert [experiment for experiments in found for experiment in experiments] == list(runs)


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("written", [0, 3])
def test_a_population_of_a_killed_process_is_trained_with_the_same_members(tmp_path, runs, checkpoint, written):
    """Trained with others, a model's numbers would differ by rounding."""
    folder = abandon(take(tmp_path, runs, most=4), checkpoint)
    finish(tmp_path, runs[:written])
    with taken(tmp_path, runs, most=3) as population:  # less fits into memory now
        assert population.folder == folder and population.experiments == list(runs[:4])
        assert population.planned.models == 4 and checkpoint_of(population).exists() == checkpoint
        assert written or take(tmp_path, runs[:4]) is None


def test_a_command_that_asks_for_more_goes_on_with_the_population_of_a_killed_one(tmp_path, runs):
    abandon(take(tmp_path, runs[2:5]))
    with taken(tmp_path, runs) as population, taken(tmp_path, runs) as other:
        assert checkpoint_of(population).exists() and population.experiments == list(runs[2:5])
        assert not checkpoint_of(other).exists() and set(other.experiments) == set(runs) - set(runs[2:5])


def test_a_command_that_asks_for_a_part_trains_the_part_afresh_and_leaves_the_rest(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    with taken(tmp_path, runs[:2]) as population:
        assert not checkpoint_of(population).exists() and population.experiments == list(runs[:2])
        finish(tmp_path, runs[:2])
    with taken(tmp_path, runs) as population:
        assert checkpoint_of(population).read_text() == "a state" and population.folder == folder


def test_a_stack_that_was_too_large_for_memory_is_not_trained_again(tmp_path, runs):
    abandon(take(tmp_path, runs, most=4))
    with taken(tmp_path, runs, most=2, limit=2) as population:
        assert population.experiments == list(runs[:2])


def test_a_population_whose_runs_are_all_there_is_removed(tmp_path, runs):
    folder = abandon(take(tmp_path, runs, most=4))
    finish(tmp_path, runs[:4])
    queue_on(tmp_path, runs[5:]).clear()
    assert not folder.exists() and left(tmp_path) == []


def test_a_population_that_other_commands_asked_for_is_left_to_them(tmp_path, runs):
    folder = abandon(take(tmp_path, runs[:4]))
    with taken(tmp_path, runs[5:]) as population:
        assert population.experiments == list(runs[5:])
    queue_on(tmp_path, runs[5:]).clear()
    assert (folder / "checkpoint.safetensors").read_text() == "a state"


def test_the_versions_that_take_part_are_those_of_all_members(tmp_path, planned):
    """Two plugins may bring tasks of one shape, whose models are one population."""
    known = toys_and(Distribution("other", "1"), task=but(toys.Walk(), name="toy-other", family="toy-other"))
    experiments = planned(known, ["toy-walk", "toy-other"], "toy-table")
    versions = work_queue.made_by(experiments, CPU)
    assert versions.items() >= {"lgbench-toys": "1.2.3", "other": "1", "device": "cpu"}.items()
    abandon(take(tmp_path, experiments))
    upgraded = [experiments[0], *(replace(each, plugins={**each.plugins, "other": "2"}) for each in experiments[1:])]
    with taken(tmp_path, upgraded) as population:
        assert population.experiments == upgraded and not checkpoint_of(population).exists()
    with taken(tmp_path, experiments) as population:
        assert population.experiments == list(experiments) and checkpoint_of(population).exists()


UNUSABLE = {"empty": b"", "cut short": b'{"runs": [{"a"', "no text": b"\xff\xfe", "a list": b"[]"}


@pytest.mark.parametrize("record", [*UNUSABLE.values(), None], ids=[*UNUSABLE, "none"])
def test_a_population_without_a_usable_record_is_trained_afresh(tmp_path, runs, record):
    held = take(tmp_path, runs, most=4)
    checkpoint_of(held).write_text("a state")
    (held.folder / RECORD).unlink() if record is None else (held.folder / RECORD).write_bytes(record)
    queue_on(tmp_path, runs).clear()
    assert checkpoint_of(held).exists(), "while a process trains it, it stays"
    abandon(held)
    queue_on(tmp_path, runs).clear()
    assert left(tmp_path) == []


def test_a_record_that_the_disk_does_not_give_now_keeps_what_was_trained(tmp_path, runs, monkeypatch):
    folder = abandon(take(tmp_path, runs, most=4))
    read = Path.read_bytes

    def broken(path):
        if path.name == RECORD:
            raise OSError(EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(Path, "read_bytes", broken)
        queue_on(tmp_path, runs).clear()
    with taken(tmp_path, runs) as population:
        assert population.folder == folder and checkpoint_of(population).read_text() == "a state"


@pytest.mark.parametrize("error", [OSError(ENOSPC, "No space left"), KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_a_population_that_cannot_be_begun_leaves_nothing_and_its_runs_free(tmp_path, runs, monkeypatch, error):
    def fails(*arguments, **options):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(Path, "write_bytes", fails)
        take(tmp_path, runs)
    assert left(tmp_path) == []
    with taken(tmp_path, runs) as population:
        assert population.experiments == list(runs)
        assert json.loads((population.folder / RECORD).read_text()).keys() == {
            field for field in PlannedPopulation.__dataclass_fields__
        }


def test_an_interrupt_while_a_population_of_a_killed_process_is_taken_keeps_its_checkpoint(tmp_path, runs, monkeypatch):
    folder = abandon(take(tmp_path, runs, most=4))

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(work_queue, "unfinished", interrupted)
        take(tmp_path, runs)
    with taken(tmp_path, runs) as population:
        assert population.folder == folder and checkpoint_of(population).read_text() == "a state"


def test_files_of_a_desktop_or_of_a_network_folder_are_no_populations(tmp_path, runs):
    with taken(tmp_path, runs, most=4) as population:
        for name in (".DS_Store", ".nfs000000000000a5d200000001"):
            (population.folder.parent / name).touch()
        with taken(tmp_path, runs) as other:
            assert other.experiments == list(runs[4:])
        queue_on(tmp_path, runs).clear()
        assert queue_on(tmp_path, runs).begun() == {experiment.run_id for experiment in runs[:4]}


ALL = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from conftest import planned
from helpers.queues import finish, queue_on, take
from helpers.toy_registries import toys_and
runs = planned.__wrapped__()(toys_and(), "toy-walk", "toy-table", seeds=range(10), train_steps=2)
folder, name = Path(sys.argv[2]), sys.argv[3]
while population := take(folder, runs, most=1):
    (experiment,) = population.experiments
    with (folder / f"{experiment.run_id}.made").open("a") as file:
        file.write(name)
    finish(folder, [experiment])
    population.release()
queue_on(folder, runs).clear()  # as every command does at its end
"""


@pytest.mark.slow
def test_processes_that_take_and_finish_at_the_same_time_do_everything_once(tmp_path, warm):
    """No lock is held for long here, so that the folder which is removed with the last lock is fought over."""
    one, two = (warm.start([TESTS, tmp_path, name], ALL) for name in "ab")
    with one, two:
        said = [process.communicate() for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0), said
    made = list(tmp_path.glob("*.made"))
    assert len(made) == 10 and all(path.read_text() in ("a", "b") for path in made)
    assert left(tmp_path) == sorted(path.name for path in made)
