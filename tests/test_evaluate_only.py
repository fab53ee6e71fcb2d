"""Kept weights are tested again without training: the same numbers, to the bit; whatever was made up is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import published
import pytest
import torch
from click.testing import CliRunner
from conftest import CPU
from kept_runs import scores_at_the_end, weights_of
from packing import together
from published import forged
from safetensors.torch import load_file, save_file

from lgbench.cli.main import main
from lgbench.execution.progress import SilentProgress
from lgbench.extensions.registry import Registry
from lgbench.kept import evaluating
from lgbench.results import run_files
from lgbench.submissions.inspection import Inspector, inspect_all
from lgbench.submissions.verdict import SAME_BITS
from lgbench.training import train as training


@pytest.fixture(scope="module")
def installed() -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Runs of a language and of a task with vectors."""
    folder = tmp_path_factory.mktemp("made")
    published.make(folder, seeds=[0, 1], tasks=["small-even", "alone"], keep_weights=True)
    return folder


@pytest.fixture
def copied(made, tmp_path) -> Path:
    """A folder that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "copied"))


@pytest.fixture(autouse=True)
def nothing_is_trained(made, monkeypatch):
    def never(*arguments, **options):
        raise AssertionError("trained")

    monkeypatch.setattr(training.Population, "__init__", never)


def lgbench(*arguments, registry):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "load", classmethod(lambda cls, files=(): registry))
        result = CliRunner().invoke(main, ["verify", "--evaluate-only", *map(str, arguments)], prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def outcomes(paths, registry):
    runs, wrong = inspect_all(paths, Inspector(registry))
    assert not wrong
    return list(evaluating.evaluate_again(runs, CPU, SilentProgress()))


def the(folder: Path, what: str) -> Path:
    (found,) = folder.glob(f"{what}.*.seed-0.*.parquet")
    return found


def test_all_that_was_measured_of_trained_models_is_the_same_to_the_bit(made, installed):
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    done = lgbench(made, registry=installed)
    assert done.exit_code == 0 and "testing the weights again of 4 of 4 runs:" in done.stdout
    assert done.stdout.count("verified by its weights: ") == 4 and "4 of 4 runs verified" in done.stdout
    for verdict in outcomes(sorted(made.glob("*.parquet")), installed):
        assert verdict.agrees and verdict.largest == verdict.largest_mean == 0 and verdict.otherwise == []
        assert verdict.compared == len(scores_at_the_end(verdict.run.path)) > 5 and verdict.tolerance == SAME_BITS
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_probes_are_among_them(kept_runs):
    for verdict in outcomes(kept_runs.files, Registry.load()):
        assert verdict.agrees and verdict.largest == 0
        numbers = scores_at_the_end(verdict.run.path)
        assert verdict.compared == len(numbers) and any(layer is not None for *_, layer, _ in numbers)


def one_of_each(path: Path) -> list[int]:
    """The places in a file of rows of the trained model, one for each metric and variant of the weights."""
    rows, numbers = run_files.read(path).to_pylist(), scores_at_the_end(path)
    last = max(row["step"] for row in rows)
    found = {
        (row["weights"], row["metric"]): place
        for place, row in enumerate(rows)
        if row["step"] == last and row["length"] is not None and row["weights"] != "chance"
    }
    assert found.keys() == {key[:2] for key in numbers} and len(found) == 10
    return list(found.values())


@pytest.mark.slow
def test_a_forged_table_is_caught_whichever_number_was_changed(copied, installed):
    path = the(copied, "small-even")
    (honest,) = outcomes([path], installed)
    assert honest.agrees
    for place in one_of_each(path):

        def change(rows, place=place):
            row = rows[place]
            row["value"] = min(max(row["value"] + (-0.01 if row["value"] > 0.5 else 0.01), 0.0), 1.0)

        (verdict,) = outcomes([forged(path, copied / "forged.parquet", rows=change)], installed)
        assert not verdict.agrees, run_files.read(path).to_pylist()[place]
    done = lgbench(copied / "forged.parquet", registry=installed)
    assert done.exit_code == 1 and "differs: toy-table+toy-nothing on small-even seed 0: " in done.stdout


def test_a_whole_table_of_another_seed_is_caught(copied, installed):
    other = next(copied.glob("small-even.*.seed-1.*.parquet"))
    values = iter(run_files.read(other).to_pylist())
    taken = forged(
        the(copied, "small-even"),
        copied / "taken.parquet",
        rows=lambda rows: [row.update(value=next(values)["value"]) for row in rows],
    )
    (verdict,) = outcomes([taken], installed)
    assert not verdict.agrees


def test_better_weights_with_a_table_that_fits_them_do_not_fit_the_hash_of_the_run(copied, installed):
    path = the(copied, "small-even")
    better = weights_of(path)
    tensors = load_file(better)
    tensors["raw/table.weight"] += 1
    save_file(tensors, better)
    done = lgbench(path, registry=installed)
    assert done.exit_code == 1 and "failed: " in done.stdout and f"{better} are damaged" in done.stdout


def test_runs_without_weights_are_named_and_the_others_are_verified(copied, installed):
    bare = forged(the(copied, "alone"), copied / "bare.parquet", lambda about: about.pop("kept_weights"))
    weights_of(the(copied, "alone")).unlink()
    done = lgbench(copied, registry=installed)
    assert done.exit_code == 1
    assert f"{bare} kept no weights; make the run with --keep-weights" in done.stdout
    assert "the weights of this run are missing" in done.stdout and "3 of 5 runs verified" in done.stderr


def test_runs_in_a_submission_file_are_verified_by_the_weights_beside_it(made, copied, installed):
    weights = list(copied.glob("*.safetensors"))
    paths = sorted(made.glob("small-even.*.parquet"))
    for path in copied.glob("*.parquet"):
        path.unlink()
    packed = together(paths, copied)
    done = lgbench(packed, registry=installed)
    assert done.exit_code == 0 and "2 of 2 runs verified" in done.stdout and len(weights) == 4


def test_what_makes_no_sense_together_is_refused(made, installed):
    done = lgbench(made, "--tuning", registry=installed)
    assert done.exit_code == 2 and "--evaluate-only trains nothing: leave one of them out" in done.stderr
    assert lgbench(the(made, "alone"), "--no-tuning", registry=installed).exit_code == 0


def test_no_run_takes_much_longer_than_is_allowed(made, installed):
    done = lgbench(the(made, "alone"), "--hours", "1e-9", "--unbounded", registry=installed)
    assert done.exit_code == 1 and "it took longer than 1e-09 hours, the limit; --hours allows more" in done.stdout


def test_a_model_that_diverged_is_verified_too(tmp_path, installed, monkeypatch):
    monkeypatch.undo()
    paths = published.make(tmp_path, ("toy-fragile",), seeds=range(4), tasks=["small-walk"], keep_weights=True)
    found = outcomes(paths, installed)
    assert len(found) == 4 and all(verdict.agrees for verdict in found)
    assert any(verdict.run.rows["diverged_step"][0].is_valid for verdict in found)
    assert torch.is_grad_enabled()
