"""SLURM: jobs are cancelled and put back into the queue, nothing is lost, and every value is that of a run alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_cluster
import tuned as tuned_protocol
from conftest import lgbench_command
from helpers import notebook
from helpers.made_runs import made, rows_of
from helpers.tracked import numbers_in, numbers_of
from slurm_cluster import cluster, said, wait_until

from lgbench.execution.tuning import FOLDER
from lgbench.execution.work_queue import UNFINISHED
from lgbench.results import run_files

OPTIONS = (
    "--average ema --protocol quick --device cpu --no-compile --population 1 --checkpoint 0 --set evaluate.contexts=8 "
    "--set evaluate.strings=8 --set evaluate.max_length=64"
)
GRID = "--task tomita-1,tomita-2,tomita-3,tomita-4 --arch pre-norm,peri-norm --seeds 0:3"
LGBENCH = [sys.executable, "-c", "from lgbench.cli.main import main; main()", "run"]


def words(folder: Path, steps: int = 30, grid: str = GRID) -> list[str]:
    return [*OPTIONS.split(), *grid.split(), "--set", f"train.steps={steps}", "--results", str(folder)]


def in_jobs(folder: Path, environ: dict[str, str], number: int, steps: int = 30, grid: str = GRID) -> subprocess.Popen[str]:
    asked = words(folder, steps, grid)
    command = [*LGBENCH, *asked, "--executor", "slurm", "--jobs", str(number), "--slurm-partition", "main"]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def jobs(environ: dict[str, str], state: str = "") -> list[str]:
    """The ids of jobs, of those in a state."""
    return said(f"squeue -h -r -o %i {state and f'--states={state}'}", environ).split()


def submitit_missing() -> str | None:
    done = subprocess.run([sys.executable, "-c", "import submitit"], capture_output=True)
    return "submitit is not installed: pip install 'lgbench[slurm]'" if done.returncode else None


REASON = submitit_missing() or slurm_cluster.why_not()
needs_slurm = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> dict[str, str]:
    with cluster(tmp_path_factory.mktemp("slurm")) as environ:
        environ.pop("LGBENCH_PLUGINS", None)
        yield environ


@needs_slurm
@pytest.mark.engine
def test_a_job_cancelled_and_one_put_back_cost_nothing_and_every_value_is_that_of_a_run_alone(slurm, tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    done = lgbench_command("run", *words(alone), "--workers", "1")
    assert done.returncode == 0, done.stderr
    process = in_jobs(shared, slurm, 2)
    wait_until(lambda: len(list(shared.glob("*.parquet"))) >= 3 and len(jobs(slurm, "RUNNING")) == 2)
    first, second = jobs(slurm, "RUNNING")
    assert not said(f"scancel {first}", slurm)
    said(f"scontrol requeue {second}", slurm)
    wait_until(lambda: jobs(slurm, "PENDING") == [second])
    made_before = len(list(shared.glob("*.parquet")))
    assert made_before < 24
    said(f"scontrol update JobId={second} StartTime=now", slurm)  # SLURM would wait for two minutes
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    assert "24 runs written to" in out and "24 of 24 runs written" in error
    assert rows_of(made(shared)) == rows_of(made(alone)) and len(made(alone)) == 24
    assert not (shared / UNFINISHED).exists() and not (shared / ".slurm").exists() and not jobs(slurm)


@needs_slurm
@pytest.mark.engine
def test_a_job_whose_time_is_nearly_over_puts_itself_back_and_goes_on_from_its_checkpoint(slurm, tmp_path):
    """SLURM sends USR2 then, and before it takes a node away from a job."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    one = "--task tomita-1 --arch pre-norm --seeds 0"
    done = lgbench_command("run", *words(alone, 400, one), "--workers", "1")
    assert done.returncode == 0, done.stderr
    process = in_jobs(shared, slurm, 1, 400, one)
    wait_until(lambda: list(shared.glob(f"{UNFINISHED}/*/checkpoint.safetensors")))
    (job,) = jobs(slurm, "RUNNING")
    said(f"scancel --signal=USR2 {job}", slurm)
    wait_until(lambda: jobs(slurm, "PENDING") == [job])
    assert not list(shared.glob("*.parquet"))
    said(f"scontrol update JobId={job} StartTime=now", slurm)
    _, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    assert rows_of(made(shared)) == rows_of(made(alone)) and '"resumed": true' in footer_of(shared)


