"""Inspection: honest runs pass, and whatever is not as the installed lgbench would write it is refused with what differs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import published
from helpers.filed import check_filed
from helpers.plain_training import CPU
from helpers.published import forged, put_right
from helpers.registries import with_things
from helpers.tuned import GRID, SEEDS

from lgbench import Measurement
from lgbench.errors import Refused
from lgbench.execution import device
from lgbench.execution.command import Command
from lgbench.execution.progress import ProgressDisplay
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results import run_files
from lgbench.submissions.inspection import found_in, inspected, keys_in, row_keys
from lgbench.submissions.submission import submit
from lgbench.submissions.verdict import OTHER_ROUNDING, Tolerance
from lgbench.submissions.verification import Verifier, verify
from lgbench_optimizers import AdamW


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """A run of each task and, of one entry, some that diverged."""
    folder = tmp_path_factory.mktemp("made")
    return published.make(folder, ("toy-table", "toy-fragile"), seeds=[2, 3], task=["small", "alone"])


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if path.name.startswith("small-even.toy-table+toy-nothing.seed-3"))


def read(path: Path, registry: Registry):
    """The inspected run of a file, and what is wrong with it."""
    stored, wrong = found_in([path])
    runs = list(inspected(stored, registry, wrong))
    return (runs[0] if runs else None), "\n".join(wrong)


def test_real_runs_pass_and_have_the_rows_that_a_stub_gives_each_once(made, installed):
    for path in made:
        run, wrong = read(path, installed)
        assert not wrong and repr(run.rows.to_pylist()) == repr(run_files.read(path).to_pylist())
        assert row_keys(run.experiment) == keys_in(run.rows) and {*keys_in(run.rows).values()} == {1}


@dataclass(frozen=True)
class Slow(AdamW):
    """AdamW that remembers more."""

    name: str = "toy-slow"
    beta2: float = 0.99


def test_a_run_with_another_optimizer_is_what_it_says(tmp_path):
    installed = with_things(published.registry(), Distribution("lgbench-slow", "1.0", installed="index"), optimizer=Slow())
    (path,) = published.make(tmp_path, seeds=[3], task="small-even", installed=installed, optimizer="toy-slow")
    run, wrong = read(path, installed)
    assert not wrong and run.experiment.entry == "toy-table+toy-nothing+toy-slow"
    assert isinstance(run.experiment.optimizer, Slow)
    with pytest.raises(Refused) as refused:
        submit([path], tmp_path, installed)
    assert "--arch toy-table+toy-nothing --optimizer toy-slow --protocol short --seeds 0:5" in refused.value.sentences[0]
    assert "needs the plugin 'lgbench-slow' '1.0'" in read(path, published.registry())[1]


# Metadata.


def of_small(metadata):
    """The entry of the plugin of the tasks."""
    return next(plugin for plugin in metadata["plugins"] if plugin["name"] == "lgbench-small")


METADATA = [
    (lambda f: f.pop("plugins"), "required field `plugins`"),
    (lambda f: f["experiment"].pop("norm"), "required field `norm` - at `$.experiment`"),
    (lambda f: f["experiment"].update(seed="0"), "Expected `int`, got `str` - at `$.experiment.seed`"),
    (lambda f: f["execution"].update(population=0), "Expected `int` >= 1 - at `$.execution.population`"),
    (lambda f: f["environment"].update(lgbench="9.9"), "made with lgbench '9.9', and 0.1.0 is installed"),
    (lambda f: of_small(f).update(version="2.0"), "made with lgbench-small '2.0', and 1.0 is installed"),
    (lambda f: of_small(f).update(name="lgbench-other"), "needs the plugin 'lgbench-other' '1.0', which is not installed"),
    (lambda f: f.update(measurements=f["measurements"][:1]), "it has too many rows: "),
    (lambda f: f["environment"].update(threads=10**30), "Expected `int` <= 2147483647 - at `$.environment.threads`"),
]


@pytest.mark.parametrize(("change", "said"), METADATA, ids=[said for _, said in METADATA])
def test_metadata_that_no_run_has_are_refused_with_the_field(honest, tmp_path, installed, change, said):
    run, wrong = read(forged(honest, tmp_path / honest.name, metadata=change), installed)
    assert run is None and said in wrong and str(tmp_path / honest.name) in wrong


PROTOCOL: dict[str, Any] = {"name": "short", "version": 1, "changes": []}
OPTIONS = [["optimizer.beta1", 0.9], ["optimizer.beta2", 0.999], ["optimizer.epsilon", 1e-08]]
EXPERIMENTS = [
    ({"task": "../../etc/x"}, "no task '../../etc/x'"),
    ({"averagers": ["../toy-mean"]}, "no averager '../toy-mean'"),
    ({"norm": "__import__('os')"}, "no norm, attention or position"),
    ({"optimizer": "nobodys"}, "no optimizer 'nobodys'"),
    ({"task_version": 2}, "task_version is 2 in the file and 1 here"),
    (
        {"protocol": PROTOCOL | {"version": 2}},
        "its protocol short/2 is short/1 in this lgbench; run it again, or use its lgbench (commit '0123",
    ),
    ({"protocol": PROTOCOL | {"changes": [["train.stepz", "4"]]}}, "no setting 'train.stepz'"),
    ({"protocol": PROTOCOL | {"changes": [["train.steps", "10"]]}}, "train.steps is 20 in the file and 10 here"),
    ({"protocol": PROTOCOL | {"changes": [["train.steps", "1e1"]]}}, "changes.train.steps is '1e1' in the file and '10' here"),
    ({"protocol": PROTOCOL | {"name": "nobodys"}}, "no protocol 'nobodys'"),
    ({"options": [["model.scale", 2.0], ["model.wide", False], *OPTIONS]}, "model.scale is 2.0 in the file and 1.0 here"),
    ({"options": [["model.scale", 1.0], ["model.wide", 0], *OPTIONS]}, "it is run"),
    ({"options": [["model.scale", 1.0], *OPTIONS]}, "options.model.wide is not set in the file and False here"),
    ({"train": {"steps": 40}}, "train.steps is 40 in the file and 20 here"),
    ({"evaluate": {"contexts": 1}}, "evaluate.contexts is 1 in the file and 128 here"),
    (
        {"plugins": [{"name": "lgbench", "version": "0.1.0", "source": "0" * 16, "provides": ["task"]}]},
        "it was made by a checkout of lgbench with changes that this lgbench does not have; run it again",
    ),
    ({"plugins": []}, "plugins.lgbench-small.version is not set in the file and '1.0' here"),
]


@pytest.mark.parametrize(("fields", "said"), EXPERIMENTS, ids=[said for _, said in EXPERIMENTS])
def test_an_experiment_that_is_not_the_protocols_is_refused(honest, tmp_path, installed, fields, said):
    def change(about):
        for name, value in fields.items():
            kept = about["experiment"][name] if name in ("train", "evaluate") else None
            about["experiment"][name] = kept | value if kept else value

    run, wrong = read(put_right(honest, tmp_path / "run.parquet", change), installed)
    assert run is None and said in wrong


# Rows.


def at(index, **columns):
    return lambda rows: rows[index].update(columns)


def first(metric, **columns):
    return lambda rows: next(row for row in rows if row["metric"] == metric).update(columns)


def without_eval_step(rows):
    rows[:] = [row for row in rows if row["length"] is None or row["step"] != 10]


ROWS = [
    (without_eval_step, "it lacks weights='raw' metric='accuracy' metric_version=1 step=10 length=5"),
    (lambda rows: rows.pop(0), "it lacks weights='raw' metric='accuracy' metric_version=1 step=20 length=0"),
    (lambda rows: rows.append(dict(rows[4])), "it has too many rows: weights='raw' metric='accuracy'"),
    (at(0, length=64), "length=64"),
    (at(0, weights="best"), "weights='best'"),
    (at(0, step=19), "step=19"),
    (first("tvd", in_distribution=False), "in_distribution=False"),
    (first("tvd", on_boards=True), "on_boards=True"),
    (first("tvd", layer=1), "layer=1"),
    (first("train_loss", step=3), "it lacks weights='raw' metric='train_loss' step=1"),
    (lambda rows: rows.remove(next(row for row in rows if row["weights"] == "chance")), "it lacks weights='chance'"),
    (at(0, run_id="0" * 16), "its rows are of another run, or of several"),
    (at(0, task="small-walk", plugins=[]), "differ in task, plugins"),
    (at(0, diverged_step=3), "its rows have several values of diverged_step"),
]


@pytest.mark.parametrize(("change", "said"), ROWS, ids=[said for _, said in ROWS])
def test_rows_that_are_not_those_of_the_experiment_are_refused(honest, tmp_path, installed, change, said):
    run, wrong = read(forged(honest, tmp_path / honest.name, rows=change), installed)
    assert run is None and said in wrong


# Measurements.


class Kl(Measurement):
    """KL divergence of the model's distribution from p* in nats, at most 100."""

    name, label, title = "kl", "KL", "KL divergence from p* (nats)"
    lower_is_better, range, worst, threshold, landmark = True, (0.0, None), 100.0, 0.1, (0.0, "exact")

    def of_contexts(self, predictions):
        p = predictions.distribution.double()
        return (p.xlogy(p) - p * predictions.logits.double().log_softmax(-1)).sum(-1).clamp(0, self.worst)

    def context_free(self, distribution, test):
        p = test.double()
        return (p.xlogy(p) - p * distribution.double().mean(0).log()).sum(-1)


