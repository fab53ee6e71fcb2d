"""Saved weights: those of the training, to the bit, beside their run file, whole or not there; and no number changes."""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path

import pytest
import torch
from helpers import published
from helpers.commands import invoked
from helpers.folders import TESTS
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.queues import taken
from helpers.registries import BUILT_IN
from helpers.saved_runs import weights_of
from safetensors import safe_open
from safetensors.torch import load_file

import lgbench
from lgbench.errors import RunFailed
from lgbench.execution.device import Execution
from lgbench.execution.work_queue import PlannedPopulation
from lgbench.execution.workers import Job, Setup
from lgbench.results import run_files
from lgbench.training.train import train

WHAT = {"task": "small-even", "seeds": range(2)}
CHANGING = ("seconds", "environment", "checksum")
"""Fields of a metadata that differ from one time to the next."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Two runs with their weights. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("kept")
    published.make(folder, **WHAT, save_weights=True)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The same runs without."""
    folder = tmp_path_factory.mktemp("plain")
    published.make(folder, **WHAT)
    return folder


def experiments(installed):
    return plan_of(installed, "small-even", "toy-table", average="toy-mean", seeds=(0, 1), protocol="short").experiments


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, and that nothing else is in it. Of run files the rows count, whose metadata have the time."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            found[name] = str(run_files.read(path)).encode() if path.suffix == ".parquet" else path.read_bytes()
    return found


def test_keeping_weights_changes_no_row_no_name_and_nothing_else_in_the_footer(kept, plain):
    there, here = sorted(plain.glob("*.parquet")), sorted(kept.glob("*.parquet"))
    assert [path.name for path in there] == [path.name for path in here] and len(here) == 2
    for without, with_weights in zip(there, here, strict=True):
        assert run_files.read(without).equals(run_files.read(with_weights))
        metadata = [run_files.metadata(path) for path in (without, with_weights)]
        assert metadata[1].keys() - metadata[0].keys() == {"kept_weights"}
        assert all(metadata[0][name] == metadata[1][name] for name in metadata[0] if name not in CHANGING)


def test_a_file_has_the_weights_of_the_training_to_the_bit_and_its_hash_is_in_the_footer(kept, installed):
    trained = train(experiments(installed), CPU)
    for index, experiment in enumerate(experiments(installed)):
        about = run_files.metadata(run_files.path_for(kept, experiment.record))["kept_weights"]
        (path,) = kept.glob(f"*.{experiment.run_id}.*.safetensors")
        assert path.name == f"{run_files.run_name(experiment.record)}.{about['sha256'][:8]}.safetensors"
        content = path.read_bytes()
        assert about == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        found = load_file(path)
        expected = {f"{v}/{n}": t[index] for v, own in trained.weights.items() for n, t in own.items()}
        expected |= {f"_shared/{n}": t[index] for n, t in trained.buffers.items()}
        assert {"raw/table.weight", "toy-mean/table.weight", "_shared/scale"} < found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        with safe_open(path, "pt") as file:
            assert experiment.run_id in file.metadata()["lgbench"]


@pytest.mark.slow
def test_tuning_runs_keep_no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(BUILT_IN))
    small = {"train.steps": 10, "train.batch": 2, "evaluate.contexts": 4, "evaluate.strings": 4, "evaluate.max_length": 40}
    lgbench.run(
        "tomita-1", "pre-norm", seeds=[0], protocol="standard", set=small, results=tmp_path, workers=1, save_weights=True
    )
    runs, tuning = ({path.suffix for path in folder.iterdir() if path.is_file()} for folder in (tmp_path, tmp_path / ".tuning"))
    assert (runs, tuning) == ({".parquet", ".safetensors"}, {".parquet"})


