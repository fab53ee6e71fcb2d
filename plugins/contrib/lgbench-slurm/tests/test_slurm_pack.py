"""Jobs of SLURM are cancelled, put back into the queue and killed. No run is lost, and every value is that of a run alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_cluster
from slurm_cluster import cluster, said, wait_until

import lgbench
from lgbench import Demand
from lgbench.execution.work_queue import UNFINISHED
from lgbench.results import run_files
from lgbench_slurm import Slurm

OPTIONS = (
    "--average ema --protocol quick --device cpu --no-compile --population 1 --checkpoint 0 --set evaluate.contexts=8 "
    "--set evaluate.strings=8 --set evaluate.max_length=64"
)
GRID = "--task tomita-1,tomita-2 --arch pre-norm --seeds 0:2"
ONE = "--task tomita-1 --arch pre-norm --seeds 0"
LGBENCH = [sys.executable, "-c", "from lgbench.cli.main import main; main()", "run"]
BROKEN = '''
from lgbench import Architecture, hookimpl

class Broken(Architecture):
    """A model that fails in training."""

    name = "broken"

    def build(self, signature, parts):
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(signature.classes))
                self.calls = 0

            def forward(self, inputs, *others):
                import os

                if os.environ.get("SLURM_JOB_ID"):
                    raise RuntimeError("the model is broken")
                return self.weight.expand(*inputs.shape[:2], -1)

        return Model()

@hookimpl
def lgbench_architectures():
    return [Broken()]
'''


def in_jobs(folder: Path, environ: dict[str, str], number: int, steps: int = 30, grid: str = GRID) -> subprocess.Popen[str]:
    command = [*LGBENCH, *words(folder, steps, grid), "--executor", "slurm", "--executor-option", f"jobs={number}"]
    command += ["--executor-option", "partition=main"]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def words(folder: Path, steps: int = 30, grid: str = GRID) -> list[str]:
    return [*OPTIONS.split(), *grid.split(), "--set", f"train.steps={steps}", "--results", str(folder)]


def alone(folder: Path, steps: int = 30, grid: str = GRID) -> dict[str, str]:
    """Values of the same runs, made by one process."""
    done = subprocess.run([*LGBENCH, *words(folder, steps, grid), "--workers", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return values(folder)


def values(folder: Path) -> dict[str, str]:
    """All bits of the rows of each run file."""
    return {path.name: repr(run_files.read(path).to_pylist()) for path in folder.glob("*.parquet")}


def jobs(environ: dict[str, str], state: str = "") -> list[str]:
    """Ids of jobs in a state."""
    return said(f"squeue -h -r -o %i {state and f'--states={state}'}", environ).split()


def test_numbers_out_of_range_and_a_machine_without_slurm_are_sentences(tmp_path, monkeypatch):
    for name in ("jobs", "time"):
        with pytest.raises(lgbench.UsageError, match=f"the option {name} of the executor slurm is 0, expected at least 1"):
            Slurm(**{name: 0})
    monkeypatch.setattr("shutil.which", lambda name: None)
    said = "SLURM is not on this machine, since sbatch, srun, squeue, scancel, scontrol cannot be found"
    with pytest.raises(lgbench.UsageError, match=re.escape(said)):
        lgbench.run("tomita-1", "pre-norm", protocol="quick", executor="slurm", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_options_of_sbatch_stand_once_in_the_script_and_those_of_the_user_count(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    executor = Slurm(sbatch="--mem=8G exclusive cpus-per-task=4 constraint='a100|h100'")
    submitter = executor._submitter(Demand(1, False, {}, tmp_path), tmp_path)
    lines = submitter._make_submission_file_text("true", "unique").splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"--mem=8G", "--exclusive", "--cpus-per-task=4", "--constraint='a100|h100'"} < {*options}
    names = [option.partition("=")[0] for option in options]
    assert len(names) == len(set(names))


def why_not() -> str | None:
    done = subprocess.run([sys.executable, "-c", "import submitit"], capture_output=True)
    return "submitit is not installed" if done.returncode else slurm_cluster.why_not()


needs_slurm = pytest.mark.skipif((REASON := why_not()) is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> dict[str, str]:
    with cluster(tmp_path_factory.mktemp("slurm")) as environ:
        yield environ


@needs_slurm
@pytest.mark.engine
def test_a_job_cancelled_and_one_put_back_cost_nothing_and_every_value_is_that_of_a_run_alone(slurm, tmp_path):
    expected, shared = alone(tmp_path / "alone", 400), tmp_path / "shared"
    process = in_jobs(shared, slurm, 2, 400)
    wait_until(lambda: len(list(shared.glob("*.parquet"))) >= 1 and len(jobs(slurm, "RUNNING")) == 2)
    first, second = jobs(slurm, "RUNNING")
    said(f"scancel {first}", slurm)
    said(f"scontrol requeue {second}", slurm)
    wait_until(lambda: second in jobs(slurm, "PENDING"))
    said(f"scontrol update JobId={second} StartTime=now", slurm)  # SLURM would wait for two minutes
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    assert "4 runs written to" in out and "done, 4 of 4 runs written" in error
    assert values(shared) == expected and len(expected) == 4
    assert not (shared / UNFINISHED).exists() and not (shared / ".slurm").exists() and not jobs(slurm)


@needs_slurm
@pytest.mark.engine
def test_a_job_whose_time_is_nearly_over_puts_itself_back_and_goes_on_from_its_checkpoint(slurm, tmp_path):
    """SLURM sends USR2 then, and before it takes a node away from a job."""
    expected, shared = alone(tmp_path / "alone", 400, ONE), tmp_path / "shared"
    process = in_jobs(shared, slurm, 1, 400, ONE)
    wait_until(lambda: list(shared.glob(f"{UNFINISHED}/*/checkpoint.safetensors")))
    (job,) = jobs(slurm, "RUNNING")
    said(f"scancel --signal=USR2 {job}", slurm)
    wait_until(lambda: jobs(slurm, "PENDING") == [job])
    assert not list(shared.glob("*.parquet"))
    said(f"scontrol update JobId={job} StartTime=now", slurm)
    _, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    (path,) = shared.glob("*.parquet")
    assert values(shared) == expected and '"resumed": true' in json.dumps(run_files.metadata(path)["execution"])


@needs_slurm
@pytest.mark.engine
def test_a_killed_command_goes_on_from_the_checkpoint_of_its_job(slurm, tmp_path):
    expected, shared = alone(tmp_path / "alone", 400, ONE), tmp_path / "shared"
    process = in_jobs(shared, slurm, 1, 400, ONE)
    wait_until(lambda: list(shared.glob(f"{UNFINISHED}/*/checkpoint.safetensors")))
    process.kill()
    process.communicate()
    again = in_jobs(shared, slurm, 1, 400, ONE)
    _, error = again.communicate(timeout=500)
    assert again.returncode == 0, error
    (path,) = shared.glob("*.parquet")
    assert values(shared) == expected and '"resumed": true' in json.dumps(run_files.metadata(path)["execution"])
    wait_until(lambda: not jobs(slurm))


@needs_slurm
@pytest.mark.engine
def test_ctrl_c_cancels_the_jobs_and_the_same_command_goes_on(slurm, tmp_path):
    process = in_jobs(tmp_path, slurm, 2, steps=100_000)
    wait_until(lambda: len(list(tmp_path.glob(f"{UNFINISHED}/*/checkpoint.safetensors"))) == 2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "The same command continues with the others" in error
    wait_until(lambda: not jobs(slurm))


@needs_slurm
@pytest.mark.engine
def test_populations_that_fail_in_jobs_are_told_and_the_logs_stay(slurm, tmp_path):
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN)
    process = in_jobs(tmp_path / "results", slurm, 1, 5, f"--task tomita-1 --arch broken --seeds 0 --plugin {plugin}")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1 and "RuntimeError: the model is broken (" in error, error
    assert list((tmp_path / "results" / ".slurm").glob("*/*/*_log.out"))


@needs_slurm
@pytest.mark.engine
def test_what_slurm_refuses_is_a_sentence_and_no_run_is_left_locked(slurm, tmp_path):
    command = [*LGBENCH, *words(tmp_path / "results"), "--executor", "slurm", "--executor-option", "partition=nowhere"]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "lgbench: SLURM does not take the jobs: " in done.stderr and "invalid partition specified: nowhere" in done.stderr
    assert not list((tmp_path / "results").rglob("*"))
