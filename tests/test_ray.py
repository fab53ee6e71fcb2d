"""Ray: a node dies, nothing is lost, and every value is that of a run alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
import tuned as tuned_protocol
from conftest import TESTS, lgbench_command
from helpers.made_runs import made, rows_of, wait_until

from lgbench.execution.tuning import FOLDER
from lgbench.execution.work_queue import UNFINISHED

OPTIONS = (
    "--task tomita-1,tomita-2,tomita-3 --arch pre-norm,peri-norm --average ema --seeds 0:3 --protocol quick --device cpu "
    "--no-compile --population 1 --set train.steps=40 --set evaluate.contexts=8 --set evaluate.strings=8 "
    "--set evaluate.max_length=64"
)
WORDS = ["run", *OPTIONS.split()]

needs_ray = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import ray"], capture_output=True).returncode != 0,
    reason="Ray is not installed: pip install 'lgbench[ray]'",
)


@needs_ray
@pytest.mark.engine
def test_a_node_that_dies_costs_nothing_and_every_value_is_that_of_a_run_alone(tmp_path):
    alone, cluster = tmp_path / "alone", tmp_path / "cluster"
    done = lgbench_command(*WORDS, "--workers", "1", "--results", str(alone))
    assert done.returncode == 0, done.stderr
    command = [sys.executable, str(TESTS / "ray_cluster.py"), str(cluster), *WORDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "killed a node after" in done.stderr  # where plugins print, and the script after them
    assert rows_of(made(cluster)) == rows_of(made(alone)) and len(made(alone)) == 18
    assert not (cluster / UNFINISHED).exists()


@needs_ray
@pytest.mark.engine
@pytest.mark.parametrize("shared", [True, False], ids=["shared folder", "no shared folder"])
def test_a_node_that_dies_while_rates_are_tried_costs_nothing_and_all_values_are_those_of_a_run_alone(
    tuned_everywhere, tmp_path, shared
):
    alone, cluster = tmp_path / "alone", tmp_path / "cluster"
    words = [*tuned_protocol.WORDS, "--checkpoint", "0"]
    done = lgbench_command(*words, "--workers", "1", "--results", str(alone))
    assert done.returncode == 0, done.stderr
    environ = os.environ | {"TOYS_SLEEP": "0.05"} | ({} if shared else {"APART": "1"})
    command = [sys.executable, str(TESTS / "ray_cluster.py"), str(cluster), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environ)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"killed a node after \d+ runs in {re.escape(FOLDER)}$", done.stderr, re.MULTILINE), done.stderr
    found = tuned_protocol.values(cluster)
    assert found == tuned_protocol.values(alone) and sum(name.startswith(FOLDER) for name in found) == 12 and len(found) == 16
    assert not [path for path in cluster.rglob("*") if path.name == UNFINISHED]


NO_SHARED_FOLDER = """
import sys
from pathlib import Path
import lgbench
from lgbench.execution import ray_tasks

class Context:
    def get_node_id(self):
        return "here"

ray_tasks.ray.get_runtime_context = Context
set = {"train.steps": 2, "train.batch": 2, "evaluate.contexts": 4, "evaluate.max_length": 16}
asked = {"average": [], "seeds": (0, 1), "protocol": "quick", "set": set, "device": "cpu", "compile": False}
own = Path(sys.argv[1])
for population in lgbench.plan("toy-walk", "toy-table", **asked, plugins=[own], workers=1):
    order = ray_tasks.Order(population, "cpu", 60.0, "/nowhere/else", ((own.name, own.read_bytes()),), True)
    answer = ray_tasks.train(order)
    assert answer.error is None, answer.error
    files = lgbench.run_population(population, plugins=[own], device="cpu", keep_weights=True)
    assert answer.files.keys() == files.keys() and all(answer.files.values())
    weights = [name for name in files if name.endswith(".safetensors")]
    assert len(weights) == len(population.runs) and all(answer.files[name] == files[name] for name in weights)
order = ray_tasks.Order(population, "cpu", 60.0, "/nowhere/else", ())
answer = ray_tasks.train(order)
assert "no task 'toy-walk" in answer.error and not answer.files, answer
"""


@needs_ray
@pytest.mark.engine
def test_a_node_without_the_folder_sends_its_files_and_gets_plugin_files(tmp_path):
    own = tmp_path / "own_toys.py"
    own.write_text((TESTS / "toys.py").read_text(encoding="utf-8"), encoding="utf-8")
    plugins = {"LGBENCH_PLUGINS": "lgbench_measurements,lgbench_optimizers"}
    command = [sys.executable, "-W", "ignore", "-c", NO_SHARED_FOLDER, str(own)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | plugins)
    assert done.returncode == 0, done.stderr


@needs_ray
@pytest.mark.engine
def test_ctrl_c_gives_back_what_ray_trains(tmp_path):
    command = [sys.executable, "-c", "from lgbench.cli.main import main; main()", *WORDS, "--set", "train.steps=100000"]
    command += ["--executor", "ray", "--workers", "1", "--checkpoint", "0", "--results", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(tmp_path.glob(f"{UNFINISHED}/*/checkpoint.safetensors")), 240)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "The same command continues with the others" in error
    (parked,) = [folder.name for folder in (tmp_path / UNFINISHED).iterdir() if folder.name != "taken"]
    assert "." not in parked  # nobody holds it


@needs_ray
@pytest.mark.engine
def test_where_no_cluster_answers_the_command_says_so(tmp_path):
    done = lgbench_command(*WORDS, "--executor", "ray", "--ray-address", "auto", "--results", str(tmp_path / "results"))
    assert done.returncode == 2 and "lgbench: no Ray cluster answers at auto: " in done.stderr, done.stderr
    assert not (tmp_path / "results").exists()