@cache
def with_kl(measurement=Kl) -> Registry:
    """Everything that is published, and the plugin of a stranger with one measurement."""
    return with_things(published.registry(), Distribution("lgbench-kl", "1.0", installed="index"), measurement=measurement())


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> list[Path]:
    """A whole series in which KL is measured; about half of its runs diverged."""
    folder = tmp_path_factory.mktemp("measured")
    return published.make(folder, ("toy-fragile",), installed=with_kl())


def test_a_measurement_of_a_plugin_is_filed_and_verified_with_no_other_change(measured, tmp_path):
    filed = submit(measured, tmp_path, with_kl()).file
    assert check_filed(tmp_path, with_kl()) == []
    runs = list(inspected(found_in([filed])[0], with_kl(), []))
    assert len(runs) == len(measured) and all({"kl", "tvd"} <= set(run.rows["metric"].to_pylist()) for run in runs)
    outcomes = list(verify(runs[-2:], CPU, ProgressDisplay(), Tolerance()))
    assert len(outcomes) == 2 and all(outcome.agrees for outcome in outcomes)
    assert all(outcome.compared == outcome.run.rows.num_rows for outcome in outcomes)


def test_a_run_that_lacks_an_installed_measurement_is_as_good_as_before(honest):
    assert read(honest, with_kl())[1] == ""


