"""Learning rates that are chosen: by losses in distribution alone, once, on any engine, and as the metadata says."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
import torch
import toys
from helpers.commands import invoked
from helpers.made_runs import made
from helpers.plain_training import plain_training
from helpers.planning import plan_of
from helpers.toy_registries import toys_and
from helpers.tuned import GRID, REGISTER, SEEDS
from helpers.warm import Warm
from hypothesis import given
from hypothesis import strategies as st

import lgbench
from lgbench import UsageError
from lgbench.errors import RunFailed
from lgbench.execution import runner
from lgbench.execution.command import Command
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import UNFINISHED
from lgbench.experiment.plan import Replanner
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.tuning import HIGHEST, LOWEST, Tuning, TuningRun
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench.results.run_files import TUNING

ASKED = {"task": ["toy-walk", "toy-even"], "arch": "toy-table", "protocol": "tuned", "average": ["toy-mean"]}
HOW = {"device": "cpu", "compile": False, "workers": 1}


def metadata(folder: Path) -> dict[str, dict]:
    return {path.name: run_files.metadata(path)["experiment"] for path in sorted(folder.glob("*.parquet"))}


def run_again_without_training(monkeypatch, **asked):
    def train(*args, **named):
        raise AssertionError("something is trained")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "train", train)
        return lgbench.run(**asked)


class Restless(torch.nn.Module):
    """A table whose answers beyond length 6 are the worse the further its weights have moved."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(3, 3)
        self.register_buffer("origin", self.table.weight.detach().clone())

    def forward(self, inputs):
        logits = self.table(inputs)
        moved = (self.table.weight - self.origin).abs().mean()
        late = (torch.arange(inputs.shape[1]) >= 6)[None, :, None]
        return torch.where(late, torch.stack([30 * moved, 0 * moved, 0 * moved]), logits)


class RestlessArchitecture(toys.FragileArchitecture):
    name = "toy-restless"

    def build(self, signature, parts):
        return Restless()


@pytest.fixture
def restless(monkeypatch, tuned):
    registry = toys_and(architecture=RestlessArchitecture())
    monkeypatch.setattr(Registry, "load", classmethod(lambda cls, files=(), only=None: registry))
    return registry


def test_the_choice_follows_losses_in_distribution_and_nothing_else(restless, tmp_path):
    """The losses are those of a plain training loop. Out of distribution the smallest rate is best, and is not chosen."""
    asked = {"task": "toy-walk", "arch": "toy-restless", "average": [], "protocol": "tuned", "seeds": [0, 1], **HOW}
    lgbench.run(**asked, results=tmp_path)
    first, second = metadata(tmp_path).values()
    tuning = first["tuning"]
    assert (tuning["grid"], tuning["seeds"], tuning["steps"]) == (GRID, SEEDS, 10) and second["tuning"] == tuning

    by_rate: dict[float, list[float]] = {}
    (planned,) = plan_of(restless, "toy-walk", "toy-restless", protocol="tuned").experiments
    for experiment, found in zip(planned.tuning_runs, tuning["runs"], strict=True):
        assert (experiment.train.steps, experiment.train.lr, experiment.seed) == (10, found["lr"], found["seed"])
        losses = [loss for _, loss in plain_training(experiment)]
        assert found["losses"] == pytest.approx(losses, abs=1e-5)
        by_rate.setdefault(found["lr"], []).append(losses[-1])  # the last tenth of ten steps
    best = min(by_rate, key=lambda lr: fmean(by_rate[lr]))
    assert tuning["chosen"] == first["train"]["lr"] == second["train"]["lr"] == best == 0.2

    lgbench.run(**asked, set={"train.lr": GRID}, results=tmp_path / "each")
    ood = {}
    for path in (tmp_path / "each").glob("*.parquet"):
        lr = run_files.metadata(path)["experiment"]["train"]["lr"]
        late = (row for row in run_files.read(path).to_pylist() if row["metric"] == "tvd" and row["length"] > 6)
        ood.setdefault(lr, []).extend(row["value"] for row in late if row["weights"] == "raw")
    assert min(ood, key=lambda lr: fmean(ood[lr])) == 0.002


