"""Submitted runs whose learning rate was chosen: honest ones are filed and verified, and every forged field is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest
from conftest import CPU
from published import forged, identity
from tuned import GRID, SEEDS

from lgbench.errors import Refused
from lgbench.execution import provenance
from lgbench.execution.engines import carry_out
from lgbench.execution.manner import Command, Engine, Manner
from lgbench.execution.progress import SilentProgress
from lgbench.execution.tuning import FOLDER
from lgbench.experiment.plan import Request, plan
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.submissions import tuning_again
from lgbench.submissions.inspection import Inspector, inspect_all
from lgbench.submissions.submission import check_filed, submit
from lgbench.submissions.verdict import OTHER_ROUNDING, SAME_BITS
from lgbench.submissions.verification import verify

SENTENCES = {
    "runs": "does not have each rate of the grid with each tuning seed once, in order",
    "chosen": "the losses of the tuning runs choose",
}


@pytest.fixture(scope="module")
def installed(tuned) -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory, installed) -> list[Path]:
    """Both tasks of a family, seeds 0 to 4, of a checkout without changes."""
    folder = tmp_path_factory.mktemp("made")
    request = Request(["small"], ["toy-table"], ["toy-mean"], range(5), "tuned")
    command = Command(request, plan(request, installed), Manner("cpu", False, workers=1), Engine(), (), SilentProgress())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git_commit", lambda: published.COMMIT)
        outcome = carry_out(command, folder)
    assert not outcome.failed and len(outcome.written) == 10
    return outcome.written


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if path.name.startswith("small-walk.toy-table+toy-nothing.seed-3"))


@pytest.fixture
def board(tmp_path) -> Path:
    folder = tmp_path / "leaderboards"
    folder.mkdir()
    return folder


def refusal(made: list[Path], honest: Path, other: Path, board: Path, installed: Registry) -> str:
    """Why a submission is refused in which one run is replaced by a forged one."""
    with pytest.raises(Refused) as refused:
        submit([other if path == honest else path for path in made], board, installed)
    assert not (board / "runs").exists() or not list((board / "runs").iterdir())
    return str(refused.value)


def test_honest_runs_are_filed_without_their_tuning_runs(made, board, installed):
    submit([made[0].parent], board, installed)
    (filed,) = (board / "runs").iterdir()
    assert run_files.footers(filed).keys() == {run for path in made for run in run_files.footers(path)}
    assert check_filed(board, installed) == []


def test_tuning_runs_are_no_submission(made, board, installed):
    with pytest.raises(Refused, match="it changes its protocol"):
        submit([made[0].parent / FOLDER], board, installed)


def tuning_of(footer: dict[str, Any]) -> dict[str, Any]:
    return footer["experiment"]["tuning"]


def other_choice(footer: dict[str, Any]) -> None:
    """As the forger would like it: another rate, also in the settings."""
    rate = next(lr for lr in GRID if lr != tuning_of(footer)["chosen"])
    tuning_of(footer)["chosen"] = footer["experiment"]["train"]["lr"] = rate


def smaller_loss(footer: dict[str, Any]) -> None:
    """A loss that makes another rate the best."""
    for run in tuning_of(footer)["runs"]:
        if run["lr"] == 0.002:
            run["losses"][-1] = 0.0


def every(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(footer: dict[str, Any]) -> None:
        for run in tuning_of(footer)["runs"]:
            run[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f["experiment"].update(tuning=None), "tuning.grid is '(0.002, 0.02, 0.2)', and the file says None"),
        (lambda f: tuning_of(f).update(steps=40), "tuning.steps is '10', and the file says '40'"),
        (lambda f: tuning_of(f).update(seeds=[3, 4]), SENTENCES["runs"]),
        (lambda f: tuning_of(f).update(grid=GRID[1:]), SENTENCES["runs"]),
        (lambda f: tuning_of(f).update(runs=[]), SENTENCES["runs"]),
        (lambda f: tuning_of(f).update(runs=tuning_of(f)["runs"][2:]), SENTENCES["runs"]),
        (lambda f: tuning_of(f)["runs"].reverse(), SENTENCES["runs"]),
        (lambda f: tuning_of(f).update(chosen=None), SENTENCES["chosen"]),
        (other_choice, SENTENCES["chosen"]),
        (smaller_loss, SENTENCES["chosen"]),
        (lambda f: f["experiment"]["train"].update(lr=0.02), "train.lr is 0.02, and the tuning chose 0.2"),
        (lambda f: f["experiment"].update(seed=SEEDS[0]), "is one of those that chose its learning rate"),
        (every("losses", []), "has 0 losses, expected 10"),
        (every("losses", [None] * 10), "has a loss that is not finite, and says that it did not diverge"),
        (every("losses", [-1.0] * 10), "has a loss below 0"),
        (every("diverged_step", 11), "diverged at step 11 of 10"),
        (every("population", 0), "population"),
        (every("lr", "0.2"), "lr"),
        (every("more", 1), "is no field of a run's footer"),
    ],
)
def test_a_forged_field_is_refused(made, honest, board, installed, tmp_path, change, sentence):
    other = forged(honest, tmp_path / "forged.parquet", change)
    assert sentence in refusal(made, honest, other, board, installed)


def test_the_row_of_the_learning_rate_is_that_of_the_footer(made, honest, board, installed, tmp_path):
    def change(rows):
        next(row for row in rows if row["metric"] == "learning_rate")["value"] = 0.02

    other = forged(honest, tmp_path / honest.name, rows=change)
    assert "learning_rate at step 40 is 0.02, expected 0.2, the learning rate that was chosen" in refusal(
        made, honest, other, board, installed
    )


def test_a_tuning_under_a_protocol_without_rates_is_refused(made, board, installed, tmp_path):
    path = published.make(tmp_path / "short", seeds=[0], tasks=["small-walk"], protocol="short")[0]
    tuning = tuning_of(run_files.metadata(made[0]))
    honest_lr = run_files.metadata(path)["experiment"]["train"]["lr"]

    def change(footer):
        footer["experiment"]["tuning"] = tuning
        footer["experiment"]["train"]["lr"] = tuning["chosen"]

    other = forged(path, tmp_path / "forged.parquet", change)
    with pytest.raises(Refused, match=r"tuning.grid is None, and the file says '\(0.002, 0.02, 0.2\)'"):
        submit([other], board, installed)
    assert honest_lr != tuning["chosen"]


def test_all_seeds_of_an_entry_on_a_task_need_one_rate(made, honest, board, installed, tmp_path):
    """A run that another machine tuned, with losses that choose another rate: nothing is wrong with it alone."""

    def change(footer):
        smaller_loss(footer)
        tuning_of(footer)["chosen"] = footer["experiment"]["train"]["lr"] = 0.002

    def row(rows):
        next(row for row in rows if row["metric"] == "learning_rate")["value"] = 0.002

    other = forged(honest, tmp_path / honest.name, change, row)
    said = refusal(made, honest, other, board, installed)
    assert "small-walk under tuned/1 has several learning rates, 0.002 with seed 3, 0.2 with seeds 0 to 2 and 4" in said
    assert "make them in one results folder" in said


def verdicts(paths, installed, tolerance=SAME_BITS, tuning=True):
    runs, wrong = inspect_all(paths, Inspector(installed))
    assert not wrong
    return list(verify(runs, CPU, SilentProgress(), tolerance, tuning=tuning))


@pytest.mark.slow
def test_verify_makes_each_tuning_run_again_once(made, installed, monkeypatch):
    asked: list[int] = []
    make = tuning_again.TuningAgain._make
    monkeypatch.setattr(
        tuning_again.TuningAgain, "_make", lambda self, runs, *rest: (asked.append(len(runs)), make(self, runs, *rest))[1]
    )
    found = verdicts(made, installed)
    assert [verdict.disagreements for verdict in found] == [[]] * 10 and sum(asked) == 2 * 6
    alone = verdicts(made[:1], installed, tuning=False)[0]
    assert found[0].compared == alone.compared + 6 * 10


@pytest.mark.slow
def test_verify_finds_a_loss_that_was_not(honest, installed, tmp_path):
    """The choice stays as it was, and so does everything else."""

    def change(footer):
        for run in tuning_of(footer)["runs"]:
            if run["lr"] == 0.002:
                run["losses"][-1] += 3.0

    other = forged(honest, tmp_path / honest.name, change)
    (verdict,) = verdicts([other], installed)
    assert not verdict.agrees and "the loss of the tuning run with the rate 0.002 and seed 1000000" in "\n".join(
        verdict.lines()
    )
    assert not verdicts([other], installed, OTHER_ROUNDING)[0].agrees
    assert verdicts([other], installed, tuning=False)[0].agrees
    assert verdicts([honest], installed, OTHER_ROUNDING)[0].agrees


def test_the_run_id_is_that_of_the_record_without_the_outcome(honest):
    experiment = run_files.metadata(honest)["experiment"]
    digest = hashlib.sha256(json.dumps(identity(experiment), sort_keys=True).encode()).hexdigest()
    assert honest.name.endswith(f".{digest[:16]}.parquet")