class Stricter(Kl):
    """The same with another threshold."""

    threshold = 0.01


class Newer(Kl):
    """The same, with other numbers."""

    version = 2


@pytest.mark.parametrize(("installed", "said"), [(Stricter, "threshold is 0.1"), (Newer, "version is 1")])
def test_another_measurement_than_the_installed_one_is_refused_with_what_differs(measured, installed, said):
    _, wrong = read(measured[0], with_kl(installed))
    assert f"of its measurement kl, {said} in the file and " in wrong and "run it again" in wrong


def test_a_measurement_that_fails_is_a_reason_of_its_own(measured, tmp_path):
    class Failing(Kl):
        def context_free(self, distribution, test):
            raise ZeroDivisionError("the mean of nothing")

    with pytest.raises(Refused, match="small-even .*failed with ZeroDivisionError: the mean of nothing"):
        submit(measured, tmp_path, with_kl(Failing))


# Learning rates that tuning chose.


@pytest.fixture(scope="module")
def tuned_runs(tmp_path_factory, installed, tuned) -> list[Path]:
    """Both tasks of a family, seeds 0 to 4, of a checkout without changes."""
    folder = tmp_path_factory.mktemp("made")
    how = {"protocol": "tuned", "compile": False, "workers": 1, "results": folder}
    options = RunOptions("small", "toy-table", average="toy-mean", seeds=range(5), **how)
    command = Command.of(options, installed, ProgressDisplay())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "git_commit", lambda: published.COMMIT)
        outcome = command.carry_out()
    assert not outcome.failed and len(outcome.written) == 10
    return outcome.written


@pytest.fixture(scope="module")
def tuned_run(tuned_runs) -> Path:
    return next(path for path in tuned_runs if path.name.startswith("small-walk.toy-table+toy-nothing.seed-3"))


def test_tuned_runs_are_filed_without_their_tuning_runs(tuned_runs, tmp_path, installed):
    filed = submit([tuned_runs[0].parent], tmp_path, installed).file
    assert run_files.metadata_of_runs(filed).keys() == {run for path in tuned_runs for run in run_files.metadata_of_runs(path)}
    assert check_filed(tmp_path, installed) == []
    with pytest.raises(Refused, match="it changes its protocol"):
        submit([tuned_runs[0].parent / run_files.TUNING], tmp_path, installed)


def tuning_of(metadata: dict[str, Any]) -> dict[str, Any]:
    return metadata["experiment"]["tuning"]