def test_runs_that_are_there_without_weights_are_named(kept, plain, installed, monkeypatch):
    monkeypatch.setattr("lgbench.extensions.registry.Registry.load", classmethod(lambda cls, files=(), only=None: installed))
    named = ["--task", "small-even", "--arch", "toy-table", "--average", "toy-mean", "--seeds", "0:2"]
    words = ["run", *named, "--save-weights", "--results"]
    done = invoked(*words, plain)
    assert done.exit_code == 0
    assert "2 runs lack saved weights: run again with another --results folder" in done.stdout
    assert "saved weights" not in invoked(*words, kept).stdout


# Killed, stopped, and made twice.


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from helpers import published
give, calls = os.link, []

def kill(source, target):
    calls.append(target)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    give(source, target)

os.link = kill
published.make(published.Path(sys.argv[2]), task="small-even", seeds=range(2), save_weights=True)
"""
"""Makes what the fixture `kept` has, and dies before so many files get their names."""


@pytest.mark.slow
@pytest.mark.parametrize("link", range(1, 5))
def test_after_a_kill_before_any_file_gets_its_name_the_same_command_ends_with_the_same_files(kept, tmp_path, warm, link):
    """Two runs have four files. Weights come first, so no run is there whose weights are not."""
    with warm.start([TESTS, tmp_path, link], KILLED) as process:
        said = process.stderr.read()
        assert process.wait() == -signal.SIGKILL, said
    there = {path.name for path in tmp_path.iterdir() if path.is_file()}
    for path in tmp_path.glob("*.parquet"):
        assert weights_of(path).name in there
    assert len(there) == link - 1 and there <= files(kept).keys()
    published.make(tmp_path, **WHAT, save_weights=True)
    assert files(tmp_path) == files(kept)


def test_damaged_weights_of_a_killed_process_are_set_aside(kept, tmp_path):
    (name,) = (path.name for path in kept.glob("*.seed-0.*.safetensors"))
    (tmp_path / name).write_bytes((kept / name).read_bytes()[:100])
    published.make(tmp_path, **WHAT, save_weights=True)
    aside = tmp_path / f"{name}.damaged-1"
    assert aside.stat().st_size == 100
    aside.unlink()
    assert files(tmp_path) == files(kept)


# On other machines.


@pytest.fixture
def population(installed, monkeypatch):
    """The two runs as one planned population, and where its plugins are."""
    monkeypatch.setattr("lgbench.extensions.registry.Registry.load", classmethod(lambda cls, files=(), only=(): installed))
    return PlannedPopulation.of(experiments(installed), 2, False)


@pytest.mark.slow
def test_a_job_on_another_machine_gives_weights_beside_run_files(kept, population):
    for keeps in (True, False):
        setup = Setup(Path("nowhere"), Execution(CPU, save_weights=keeps))
        outcome = Job(setup, population, Path("/nowhere/else"))()
        assert outcome.error is None and not outcome.written
        weights = {name: content for name, content in outcome.files.items() if name.endswith(".safetensors")}
        assert outcome.files.keys() - weights.keys() == {path.name for path in kept.glob("*.parquet")}
        assert weights == ({path.name: path.read_bytes() for path in kept.glob("*.safetensors")} if keeps else {})


@pytest.mark.parametrize("damage", ["none", "flipped", "missing"])
def test_weights_that_come_back_from_another_machine_are_filed_before_their_run_or_neither_is(
    kept, installed, tmp_path, damage
):
    came = {path.name: path.read_bytes() for path in kept.iterdir()}
    name = next(name for name in came if ".seed-1." in name and name.endswith(".safetensors"))
    content = came.pop(name)
    if damage != "missing":
        came[name] = content[:-1] + bytes([content[-1] ^ (damage == "flipped")])
    with taken(tmp_path, experiments(installed), 2) as locked:
        if damage == "none":
            assert len(locked.filed(came, print)) == 2
        else:
            with pytest.raises(RunFailed, match=re.escape(f"{name} came back damaged")):
                locked.filed(came, print)
    expected = {n: c for n, c in files(kept).items() if damage == "none" or ".seed-0." in n}
    assert files(tmp_path) == expected
