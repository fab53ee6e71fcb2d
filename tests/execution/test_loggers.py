"""Loggers hear of runs in training. They change no bit of a run, and stop no training."""

from __future__ import annotations

import importlib
import math
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import notebook
from helpers.commands import invoked
from helpers.logged import SETTINGS, numbers_in, numbers_of
from helpers.plain_training import CPU
from helpers.trainings import stopping_after

import lgbench
from lgbench import Logger, OpenRun
from lgbench.conformance.check import CheckFailed
from lgbench.conformance.collect import checks_of
from lgbench.errors import RunFailed
from lgbench.execution import loggers
from lgbench.execution.loggers import Loggers
from lgbench.execution.runner import eval_steps_of
from lgbench.results import run_files
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.train import train

NOTEBOOK = Path(notebook.__file__)
TOYS = {"protocol": "quick", "average": "toy-mean", "compile": False, "set": SETTINGS, "workers": 1}


@pytest.fixture
def pages(tmp_path, monkeypatch, toys_alone) -> Path:
    """The folder of the notebook; only the toys are installed."""
    monkeypatch.setenv("NOTEBOOK", str(tmp_path / "pages"))
    return tmp_path / "pages"


def followed(task, arch, results, **options):
    return lgbench.run(task, arch, **{**TOYS, "seeds": (0, 1), "results": results, **options})


def test_a_logger_hears_every_number_of_a_run_and_changes_none(pages, tmp_path):
    told = followed("toy-largest", "toy-table", tmp_path / "told", logger="notebook", plugins=[NOTEBOOK])
    alone = followed("toy-largest", "toy-table", tmp_path / "alone")
    assert told.equals(alone)
    files = {path.stem: path for path in (tmp_path / "told").glob("*.parquet")}
    assert {path.name for path in (tmp_path / "alone").glob("*.parquet")} == {path.name for path in files.values()}
    found = notebook.read(pages)
    assert found.keys() == files.keys() and len(files) == 2
    for name, page in found.items():
        about = run_files.metadata(files[name])["experiment"]
        numbers = numbers_of(page)
        assert numbers == numbers_in(files[name])
        steps = [line[1] for line in page if line[0] == "log"]
        assert steps == sorted(steps)
        assert {step for metric, step in numbers if metric.startswith("tvd/")} == {15, 30, 60}
        (_, title, tags, config), end = next(line for line in page if line[0] == "run"), page[-1]
        assert title == name and tags["seed"] == str(about["seed"]) and name.endswith(tags["run_id"])
        assert (tags["task"], tags["entry"], tags["protocol"].split()[0]) == ("toy-largest", about["entry"], "quick/5")
        assert (config["train.steps"], config["train.lr"], config["seed"]) == (60, about["train"]["lr"], about["seed"])
        assert end == ["end", "finished", "", None]


class Kind(Logger):
    """Logger that keeps all calls, and fails in the method `fails`."""

    def __init__(self, name="kind", fails="", can_resume=True):
        self.name, self.fails, self.can_resume, self.heard = name, fails, can_resume, []

    def open(self, handle):
        class Run(OpenRun):
            def __init__(own):
                own.handle = handle

            def log(own, step, values):
                self.did("log", step, dict(values))

            def end(own, end):
                self.did("end", end.status)

        return Run()

    def did(self, what, *about):
        if self.fails == what:
            raise SystemExit("no login") if what == "start" else OSError("No space left on device\nmore")
        self.heard.append((what, *about))

    def start(self, run):
        self.did("start", run.name)
        return self.open(f"handle of {run.name}")

    def resume(self, run, handle):
        if self.can_resume:
            self.did("resume", handle)
            return self.open(handle)
        return None


@pytest.fixture
def population(toy_registry, planned):
    """Two experiments that train together."""
    settings = {key.replace(".", "_", 1): value for key, value in SETTINGS.items()}
    return planned(toy_registry, "toy-largest", "toy-table", seeds=(0, 1), averagers=["toy-mean"], **settings)


