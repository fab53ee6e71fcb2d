"""The trackers that come with lgbench, each without an account, and read back by the tracker's own reader.

They need the libraries: pip install 'lgbench[mlflow,tensorboard,trackio,wandb]'.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import tracker_readers
from test_tracking import SETTINGS, numbers_in

import lgbench
from lgbench.contracts import RunEnd, TrackedRun
from lgbench.execution import tracking_messages as messages
from lgbench.execution.json_lines import send
from lgbench.execution.tracking import BOOT
from lgbench.execution.tracking_messages import HANDLES, Handles
from lgbench.results import run_files

pytestmark = [pytest.mark.slow]
NAMES = ("mlflow", "tensorboard", "trackio", "wandb")
NAMED = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")) for name in NAMES
]


@pytest.fixture
def place(tmp_path, monkeypatch, toys_alone) -> Path:
    """The current folder, where all trackers keep what they hear. No account is known and no server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers,lgbench_trackers")
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    return tmp_path


def kept(name: str, folder: Path) -> dict[str, list]:
    """The runs that a tracker kept, read by its own reader."""
    command = [sys.executable, tracker_readers.__file__, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMED)
def test_a_tracker_keeps_every_number_of_each_run(name, place):
    how = {"protocol": "quick", "average": "toy-mean", "compile": False, "set": SETTINGS, "workers": 1, "seeds": (0, 1)}
    lgbench.run("toy-largest", "toy-table", **how, track=name)
    found = kept(name, place)
    files = {path.stem: path for path in (place / "results").glob("*.parquet")}
    assert found.keys() == files.keys() and len(files) == 2
    for run, (values, settings, end) in found.items():
        about = run_files.metadata(files[run])["experiment"]
        numbers = {(key, step): value for key, step, value in values}
        assert len(numbers) == len(values) and numbers == pytest.approx(numbers_in(files[run]), rel=1e-6)
        assert (settings["task"], settings["entry"]) == (about["task"], about["entry"])
        assert str(settings["seed"]) == str(about["seed"])
        assert settings["run_id"] == run.rpartition(".")[2] and str(settings["train.steps"]) == "60"
        assert end.lower() == "finished"


class Process:
    """The process of trackers, without the command."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        pipe = subprocess.PIPE
        with (folder / "log").open("a") as log:
            self.process = subprocess.Popen([sys.executable, "-c", BOOT], stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.tell(messages.Setup([name], []))

    def tell(self, order: messages.Order) -> None:
        send(self.process.stdin, order)

    def begin(self, before: Handles) -> None:
        run = TrackedRun("run a", {"task": "t", "entry": "e", "seed": "0"}, {"train.steps": 30})
        self.tell(messages.Begin({"a": run}, str(self.folder), before))

    def log(self, step: int) -> None:
        self.tell(messages.Log("a", "curve", step, {"train_loss": float(step), "tvd/raw/8": 0.5}))

    def ended(self) -> list[str]:
        """Let it end, and return the sentences that it said."""
        out, _ = self.process.communicate(timeout=120)
        return [messages.said(line).sentence for line in out.splitlines()]


def handles(folder: Path) -> Handles:
    return msgspec.json.decode((folder / HANDLES).read_bytes(), type=Handles)


@pytest.mark.parametrize("name", NAMED)
def test_a_run_goes_on_in_the_same_run_after_a_kill(name, place):
    """A command that is killed closes the input of its process, which then ends. Here that process is killed, too."""
    first = Process(name, place)
    first.begin({})
    first.log(10)
    latest = time.monotonic() + 120
    while not (place / HANDLES).exists() or handles(place)[name].get("a") is None or not handles(place)[name]["a"].steps:
        assert time.monotonic() < latest and first.process.poll() is None
        time.sleep(0.05)
    if name != "wandb":  # which writes nothing to the disk before it has 32 KiB or the end
        time.sleep(1)  # Trackio sends in batches, every half second
        first.process.send_signal(signal.SIGKILL)
    assert first.ended() == []
    second = Process(name, place)
    second.begin(handles(place))
    for step in (10, 20):
        second.log(step)
    second.tell(messages.End("a", RunEnd("finished")))
    assert second.ended() == []
    ((values, settings, end),) = kept(name, place).values()
    assert {(key, step): value for key, step, value in values} == {
        ("train_loss", 10): 10.0,
        ("train_loss", 20): 20.0,
        ("tvd/raw/8", 10): 0.5,
        ("tvd/raw/8", 20): 0.5,
    }
    assert len(values) == 4
    assert settings["task"] == "t" and end.lower() == "finished"


@pytest.mark.parametrize(
    ("name", "environ", "said"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:////proc/nowhere/mlflow.db"}, "mlflow follows the runs no longer: "),
        ("tensorboard", {"LGBENCH_TENSORBOARD_DIR": "/proc/nowhere"}, "tensorboard follows the runs no longer: "),
        ("trackio", {"TRACKIO_DIR": "/proc/nowhere"}, "trackio follows the runs no longer: "),
        ("wandb", {"WANDB_MODE": "online"}, "wandb follows the runs no longer: "),
    ],
)
def test_a_tracker_without_a_disk_or_a_login_is_one_sentence(name, environ, said, place, monkeypatch):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    process = Process(name, place)
    process.begin({})
    process.log(10)
    process.tell(messages.End("a", RunEnd("finished")))
    (sentence,) = process.ended()
    assert sentence.startswith(said) and sentence.endswith("; training goes on") and "\n" not in sentence
