"""The loggers that come with lgbench, each without an account, and read back by the logger's own reader.

They need the libraries: pip install 'lgbench[mlflow,tensorboard,trackio,wandb]'.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import logger_readers
from helpers.logged import WORDS, numbers_in
from helpers.processes import lgbench_command

from lgbench.results import run_files

pytestmark = [pytest.mark.slow]
NAMES = ("mlflow", "tensorboard", "trackio", "wandb")
NAMED = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")) for name in NAMES
]


@pytest.fixture
def place(tmp_path, monkeypatch, toys_alone) -> Path:
    """The current folder, where all loggers keep what they hear. No account is known and no server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers,lgbench_loggers")
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    return tmp_path


def kept(name: str, folder: Path) -> dict[str, list]:
    """The runs that a logger kept, read by its own reader."""
    command = [sys.executable, logger_readers.__file__, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def logged(name: str) -> str:
    """What a command says that a logger follows, in a process of its own: these libraries read the environment once."""
    command = ["run", "--task", "toy-largest", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "quick", *WORDS]
    done = lgbench_command(*command, "--no-compile", "--workers", "1", "--logger", name)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", NAMED)
def test_a_logger_keeps_every_number_of_each_run(name, place):
    logged(name)
    found = kept(name, place)
    files = {path.stem: path for path in (place / "results").glob("*.parquet")}
    assert found.keys() == files.keys() and len(files) == 3
    for run, (values, settings, end) in found.items():
        about = run_files.metadata(files[run])["experiment"]
        numbers = {(key, step): value for key, step, value in values}
        assert len(numbers) == len(values) and numbers == pytest.approx(numbers_in(files[run]), rel=1e-6)
        assert (settings["task"], settings["entry"]) == (about["task"], about["entry"])
        assert str(settings["seed"]) == str(about["seed"])
        assert settings["run_id"] == run.rpartition(".")[2] and str(settings["train.steps"]) == "60"
        assert end.lower() == "finished"


ONE_RUN = """
import os, signal, sys, time
from lgbench import RunEnd, LoggedRun
from lgbench.extensions.registry import Registry

logger, handle = Registry.load().loggers[sys.argv[1]], sys.argv[2]
run = LoggedRun("run a", {"task": "t", "entry": "e", "seed": "0"}, {"train.steps": 30})
own = logger.resume(run, handle) if handle else logger.start(run)
step = 20 if handle else 10
own.log(step, {"train_loss": float(step), "tvd/raw/8": 0.5})
print(own.handle, flush=True)
if handle:
    own.end(RunEnd("finished"))
elif logger.name == "wandb":
    own.end(RunEnd("stopped"))  # it writes nothing to the disk before it has 32 KiB or the end
else:
    time.sleep(1)  # Trackio sends in batches, every half second
    os.kill(os.getpid(), signal.SIGKILL)
"""


def one_run(name: str, folder: Path, handle: str = "") -> str:
    """The handle of a run, which a process begins and is killed, or which it resumes and ends."""
    done = subprocess.run([sys.executable, "-c", ONE_RUN, name, handle], capture_output=True, text=True, cwd=folder)
    assert done.returncode == (0 if handle or name == "wandb" else -signal.SIGKILL), done.stderr
    return next(line for line in reversed(done.stdout.splitlines()) if line.strip())


@pytest.mark.parametrize("name", NAMED)
def test_a_run_goes_on_in_the_same_run_after_a_kill(name, place):
    handle = one_run(name, place)
    one_run(name, place, handle)
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
    ("name", "variables"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:////proc/nowhere/mlflow.db"}),
        ("tensorboard", {"LGBENCH_TENSORBOARD_DIR": "/proc/nowhere"}),
        ("trackio", {"TRACKIO_DIR": "/proc/nowhere"}),
        ("wandb", {"WANDB_MODE": "online"}),
    ],
)
def test_a_logger_without_a_disk_or_a_login_is_one_sentence_and_no_run_is_lost(name, variables, place, monkeypatch):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    result = logged(name)
    assert len(list((place / "results").glob("*.parquet"))) == 3
    (sentence,) = [line for line in result.splitlines() if line.startswith(f"{name} follows the runs no longer: ")]
    assert sentence.endswith("; training goes on")
