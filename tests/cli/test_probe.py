"""Probes of saved weights: the numbers that `lgbench run --probe` read, to the bit, later and from a file."""

from __future__ import annotations

from functools import partial

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from helpers.commands import invoked
from helpers.saved_runs import HOW
from rich.console import Console

import lgbench
from lgbench import saved
from lgbench.experiment.components import is_probe
from lgbench.extensions.registry import Registry
from lgbench.measurement.probing import probe as read_probes
from lgbench.reports.analyses import probe_table
from lgbench.reports.tables import show
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA

NAMES = ["attention_entropy", "output_std"]


probe = partial(invoked, "probe")


def probe_rows(path):
    """The rows of probes in a run file, as they stand there."""
    of_probes = {measurement.name for measurement in Registry.load().measurements if is_probe(measurement)}
    return [row for row in run_files.read(path).to_pylist() if row["metric"] in of_probes]


def test_probes_of_saved_weights_are_the_rows_of_the_run_to_the_bit(saved_runs):
    for path in saved_runs.files:
        rows = lgbench.probe(path)
        assert rows.schema.equals(SCHEMA)
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, probe_rows(path))) and rows.num_rows > 50


def test_subnormal_numbers_are_zero_as_in_runs(saved_runs, monkeypatch):
    found = []

    def read(*given):
        found.append((torch.full((64,), 1e-40) * 1).max().item())
        return read_probes(*given)

    monkeypatch.setattr(saved, "read_probes", read)
    lgbench.probe(saved_runs.language, "output_std")
    assert found == [0.0]


@pytest.mark.slow
def test_a_terminal_shows_layers_by_lengths_and_a_file_has_all_rows(saved_runs, tmp_path):
    for ending, read in ((".csv", pyarrow.csv.read_csv), (".parquet", pq.read_table)):
        out = tmp_path / f"rows{ending}"
        done = probe(saved_runs.language, "--probe", ",".join(NAMES), "--weights", "ema", "--out", out)
        assert done.exit_code == 0 and done.stdout.endswith(f"{out}\n")
        rows = read(out).to_pylist()
        assert {row["weights"] for row in rows} == {"raw", "ema"} and {row["metric"] for row in rows} == set(NAMES)
    assert "transformer+peri-norm on dyck-1-2 seed 0, ema weights; by length, the mean over heads" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    (header,) = (words for words in lines if words[:1] == ["probe"])
    (line,) = (words for words in lines if words[:1] == ["attention_entropy"])
    mine = [r for r in rows if (r["metric"], r["weights"], r["layer"]) == ("attention_entropy", "ema", 1)]
    lengths = [int(word) for word in header[2:]]
    assert lengths == sorted({r["length"] for r in mine}) and len({r["head"] for r in mine}) == 2
    for length, cell in zip(lengths, line[2:], strict=True):
        values = [r["value"] for r in mine if r["length"] == length]
        assert float(cell) == pytest.approx(sum(values) / 2, rel=1e-3, abs=1e-12)


def test_a_narrow_terminal_shows_the_longest_lengths(saved_runs):
    rows = lgbench.probe(saved_runs.language, "output_std")
    console = Console(width=40, record=True)
    show(probe_table(rows, "raw"), console)
    said = console.export_text()
    assert " 48" in said and "no room for 2, 4, 8, 16, 32, 40; a wider" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--probe", "atention_max"], 2, "no probe 'atention_max'; did you mean 'attention_max'?"),
        (["--probe", "al"], 2, "no probe 'al'; did you mean 'all'?"),
        (["--probe", "tvd"], 2, "tvd is no probe, and every run has it"),
        (["--probe", "none"], 2, "--probe none reads nothing"),
        (["--weights", "bema"], 2, "no weights 'bema'"),
        (["--out", "rows.txt"], 2, "no format '.txt'; known: .csv, .parquet"),
    ],
)
def test_wrong_questions_are_told_in_a_sentence(saved_runs, words, code, said):
    done = probe(saved_runs.language, *words)
    assert done.exit_code == code and said in done.stderr and done.stdout == ""


@pytest.mark.slow
@pytest.mark.usefixtures("all_plugins")
def test_probes_that_a_task_or_a_model_does_not_have_are_named(tmp_path):
    lgbench.run("tomita-1", "lstm", seeds=[0], average=(), set={"train.steps": 2}, **HOW, save_weights=True, results=tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    done = probe(path, "--probe", "attention_on_source")
    assert done.exit_code == 2 and "the probe attention_on_source is not defined for tomita-1" in done.stderr
    done = probe(path, "--probe", "attention_on_source,logit_gap")
    assert done.exit_code == 0 and "attention_on_source is not defined" in done.stderr and "logit_gap" in done.stdout
