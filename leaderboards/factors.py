"""Norm schemes as factors: the effect of a norm at each of three places on OOD TVD, and how the places interact.

Twelve schemes cross a norm on the sublayer's input (no, yes), on its output (no, yes), and on the sum (nowhere, after the
residual connection, before the logits alone). An effect is a mean of differences between schemes that differ in one place
alone, paired by seed. Its interval is Student's t over seeds, p is corrected (Holm) for all tests of the table. A second
table has two norms on the attention output of the retrieval model, at several learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray

from lgbench.reports.figure import Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.boards import Cell
from lgbench.results.columns import OOD
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import holm, paired_t
from lgbench.results.sweeps import SettingValue, Sweep, SweepRequest, sweeps

PROTOCOL = "standard/7"
"""Protocol with all twelve schemes on all families."""

SUMS = ("nowhere", "after the residual", "before the logits")
"""Levels of the third place."""
SHORT = ("none", "residual", "logits")
"""The same in the picture."""

SCHEMES = {
    (False, False): ("no-norm", "post-norm", "final-norm"),
    (True, False): ("input-norm", "input-post-norm", "pre-norm"),
    (False, True): ("output-norm", "output-post-norm", "olmo2-norm"),
    (True, True): ("input-output-norm", "input-output-post-norm", "peri-norm"),
}
"""Schemes in the order of SUMS, by the norms on the sublayer's input and output."""


class Contrast(NamedTuple):
    """One effect or interaction on one family."""

    family: str
    title: str
    mean: float
    low: float
    high: float
    p: float


def cells(results: Results) -> dict[str, NDArray[np.float64]]:
    """OOD TVD by family, (input, output, sum, seed), of the families on which all twelve schemes have run."""
    entries = [f"transformer+{SCHEMES[bool(i), bool(o)][s]}" for i, o, s in product(range(2), range(2), range(3))]
    found: dict[str, NDArray[np.float64]] = {}
    for header, models in results.models("tvd", protocol=PROTOCOL):
        if set(entries) <= set(models.entries):
            values = models.column(OOD, entries)
            found[header.name] = values[:, np.isfinite(values).all(0)].reshape(2, 2, 3, -1)
    return dict(sorted(found.items()))


def contrasts(family: str, values: NDArray[np.float64]) -> Iterator[Contrast]:
    """Effects of the places and their interactions, from values (input, output, sum, seed)."""
    nowhere, residual, logits = (values[:, :, level] for level in range(3))
    of_sum = {SUMS[1]: residual - nowhere, SUMS[2]: logits - nowhere}
    of_input, of_output = values[1] - values[0], values[:, 1] - values[:, 0]  # (output, sum, seed), (input, sum, seed)
    yield _contrast(family, "on the input", of_input.mean((0, 1)))
    yield _contrast(family, "on the output", of_output.mean((0, 1)))
    for level, difference in of_sum.items():
        yield _contrast(family, f"on the sum, {level}", difference.mean((0, 1)))
    yield _contrast(family, "input x output", (of_input[1] - of_input[0]).mean(0))
    for level, difference in of_sum.items():
        yield _contrast(family, f"input x sum, {level}", (difference[1] - difference[0]).mean(0))
        yield _contrast(family, f"output x sum, {level}", (difference[:, 1] - difference[:, 0]).mean(0))


def _contrast(family: str, title: str, seeds: NDArray[np.float64]) -> Contrast:
    test = paired_t(seeds)
    return Contrast(family, title, float(test.mean), float(test.low), float(test.high), float(test.p))


def tested(maps: Mapping[str, NDArray[np.float64]]) -> list[Contrast]:
    """Contrasts of every family, with corrected p."""
    return _corrected([each for family, values in maps.items() for each in contrasts(family, values)])


def _corrected(every: Sequence[Contrast]) -> list[Contrast]:
    return [each._replace(p=float(p)) for each, p in zip(every, holm(np.array([each.p for each in every])), strict=True)]


RETRIEVAL = "set-attention"
WITH_NORM = {"LayerNorm": "set-attention+attention-layer-norm", "standardizing": "set-attention+attention-standardize"}
"""The retrieval model with a norm on its attention output."""


def of_retrieval(swept: Results) -> list[Sweep]:
    """OOD TVD of the retrieval model by learning rate, a sweep for each task."""
    return [sweep for sweep in sweeps(swept, SweepRequest("train.lr", "tvd")) if RETRIEVAL in sweep.cells]


BEST = "the best rates"
"""In titles: at the rate with the lowest OOD TVD, of each model its own."""


def by_rate(swept: Results) -> list[Contrast]:
    """What two norms on the attention output of the retrieval model change, with corrected p.

    At each learning rate, and at the best rates of both models.
    """
    every = []
    for sweep, (norm, entry) in product(of_retrieval(swept), WITH_NORM.items()):
        plain, own = sweep.cells[RETRIEVAL], sweep.cells[entry]
        pairs = {f"{norm} at {lr}": (own[lr], cell) for lr, cell in plain.items()}
        pairs[f"{norm} at {BEST}"] = own[best(own)], plain[best(plain)]
        every += [_contrast(sweep.board.name, at, _seeds(a) - _seeds(b)) for at, (a, b) in pairs.items()]
    return _corrected(every)


def best(cells: Mapping[SettingValue, Cell]) -> SettingValue:
    """Value of the setting with the lowest mean."""
    return min(cells, key=lambda value: cells[value].mean)


