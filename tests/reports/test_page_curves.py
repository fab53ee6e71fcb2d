"""The curves of the page, drawn without a browser."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
import vl_convert
from helpers import plot_runs
from helpers.plot_runs import CHANCE, KL, LENGTHS, METRICS, TRAINED, Drawing

from lgbench.reports import marks, plots


@pytest.fixture(scope="module")
def alpha(tmp_path_factory):
    return plot_runs.made(tmp_path_factory.getbasetemp()).boards("tvd", "alpha")


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


def test_the_page_brings_no_colours_but_those_of_entries():
    """It has a light and a dark side, and a style sheet that knows which it is."""
    found = re.findall(r"#[0-9A-Fa-f]{6}", page_spec(METRICS["tvd"]))
    assert set(found) == {*marks.COLOURS, marks.SHADE}