def test_a_training_that_goes_on_tells_again_what_went_before_and_a_logger_hears_it_once(population, tmp_path):
    def trained(logger, folder, report=lambda step, loss: None):
        folder.mkdir(exist_ok=True)
        with Loggers([logger], print).following(population, folder) as following:
            train(
                population,
                CPU,
                report,
                eval_steps=replace(eval_steps_of(population, CPU), follower=following),
                checkpoint=Checkpoint(folder / "checkpoint", 0),
            )

    whole, first, second = Kind(), Kind(), Kind()
    trained(whole, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(first, tmp_path / "killed", stopping_after(40))
    trained(second, tmp_path / "killed")
    logs = [[call for call in each.heard if call[0] == "log"] for each in (whole, first, second)]
    assert logs[1] and logs[2] and logs[1] + logs[2] == logs[0]
    assert [call[0] for call in second.heard[:2]] == ["resume", "resume"]
    assert first.heard[-2:] == [("end", "stopped")] * 2


def test_numbers_that_are_not_finite_are_left_out(population, tmp_path):
    logger = Kind()
    with Loggers([logger], print).following(population, tmp_path) as following:
        following.curve(7, [1.0, math.nan], [math.inf, 2.0])
    assert logger.heard[2:] == [("log", 7, {"train_loss": 1.0}), ("log", 7, {"gradient_norm": 2.0})]


@pytest.mark.parametrize(
    ("fails", "why"),
    [("start", "SystemExit: no login"), ("log", "OSError: No space left on device"), ("end", "OSError: No space")],
)
def test_a_logger_that_fails_is_named_once_and_the_others_go_on(population, tmp_path, fails, why):
    good, bad, said = Kind("good"), Kind("bad", fails), []
    own = Loggers([bad, good], said.append)
    for _ in range(2):
        with pytest.raises(RunFailed), own.following(population[:1], tmp_path) as following:
            for step in (1, 2):
                following.curve(step, [1.0], [2.0])
            raise RunFailed("a model is broken")
        (tmp_path / "good.logger.json").unlink()
    (sentence,) = said
    assert sentence.startswith(f"bad follows the runs no longer: {why}") and sentence.endswith("; training goes on")
    assert [call[0] for call in good.heard] == ["start", "log", "log", "end"] * 2 and good.heard[-1] == ("end", "failed")


def test_a_logger_that_hangs_costs_its_own_records_alone(population, tmp_path, monkeypatch):
    class Still(Kind):
        def start(self, run):
            free.wait()
            return super().start(run)

    free, good, said = threading.Event(), Kind("good"), []
    monkeypatch.setattr(loggers, "PATIENCE_SECONDS", 0.5)
    own = Loggers([Still("still"), good], said.append)
    for _ in range(2):
        with own.following(population, tmp_path) as following:
            following.curve(1, [1.0, 1.0], [2.0, 2.0])
    free.set()
    assert said == ["still did not answer in time, and may lack the last numbers; the run files have them"]
    assert [call[0] for call in good.heard] == ["start", "start", "log", "log", "resume", "resume"]


def test_a_process_killed_while_its_runs_are_resumed_loses_no_handle(population, tmp_path):
    def followed(logger):
        with Loggers([logger], lambda sentence: None).following(population, tmp_path) as following:
            following.curve(1, [1.0, 1.0], [2.0, 2.0])

    class Killed(Kind):
        def resume(self, run, handle):
            if self.heard:
                raise SystemExit
            return super().resume(run, handle)

    followed(Kind())
    followed(Killed())
    last = Kind()
    followed(last)
    assert [call[0] for call in last.heard[:2]] == ["resume", "resume"]


def test_a_logger_that_cannot_go_on_begins_a_new_run_and_says_so(population, tmp_path):
    logger, said = Kind(can_resume=False), []
    for _ in range(2):
        with Loggers([logger], said.append).following(population[:1], tmp_path) as following:
            following.curve(10, [1.0], [2.0])
    (sentence,) = said
    assert sentence.startswith("kind cannot resume the run that it had for ") and sentence.endswith(", so a new one begins")
    assert [call[0] for call in logger.heard] == ["start", "log"] * 2


def test_loggers_that_are_unknown_or_cannot_be_used_are_refused_before_anything_is_trained(pages, tmp_path, monkeypatch):
    def refused(names):
        command = ["run", "--task", "toy-largest", "--arch", "toy-table", "--protocol", "quick", "--plugin"]
        result = invoked(*command, NOTEBOOK, "--logger", names)
        assert result.exit_code == 2 and not Path("results").exists()
        return result.output

    monkeypatch.chdir(tmp_path)
    assert "no logger 'notbook'; did you mean 'notebook'? known:" in refused("notbook")
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers,lgbench_loggers")
    monkeypatch.setattr("lgbench_loggers.installed.find_spec", lambda name: None)
    for name in ("mlflow", "tensorboard", "trackio", "wandb"):
        sentence = rf"{name} is not installed, which --logger {name} needs: pip install 'lgbench\[{name}\]'"
        assert re.search(sentence, refused(f"notebook,{name}"))


class Telling(Kind):
    """Keeps what it hears."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def missing(self):
        return self.answer() if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        ("foo is not installed: pip install foo", "it cannot be used here: foo is not installed: pip install foo"),
        (True, "`missing` returned True, expected one line or None"),
        ("one\ntwo", "expected one line or None"),
        (lambda: importlib.import_module("slow_library") and None, "`missing` imports slow_library"),
    ],
)
def test_a_check_asks_a_logger_whether_it_can_be_used(toy_registry, tmp_path, monkeypatch, answer, said):
    (tmp_path / "slow_library.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    check = next(each for each in checks_of(Telling(answer), toy_registry) if "can be used" in each.name)
    try:
        found = check()
    except CheckFailed as failed:
        found = str(failed)
    finally:
        sys.modules.pop("slow_library", None)
    assert (found is None) if said is None else said in found