@needs_slurm
@pytest.mark.engine
def test_a_job_tells_trackers_and_goes_on_in_the_same_page_once_it_is_put_back(slurm, tmp_path):
    shared, environ = tmp_path / "shared", slurm | {"NOTEBOOK": str(tmp_path / "pages")}
    one = "--task tomita-1 --arch pre-norm --seeds 0"
    process = in_jobs(shared, environ, 1, 400, f"{one} --track notebook --plugin {notebook.__file__}")
    wait_until(lambda: list(shared.glob(f"{UNFINISHED}/*/checkpoint.safetensors")))
    wait_until(lambda: any(line[0] == "log" for page in notebook.read(tmp_path / "pages").values() for line in page))
    (job,) = jobs(slurm, "RUNNING")
    said(f"scancel --signal=USR2 {job}", slurm)
    wait_until(lambda: jobs(slurm, "PENDING") == [job])
    said(f"scontrol update JobId={job} StartTime=now", slurm)
    _, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    ((_, page),), (path,) = notebook.read(tmp_path / "pages").items(), shared.glob("*.parquet")
    assert numbers_of(page) == numbers_in(path) and page[-1][:2] == ["end", "finished"]
    assert [line[0] for line in page].count("run") == 1


def footer_of(folder: Path) -> str:
    (path,) = folder.glob("*.parquet")
    return json.dumps(run_files.metadata(path)["execution"])


@needs_slurm
@pytest.mark.engine
def test_jobs_that_try_rates_make_what_a_run_alone_makes_also_where_one_is_cancelled(slurm, tuned_everywhere, tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    done = lgbench_command(*tuned_protocol.WORDS, "--workers", "1", "--results", str(alone))
    assert done.returncode == 0, done.stderr
    environ = slurm | {name: os.environ[name] for name in ("PYTHONPATH", "LGBENCH_PLUGINS")} | {"TOYS_SLEEP": "0.05"}
    command = [*LGBENCH[:-1], *tuned_protocol.WORDS, "--checkpoint", "0", "--executor", "slurm", "--jobs", "2"]
    command += ["--results", str(shared)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(shared.glob(f"{FOLDER}/{UNFINISHED}/*/checkpoint.safetensors")))
    said(f"scancel {jobs(slurm)[0]}", slurm)
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    assert "12 of 12 runs written" in error and "4 of 4 runs written" in error and "4 runs written to" in out
    found = tuned_protocol.values(shared)
    assert found == tuned_protocol.values(alone) and sum(name.startswith(FOLDER) for name in found) == 12 and len(found) == 16
    assert not [path for path in shared.rglob("*") if path.name in (UNFINISHED, ".slurm")] and not jobs(slurm)


@needs_slurm
@pytest.mark.engine
def test_jobs_that_all_end_early_are_followed_by_others(slurm, tmp_path):
    process = in_jobs(tmp_path, slurm, 1, steps=300, grid="--task tomita-1 --arch pre-norm --seeds 0:6")
    wait_until(lambda: len(list(tmp_path.glob("*.parquet"))) >= 1)
    said(f"scancel {' '.join(jobs(slurm))}", slurm)
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    assert "6 runs written to" in out and "the jobs have ended and" in error and "1 job submitted" in error


@needs_slurm
@pytest.mark.engine
def test_ctrl_c_cancels_the_jobs_and_the_same_command_goes_on(slurm, tmp_path):
    process = in_jobs(tmp_path, slurm, 2, steps=100_000)
    wait_until(lambda: len(list(tmp_path.glob(f"{UNFINISHED}/*/checkpoint.safetensors"))) == 2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "The same command continues with the others" in error
    wait_until(lambda: not jobs(slurm))
    parked = [folder.name for folder in (tmp_path / UNFINISHED).iterdir() if folder.name != "taken"]
    assert len(parked) == 2 and not any("." in name for name in parked)  # nobody holds them


@needs_slurm
@pytest.mark.engine
def test_populations_that_fail_in_jobs_are_told_and_the_logs_stay(slurm, tmp_path):
    plugin = tmp_path / "breaking.py"
    plugin.write_text(Path(__file__).with_name("toys.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = [*LGBENCH, *words(tmp_path / "results", 5, "--task toy-walk --arch toy-broken --seeds 0")]
    done = subprocess.run(
        [*command, "--plugin", str(plugin), "--executor", "slurm"], env=slurm, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "the toy is broken" in done.stderr
    assert list((tmp_path / "results" / ".slurm").glob("*/*/*_log.out"))


@needs_slurm
@pytest.mark.engine
def test_what_slurm_refuses_is_a_sentence_and_nothing_is_written(slurm, tmp_path):
    command = [*LGBENCH, *words(tmp_path / "results"), "--executor", "slurm", "--slurm-partition", "nowhere"]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "lgbench: SLURM does not take the jobs: " in done.stderr and "invalid partition specified: nowhere" in done.stderr
    assert not list((tmp_path / "results").rglob("*"))