@pytest.mark.slow
def test_tuning_runs_are_short_have_seeds_of_their_own_and_no_test_beyond_the_training_length(tuned_everywhere, tmp_path):
    lgbench.run(**ASKED, **HOW, seeds=[0, 1, 2], results=tmp_path)
    found = metadata(tmp_path / TUNING)
    assert len(found) == 2 * 3 * 2 and {each["seed"] for each in found.values()} == {*SEEDS}
    for path in (tmp_path / TUNING).glob("*.parquet"):
        about, rows = run_files.metadata(path)["experiment"], run_files.read(path).to_pylist()
        assert about["train"]["steps"] == 10 and about["averagers"] == [] and about["evaluate"]["contexts"] == 1
        assert max(row["length"] or 0 for row in rows) <= about["train"]["max_length"]
    assert {row["seed"] for path in tmp_path.glob("*.parquet") for row in run_files.read(path).to_pylist()} == {0, 1, 2}
    assert Results(tmp_path).ask("select count(distinct run_id) from results")[1] == [(6,)]  # boards read no tuning run


ONE_TASK = ASKED | HOW | {"task": "toy-walk"}


def test_the_same_command_again_trains_nothing_and_more_seeds_have_the_same_rate(tuned_everywhere, tmp_path, monkeypatch):
    lgbench.run(**ONE_TASK, seeds=[0], results=tmp_path)
    before = made(tmp_path), made(tmp_path / TUNING)
    run_again_without_training(monkeypatch, **ONE_TASK, seeds=[0], results=tmp_path)
    assert (made(tmp_path), made(tmp_path / TUNING)) == before
    lgbench.run(**ONE_TASK, seeds=[0, 1], results=tmp_path)
    assert made(tmp_path / TUNING) == before[1] and made(tmp_path).items() > before[0].items()
    assert len({repr(each["tuning"]) for each in metadata(tmp_path).values()}) == 1


def test_a_finished_run_keeps_its_rate_and_gives_it_to_other_seeds_where_the_tuning_runs_are_gone(
    tuned_everywhere, tmp_path, monkeypatch
):
    lgbench.run(**ONE_TASK, seeds=[0], results=tmp_path)
    shutil.rmtree(tmp_path / TUNING)
    run_again_without_training(monkeypatch, **ONE_TASK, seeds=[0], results=tmp_path)
    lgbench.run(**ONE_TASK, seeds=[0, 1], results=tmp_path)
    assert not (tmp_path / TUNING).exists() and len(metadata(tmp_path)) == 2


def test_a_stage_of_tuning_that_lacks_a_file_is_due_with_its_finished_runs(tuned_everywhere, tmp_path):
    """A population left by a killed process may have some of them."""
    lgbench.run(**ONE_TASK, seeds=[0], results=tmp_path)
    for path in (*tmp_path.glob("*.parquet"), next((tmp_path / TUNING).glob("*.parquet"))):
        path.unlink()
    command = Command.of(RunOptions(**ONE_TASK, seeds=[0], results=tmp_path), Registry.load(), ProgressDisplay())
    assert {run.run_id for run in command.rates.due()} == {
        run.run_id for run in command.rates.every if run.record.tuning is None
    }
    assert len(list((tmp_path / TUNING).glob("*.parquet"))) == len(command.rates.due()) - 1 > 0


@pytest.mark.slow
def test_a_command_killed_in_the_middle_of_tuning_goes_on_to_the_same_bits(tuned_everywhere, tmp_path, warm: Warm):
    code = REGISTER + "\nfrom lgbench.cli.main import main\nmain(prog_name='lgbench')"
    words = ["run", "--task", "toy-walk,toy-even", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "tuned"]
    words += ["--seeds", "0:2", "--no-compile", "--workers", "1", "--population", "2", "--checkpoint", "0", "--device", "cpu"]
    lgbench.run(**ASKED, **HOW, population=2, seeds=[0, 1], results=tmp_path / "whole")
    folder = tmp_path / "killed"
    with warm.start([*words, "--results", folder], code=code) as process:
        while process.poll() is None and len(list((folder / TUNING).glob("*.parquet"))) < 3:
            pass
    assert 3 <= len(list((folder / TUNING).glob("*.parquet"))) < 12 and not list(folder.glob("*.parquet"))
    result = invoked(*words, "--results", folder)
    assert result.exit_code == 0, result.output
    for place in (".", TUNING):
        rows = [
            {path.name: run_files.read(path).to_pylist() for path in (tmp_path / name / place).glob("*.parquet")}
            for name in ("whole", "killed")
        ]
        assert repr(rows[0]) == repr({name: rows[1][name] for name in rows[0]}) and rows[0]
    assert not (folder / TUNING / UNFINISHED).exists() and not (folder / UNFINISHED).exists()


