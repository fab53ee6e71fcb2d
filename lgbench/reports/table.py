"""Boards as a table, Markdown, CSV or JSON. Nothing is computed here."""

from __future__ import annotations

import csv
import io
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.reports import overall
from lgbench.reports.markdown import pipes
from lgbench.reports.widths import fits
from lgbench.results.baseline import Against
from lgbench.results.boards import Board, Cell, Row
from lgbench.results.entries import short
from lgbench.results.overall import Overall

DIFFERENCE = tuple(f"baseline_{name}" for name in ("difference", "low", "high", "n", "p", "verdict"))
"""Columns of the CSV: the fields of the difference to the baseline."""

STANDING = ("tier", "rank interval", "entry", "seeds")
AGAINST = "against baseline"
"""The column of differences to the baseline, which is there where any entry is compared with it."""

FLAGS = {"looks_ahead": "looks ahead", "not_finite": "not finite", "diverged": "diverged", "not_fitted": "not fitted"}
"""The fields of a row that name seeds, and what is said of those seeds. The first two keep the entry from being ranked."""


def table(boards: Sequence[Board], console: Console, summary: Sequence[Overall] = ()) -> None:
    """Overall boards, then boards for a terminal: the mean over seeds, below it the 95 % interval; as many lengths as fit.

    Where not all fit, names are short. Where not even the rest fits, cells go over several lines; nothing is cut.
    """
    overall.table(summary, console)
    for board in boards:
        names = [row.entry for row in board.rows]
        lengths, lines = board.lengths, _table(board, board.lengths, names)
        if not fits(lines, console):
            # Numbers are at least four characters wide.
            counts = range(min(len(board.lengths), console.width // 4), -1, -1)
            count = bisect_left(
                counts, True, key=lambda count: fits(_table(board, _spread(board.lengths, count), short(names)), console)
            )
            lengths = _spread(board.lengths, counts[min(count, len(counts) - 1)])
            lines = _table(board, lengths, short(names))
        console.print(escape(title(board)), style="bold", highlight=False)
        console.print(lines)
        if len(lengths) < len(board.lengths):
            console.print("some lengths do not fit; a wider terminal or --format shows them all", style="dim")
        for note in notes(board):
            console.print(note, highlight=False, markup=False, soft_wrap=True)


def _header(board: Board, lengths: Sequence[int]) -> list[str]:
    against = [AGAINST] if board.compared else []
    return [*STANDING, "ID", "OOD", *against, "effective length", *map(str, lengths)]


def _table(board: Board, lengths: Sequence[int], names: Sequence[str]) -> Table:
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in _header(board, lengths):
        side: Literal["left", "right"] = "left" if name == "entry" else "right"
        lines.add_column(name.replace(" ", "\n"), justify=side, no_wrap=bool(lengths), overflow="fold")
    for row, name in zip(board.rows, names, strict=True):
        lines.add_row(*_standing(row), escape(name), _seeds(row), *_numbers(board, row, lengths, IN_TERMINAL))
    if board.chance:
        lines.add_row("", "", "chance", "", *_chance(board, lengths), style="dim")
    return lines


def _spread(lengths: Sequence[int], count: int) -> list[int]:
    """`count` of the lengths, evenly spread, the longest among them.

    >>> _spread([16, 32, 64, 128], 2), _spread([16, 32, 64, 128], 1)
    ([16, 128], [128])
    """
    last = len(lengths) - 1
    return sorted({lengths[last - round(i * last / max(1, count - 1))] for i in range(count)})


def markdown(boards: Sequence[Board], summary: Sequence[Overall] = ()) -> str:
    """Overall boards, then boards, as GitHub tables."""
    parts = []
    for board in boards:
        header = _header(board, board.lengths)
        rows = [
            [*_standing(row), f"`{row.entry}`", _seeds(row), *_numbers(board, row, board.lengths, IN_MARKDOWN)]
            for row in board.rows
        ]
        rows += [["", "", "chance", "", *_chance(board, board.lengths)]] if board.chance else []
        rule = ["--:", "--:", ":--", *["--:"] * (len(header) - 3)]
        parts.append("\n".join([f"### {title(board)}", "", *pipes([header, rule, *rows]), *(f"\n{n}" for n in notes(board))]))
    return overall.markdown(summary) + "\n\n".join(parts) + "\n"


def as_csv(boards: Sequence[Board], summary: Sequence[Overall] = ()) -> str:
    """One line for each cell, those of overall boards first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    about = ("board", "metric", "metric_version", "task_version", "protocol")
    own = ("entry", "tier", "best_rank", "worst_rank", *DIFFERENCE, "effective_length", "seeds", *FLAGS)
    columns = [*about, *own, "column", "length", "mean", "low", "high", "n", "chance"]
    writer.writerow(columns)
    writer.writerows([line.get(name) for name in columns] for line in overall.csv_lines(summary))
    for board in boards:
        for row in board.rows:
            same: list[Any] = [board.name, board.metric.name, board.metric.version, board.task_version, board.protocol]
            same += [row.entry, row.tier, *(row.rank_interval or (None, None))]
            same += [getattr(row.against, name.removeprefix("baseline_"), None) for name in DIFFERENCE] + [row.effective_length]
            same += map(len, (row.seeds, *(getattr(row, flag) for flag in FLAGS)))
            for c in row.cells:
                writer.writerow([*same, c.kind, c.length, c.mean, c.low, c.high, c.n, board.chance_level(c.kind, c.length)])
    return out.getvalue()


def as_json(boards: Sequence[Board], summary: Sequence[Overall] = ()) -> str:
    """An object with overall boards and boards as they are."""
    return json.dumps({"overall": [asdict(own) for own in summary], "boards": [asdict(own) for own in boards]}, indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Board], Sequence[Overall]], str]] = {"markdown": markdown, "csv": as_csv, "json": as_json}


def title(board: Board) -> str:
    """The title of a board, in one line."""
    tasks = "" if board.tasks == 1 else f", mean over {board.tasks} tasks"
    version = "" if board.metric.version == 1 else f", {board.metric.label} version {board.metric.version}"
    trained = "in distribution" if board.protocol.is_external else "trained"
    return (
        f"{board.name}: {board.metric.label} ({board.metric.direction}){tasks}, "
        f"{trained} to length {board.train_length}, protocol {board.protocol}, task version {board.task_version}{version}"
    )


def notes(board: Board) -> list[str]:
    """Sentences that belong under a board: what is left out, what lacks the metric, and what was not fitted."""
    found = [*(f"{sentence}." for sentence in board.unsound), *board.incomplete]
    if board.protocol.is_external:
        found.insert(0, "lgbench did not train these models, so nobody can make their runs again.")
    if board.lacking:
        entries = (f"{entry} ({count} {'seed' if count == 1 else 'seeds'})" for entry, count in sorted(board.lacking.items()))
        found.append(f"{board.metric.label} is missing in runs of {', '.join(entries)}.")
    models = sum(len(row.seeds) for row in board.rows)
    counts: Counter[str] = Counter()
    for row in board.rows:
        counts.update(row.not_fitted_tasks)
    if counts:
        tasks = (f"{task} by {'all' if n == models else f'{n} of {models}'} models" for task, n in sorted(counts.items()))
        found.append(f"Not fitted: {', '.join(tasks)}.")
    if board.ranked_by == "ID" and any(row.cell("OOD") for row in board.rows):
        found.append(
            "No entry has fitted the lengths that models were trained on, or beats chance on longer ones: ID orders the board."
        )
    if board.learning_rates:
        found.append(f"Learning rates, chosen in-distribution on other seeds: {'; '.join(_learning_rates(board))}.")
    return [*found, *_about_baseline(board)]


def _about_baseline(board: Board) -> list[str]:
    compared = sum(row.against is not None for row in board.rows)
    if compared:
        return [f"The baseline is {board.baseline}. Verdicts against it are corrected for {compared} comparisons."]
    if sum(row.tier is not None for row in board.rows) < 2:
        return []
    return [f"No entry is compared with {board.baseline}, which is not ranked here; --baseline names another entry."]


def _learning_rates(board: Board) -> list[str]:
    """The entries that have each learning rate, or each range of them over the tasks."""
    entries: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for entry, by_task in board.learning_rates.items():
        rates = [rate for own in by_task.values() for rate in own]
        entries[tuple(sorted({min(rates), max(rates)}))].append(entry)
    return [f"{' to '.join(f'{lr:g}' for lr in rates)} for {', '.join(short(own))}" for rates, own in sorted(entries.items())]


def _standing(row: Row) -> tuple[str, str]:
    if row.tier is None or row.rank_interval is None:
        return "-", "-"
    best, worst = row.rank_interval
    return str(row.tier), str(best) if best == worst else f"{best}-{worst}"


def _numbers(board: Board, row: Row, lengths: Sequence[int], show: Show) -> list[str]:
    """The ID and OOD means, the difference to the baseline, the effective length, and the mean at each of `lengths`."""
    cells = (show.cell(row.cell("length", length)) for length in lengths)
    against = [_against(board, row, show)] if board.compared else []
    return [show.cell(row.cell("ID")), show.cell(row.cell("OOD")), *against, effective_length(board, row), *cells]


def _against(board: Board, row: Row, show: Show) -> str:
    if row.entry == board.baseline:
        return "baseline"
    return "-" if row.against is None else show.difference(row.against)


def _chance(board: Board, lengths: Sequence[int]) -> list[str]:
    """The chance level in the columns of :func:`_numbers`."""
    columns = [("ID", None), ("OOD", None), *(("length", length) for length in lengths)]
    levels = [board.chance_level(*column) for column in columns]
    shown = ["-" if level is None else f"{level:.4f}" for level in levels]
    return [*shown[:2], *([""] if board.compared else []), "", *shown[2:]]


def effective_length(board: Board, row: Row) -> str:
    """The effective length in training lengths, with >= where it is the longest measured; "-" where there is none."""
    if not row.effective_length or row.effective_multiple is None:
        return "-"
    multiple = f"{row.effective_multiple:.0f}" if row.effective_multiple >= 100 else f"{row.effective_multiple:.3g}"
    return f"{'>=' if row.effective_length == board.all_lengths[-1] else ''}{multiple}x"


def _seeds(row: Row) -> str:
    flagged = [f"{len(seeds)} {name}" for flag, name in FLAGS.items() if (seeds := getattr(row, flag))]
    return f"{len(row.seeds)} ({', '.join(flagged)})" if flagged else str(len(row.seeds))


class Show(NamedTuple):
    """How a format writes a mean with its interval, and a difference with its own and the verdict."""

    cell: Callable[[Cell | None], str]
    difference: Callable[[Against], str]


def _two_lines(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.low is None else f"\n[dim]{cell.low:.3f} {cell.high:.3f}[/dim]")


def _one_line(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.low is None else f" [{cell.low:.4f}, {cell.high:.4f}]")


def _two_lines_of_difference(own: Against) -> str:
    first = f"{own.difference:+.4f} {own.verdict or ''}".rstrip()
    return first + ("" if own.low is None else f"\n[dim]{own.low:+.3f} {own.high:+.3f}[/dim]")


def _one_line_of_difference(own: Against) -> str:
    ends = "" if own.low is None else f" [{own.low:+.4f}, {own.high:+.4f}]"
    return f"{own.difference:+.4f}{ends} {own.verdict or ''}".rstrip()


IN_TERMINAL = Show(_two_lines, _two_lines_of_difference)
IN_MARKDOWN = Show(_one_line, _one_line_of_difference)
