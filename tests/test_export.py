"""An exported model stands alone: whoever has its folder loads it, and reads its numbers."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import stat
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner
from conftest import python
from kept_runs import HOW, SMALL, run_id, weights_of
from packing import together
from test_load import OWN

import lgbench
from lgbench.cli.main import main
from lgbench.kept.card import card
from lgbench.kept.finding import find
from lgbench.results import run_files


def export(*words: object):
    result = CliRunner().invoke(main, ["export", *map(str, words)], prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def tables(card: str) -> dict[tuple[str, str, int], float]:
    """The numbers in a card, by heading, weights and length."""
    found, heading, lengths = {}, "", []
    for line in card.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("### "):
            heading = line.removeprefix("### ")
        elif line.startswith("| weights"):
            lengths = [int(cell) for cell in cells[1:]]
        elif heading and re.match(r"\| (raw|ema|chance level) ", line):
            pairs = zip(lengths, cells[1:], strict=True)
            found |= {(heading, cells[0], length): float(cell) for length, cell in pairs if cell}
    return found


@pytest.fixture(scope="module")
def exported(kept_runs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    done = export(run_id(kept_runs.language), "--results", kept_runs.folder, "--to", folder)
    assert done.exit_code == 0 and f"seed 0 exported to {folder}/: README.md, " in done.stdout
    return folder


def test_a_folder_has_the_run_its_weights_a_card_and_code(exported, kept_runs):
    run, weights = kept_runs.language, weights_of(kept_runs.language)
    assert {path.name for path in exported.iterdir()} == {"README.md", "load.py", "requirements.txt", run.name, weights.name}
    assert (exported / weights.name).read_bytes() == weights.read_bytes()
    assert run_files.read(exported / run.name).equals(run_files.read(run))
    there, here = run_files.metadata(run), run_files.metadata(exported / run.name)
    assert {**there, "checksum": ""} == {**here, "checksum": ""}
    assert stat.S_IMODE(exported.stat().st_mode) == 0o755


@pytest.mark.slow
def test_it_is_loaded_by_its_own_code_wherever_it_is_moved(exported, kept_runs, tmp_path):
    moved = Path(shutil.move(shutil.copytree(exported, tmp_path / "copy"), tmp_path / "moved"))
    inputs = torch.tensor([[2, 0, 0, 1]])
    for weights in ("raw", "ema"):
        expected = lgbench.load(kept_runs.language, weights=weights)(inputs)
        assert torch.equal(runpy.run_path(str(moved / "load.py"))["load"](weights)(inputs), expected)
        assert torch.equal(lgbench.load(moved, weights=weights)(inputs), expected)


@pytest.mark.slow
def test_its_code_runs_in_an_interpreter_of_its_own(exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = python("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(exported / "load.py"))
    assert done.returncode == 0 and "LoadedModel(" in done.stdout, done.stderr


def test_the_card_has_the_numbers_of_the_run(exported, kept_runs):
    card = (exported / "README.md").read_text(encoding="utf-8")
    rows = run_files.read(kept_runs.language).to_pylist()
    shown = [row for row in rows if row["step"] == 4 and row["on_boards"] and row["layer"] is None]
    titles = {m["name"]: m["title"] for m in run_files.metadata(kept_runs.language)["measurements"]}
    expected = {
        (titles[row["metric"]], row["weights"].replace("chance", "chance level"), row["length"]): row["value"]
        for row in shown
        if row["metric"] in titles and row["value"] is not None
    }
    found = tables(card)
    assert found.keys() == expected.keys() and len(found) > 30
    assert all(abs(found[key] - expected[key]) <= 0.00005 + 1e-12 for key in found)
    assert "4 steps of 4 contexts" in card and run_id(kept_runs.language) in card and 'takes `weights`: "raw", "ema"' in card


@pytest.mark.parametrize("name", ["load.py", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch.py", "ß-😀.py"))])
def test_a_plugin_file_of_any_name_goes_with_its_model(tmp_path, name):
    plugin = tmp_path / name
    plugin.write_text(OWN)
    asked = {"set": SMALL, "average": (), "seeds": [0], **HOW, "keep_weights": True, "plugins": [plugin]}
    lgbench.run("tomita-1", "own-norm", **asked, results=tmp_path / "results")
    assert export(tmp_path / "results", "--to", tmp_path / "no").exit_code == 1
    done = export(tmp_path / "results", "--plugin", plugin, "--to", tmp_path / "model")
    assert done.exit_code == 0 and not (tmp_path / "no").exists()
    plugin.unlink()
    assert (tmp_path / "model" / "plugins" / name).read_text() == OWN
    model = runpy.run_path(str(tmp_path / "model" / "load.py"))["load"]()
    assert model.record.entry.startswith("transformer+own-norm~")
    assert f"The plugin is in this folder: plugins/{name}" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_run_of_a_submission_file_is_exported_alone(kept_runs, tmp_path):
    folder = tmp_path / "filed"
    folder.mkdir()
    packed = together(kept_runs.files, folder)
    for path in kept_runs.files:
        shutil.copy(weights_of(path), folder)
    assert "has 2 runs: name one by its file, or by its id" in export(packed, "--to", tmp_path / "model").stderr
    done = export(run_id(kept_runs.vectors), "--results", folder, "--to", tmp_path / "model")
    assert done.exit_code == 0, done.output
    (run,) = (tmp_path / "model").glob("*.parquet")
    assert run.name == kept_runs.vectors.name and run_files.is_run(run, run_id(run))
    assert run_files.read(run).to_pylist() == run_files.read(kept_runs.vectors).to_pylist()


def test_what_is_there_stays(exported, kept_runs, tmp_path):
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine", exported):
        done = export(kept_runs.vectors, "--to", place)
        assert done.exit_code == 2 and "is there already; name a folder that is not" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert export(kept_runs.vectors, "--to", tmp_path / "empty").exit_code == 0


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_export_that_is_cut_short_leaves_nothing(kept_runs, tmp_path, monkeypatch, error):
    write = Path.write_bytes

    def fails(path, content):
        if path.name == "requirements.txt":
            raise error
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", fails)
    assert export(kept_runs.vectors, "--to", tmp_path / "model").exit_code in (1, 130)
    assert os.listdir(tmp_path) == []


def test_weights_that_are_missing_are_told_before_anything_is_written(results_folder, tmp_path):
    done = export(next(results_folder.glob("*.parquet")), "--to", tmp_path / "model")
    assert done.exit_code == 1 and "kept no weights; make the run with --keep-weights" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_card_warns_of_a_model_that_diverged(kept_runs):
    rows = run_files.read(kept_runs.language)
    place = rows.schema.get_field_index("diverged_step")
    diverged = rows.set_column(place, rows.schema.field(place), pa.array([3] * rows.num_rows, pa.int32()))
    footer = find(kept_runs.language, "").footer
    assert "**Careful.** Its training diverged at step 3." in card(footer, diverged, "x", [])
    assert "**Careful.**" not in card(footer, rows, "x", [])
