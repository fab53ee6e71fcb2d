"""How far a transformer generalizes against the length of its training inputs: the picture of field.md, from lengths.sh's runs.

Theory has thresholds: with a program in C-RASP a transformer generalizes to all lengths if it trains on long enough inputs
(arXiv 2410.02140).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from statistics import median_low
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from lgbench.experiment.record import ProtocolUse
from lgbench.reports.figure import GRID, Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.database import most_telling_first
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import effective_length

ENTRY = "transformer+pre-norm"
SETTING = "train.max_length"
RIGHT, MATCH = 0.05, 0.9
"""A model is right at a length where its TVD is below the first, or exact match above the second: the claims about C-RASP."""
WHOLE = ("counter-2",)
"""Languages of exact match: a model that never ends a^n b^n is wrong after one prefix alone, so its TVD is small."""

TASKS = {
    "with a program in C-RASP": (
        "tomita-2",
        "regular-d-2",
        "regular-d-3",
        "regular-d-12",
        "regular-abcde",
        "regular-ab-d-bc",
        "counter-2",
        "shuffle-2",
    ),
    "without a program": (
        "regular-012-0-2",
        "regular-aa",
        "regular-aaaa",
        "regular-abab",
        "regular-parity",
        "tomita-3",
        "tomita-5",
        "tomita-6",
    ),
}
"""Languages by the facts of their tasks."""


class Reach(NamedTuple):
    """How far a transformer generalizes on a task after training on inputs of one length."""

    task: str
    protocol: ProtocolUse
    """Protocol without the setting."""
    trained: int
    """Training length."""
    right_to: int
    """Longest length up to which a model is right, median over seeds; 0 for one that is wrong at the shortest."""
    within: int
    """Longest tested length in the training range."""
    tested: int
    """Longest tested length."""

    @property
    def is_learned(self) -> bool:
        """Whether a model is right within the training range."""
        return self.right_to >= self.within


def reaches(results: Results) -> list[Reach]:
    """Reach on every task at every training length with runs, under the most telling protocol."""
    tasks = [task for own in TASKS.values() for task in own if task in results.task_names]
    every = [reach for task in tasks for reach in _of_task(results, task)]
    first = most_telling_first({reach.protocol for reach in every})[:1]
    return [reach for reach in every if reach.protocol in first]


def _of_task(results: Results, task: str) -> list[Reach]:
    found = []
    whole = task in WHOLE
    for header, models in results.models("exact_match" if whole else "tvd", task):
        if ENTRY in models.entries and SETTING in dict(header.protocol.changes):
            values = models.values[models.entries.index(ENTRY), :, 0]  # (S, L)
            known = values[np.isfinite(values).all(-1)]
            passes = known > MATCH if whole else known < RIGHT
            right = [effective_length(models.lengths, own.tolist()) for own in passes]
            if right:
                protocol = header.protocol.without(SETTING)
                within = max(length for length in models.lengths if length <= header.train_length)
                found.append(Reach(task, protocol, header.train_length, median_low(right), within, models.lengths[-1]))
    return found


def summary(found: Sequence[Reach]) -> str:
    """Sentences on how far models are right, of the longest training length that all tasks have."""
    by_task = {task: {reach.trained for reach in found if reach.task == task} for task in {reach.task for reach in found}}
    trained = max(set.intersection(*by_task.values()))
    parts = []
    for title, tasks in TASKS.items():
        own = [reach for reach in found if reach.trained == trained and reach.task in tasks]
        within, twice = sum(reach.is_learned for reach in own), sum(reach.right_to >= 2 * trained for reach in own)
        longest = sum(reach.right_to == reach.tested for reach in own)
        right = f"on {within} of {len(own)} languages, to twice its length on {twice}, and to the longest tested on {longest}"
        parts.append(f"{title[0].upper()}{title[1:]}, they are right within the training range {right}.")
    return f"Transformers were trained on up to {trained} symbols. {' '.join(parts)}"


WIDTH, CELL = 170, 13
"""Width of a panel and height of a row, in points."""
MOST = 6
"""Cells are darkest at 2^6 training lengths."""


def picture(found: Sequence[Reach]) -> Spec:
    """Figure with a row for each task, a panel for the tasks with and without a program, and the training lengths across."""
    panels = [_panel(title, tasks, found) for title, tasks in TASKS.items()]
    spec: Spec = alt.vconcat(*panels, spacing=8).to_dict()
    lines = [
        f"longest length up to which TVD is below {RIGHT}, or on {', '.join(WHOLE)}",
        f"exact match above {MATCH}, by training length;",
        "median of seeds; dark blue where that is many training lengths;",
        "grey, with a star: wrong within the training range",
    ]
    page = on_paper(f"Length of training inputs, {found[0].protocol}", lines)
    return page | content(spec)


def _panel(title: str, tasks: Sequence[str], found: Sequence[Reach]) -> alt.LayerChart:
    rows = [
        {
            "task": reach.task,
            "trained": reach.trained,
            "reach": f"{'≥' * (reach.right_to == reach.tested)}{reach.right_to}{'*' * (not reach.is_learned)}",
            "doublings": log2(max(1.0, reach.right_to / reach.trained)),
            "learned": reach.is_learned,
        }
        for reach in found
        if reach.task in tasks
    ]
    size: dict[str, Any] = {"labelFontSize": TEXT, "ticks": False, "domain": False}
    x = alt.X("trained:O", title=None, axis=alt.Axis(orient="top", labelAngle=0, **size))
    y = alt.Y("task:N", sort=list(tasks), title=None, axis=alt.Axis(labelLimit=0, **size))
    chart = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    # Half of the scale, so that black text can be read on every cell.
    doublings = alt.Color("doublings:Q", legend=None, scale=alt.Scale(scheme="blues", domain=[0, 2 * MOST]))
    color = alt.when("datum.learned").then(doublings).otherwise(alt.value(GRID))
    text = chart.mark_text(fontSize=TEXT).encode(text="reach:N")
    heading = alt.TitleParams(title, fontSize=TEXT, anchor="start")
    height = CELL * len({row["task"] for row in rows})
    return alt.LayerChart(layer=[chart.mark_rect().encode(color=color), text], title=heading, width=WIDTH, height=height)
