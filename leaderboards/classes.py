"""What each architecture does on each class of tasks: the picture and the table of field.md.

A score is OOD TVD as a share of that of the context-free baseline, mean over the tasks of a class: 0 is exact, 1 as bad as the
baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from factors import PROTOCOL
from findings import UNFITTED

from lgbench.extensions.registry import Registry
from lgbench.reports.figure import Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.boards import Board
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import Floats, interval
from lgbench.terminal import counted

CLASSES = {
    "star-free": "star-free",
    "regular with groups": "regular|with groups",
    "counter": "counter",
    "context-free": "context-free",
    "context-sensitive": "context-|sensitive",
    "recall": "recall",
    "state tracking": "state|tracking",
    "algorithmic": "algorithmic",
    "games": "games",
    "random automata": "random|automata",
}
"""Classes as in the facts of tasks, with their lines in the picture."""

ENTRIES = (
    "transformer+pre-norm",
    "transformer+peri-norm",
    "transformer+pre-norm+rope",
    "transformer+pre-norm+randomised-learned",
    "transformer+pre-norm+stick-breaking",
    "transformer+pre-norm+mamba-2",
    "transformer+pre-norm+deltanet-negative",
    "transformer+pre-norm+deltaproduct-negative",
    "lstm",
    "stack-rnn",
)


class Score(NamedTuple):
    """Score of an entry on a class."""

    entry: str
    kind: str
    tasks: tuple[str, ...]
    seeds: Floats
    """Score of each seed, (S,)."""
    fits: bool
    """Whether any seed fits the training range of all tasks."""


def boards(results: Results) -> dict[str, Board]:
    """Newest board of every task of a class."""
    names = sorted(set(_kinds()) & set(results.task_names))
    every = {name: results.boards("tvd", name, PROTOCOL) for name in names}
    return {name: max(own, key=lambda board: board.task_version) for name, own in every.items() if own}


@cache
def _kinds() -> dict[str, str]:
    """Class of every task that has one."""
    return {task.name: task.facts.kind for task in Registry.load().tasks if task.facts and task.facts.kind in CLASSES}


def scores(ran: Mapping[str, Board]) -> list[Score]:
    """Score of every entry on every class of which it ran all tasks, over the seeds that ran all of them.

    A task counts if at least half as many entries ran it as ran the task of its class that most of them ran.
    """
    kinds, found = _kinds(), []
    for kind in CLASSES:
        shares = {task: _shares(board) for task, board in ran.items() if kinds[task] == kind}
        most = max((len(own) for own in shares.values()), default=0)
        tasks = {task: own for task, own in shares.items() if own and 2 * len(own) >= most}
        for entry in ENTRIES:
            if tasks and all(entry in own for own in tasks.values()):
                seeds = sorted(set.intersection(*({*own[entry]} for own in tasks.values())))
                means = np.array([[own[entry][seed] for seed in seeds] for own in tasks.values()]).mean(0)
                lost = {seed for task in tasks for row in ran[task].rows if row.entry == entry for seed in row.not_fitted}
                found.append(Score(entry, kind, tuple(tasks), means, not lost.issuperset(seeds)))
    return found


def without_share(ran: Mapping[str, Board]) -> str:
    """Tasks on which the context-free baseline is exact, so that nothing can be a share of it."""
    return ", ".join(task for task, board in ran.items() if board.context_free_level("OOD") == 0)


def _shares(board: Board) -> dict[str, dict[int, float]]:
    """OOD TVD as a share of that of the context-free baseline, by entry and seed."""
    if not (level := board.context_free_level("OOD")):
        return {}
    cells = {row.entry: (row.seeds, cell.values) for row in board.rows if (cell := row.cell("OOD"))}
    return {
        entry: {seed: value / level for seed, value in zip(seeds, values, strict=True) if value is not None}
        for entry, (seeds, values) in cells.items()
        if entry in ENTRIES
    }


def _title(score: Score) -> str:
    return f"{score.kind} ({len(score.tasks)})"


def members(found: Sequence[Score]) -> str:
    """Tasks of every class, such as "star-free: tomita-4, regular-abcde; games: othello"."""
    return "; ".join(f"{kind}: {', '.join(tasks)}" for kind, tasks in {score.kind: score.tasks for score in found}.items())


def table(found: Sequence[Score]) -> list[list[str]]:
    """Lines of a Markdown table: a row for each entry, a column for each class, scores with their 95 % intervals."""
    titles = list(dict.fromkeys(map(_title, found)))
    cells: dict[str, dict[str, str]] = {}
    for score in found:
        low, high = (end.item() for end in interval(score.seeds[None]))
        star = "" if score.fits else UNFITTED
        cells.setdefault(score.entry, {})[_title(score)] = f"{score.seeds.mean():.3f}{star} [{max(low, 0):.3f}, {high:.3f}]"
    lines = [[f"{PROTOCOL}: OOD TVD / baseline", *titles], [":--", *["--:"] * len(titles)]]
    return lines + [[f"`{_short(entry)}`", *(own.get(title, "-") for title in titles)] for entry, own in cells.items()]


def _short(entry: str) -> str:
    return entry.removeprefix("transformer+").removeprefix("pre-norm+")


COLUMN, ROW, HEADING, LABELS = 62, 20, 25, 92
"""Width and height of a cell, height of the names of classes below their first lines, and width of the names of entries, in
wide fonts, too, in points."""


def picture(found: Sequence[Score]) -> Spec:
    """Figure with a row for each entry and a column for each class; dark is better."""
    rows = [
        {
            "entry": _short(score.entry),
            "class": f"{CLASSES[score.kind]}|{counted(len(score.tasks), 'task')}",
            "score": score.seeds.mean().item(),
            "text": f"{score.seeds.mean():.2f}{'' if score.fits else '*'}",
        }
        for score in found
    ]
    classes = list(dict.fromkeys(str(row["class"]) for row in rows))
    entries = [_short(entry) for entry in ENTRIES if any(score.entry == entry for score in found)]
    size: Mapping[str, Any] = {"labelFontSize": TEXT, "ticks": False, "domain": False, "labelLimit": 0}
    across = alt.Axis(orient="top", labelAngle=0, labelExpr="split(datum.label, '|')", labelPadding=HEADING, **size)
    x = alt.X("class:N", sort=classes, title=None, axis=across)
    y = alt.Y("entry:N", sort=entries, title=None, axis=alt.Axis(minExtent=LABELS, **size))
    chart = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    # Half of the scale, so that black text can be read on every cell.
    scale = alt.Scale(scheme="blues", reverse=True, domain=[-1, 1], clamp=True)
    cells = chart.mark_rect(stroke="white").encode(color=alt.Color("score:Q", legend=None, scale=scale))
    text = chart.mark_text(fontSize=TEXT).encode(text="text:N")
    plot = alt.LayerChart(layer=[cells, text], width=COLUMN * len(classes), height=ROW * len(entries))
    above = [
        "OOD TVD as a share of that of the",
        "context-free baseline, mean over",
        "tasks and seeds; dark is better,",
        "a star: no seed fits",
    ]
    page = on_paper(f"Classes of tasks, {PROTOCOL}", above)
    return page | content(plot.to_dict())
