"""How far a transformer generalizes against the length of its training inputs: picture and table of field.md.

The runs are those of lengths.sh. Theory has thresholds: with a program in C-RASP a transformer generalizes to all lengths if it
trains on long enough inputs (arXiv 2410.02140).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from statistics import median_low
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from findings import markdown_table

from lgbench.experiment.record import ProtocolUse
from lgbench.reports.figure import GRID, Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.database import most_telling_first
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import effective_length

ENTRY = "transformer+pre-norm"
SETTING = "train.max_length"
RIGHT, MATCH = 0.05, 0.9
"""A model is right at a length where its TVD is below the first, and below half that of the best guess from the length alone
unless that is exact, or where its exact match is above the second."""
WHOLE = ("counter-2",)
"""Languages of exact match: a model that never ends a^n b^n is wrong after one prefix alone, so its TVD is small."""

TASKS = {
    "with a program in C-RASP": (
        "regular-d-2",
        "regular-d-3",
        "regular-d-4",
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
"""Languages by the facts of their tasks, without tomita-2, on which the best guess from the length alone is exact."""


class Reach(NamedTuple):
    """How far a transformer generalizes on a task after training on inputs of one length."""

    task: str
    protocol: ProtocolUse
    """Protocol without the setting."""
    trained: int
    """Training length."""
    right_to: tuple[int, ...]
    """Longest length up to which each seed is right; 0 for one that is wrong at the shortest."""
    within: int
    """Longest tested length in the training range."""
    tested: int
    """Longest tested length."""

    @property
    def median(self) -> int:
        """Longest length up to which the median seed is right."""
        return median_low(self.right_to)

    @property
    def learned(self) -> int:
        """Number of seeds that are right within the training range."""
        return sum(end >= self.within for end in self.right_to)


def reaches(results: Results) -> list[Reach]:
    """Reach on every task at every training length with runs, under the most telling protocol."""
    tasks = [task for own in TASKS.values() for task in own if task in results.task_names]
    every = [reach for task in tasks for reach in _of_task(results, task)]
    first = most_telling_first({reach.protocol for reach in every})[:1]
    return [reach for reach in every if reach.protocol in first]


def _of_task(results: Results, task: str) -> list[Reach]:
    found = []
    whole = task in WHOLE
    for board in results.measured("exact_match" if whole else "tvd", task):
        header, models = board.header, board.models
        if ENTRY in models.entries and SETTING in dict(header.protocol.changes):
            values = models.values[models.entries.index(ENTRY), :, 0]  # (S, L)
            known = values[np.isfinite(values).all(-1)]
            guess = np.array([level.mean for level in board.levels if level.kind == "length"])
            limit = np.where(np.isclose(guess, 0), RIGHT, np.minimum(RIGHT, guess / 2))  # nothing is better than an exact guess
            passes = known > MATCH if whole else known < limit
            right = tuple(effective_length(models.lengths, own.tolist()) for own in passes)
            if right:
                protocol = header.protocol.without(SETTING)
                within = max(length for length in models.lengths if length <= header.train_length)
                found.append(Reach(task, protocol, header.train_length, right, within, models.lengths[-1]))
    return found


TIMES = 1, 2, 4
"""Lengths of the table, in training lengths. The longest tested length is 4 of the longest training length."""


def table(found: Sequence[Reach]) -> list[list[str]]:
    """Lines of a table: languages on which the median seed is right, by training length, with and without a program."""
    titles = [f"{title}, {'within' if times == 1 else f'{times} times'}" for title in ("a program", "none") for times in TIMES]
    lines = [["trained to", *titles], ["--:"] * (1 + len(titles))]
    for trained in sorted({reach.trained for reach in found}):
        cells = [str(trained)]
        for tasks in TASKS.values():
            own = [reach for reach in found if reach.trained == trained and reach.task in tasks]
            cells += [f"{sum(_is_right(reach, times) for reach in own)} of {len(own)}" for times in TIMES]
        lines.append(cells)
    return lines


def _is_right(reach: Reach, times: int) -> bool:
    """Whether the median seed is right to a number of training lengths."""
    return reach.median >= (reach.within if times == 1 else times * reach.trained)


def multiples(found: Sequence[Reach]) -> str:
    """Range of the reach on each language with a program, in training lengths, such as "counter-2 2 to ≥4"."""
    (tasks, *_) = TASKS.values()
    parts = []
    for task in tasks:
        if own := sorted((reach for reach in found if reach.task == task), key=lambda reach: reach.median / reach.trained):
            low, high = (f"{'≥' * (end.median == end.tested)}{end.median / end.trained:g}" for end in (own[0], own[-1]))
            parts.append(f"{task} {low} to {high}")
    return ", ".join(parts)


def tables(found: Sequence[Reach]) -> dict[str, str]:
    """Table and numbers of field.md, by the names that it gives."""
    return {"table": markdown_table(table(found)), "multiples": multiples(found)}


WIDTH, CELL = 170, 13
"""Width of a panel and height of a row, in points."""
MOST = 6
"""Cells are darkest at 2^6 training lengths."""


def picture(found: Sequence[Reach]) -> Spec:
    """Figure with a row for each task, a panel for the tasks with and without a program, and the training lengths across."""
    panels = [_panel(title, tasks, found) for title, tasks in TASKS.items()]
    spec: Spec = alt.vconcat(*panels, spacing=8).to_dict()
    lines = [
        f"longest length up to which TVD is below {RIGHT} and half that of a guess,",
        f"or on {', '.join(WHOLE)} exact match above {MATCH}; median of three seeds;",
        "dark blue where that is many training lengths; (2): seeds that are",
        "right within the training range, if not all; grey: fewer than two",
    ]
    page = on_paper(f"Length of training inputs, {found[0].protocol}", lines)
    return page | content(spec)


def _panel(title: str, tasks: Sequence[str], found: Sequence[Reach]) -> alt.LayerChart:
    rows = [
        {
            "task": reach.task,
            "trained": reach.trained,
            "reach": f"{'≥' * (reach.median == reach.tested)}{reach.median}"
            + (f" ({reach.learned})" if reach.learned < len(reach.right_to) else ""),
            "doublings": log2(max(1.0, reach.median / reach.trained)),
            "learned": _is_right(reach, 1),
        }
        for reach in found
        if reach.task in tasks
    ]
    size: dict[str, Any] = {"labelFontSize": TEXT, "ticks": False, "domain": False}
    x = alt.X("trained:O", title="training length", axis=alt.Axis(orient="top", labelAngle=0, **size))
    y = alt.Y("task:N", sort=list(tasks), title=None, axis=alt.Axis(labelLimit=0, **size))
    chart = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    # Half of the scale, so that black text can be read on every cell.
    doublings = alt.Color("doublings:Q", legend=None, scale=alt.Scale(scheme="blues", domain=[0, 2 * MOST]))
    color = alt.when("datum.learned").then(doublings).otherwise(alt.value(GRID))
    text = chart.mark_text(fontSize=TEXT).encode(text="reach:N")
    heading = alt.TitleParams(title, fontSize=TEXT, anchor="start")
    height = CELL * len({row["task"] for row in rows})
    return alt.LayerChart(layer=[chart.mark_rect().encode(color=color), text], title=heading, width=WIDTH, height=height)