def _seeds(cell: Cell) -> NDArray[np.float64]:
    return np.array(cell.values, dtype=float)


def table(every: Sequence[Contrast]) -> list[list[str]]:
    """Lines of a Markdown table: a row for each contrast, a column for each family."""
    families = list(dict.fromkeys(each.family for each in every))
    lines = [["change of OOD TVD by a norm", *families], [":--", *["--:"] * len(families)]]
    for title in dict.fromkeys(each.title for each in every):
        own = {each.family: shown(each) for each in every if each.title == title}
        lines.append([title, *(own[family] for family in families)])
    return lines


def shown(each: Contrast) -> str:
    """Mean with its interval, bold where p is below 0.05."""
    text = with_interval(each.mean, each.low, each.high)
    return f"**{text}**" if each.p < 0.05 else text


def with_interval(mean: float, low: float | None, high: float | None) -> str:
    """Difference with its interval, such as "-0.044 [-0.052, -0.036]"; the difference alone where there is none."""
    return f"{mean:+.3f}" if low is None else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


PANEL, LABELS, ROW, CELL = 132, 180, 20, 24
"""Width of a panel, of labels (in wide fonts, too), height of a contrast's row, and height of a cell of the map, in points."""

DECIDED = "#4c78a8"
"""Fill of the points of decided contrasts."""

SUBLAYERS = {
    (False, False): "neither",
    (True, False): "input",
    (False, True): "output",
    (True, True): "input, output",
}
"""Labels of the rows of a map: where the norms of a sublayer are."""


def picture(maps: Mapping[str, NDArray[np.float64]], every: Sequence[Contrast]) -> Spec:
    """Figure with a column for each family: mean OOD TVD of the twelve schemes, and below it the contrasts with intervals."""
    families = list(maps)
    above = [_map(family, maps[family], family == families[0]) for family in families]
    below = [_contrasts([e for e in every if e.family == family], family == families[0]) for family in families]
    rows = [alt.hconcat(*each, spacing=10).resolve_scale(x="independent", color="independent") for each in (above, below)]
    spec: Spec = alt.vconcat(*rows, spacing=14).resolve_scale(color="independent").to_dict()
    lines = [
        "above: mean OOD TVD by the norms on a sublayer (rows) and on the sum (columns), dark is better;",
        "below: what a norm at one place changes, mean over the levels of the other places, with its 95 % interval;",
        "a x b: the effect of a with b less that without; filled points are decided (p below 0.05, corrected for all)",
    ]
    page = on_paper(f"Norms as factors, {PROTOCOL}", lines)
    page["title"] |= {"limit": (PANEL + 60) * (len(families) + 1)}
    return page | content(spec)


def _map(family: str, values: NDArray[np.float64], labels: bool) -> alt.LayerChart:
    means = values.mean(-1)
    rows = [
        {"sublayer": name, "sum": SHORT[s], "tvd": float(means[int(i), int(o), s])}
        for (i, o), name in SUBLAYERS.items()
        for s in range(3)
    ]
    size: dict[str, Any] = {"labelFontSize": TEXT, "ticks": False, "domain": False}
    y = alt.Y(
        "sublayer:N", sort=list(SUBLAYERS.values()), title="norm on" if labels else None, axis=alt.Axis(labels=labels, **size)
    )
    x = alt.X("sum:N", sort=list(SHORT), title=None, axis=alt.Axis(orient="top", labelAngle=0, **size))
    chart = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    # Half of the scale, so that black text can be read on every cell.
    color = alt.Color(
        "tvd:Q", legend=None, scale=alt.Scale(scheme="blues", reverse=True, domain=[2 * means.min() - means.max(), means.max()])
    )
    text = chart.mark_text(fontSize=TEXT).encode(text=alt.Text("tvd:Q", format=".3f"))
    title = alt.TitleParams(family, fontSize=TEXT, anchor="middle")
    return alt.LayerChart(
        layer=[chart.mark_rect().encode(color=color), text], title=title, width=PANEL, height=CELL * len(SUBLAYERS)
    )


def _contrasts(every: Sequence[Contrast], labels: bool) -> alt.LayerChart:
    axis = alt.Axis(
        labels=labels,
        ticks=False,
        domain=False,
        grid=False,
        labelFontSize=TEXT,
        labelLimit=0,
        minExtent=LABELS if labels else 0,
    )
    y = alt.Y("contrast:N", sort=[each.title for each in every], axis=axis, title=None)
    across = alt.Axis(format="+~g", labelFontSize=TEXT, tickCount=3, labelOverlap="parity", labelSeparation=8)
    rows = [
        {
            "contrast": each.title,
            "value": each.mean,
            "low": each.low,
            "high": each.high,
            "inside": DECIDED if each.p < 0.05 else "white",
        }
        for each in every
    ]
    chart = alt.Chart(alt.InlineData(values=rows)).encode(y=y)
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="#999").encode(x="zero:Q")
    lines = chart.mark_rule().encode(x=alt.X("low:Q", axis=across, title=None), x2="high:Q")
    points = chart.mark_point(size=22, opacity=1, stroke=DECIDED).encode(x="value:Q", fill=alt.Fill("inside:N", scale=None))
    return alt.LayerChart(layer=[zero, lines, points], width=PANEL, height=ROW * len(every))