@pytest.mark.slow
def test_rates_can_be_tuned_without_a_run(tuned_everywhere, tmp_path):
    asked = ASKED | HOW | {"seeds": [0, 1], "population": 2}
    lgbench.run(**asked, results=tmp_path / "whole")
    options = RunOptions(**asked, results=tmp_path / "tuned")
    assert Command.of(options, Registry.load(), ProgressDisplay()).tune() == []
    assert made(tmp_path / "tuned") == {}
    assert made(tmp_path / "tuned" / TUNING) == made(tmp_path / "whole" / TUNING)
    lgbench.run(**asked, results=tmp_path / "tuned")
    assert made(tmp_path / "tuned") == made(tmp_path / "whole")


def test_dry_run_says_both_stages(tuned_everywhere, tmp_path):
    words = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "tuned", "--seeds", "0:3", "--no-compile"]
    result = invoked(*words, "--workers", "1", "--results", tmp_path / "none", "--dry-run")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "0 tuning runs done before; 6 tuning runs left"
    assert "0 runs done before; 3 runs left" in lines and lines[-1].startswith("tuning and runs together take about ")
    assert not (tmp_path / "none").exists()


def test_the_command_says_the_choice(tuned_everywhere, tmp_path):
    words = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "tuned", "--seeds", "0", "--no-compile"]
    result = invoked(*words, "--workers", "1", "--average", "none", "--results", tmp_path)
    assert result.exit_code == 0, result.output
    assert "toy-table+toy-nothing on toy-walk: learning rate 0.2, an end of the rates tried (loss with 0.002: " in result.stderr
    assert "1 run written to" in result.stdout


def test_a_rate_that_diverges_is_not_chosen_and_where_all_do_it_is_the_smallest_and_said(tuned_everywhere, tmp_path):
    words = ["run", "--task", "toy-walk", "--arch", "toy-fragile", "--protocol", "tuned", "--no-compile", "--workers", "1"]
    result = invoked(*words, "--average", "none", "--results", tmp_path)
    assert result.exit_code == 0, result.output
    tuning = next(iter(metadata(tmp_path).values()))["tuning"]
    diverged = {run["lr"] for run in tuning["runs"] if run["diverged_step"]}
    assert diverged == {0.02, 0.2} and tuning["chosen"] == 0.002
    assert all((None in run["losses"]) == (run["diverged_step"] is not None) for run in tuning["runs"])
    assert {run["seed"] for run in tuning["runs"] if run["diverged_step"]} == {SEEDS[0]}  # one seed is enough
    losses = (1.0,) * 10
    runs = [TuningRun(lr, seed, losses, 3, 1, False) for lr in GRID for seed in SEEDS]
    asked = Tuning(tuple(GRID), tuple(SEEDS), 10)
    assert asked.ended(runs).chosen == 0.002
    equal = [TuningRun(lr, seed, losses, 3 if lr == 0.002 else None, 1, False) for lr in GRID for seed in SEEDS]
    assert asked.ended(equal).chosen == 0.02  # of equal losses the smaller rate


def test_a_rate_that_the_user_sets_turns_tuning_off_and_is_a_change(tuned, toys_alone):
    registry = Registry.load()
    settings = {"train.lr": "0.02,0.5", "model.scale": "2"}
    experiments = plan_of(registry, "toy-walk", "toy-table", protocol="tuned", set=settings).experiments
    assert [each.record.tuning for each in experiments] == [None, None] and not experiments[0].tuning_runs
    assert [dict(each.record.protocol.changes)["train.lr"] for each in experiments] == ["0.02", "0.5"]
    (tuned_one,) = plan_of(registry, "toy-walk", "toy-table", protocol="tuned", set={"model.scale": "2"}).experiments
    assert dict(tuned_one.record.protocol.changes) == {"model.scale": "2.0"}
    assert all(dict(run.record.protocol.changes)["model.scale"] == "2.0" for run in tuned_one.tuning_runs)
    replanner = Replanner(registry)
    for experiment in (*experiments, tuned_one, *tuned_one.tuning_runs):
        assert replanner.experiment(experiment.record).record == experiment.record


def test_tuning_seeds_are_refused_under_such_a_protocol_alone(tuned, toys_alone):
    registry = Registry.load()
    with pytest.raises(UsageError, match="--seeds names 1000001, and the seeds 1000000 and 1000001 choose the learning rates"):
        plan_of(registry, "toy-walk", "toy-table", seeds=[0, 1_000_001], protocol="tuned")
    assert plan_of(registry, "toy-walk", "toy-table", seeds=[1_000_001]).experiments