def other_choice(metadata: dict[str, Any]) -> None:
    """As the forger would like it: another rate, also in the settings."""
    rate = next(lr for lr in GRID if lr != tuning_of(metadata)["chosen"])
    tuning_of(metadata)["chosen"] = metadata["experiment"]["train"]["lr"] = rate


def smaller_loss(metadata: dict[str, Any]) -> None:
    """A loss that makes another rate the best."""
    for run in tuning_of(metadata)["runs"]:
        if run["lr"] == 0.002:
            run["losses"][-1] = 0.0


SENTENCES = {
    "runs": "does not have each rate that was due with each tuning seed once, in order",
    "chosen": "the losses of the tuning runs choose",
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f["experiment"].update(tuning=None), "tuning.grid is not set in the file and [0.002, 0.02, 0.2] here"),
        (lambda f: tuning_of(f).update(steps=40), "tuning.steps is 40 in the file and 10 here"),
        (lambda f: tuning_of(f).update(grid=GRID[1:]), "tuning.grid is [0.02, 0.2] in the file"),
        (lambda f: tuning_of(f).update(runs=tuning_of(f)["runs"][2:]), SENTENCES["runs"]),
        (lambda f: tuning_of(f)["runs"].reverse(), SENTENCES["runs"]),
        (lambda f: tuning_of(f).update(chosen=None), SENTENCES["chosen"]),
        (other_choice, SENTENCES["chosen"]),
        (smaller_loss, SENTENCES["chosen"]),
        (lambda f: f["experiment"]["train"].update(lr=0.02), "train.lr is 0.02, and the tuning chose 0.2"),
        (lambda f: f["experiment"].update(seed=SEEDS[0]), "is one of those that chose its learning rate"),
    ],
)
def test_a_choice_that_does_not_follow_from_the_tuning_runs_is_refused(tuned_run, installed, tmp_path, change, sentence):
    run, wrong = read(forged(tuned_run, tmp_path / "forged.parquet", change), installed)
    assert run is None and sentence in wrong


def test_all_seeds_of_an_entry_on_a_task_need_one_rate(tuned_runs, tuned_run, installed, tmp_path):
    """A run that another machine tuned, with losses that choose another rate: nothing is wrong with it alone."""

    def change(metadata):
        smaller_loss(metadata)
        tuning_of(metadata)["chosen"] = metadata["experiment"]["train"]["lr"] = 0.002

    other = forged(tuned_run, tmp_path / tuned_run.name, change)
    with pytest.raises(Refused) as refused:
        submit([other if path == tuned_run else path for path in tuned_runs], tmp_path, installed)
    said = str(refused.value)
    assert "small-walk under tuned/1 has several learning rates: 0.002 with seed 3, and 0.2 with seeds 0 to 2 and 4" in said
    assert "make them in one results folder" in said


STRICT = Tolerance()


def verdicts(paths, installed, tolerance=STRICT, tuning=True):
    runs = list(inspected(found_in(paths)[0], installed, []))
    assert len(runs) == len(paths)
    return list(verify(runs, CPU, ProgressDisplay(), tolerance, tuning=tuning))


@pytest.mark.slow
def test_verify_makes_each_tuning_run_again_once(tuned_runs, installed, monkeypatch):
    asked: list[int] = []
    make = Verifier._again
    monkeypatch.setattr(Verifier, "_again", lambda self, runs, *rest: (asked.append(len(runs)), make(self, runs, *rest))[1])
    found = verdicts(tuned_runs, installed)
    assert [verdict.disagreements for verdict in found] == [[]] * 10 and sum(asked) == 10 + 2 * 6
    alone = verdicts(tuned_runs[:1], installed, tuning=False)[0]
    assert found[0].compared == alone.compared + 6 * 10


@pytest.mark.slow
def test_verify_finds_a_loss_that_was_not(tuned_run, installed, tmp_path):
    """The choice stays as it was, and so does everything else."""

    def change(metadata):
        for run in tuning_of(metadata)["runs"]:
            if run["lr"] == 0.002:
                run["losses"][-1] += 3.0

    other = forged(tuned_run, tmp_path / tuned_run.name, change)
    (verdict,) = verdicts([other], installed)
    assert not verdict.agrees and "the loss of the tuning run with the rate 0.002 and seed 1000000" in "\n".join(
        verdict.lines()
    )
    assert not verdicts([other], installed, OTHER_ROUNDING)[0].agrees
    assert verdicts([other], installed, tuning=False)[0].agrees
    assert verdicts([tuned_run], installed, OTHER_ROUNDING)[0].agrees
