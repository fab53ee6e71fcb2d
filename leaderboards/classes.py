"""What each architecture does on each class of tasks: the picture and the table of field.md.

A score is OOD TVD as a share of that of the context-free baseline, mean over the tasks of a class: 0 is exact, 1 as bad as the
baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from factors import PROTOCOL

from lgbench.reports.figure import GRID, Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.boards import Board, Row
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import Floats, interval

CLASSES = {
    "star-free": ("dyck-1-8", "dyck-2-3", "dyck-2-5", "dyck-8-5", "tomita-4"),
    "regular with groups": ("parity-check", "tomita-3", "tomita-5", "tomita-6"),
    "counter": ("binary-majority", "shuffle-2", "shuffle-4", "shuffle-6"),
    "context-free": ("reverse-string", "stack-manipulation"),
    "context-sensitive": ("copy-repeat", "odds-first"),
    "recall": ("multi-query-recall", "selective-copying"),
    "state tracking": ("boxes", "word-problem-a5", "word-problem-s3", "word-problem-z2"),
    "games": ("connect-four", "othello"),
}
"""Tasks that stand for each class of the facts. The length alone decides none of them.

Counter has no counter-2 or counter-3: one or two of all prefixes need a count, so a model that does not count has 0.01 to 0.02.
"""

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
    seeds: Floats
    """Score of each seed, (S,)."""
    fits: int
    """Number of seeds that fit the training range of all tasks."""


def scores(results: Results) -> list[Score]:
    """Score of every entry on every class of which it ran all tasks, over the seeds that ran all of them."""
    found = []
    for kind, tasks in CLASSES.items():
        ran = [_newest(results, task) for task in tasks]
        shares = [_shares(board) for board in ran]
        for entry in ENTRIES:
            if all(entry in own for own in shares):
                seeds = sorted(set.intersection(*({*own[entry]} for own in shares)))
                means = np.array([[own[entry][seed] for seed in seeds] for own in shares]).mean(0)
                lost = {seed for board in ran if board for row in board.rows if row.entry == entry for seed in row.not_fitted}
                found.append(Score(entry, kind, means, len({*seeds} - lost)))
    return found


def _newest(results: Results, task: str) -> Board | None:
    """Board of the newest version of a task, None without runs."""
    boards = results.boards("tvd", task, PROTOCOL) if task in results.task_names else ()
    return max(boards, key=lambda board: board.task_version, default=None)


def _shares(board: Board | None) -> dict[str, dict[int, float]]:
    """OOD TVD as a share of that of the context-free baseline, by entry and seed."""
    if not board or not (level := board.context_free_level("OOD")):
        return {}
    cells = {row.entry: (row.seeds, cell.values) for row in board.rows if (cell := row.cell("OOD"))}
    return {
        entry: {seed: value / level for seed, value in zip(seeds, values, strict=True) if value is not None}
        for entry, (seeds, values) in cells.items()
        if entry in ENTRIES
    }


def table(found: Sequence[Score]) -> list[list[str]]:
    """Lines of a Markdown table: a row for each entry, a column for each class, scores with their 95 % intervals and fits."""
    titles = list(dict.fromkeys(score.kind for score in found))
    cells: dict[str, dict[str, str]] = {}
    for score in found:
        low, high = (end.item() for end in interval(score.seeds[None]))
        fits = f"({score.fits}/{len(score.seeds)})"
        cells.setdefault(score.entry, {})[score.kind] = f"{score.seeds.mean():.3f} [{max(low, 0):.3f}, {high:.3f}] {fits}"
    lines = [[f"{PROTOCOL}: OOD TVD / baseline", *titles], [":--", *["--:"] * len(titles)]]
    ran = [entry for entry in ENTRIES if entry in cells]
    return lines + [[f"`{_short(entry)}`", *(cells[entry].get(title, "-") for title in titles)] for entry in ran]


def fitted(found: Sequence[Score]) -> str:
    """Entries that fit all tasks of a class at every seed, such as "context-free (`stack-rnn`), games (none)"."""
    names: dict[str, list[str]] = {score.kind: [] for score in found}
    for score in found:
        if score.fits == len(score.seeds):
            names[score.kind].append(f"`{_short(score.entry)}`")
    return ", ".join(f"{kind} ({', '.join(own) or 'none'})" for kind, own in names.items())


def by_task(results: Results) -> list[list[str]]:
    """Lines of a Markdown table: a row for each task, a column for each entry, shares with the seeds that fit."""
    entries = {entry: f"`{_short(entry)}`" for entry in ENTRIES}
    lines = [["class", "task", "baseline", *entries.values()], [":--"] * 2 + ["--:"] * (1 + len(entries))]
    for kind, tasks in CLASSES.items():
        for task in tasks:
            board, about = _newest(results, task), kind if task == tasks[0] else ""
            level = board.context_free_level("OOD") if board else None
            rows = {row.entry: row for row in board.rows} if board else {}
            cells = [_of_task(rows.get(entry), level) for entry in entries]
            lines.append([about, task, "-" if level is None else f"{level:.3f}", *cells])
    return lines


def _of_task(row: Row | None, level: float | None) -> str:
    """Share of the baseline, and seeds that fit the training range, such as "0.016 (5/5)"."""
    cell = row and row.cell("OOD")
    if not row or not cell or not level or not row.fitted:
        return "-"
    return f"{cell.mean / level:.3f} ({row.fitted.seeds}/{row.fitted.n})"


def _short(entry: str) -> str:
    return entry.removeprefix("transformer+").removeprefix("pre-norm+")


COLUMN, ROW, HEADING, LABELS = 49, 20, 25, 92
"""Width and height of a cell, height of the names of classes below their first lines, and width of the names of entries, in
wide fonts, too, in points."""


def picture(found: Sequence[Score]) -> Spec:
    """Figure with a row for each entry and a column for each class; dark is better, and grey is not fitted."""
    rows = [
        {
            "entry": _short(score.entry),
            "class": "|".join([*wrap(score.kind, 12), f"{len(CLASSES[score.kind])} tasks"]),
            "score": score.seeds.mean().item(),
            "text": f"{score.seeds.mean():.2f}{'' if score.fits else '*'}",
            "fits": score.fits > 0,
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
    color = alt.when("datum.fits").then(alt.Color("score:Q", legend=None, scale=scale)).otherwise(alt.value(GRID))
    cells = chart.mark_rect(stroke="white").encode(color=color)
    text = chart.mark_text(fontSize=TEXT).encode(text="text:N")
    plot = alt.LayerChart(layer=[cells, text], width=COLUMN * len(classes), height=ROW * len(entries))
    above = [
        "OOD TVD as a share of that of the context-free baseline, mean over tasks and seeds: dark blue is better;",
        "grey, with a star: no seed fits the training range",
    ]
    page = on_paper(f"Classes of tasks, {PROTOCOL}", above, LABELS + COLUMN * len(classes))
    return page | content(plot.to_dict())
