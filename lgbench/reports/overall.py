"""Overall boards as a table, Markdown or lines of CSV. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.reports.markdown import pipes
from lgbench.reports.widths import fits
from lgbench.results.entries import short
from lgbench.results.overall import Estimate, Overall, OverallRow

SHOWN_LIMITS = (0.25, 0.5, 1.0)
"""Where tables show the performance profile."""

NAME = "overall"
"""The name of an overall board, in place of a family's name."""


def table(found: Sequence[Overall], console: Console) -> None:
    """Overall boards for a terminal, with as many columns as fit."""
    for board in found:
        names = [row.entry for row in board.rows]
        columns = _columns(board)
        forms = [_lines(columns, names), *(_lines(columns[:count], short(names)) for count in (len(columns), _fewer(board), 3))]
        lines = next((form for form in forms if fits(form, console)), forms[-1])
        console.print(escape(title(board)), style="bold", highlight=False)
        console.print(lines)
        for note in notes(board):
            console.print(note, highlight=False, markup=False, soft_wrap=True)


def markdown(found: Sequence[Overall]) -> str:
    """Overall boards as GitHub tables."""
    parts = []
    for board in found:
        columns = _columns(board, one_line=True)
        header = ["entry", *(name for name, _ in columns)]
        rows = [[f"`{row.entry}`", *cells] for row, *cells in zip(board.rows, *(cells for _, cells in columns), strict=True)]
        rule = [":--", *["--:"] * len(columns)]
        parts.append("\n".join([f"### {title(board)}", "", *pipes([header, rule, *rows]), *(f"\n{n}" for n in notes(board))]))
    return "".join(f"{part}\n\n" for part in parts)


def csv_lines(found: Sequence[Overall]) -> Iterator[dict[str, Any]]:
    """One line for each number but the profile's, by column. A score has the runs of all families, a mean those of its own."""
    for board in found:
        about = {"board": NAME, "metric": board.metric.name, "metric_version": board.metric.version, "protocol": board.protocol}
        for row in board.rows:
            own = about | {"entry": row.entry}
            yield own | {
                "column": "IQM",
                "mean": row.score.value,
                "low": row.score.low,
                "high": row.score.high,
                "n": sum(row.seeds),
            }
            if better := row.improvement:
                yield own | {"column": "improvement", "mean": better.value, "low": better.low, "high": better.high}
            for family, mean, n in zip(board.families, row.families, row.seeds, strict=True):
                yield own | {"column": family, "mean": mean, "n": n}


def title(board: Overall) -> str:
    """The title of an overall board, in one line."""
    version = "" if board.metric.version == 1 else f" version {board.metric.version}"
    return (
        f"{NAME}: OOD {board.metric.label}{version} as a share of chance (0 is perfect, 1 is chance), "
        f"{len(board.families)} families, protocol {board.protocol}"
    )


def notes(board: Overall) -> list[str]:
    """Sentences that belong under an overall board."""
    found = ["IQM is the interquartile mean over families and seeds: the middle half of all scores. Families count alike."]
    if any(row.improvement for row in board.rows):
        found.append(f"P(better) is the probability that a run is better than one of {board.baseline}, mean over families.")
    if board.left_out:
        entries = "1 entry is" if board.left_out == 1 else f"{board.left_out} entries are"
        found.append(f"{entries} left out for want of runs on all of {', '.join(board.families)}.")
    return [*found, *(f"{sentence}." for sentence in board.unsound)]


def _columns(board: Overall, one_line: bool = False) -> list[tuple[str, list[str]]]:
    """Names of columns and the cells of each, the most telling column first."""
    rows = board.rows
    found = [("seeds", [_seeds(row) for row in rows]), ("IQM", [_estimate(row.score, 4, one_line) for row in rows])]
    if any(row.improvement for row in rows):
        better = (_estimate(row.improvement, 2, one_line) if row.improvement else "-" for row in rows)
        found.append(("P(better)", ["baseline" if r.entry == board.baseline else c for r, c in zip(rows, better, strict=True)]))
    for limit in SHOWN_LIMITS:
        at = board.limits.index(limit)
        found.append((f"runs <={limit:g}", [f"{100 * row.profile[at]:.0f} %" for row in rows]))
    return found + [(family, [f"{row.families[i]:.4f}" for row in rows]) for i, family in enumerate(board.families)]


def _fewer(board: Overall) -> int:
    """How many columns there are without those of families."""
    return len(_columns(board)) - len(board.families)


def _lines(columns: Sequence[tuple[str, list[str]]], names: Sequence[str]) -> Table:
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    lines.add_column("entry", overflow="fold")
    for name, _ in columns:
        lines.add_column(escape(name).replace(" ", "\n").replace("-", "-\n"), justify="right", overflow="fold")
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        lines.add_row(escape(name), *cells)
    return lines


def _seeds(row: OverallRow) -> str:
    least, most = min(row.seeds), max(row.seeds)
    return str(least) if least == most else f"{least}-{most}"


def _estimate(estimate: Estimate, digits: int, one_line: bool) -> str:
    value = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    if one_line:
        return f"{value} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    least = min(digits, 3)
    return f"{value}\n[dim]{estimate.low:.{least}f} {estimate.high:.{least}f}[/dim]"