def test_the_id_of_a_run_has_the_grid_and_not_the_choice(tuned, toys_alone, monkeypatch):
    registry = Registry.load()

    def planned():
        return plan_of(registry, "toy-walk", "toy-table", seeds=[3], protocol="tuned").experiments[0]

    untuned = planned()
    asked = untuned.record.tuning
    outcomes = []
    for best in GRID:
        runs = [TuningRun(lr, seed, (0.5 if lr == best else 1.0,) * 10, None, 6, False) for lr in GRID for seed in SEEDS]
        outcomes.append(untuned.tuned(asked.ended(runs)))
    assert [each.train.lr for each in outcomes] == GRID
    assert {each.run_id for each in outcomes} == {untuned.run_id}
    assert {each.population_key for each in outcomes} == {untuned.population_key}
    monkeypatch.setitem(PROTOCOLS, "tuned", replace(PROTOCOLS["tuned"], lr_factors=(0.5, 1)))
    assert planned().run_id != untuned.run_id


def outcome(asked, loss):
    """Tuning after all runs of the rule, with these losses by learning rate."""
    while further := asked.further:
        runs = [TuningRun(lr, seed, (loss(lr),) * 10, None, 6, False) for lr in further for seed in SEEDS]
        asked = asked.ended([*asked.runs, *runs])
    return asked


@given(st.floats(math.log(1e-5), math.log(0.1)), st.floats(0.1, 5), st.floats(0.1, 5))
def test_an_open_grid_ends_with_its_best_rate_inside_and_near_the_best_of_all(best, left, right):
    """For any loss with one minimum: the chosen rate has neighbours within a factor of 2, and is within 3 of the minimum."""

    def loss(lr):
        away = math.log(lr) - best
        return 1 + (right if away > 0 else -left) * away

    found = outcome(Tuning(tuple(GRID), tuple(SEEDS), 10, open=True), loss)
    place = found.tried.index(found.chosen)
    below, above = found.tried[place - 1 : place], found.tried[place + 1 : place + 2]
    assert all(found.chosen / lr <= 2 for lr in below) and all(lr / found.chosen <= 2 for lr in above) and below and above
    assert found.chosen == min(found.tried, key=loss) and abs(math.log(found.chosen) - best) < math.log(3)
    assert found.is_whole() and not replace(found, runs=found.runs[:-1]).is_whole()


def test_an_open_grid_without_a_best_rate_stops_at_its_limits():
    falling = outcome(Tuning(tuple(GRID), tuple(SEEDS), 10, open=True), lambda lr: 1 / (1 + lr))
    assert falling.chosen == falling.tried[-1] > HIGHEST / 3
    diverged = outcome(Tuning(tuple(GRID), tuple(SEEDS), 10, open=True), lambda lr: math.inf)
    assert diverged.chosen == diverged.tried[0] < 3 * LOWEST


def test_a_command_goes_on_beyond_an_open_grid_and_says_so(tuned, toys_alone, monkeypatch, tmp_path):
    """On the grid the best rate is the largest. Killed and begun again after any stage, it tries the same rates."""
    monkeypatch.setitem(PROTOCOLS, "tuned", replace(PROTOCOLS["tuned"], lr_open=True))
    lgbench.run(task="toy-walk", arch="toy-table", average=[], protocol="tuned", seeds=[0], **HOW, results=tmp_path)
    (found,) = metadata(tmp_path).values()
    made = msgspec.convert(found["tuning"], Tuning)
    assert made.is_whole() and max(GRID) <= made.chosen < made.tried[-1] and len(made.tried) > len(GRID)
    assert found["train"]["lr"] == made.chosen and len(list((tmp_path / TUNING).glob("*.parquet"))) == len(made.runs)


def test_an_entry_that_fails_ends_the_tuning_of_no_other(tuned, toys_alone, monkeypatch, tmp_path):
    monkeypatch.setitem(PROTOCOLS, "tuned", replace(PROTOCOLS["tuned"], lr_open=True))
    asked = {"arch": ["toy-broken", "toy-table"], "average": [], "protocol": "tuned", "seeds": [0], **HOW, "results": tmp_path}
    with pytest.raises(RunFailed, match="the toy is broken"):
        lgbench.run("toy-walk", **asked)
    (found,) = metadata(tmp_path).values()
    assert found["entry"] == "toy-table+toy-nothing" and msgspec.convert(found["tuning"], Tuning).is_whole()
