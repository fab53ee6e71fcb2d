"""The curves of the page, drawn without a browser."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pytest
import vl_convert
from helpers import plot_runs
from helpers.plot_runs import CHANCE, ENTRIES, KL, LENGTHS, METRICS, TRAINED, Drawing, chance_line, entry_lines

from lgbench.reports import marks, plots


@pytest.fixture(scope="module")
def alpha(tmp_path_factory):
    return plot_runs.made(tmp_path_factory.getbasetemp()).boards("tvd", "alpha")


@pytest.fixture(scope="module")
def drawing(tmp_path_factory):
    return plot_runs.drawing(tmp_path_factory.getbasetemp())


@cache
def page_spec(metric):
    """As JSON, so that tests cannot change each other's."""
    return json.dumps(plots.page_spec(metric))


def filled(board):
    """The specification of a page with the data of a board in it, as the page fills it in."""
    cells = [
        {"entry": row.entry, "label": row.entry, "length": c.length, "mean": c.mean, "low": c.low, "high": c.high, "n": c.n}
        for row in board.rows
        for c in row.cells
        if c.kind == "length"
    ]
    chance = [{"length": length, "mean": level} for length, level in CHANCE.items()]
    about = [{"train_length": TRAINED, "shortest": LENGTHS[0], "longest": LENGTHS[-1], "lengths": LENGTHS}]
    spec = json.loads(page_spec(board.metric))
    return spec | {"datasets": {"cells": cells, "chance": chance, "about": about}, "width": 300}


@pytest.mark.slow
@pytest.mark.parametrize("metric", [*METRICS.values(), KL], ids=lambda metric: metric.name)
def test_the_specification_of_a_page_compiles_as_it_is(metric):
    spec = json.loads(page_spec(metric))
    assert spec["width"] == "container"
    compiled = vl_convert.vegalite_to_vega(spec, plots.VEGA_LITE)
    assert {"cells", "chance", "about"} <= {data["name"] for data in compiled["data"]}
    assert {"labels", "hover"} <= {signal["name"] for signal in compiled["signals"]}
    assert vl_convert.vegalite_to_svg(spec, plots.VEGA_LITE)


@pytest.fixture(scope="module")
def page(alpha):
    return Drawing(filled(alpha[0]))


@pytest.mark.slow
def test_the_page_draws_what_the_figure_draws(page, drawing):
    assert len(entry_lines(page)) == len(page.of("area mark")) == len(ENTRIES)
    on_page, on_paper = page.points(), drawing.points()
    shared = {(label.removeprefix("transformer+"), length): place for (label, length), place in on_page.items()}
    assert shared.keys() == on_paper.keys()
    for axis in (0, 1):
        places = np.array([[shared[key][axis], on_paper[key][axis]] for key in shared])
        line = np.polyfit(places[:, 0], places[:, 1], 1)
        assert np.abs(np.polyval(line, places[:, 0]) - places[:, 1]).max() < 1e-6
        levels = np.array([[there[axis], here[axis]] for there, here in zip(*map(level_places, (page, drawing)), strict=True)])
        assert np.abs(np.polyval(line, levels[:, 0]) - levels[:, 1]).max() < 0.01
    assert {"trained to 40", "exact", *ENTRIES} <= set(page.words())


def level_places(drawing):
    return chance_line(drawing)[1]


def test_the_page_brings_no_colours_but_those_of_entries():
    """It has a light and a dark side, and a style sheet that knows which it is."""
    found = re.findall(r"#[0-9A-Fa-f]{6}", page_spec(METRICS["tvd"]))
    assert set(found) == {*marks.COLOURS, marks.SHADE}
