"""`lgbench verify`: runs are made again as their files say, and every number is compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from helpers import published
from helpers.commands import with_plugins
from helpers.packing import together
from helpers.plain_training import CPU
from helpers.published import forged, put_right

from lgbench.execution import runner
from lgbench.execution.progress import ProgressDisplay
from lgbench.results import run_files
from lgbench.submissions import verification
from lgbench.submissions.inspection import found_in, inspected
from lgbench.submissions.verdict import OTHER_ROUNDING, Tolerance
from lgbench.submissions.verification import MAX_MODELS, drawn, verify

TITLE = "toy-table+toy-nothing on small-even seed 1"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """Three seeds of one task, trained together."""
    return published.make(tmp_path_factory.mktemp("made"), seeds=range(3), task="small-even")


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if ".seed-1." in path.name)


def lgbench(*words, registry):
    return with_plugins(registry, "verify", *words)


STRICT = Tolerance()


def verdicts(paths, installed, tolerance=STRICT):
    return list(verify(read(paths, installed), CPU, ProgressDisplay(), tolerance))


def read(paths, installed):
    """The inspected runs of files in which nothing is wrong."""
    stored, wrong = found_in(paths)
    runs = list(inspected(stored, installed, wrong))
    assert not wrong
    return runs


def at(metric, length, after=20, **columns):
    """A change of one row with raw weights; `length` is a step in the training curve."""

    def change(rows):
        place = (None, length) if metric in ("train_loss", "gradient_norm") else (length, after)
        (row,) = [r for r in rows if (r["weights"], r["metric"], r["length"], r["step"]) == ("raw", metric, *place)]
        row.update(columns)

    return change


def value_at(path, metric, length) -> float:
    rows = run_files.read(path).to_pylist()
    return next(r["value"] for r in rows if (r["weights"], r["metric"], r["length"]) == ("raw", metric, length))


def test_honest_runs_are_verified_in_every_number_and_nothing_is_written(made, tmp_path, installed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat() for path in made[0].parent.iterdir()}
    done = lgbench(made[0].parent, registry=installed)
    assert done.exit_code == 0 and "running again 3 of 3 runs:" in done.stdout and "3 of 3 runs verified" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"verified: {TITLE}: "))
    assert (
        f"{run_files.read(made[1]).num_rows} numbers agree within 0.0001, scores are at most 0 apart, and their means" in line
    )
    assert "as in the file" in line and "train small-even toy-table+toy-nothing (3 models)" in done.stderr
    assert {path: path.stat() for path in made[0].parent.iterdir()}.keys() == before.keys() and not list(tmp_path.iterdir())


def test_a_value_that_was_made_up_is_found(made, honest, tmp_path, installed):
    there = value_at(honest, "tvd", 8)
    bad = forged(honest, tmp_path / honest.name, rows=at("tvd", 8, value=there - 0.01))
    done = lgbench(*(path for path in made if path != honest), bad, registry=installed)
    said = f"differs: {TITLE}: tvd (raw) at length 8 after step 20 is {there - 0.01:.4f} in the file and {there:.4f} here"
    assert said in done.stdout and done.stdout.count("differs:") == 1 and done.stdout.count("verified: ") == 2
    assert done.exit_code == 1 and "lgbench: 2 of 3 runs verified" in done.stderr


def test_a_run_that_was_taken_from_another_seed_is_found(made, honest, tmp_path, installed):
    stolen = put_right(made[0], tmp_path / "run.parquet", lambda about: about["experiment"].update(seed=77))
    (verdict,) = verdicts([stolen], installed)
    lines = list(verdict.lines())
    assert lines[0].startswith("differs: toy-table+toy-nothing on small-even seed 77: ")
    assert len(lines) == 7 and lines[5] == f"  and {len(verdict.disagreements) - 5} more"
    excess = [disagreement.excess for disagreement in verdict.disagreements]
    assert excess == sorted(excess, reverse=True) and len(excess) > 5


def test_runs_that_diverged_diverge_again(tmp_path, installed):
    paths = published.make(tmp_path, ("toy-fragile",), seeds=range(4), task="small-walk")
    found = verdicts(paths, installed)
    assert len(found) == 4 and all(verdict.agrees for verdict in found)
    assert any(verdict.run.rows["diverged_step"][0].is_valid for verdict in found)


# How a run is made again.


def test_a_run_is_trained_in_a_stack_as_large_as_its_own(honest, installed, tmp_path, monkeypatch):
    seen = []
    train = runner.train

    def watched(experiments, *arguments, **options):
        seen.append(([e.seed for e in experiments], options["compile"]))
        return train(experiments, *arguments, **options | {"compile": False})

    monkeypatch.setattr(runner, "train", watched)
    odd = forged(honest, tmp_path / "odd.parquet", lambda about: about["execution"].update(population=5, compiled=True))
    many = forged(honest, tmp_path / "many.parquet", lambda about: about["environment"].update(threads=64))
    (threaded,) = verdicts([many], installed)
    seen.clear()
    plain, compiled = verdicts([honest, odd], installed)
    assert seen == [([1, 1, 1], False), ([1, 1, 1, 1, 1], True)]
    assert plain.agrees and plain.otherwise == []
    assert compiled.otherwise == ["whether the step is compiled is True in the file and False here"]
    assert threaded.otherwise == ["the number of threads is 64 in the file and 1 here"]


def test_runs_of_one_stack_are_trained_together_and_others_alone(made, tmp_path, installed, monkeypatch):
    alone = published.make(tmp_path, seeds=[1, 2], task="small-even", population=1, average=[])
    sizes = []
    train = runner.train
    monkeypatch.setattr(runner, "train", lambda e, *a, **o: (sizes.append([x.seed for x in e]), train(e, *a, **o))[1])
    assert all(verdict.agrees for verdict in verdicts([*made, *alone], installed))
    assert sizes == [[0, 1, 2], [1], [2]]


def test_a_population_is_never_larger_than_memory_holds(honest, tmp_path, installed, monkeypatch):
    sizes = []
    train = runner.train

    def scarce(experiments, *arguments, **options):
        sizes.append(len(experiments))
        if len(experiments) > 20:
            raise MemoryError
        return train(experiments, *arguments, **options)

    monkeypatch.setattr(runner, "train", scarce)
    huge = forged(honest, tmp_path / "huge.parquet", lambda about: about["execution"].update(population=10**6))
    (verdict,) = verdicts([huge], installed)
    assert sizes == [MAX_MODELS, 32, 16]
    assert verdict.otherwise == ["the number of models in the population is 1000000 in the file and 16 here"]


def elsewhere(about):
    about["environment"].update(torch="2.0.0", device="cpu (arm64, DEFAULT)", threads=7)
    about["execution"].update(population=100)


def lowered(rows):
    """Better by 0.09 at every length, as far as there is room."""
    for row in rows:
        if row["metric"] == "tvd" and row["weights"] != "chance":
            row["value"] = max(0.0, row["value"] - 0.09)


def test_a_file_that_says_that_it_was_made_elsewhere_is_not_believed(honest, tmp_path, installed):
    """The whole forgery: lower TVD at every length, and every fact altered on which rounding depends."""
    (verdict,) = verdicts([forged(honest, tmp_path / "forged.parquet", elsewhere, lowered)], installed)
    assert not verdict.agrees
    said = "\n".join(verdict.lines())
    assert said.startswith(f"differs: {TITLE}: tvd (") and "expected within 0.0001; torch is '2.0.0' in the file" in said
    for fact in ("the device is 'cpu (arm64, DEFAULT)'", "the number of threads is 7", "in the population is 100"):
        assert fact in said
    assert "--tolerance 0.3 covers most of the known differences between machines" in said


@pytest.mark.slow
def test_only_the_reviewer_allows_for_rounding_and_the_verdict_says_so(honest, tmp_path, installed):
    there = value_at(honest, "tvd", 8)
    near = forged(honest, tmp_path / "near", elsewhere, at("tvd", 8, value=there + 0.2))
    far = forged(honest, tmp_path / "far", elsewhere, at("tvd", 8, value=there + 0.31))
    spike = forged(honest, tmp_path / "spike", elsewhere, at("gradient_norm", 7, value=99.0))
    ok, bad, also_ok = verdicts([near, far, spike], installed, OTHER_ROUNDING)
    assert ok.agrees and also_ok.agrees and not bad.agrees
    (line,) = ok.lines()
    assert line.startswith(f"verified with a wide tolerance: {TITLE}: ")
    assert "within 0.3, means over lengths within 0.1, scores are at most 0.2 apart, and their means over lengths 0.0" in line
    assert "torch is '2.0.0' in the file" in line and "the device is 'cpu (arm64, DEFAULT)' in the file" in line
    done = lgbench(near, "--tolerance", "0.3", registry=installed)
    assert done.exit_code == 0 and "1 of 1 runs verified, within 0.3" in done.stdout
    assert "instead of within 0.0001" in done.stdout


def test_a_sample_is_drawn_anew_each_time_and_named(made, installed):
    assert drawn(made, None) == drawn(made, 3) == drawn(made, 9) == made
    pairs = {tuple(made.index(path) for path in drawn(made, 2)) for _ in range(200)}
    assert pairs == {(0, 1), (0, 2), (1, 2)}
    done = lgbench(made[0].parent, "--sample", "1", registry=installed)
    assert done.exit_code == 0 and "running again 1 of 3 runs, drawn at random:" in done.stdout
    assert done.stdout.count("verified: ") == 1 and "1 of 1 runs verified" in done.stdout
    assert lgbench(made[0], "--sample", "0", registry=installed).exit_code == 2


def test_only_of_the_runs_that_are_drawn_the_rows_are_read(made, tmp_path, installed, monkeypatch):
    """Every other run would be refused. What cannot be opened at all is named, drawn or not."""
    for number, path in enumerate(made[1:]):
        forged(path, tmp_path / f"{number}.parquet", lambda about: about["environment"].update(lgbench="9.9"))
    keep = shutil.copy(made[0], tmp_path / made[0].name)
    monkeypatch.setattr(verification.random.SystemRandom, "sample", lambda self, population, size: [len(population) - 1])
    done = lgbench(tmp_path, "--sample", "1", registry=installed)
    assert done.exit_code == 0 and "refused" not in done.stdout and str(keep) in done.stdout
    (tmp_path / "no.parquet").write_text("no run")
    done = lgbench(tmp_path, "--sample", "1", registry=installed)
    assert done.exit_code == 1 and "1 of 1 runs verified; the files above were refused" in done.stderr


@pytest.mark.slow
def test_runs_in_a_submission_file_are_verified_and_named_by_id_or_pattern(made, tmp_path, installed):
    path = together(made, tmp_path)
    done = lgbench(path, registry=installed)
    assert done.exit_code == 0 and "running again 3 of 3 runs:" in done.stdout and "3 of 3 runs verified" in done.stdout
    for run in made:
        *_, seed, run_id, _ = run.name.split(".")
        for pattern in (run_id, f"*.{seed}.*"):
            done = lgbench(path, "--run", pattern, registry=installed)
            assert done.exit_code == 0 and f"1 of 1 runs:\n  {path}, run {run.stem}\n" in done.stdout
    done = lgbench(path, "--run", "nothing", registry=installed)
    assert done.exit_code == 2 and "--run 'nothing' names none of the 3 runs; the first is " in done.stderr


# Other runs, and failures.


def test_quick_runs_and_changed_ones_are_verified_as_well(tmp_path, installed):
    changes = {"train.steps": "7", "model.scale": "2.5", "evaluate.contexts": "4"}
    paths = published.make(tmp_path, seeds=[0], protocol="quick", set=changes)
    assert len(paths) == 2 and all(verdict.agrees for verdict in verdicts(paths, installed))


def test_a_model_that_breaks_fails_its_runs_and_stops_no_others(honest, tmp_path, installed):
    def broken(about):
        options = [option for option in about["experiment"]["options"] if not option[0].startswith("model.")]
        about["experiment"].update(architecture="toy-broken", options=options)

    path = put_right(honest, tmp_path / "broken.parquet", broken)
    done = lgbench(path, honest, registry=installed)
    assert done.exit_code == 1 and f"verified: {TITLE}" in done.stdout
    assert "failed: toy-broken+toy-nothing on small-even seed 1: it cannot be verified here: RuntimeError" in done.stdout
    alone = forged(path, tmp_path / "alone.parquet", lambda about: about["execution"].update(population=1))
    assert "the toy is broken" in lgbench(alone, registry=installed).stdout


def test_an_interrupt_ends_with_a_sentence_and_gives_the_threads_back(honest, installed, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    monkeypatch.setattr(runner, "train", interrupted)
    done = lgbench(honest, registry=installed)
    assert done.exit_code == 130 and "interrupted" in done.stderr and "nothing was written" in done.stderr
    assert torch.get_num_threads() == before
