"""Trackers hear of runs while these train. They change no bit of a run, and stop none, whatever they do."""

from __future__ import annotations

import importlib
import io
import json
import math
import re
import sys
import time
from pathlib import Path

import notebook
import pytest
from click.testing import CliRunner
from conftest import CPU, simulated, write_rows
from test_checkpoint import stopping_after

import lgbench
from lgbench import OpenRun, RunEnd, TrackedRun, Tracker, UsageError
from lgbench.cli.main import main
from lgbench.contracts import SOUNDNESS
from lgbench.execution import tracking
from lgbench.execution import tracking_messages as messages
from lgbench.execution.following import Following, Reached
from lgbench.execution.points import points_of
from lgbench.execution.tracking_messages import HANDLES, Kept
from lgbench.execution.tracking_process import Trackers
from lgbench.execution.work_queue import UNFINISHED
from lgbench.extensions.conformance.check import CheckFailed
from lgbench.extensions.conformance.collect import checks_of
from lgbench.results import run_files
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.train import train

NOTEBOOK = Path(notebook.__file__)
SETTINGS = {
    "train.steps": 60,
    "train.batch": 2,
    "train.average_every": 5,
    "evaluate.contexts": 4,
    "evaluate.max_length": 16,
    "evaluate.points": 2,
    "evaluate.point_contexts": 2,
}
TOYS = {"protocol": "quick", "average": "toy-mean", "compile": False, "set": SETTINGS, "workers": 1}
WORDS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def pages(tmp_path, monkeypatch, toys_alone) -> Path:
    """The folder of the notebook; only the toys are installed."""
    monkeypatch.setenv("NOTEBOOK", str(tmp_path / "pages"))
    return tmp_path / "pages"


def followed(task, arch, results, **options):
    return lgbench.run(task, arch, **{**TOYS, "seeds": (0, 1), "results": results, **options})


def numbers_of(page):
    """Name and step of each number of a page, with its value. Each is there once."""
    found = [((name, line[1]), value) for line in page if line[0] == "log" for name, value in line[2].items()]
    assert len(dict(found)) == len(found)
    return dict(found)


def numbers_in(path):
    """The same of a run file."""
    rows = [row for row in run_files.read(path).to_pylist() if row["weights"] != "chance" and row["metric"] not in SOUNDNESS]
    return {
        (row["metric"] if row["length"] is None else f"{row['metric']}/{row['weights']}/{row['length']}", row["step"]): row[
            "value"
        ]
        for row in rows
        if row["value"] is not None and math.isfinite(row["value"])
    }


def test_a_tracker_hears_every_number_of_a_run_and_changes_none(pages, tmp_path):
    told = followed("toy-largest", "toy-table", tmp_path / "told", track="notebook", plugins=[NOTEBOOK])
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


