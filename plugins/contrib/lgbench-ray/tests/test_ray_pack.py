"""Nodes of a Ray cluster die. No run is lost, and every value is that of a run alone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from lgbench.execution.work_queue import UNFINISHED
from lgbench.results import run_files

pytestmark = [pytest.mark.engine, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install ray")]

OPTIONS = [
    *("run", "--task", "tomita-1,tomita-2", "--arch", "pre-norm", "--average", "ema", "--seeds", "0:2"),
    *("--protocol", "quick", "--device", "cpu", "--no-compile", "--population", "1", "--set", "train.steps=40"),
    *("--set", "evaluate.contexts=8", "--set", "evaluate.strings=8", "--set", "evaluate.max_length=64"),
]
LGBENCH = [sys.executable, "-c", "from lgbench.cli.main import main; main()"]
CLUSTER = """
import sys, threading, time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from lgbench.cli.main import main
from lgbench.execution import scheduler

results, shared, words = Path(sys.argv[1]), sys.argv[2] == "shared", sys.argv[3:]
if not shared:  # no node sees the folder of a checkpoint
    own = scheduler.Job
    scheduler.Job = lambda setup, population, folder: own(setup, population, Path("/nowhere/else"))
MEMORY = 100 * 2**20
head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(2)]

def kill_when_busy():
    while not (found := list(results.glob("*.parquet"))):
        time.sleep(0.05)
    cluster.remove_node(nodes[0], allow_graceful=False)
    print(f"killed a node after {len(found)} runs", flush=True)

threading.Thread(target=kill_when_busy, daemon=True).start()
option = ["--executor", "ray", "--executor-option", f"address={cluster.address}"]
try:
    main([*words, *option, "--results", str(results)], prog_name="lgbench")
finally:
    ray.shutdown()
    cluster.shutdown()
"""


def values(folder: Path) -> dict[str, str]:
    """All bits of the rows of each run file."""
    return {path.name: repr(run_files.read(path).to_pylist()) for path in folder.glob("*.parquet")}


@pytest.fixture(autouse=True)
def usual_niceness(monkeypatch) -> None:
    """By default Ray's workers are nicer than all other processes, and never end on a busy machine."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, str]:
    """Values of runs by one process."""
    folder = tmp_path_factory.mktemp("alone")
    done = subprocess.run([*LGBENCH, *OPTIONS, "--workers", "1", "--results", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return values(folder)


@pytest.mark.parametrize("shared", ["shared", "apart"])
def test_a_node_that_dies_costs_nothing_and_every_value_is_that_of_a_run_alone(alone, tmp_path, shared):
    command = [sys.executable, "-c", CLUSTER, str(tmp_path / "runs"), shared, *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"killed a node after \d+ runs", done.stdout + done.stderr)
    assert values(tmp_path / "runs") == alone and len(alone) == 4
    assert not (tmp_path / "runs" / UNFINISHED).exists()


def test_ctrl_c_gives_back_what_ray_trains(tmp_path):
    command = [*LGBENCH, *OPTIONS, "--set", "train.steps=100000", "--executor", "ray", "--workers", "1", "--checkpoint", "0"]
    process = subprocess.Popen([*command, "--results", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    latest = time.monotonic() + 240
    while not list(tmp_path.glob(f"{UNFINISHED}/*/checkpoint.safetensors")):
        assert time.monotonic() < latest and process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "The same command continues with the others" in error


def test_where_no_cluster_answers_the_command_says_so(tmp_path):
    command = [
        *LGBENCH,
        *OPTIONS,
        "--executor",
        "ray",
        "--executor-option",
        "address=auto",
        "--results",
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "lgbench: no Ray cluster answers at auto: " in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()
