"""Figures that `lgbench plot` draws, and files that it writes."""

from __future__ import annotations

import json
import os
import re
import struct
from functools import partial

import altair as alt
import pytest
from helpers.commands import invoked
from helpers.plot_runs import ENTRIES, means
from helpers.run_files import simulated, write_rows

from lgbench.errors import UsageError
from lgbench.reports import marks, panel_figures, plots


@pytest.fixture(scope="module")
def folder(plotted):
    return plotted.folder


plot = partial(invoked, "plot")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "inches"), [(["--task", "alpha"], 3.3), (["--wide"], 6.75)])
def test_a_png_is_a_column_or_a_page_wide_at_300_dots_an_inch(folder, tmp_path, words, inches):
    result = plot(*words, "--out", tmp_path / "a.png", "--results", folder)
    assert result.exit_code == 0 and result.stdout == f"{tmp_path / 'a.png'}\n"
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width / 300 == pytest.approx(inches, abs=0.02) and height > 500
    at = content.index(b"pHYs")
    across, down, unit = struct.unpack(">IIB", content[at + 4 : at + 13])
    assert across == down == round(300 / 0.0254) and unit == 1  # dots a metre


@pytest.mark.slow
def test_a_pdf_is_a_column_wide(alpha_spec, tmp_path):
    plots.write(alpha_spec, tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    box = [float(x) for x in re.search(rb"/MediaBox\s*\[([^\]]*)\]", content)[1].split()]
    assert box[2] - box[0] == pytest.approx(3.3 * 72, abs=1)


@pytest.mark.slow
def test_the_specification_itself_is_vega_lite_with_the_numbers_of_the_board(folder, tmp_path, plotted):
    assert plot("--task", "alpha", "--out", tmp_path / "a.json", "--results", folder).exit_code == 0
    spec = json.loads((tmp_path / "a.json").read_text())
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    alt.VConcatChart.from_dict(spec)  # checks it against the schema
    found = {(row["entry"], row["length"]): row["mean"] for row in spec["datasets"]["cells 0"]}
    assert found == {key: mean for key, mean in means(plotted.boards("tvd")[0]).items() if "@" not in key[0]}


def test_the_file_is_named_after_what_it_shows(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "FORMATS", {".png": lambda spec: b"drawn"})
    monkeypatch.setattr(panel_figures, "figure", lambda boards, entries, *_: {})
    for arguments, name in [(["--task", "alpha"], "alpha-tvd.png"), (["--metric", "roc_auc"], "overview-roc_auc.png")]:
        assert plot(*arguments, "--results", folder).stdout == f"{name}\n"
        assert (tmp_path / name).read_bytes() == b"drawn"


def test_a_file_is_replaced_whole_or_left_as_it_was(folder, tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.png"
    monkeypatch.setattr(plots, "FORMATS", {".png": lambda spec: b"first"})
    plots.write({}, path)
    monkeypatch.setattr(plots, "FORMATS", {".png": lambda spec: b"second"})
    plots.write({}, path)
    assert path.read_bytes() == b"second"

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(UsageError, match="No space left"):
        plots.write({}, path)
    assert path.read_bytes() == b"second"
    monkeypatch.undo()
    with pytest.raises(ValueError, match="conversion failed"):
        plots.write({"mark": "nonsense"}, path)
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "alhpa"], "did you mean 'alpha'?"),
        (["--protocol", "standard"], "known: quick"),
        (["--metric", "accuracy", "--task", "beta"], "no accuracy in"),
        (["--entry", "pre-nrom"], "no entry 'pre-nrom'; did you mean 'pre-norm'?"),
        (["--entry", "pre-norm,post-norm@ema"], "did you mean 'post-norm@bema'?"),
        (["--out", "a.jpg"], "no format '.jpg'; did you mean '.png'? known: .json, .pdf, .png, .svg"),
        (["--out", "picture"], "no format 'picture'; known: .json"),
        (["--out", "file/a.json"], "cannot write 'file/a.json'"),
    ],
)
def test_wrong_usage_says_what_would_work_and_exits_with_2(folder, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = plot("--results", folder, *arguments)
    assert result.exit_code == 2 and said in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_raw_weights_are_drawn_unless_entries_are_named():
    known = ["arch+norm", *ENTRIES]
    assert plots.chosen(known, [], pytest.fail) == ["arch+norm", *sorted(ENTRIES[:3])]
    named = ["post-norm@bema", "transformer+pre-norm", "post-norm@bema"]
    assert plots.chosen(known, named, pytest.fail) == ["transformer+post-norm@bema", "transformer+pre-norm"]


def test_more_entries_than_can_look_different_are_refused():
    names = [f"arch+n{number}" for number in range(marks.MAX_ENTRIES + 1)]
    assert plots.chosen(names, names[1:], pytest.fail) == names[1:]
    with pytest.raises(UsageError, match="41 entries are named"):
        plots.chosen(names, names, pytest.fail)


def test_without_names_the_first_entries_are_drawn_and_a_sentence_says_of_how_many():
    said = []
    names = [f"arch+n{number}" for number in range(9)]
    assert plots.chosen(names[::-1], [], said.append) == names[1:]
    assert said == ["drawn are the first 8 of 9 entries; choose others with --entry"]


def test_a_board_without_any_of_the_entries_has_no_panel(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(panel_figures, "figure", lambda boards, entries, *_: {"boards": [board.name for board in boards]})
    assert plot("--entry", "pre-norm", "--out", tmp_path / "a.json", "--results", folder).exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text()) == {"boards": ["alpha"]}


def test_logarithmic_axes_say_how_many_means_they_leave_out(tmp_path):
    write_rows(tmp_path / "one.parquet", simulated({8: 0.0, 16: 0.5, 64: 0.25}))
    out = tmp_path / "a.json"
    said = "1 of 3 means are not above 0, and logarithmic axes leave them out"
    assert said in plot("--task", "alpha", "--loglog", "--out", out, "--results", tmp_path).stderr
    (cells,) = (rows for name, rows in json.loads(out.read_text())["datasets"].items() if name.startswith("cells"))
    assert [row["length"] for row in cells] == [16, 64]
    assert said not in plot("--task", "alpha", "--out", out, "--results", tmp_path).stderr


def test_an_entry_that_is_left_out_is_named_and_one_that_is_elsewhere_is_no_misspelling(tmp_path):
    for entry, tasks in (("pre-norm", ("alpha-1", "alpha-2")), ("my-norm", ("alpha-1",)), ("post-norm", ("beta",))):
        for task in tasks:
            rows = simulated({8: 0.1, 16: 0.5}, task=task, family=task.partition("-")[0], entry=f"transformer+{entry}")
            write_rows(tmp_path / f"{entry}{task}.parquet", rows)
    asked = ("--task", "alpha", "--out", tmp_path / "a.json", "--results", tmp_path)
    left_out = "my-norm: seed 0 lacks alpha-2 and is left out"
    assert left_out in " ".join(plot(*asked).stderr.split())
    elsewhere = f"its runs in {tmp_path} are of other tasks, protocols or metrics"
    for entry, reason in (("my-norm", left_out), ("post-norm", elsewhere)):
        said = f"no entry '{entry}' on alpha: {reason}"
        assert said in " ".join(plot(*asked, "--entry", entry).stderr.split())
        compared = invoked("compare", "pre-norm", entry, "--task", "alpha", "--results", tmp_path)
        assert said in " ".join(compared.stderr.split())


def test_a_band_that_reaches_zero_goes_down_to_the_smallest_number_on_logarithmic_axes(tmp_path):
    for seed, noise in enumerate((-0.3, 0.0, 0.4)):
        write_rows(
            tmp_path / f"{seed}.parquet", simulated({8: 0.5 + noise / 100, 16: 0.4 + noise, 64: 0.25 + noise / 2}, seed=seed)
        )
    out = tmp_path / "a.json"
    assert plot("--task", "alpha", "--loglog", "--out", out, "--results", tmp_path).exit_code == 0
    (rows,) = (rows for name, rows in json.loads(out.read_text())["datasets"].items() if name.startswith("cells"))
    found = {row["length"]: row for row in rows}
    assert found[16]["low"] <= 0 and found[64]["low"] <= 0 < found[8]["low"]  # as measured
    least = min(row["mean"] for row in rows)
    assert {found[16]["band"], found[64]["band"]} == {least} and found[8]["band"] == found[8]["low"]