class Recorder:
    """A follower that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Reached] = []
        self.following = Following(self.heard.append)


def test_a_training_that_goes_on_tells_again_what_went_before(toy_registry, planned, tmp_path):
    settings = {key.replace(".", "_", 1): value for key, value in SETTINGS.items()}
    experiments = planned(toy_registry, "toy-largest", "toy-table", seeds=(0, 1), averagers=["toy-mean"], **settings)

    def trained(follower, report=lambda step, loss: None, checkpoint=None):
        points = points_of(experiments, CPU)
        return train(experiments, CPU, report, points=points, follower=follower.following, checkpoint=checkpoint)

    whole, first, second = Recorder(), Recorder(), Recorder()
    trained(whole)
    with pytest.raises(KeyboardInterrupt):
        trained(first, stopping_after(40), Checkpoint(tmp_path / "checkpoint", 0))
    trained(second, checkpoint=Checkpoint(tmp_path / "checkpoint", 0))
    assert 0 < len(first.heard) < len(whole.heard) and whole.heard[: len(first.heard)] == first.heard
    assert second.heard == whole.heard


def test_numbers_that_are_not_finite_are_left_out():
    heard = Recorder()
    heard.following.curve(7, [1.0, math.nan], [math.inf, 2.0])
    assert heard.heard == [Reached("curve", 7, [{"train_loss": 1.0}, {"gradient_norm": 2.0}])]


class Kind(Tracker):
    """Keeps what it hears, and fails where it is asked to."""

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
        return self.open(f"{self.name} of {run.name}")

    def resume(self, run, handle):
        if self.can_resume:
            self.did("resume", handle)
            return self.open(handle)
        return None


def told(folder, *trackers):
    """Trackers, and the function that gives what they said."""
    output = io.StringIO()
    own = Trackers(output, {tracker.name: tracker for tracker in trackers})
    return own, lambda: [messages.said(line).sentence for line in output.getvalue().splitlines()]


def begin(folder, before=None):
    return messages.Begin({"a": TrackedRun("run a", {}, {})}, str(folder), before or {})


@pytest.mark.parametrize(
    ("fails", "why"),
    [("start", "SystemExit: no login"), ("log", "OSError: No space left on device"), ("end", "OSError: No space")],
)
def test_a_tracker_that_fails_is_named_once_and_the_others_go_on(tmp_path, fails, why):
    good, bad = Kind("good"), Kind("bad", fails)
    trackers, said = told(tmp_path, bad, good)
    trackers.begin(begin(tmp_path))
    for step in (1, 2):
        trackers.log(messages.Log("a", "curve", step, {"train_loss": 1.0}))
    trackers.end(messages.End("a", RunEnd("finished")))
    trackers.begin(begin(tmp_path))
    (sentence,) = said()
    assert sentence.startswith(f"bad follows the runs no longer: {why}") and sentence.endswith("; training goes on")
    values = {"train_loss": 1.0}
    assert good.heard == [("start", "run a"), ("log", 1, values), ("log", 2, values), ("end", "finished"), ("start", "run a")]


def test_a_run_goes_on_in_the_same_run_of_the_tracker_and_hears_nothing_twice(tmp_path):
    first, second = Kind(), Kind()
    trackers, _ = told(tmp_path, first)
    trackers.begin(begin(tmp_path))
    for step in (10, 20):
        trackers.log(messages.Log("a", "curve", step, {"train_loss": 1.0}))
    trackers.log(messages.Log("a", "measured", 10, {"tvd/raw/8": 0.5}))
    kept = json.loads((tmp_path / HANDLES).read_text())
    assert kept == {"kind": {"a": {"handle": "kind of run a", "steps": {"curve": 20, "measured": 10}}}}
    again, said = told(tmp_path, second)
    again.begin(begin(tmp_path, {"kind": {"a": Kept("kind of run a", {"curve": 20, "measured": 10})}}))
    for kind, step in (("curve", 10), ("measured", 10), ("curve", 20), ("measured", 20), ("curve", 30)):
        again.log(messages.Log("a", kind, step, {"x": 1.0}))
    again.close()
    assert second.heard == [("resume", "kind of run a"), ("log", 20, {"x": 1.0}), ("log", 30, {"x": 1.0}), ("end", "stopped")]
    assert said() == []


def test_a_tracker_that_cannot_go_on_begins_a_new_run_and_says_so(tmp_path):
    tracker = Kind(can_resume=False)
    trackers, said = told(tmp_path, tracker)
    trackers.begin(begin(tmp_path, {"kind": {"a": Kept("gone", {"curve": 20})}}))
    trackers.log(messages.Log("a", "curve", 10, {"x": 1.0}))
    assert said() == ["kind cannot go on with the run that it had for run a, so a new one begins"]
    assert tracker.heard == [("start", "run a"), ("log", 10, {"x": 1.0})]


def test_a_population_that_is_tried_again_keeps_the_runs_that_are_open(tmp_path):
    tracker = Kind()
    trackers, _ = told(tmp_path, tracker)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        trackers.begin(begin(tmp_path / folder))
        trackers.log(messages.Log("a", "curve", 10, {"x": 1.0}))
    assert tracker.heard == [("start", "run a"), ("log", 10, {"x": 1.0})]
    assert json.loads((tmp_path / "two" / HANDLES).read_text())["kind"].keys() == {"a"}


@pytest.fixture
def refused(pages, tmp_path, monkeypatch):
    """A function that returns the output of `lgbench run` where it refuses, before anything is trained."""
    monkeypatch.chdir(tmp_path)
    return _refused


def _refused(*words):
    command = ["run", "--task", "toy-largest", "--arch", "toy-table", "--protocol", "quick", "--plugin", str(NOTEBOOK), *words]
    result = CliRunner().invoke(main, command, prog_name="lgbench")
    assert result.exit_code == 2 and not Path("results").exists()
    return result.output


def test_trackers_that_are_unknown_or_cannot_be_used_are_refused_before_anything_is_trained(refused, monkeypatch):
    assert "no tracker 'notbook'; did you mean 'notebook'? known:" in refused("--track", "notbook")
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers,lgbench_trackers")
    monkeypatch.setattr("lgbench_trackers.installed.find_spec", lambda name: None)
    for name in ("mlflow", "tensorboard", "trackio", "wandb"):
        sentence = rf"{name} is not installed, which --track {name} needs: pip install 'lgbench\[{name}\]'"
        assert re.search(sentence, refused("--track", f"notebook,{name}"))
    with pytest.raises(UsageError, match="no tracker 'notebok'"):
        lgbench.run("toy-largest", "toy-table", track=["notebok"], plugins=[NOTEBOOK])


def test_ray_is_refused_since_its_tasks_tell_nothing_while_they_train(refused):
    assert "--track cannot follow --executor ray" in refused("--track", "notebook", "--executor", "ray")


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
        (True, "`missing` returned True, expected a sentence or None"),
        ("one\ntwo", "expected one line or None"),
        (lambda: importlib.import_module("slow_library") and None, "`missing` imports slow_library"),
    ],
)
def test_a_check_asks_a_tracker_whether_it_can_be_used(toy_registry, tmp_path, monkeypatch, answer, said):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [("still", "still did not end in time"), ("dying", "the process that tells dying of runs has died; training goes on")],
)
def test_a_tracker_that_stands_still_or_dies_stops_no_training(pages, tmp_path, monkeypatch, name, said):
    monkeypatch.setattr(tracking, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(tracking, "QUIET_SECONDS", 8.0 if name == "dying" else 0.1)
    command = ["run", "--task", "toy-largest", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "quick", *WORDS]
    command += [
        "--no-compile",
        "--workers",
        "1",
        "--results",
        str(tmp_path / "told"),
        "--plugin",
        str(NOTEBOOK),
        "--track",
        name,
    ]
    result = CliRunner().invoke(main, command, prog_name="lgbench")
    assert result.exit_code == 0 and result.output.count(said) == 1, result.output
    assert len(list((tmp_path / "told").glob("*.parquet"))) == 3


@pytest.mark.slow
def test_workers_tell_what_one_process_tells(pages, tmp_path):
    found = []
    for workers in (1, 2):
        folder = tmp_path / f"workers-{workers}"
        followed("all", "toy-table", folder, track="notebook", plugins=[NOTEBOOK], workers=workers, population=1)
        found.append({name: numbers_of(page) for name, page in notebook.read(pages).items()})
        for path in pages.glob("*.jsonl"):
            path.unlink()
    assert found[0] == found[1] and len(found[0]) > 2


@pytest.mark.slow
def test_a_command_that_was_killed_goes_on_in_the_same_page(pages, tmp_path, warm):
    settings = SETTINGS | {"train.steps": 2500}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = ["run", "--task", "toy-largest", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "quick", *words]
    command += ["--no-compile", "--workers", "1", "--checkpoint", "0.3", "--seeds", "0", "--track", "notebook"]
    command += ["--plugin", str(NOTEBOOK), "--results", str(tmp_path / "killed")]
    with warm.start(command):
        while sum(line[0] == "log" for page in notebook.read(pages).values() for line in page) < 3:
            time.sleep(0.02)
    assert list((tmp_path / "killed" / UNFINISHED).glob(f"*/{HANDLES}"))
    result = CliRunner().invoke(main, command, prog_name="lgbench")
    assert result.exit_code == 0, result.output
    (page,), (path,) = notebook.read(pages).values(), (tmp_path / "killed").glob("*.parquet")
    assert [line[0] for line in page].count("run") == 1 and [line[0] for line in page].count("opened") == 2
    assert numbers_of(page) == numbers_in(path)
    assert [line[1] for line in page if line[0] == "end"] == ["stopped", "finished"]


def test_of_a_finished_run_trackers_get_finite_numbers_with_lengths(tmp_path):
    rows = simulated({8: 0.5, 16: math.inf, 32: math.nan}) + simulated({8: 0.001}, metric="learning_rate")
    rows[-1]["length"] = None
    assert tracking._final(write_rows(tmp_path / "run.parquet", rows))[:2] == (5, {"tvd/raw/8": 0.5})
