"""The tables of inside/README.md, one function a table."""

from collections.abc import Callable
from itertools import groupby
from math import nan

import numpy as np
from factors import PROTOCOL, with_interval
from findings import NORMS, boards_of, markdown_table

from lgbench.results.boards import Board, Cell, Row, exponent
from lgbench.results.leaderboard import EVERYWHERE, Results
from lgbench.results.statistics import Floats, interval, paired_t
from lgbench.results.sweeps import Sweep, SweepRequest, sweeps

SCHEMES = (*(f"transformer+{norm}" for norm in NORMS), "set-attention", "set-attention+attention-layer-norm")
NO_NORM, FINAL_NORM = "transformer+no-norm", "transformer+final-norm"
BASELINE = "transformer+pre-norm"
MINIMAL = tuple(f"transformer+{norm}" for norm in ("no-norm", "pre-norm", "post-norm", "peri-norm", "peri-init-norm"))
"""The minimal model of set complement, with no norm and with four."""
ONE_PLACE = ("transformer+input-norm", "transformer+output-norm", "transformer+olmo2-norm")
"""A norm on the sublayer's input, on its output, and on its output and before the logits."""
PARTS = {"reading": "embedding and logits of attention", "logits": "logits of attention", "head": "logits of the model"}
"""Parts of `exact_parts.py` with longer names in the table."""
TOKENS = 64
"""The tokens of set complement, v in the theory."""


def without_repetition(results: Results) -> str:
    """`output_std` on set complement, relative to that of a mean of s of v different tokens: (1/s - 1/v)^(1/2)."""
    (board,) = results.boards("output_std", "set-complement", PROTOCOL, inside=EVERYWHERE)
    lengths = [length for length in board.all_lengths if length < TOKENS]
    lines = [[f"{board.protocol}: output std / (1/s - 1/v)^1/2 at", *map(str, lengths)], [":--", *["--:"] * len(lengths)]]
    for row in board.rows:
        if row.entry in MINIMAL:
            cells = [row.cell("length", length) for length in lengths]
            parts = [cell and cell.mean / (1 / s - 1 / TOKENS) ** 0.5 for s, cell in zip(lengths, cells, strict=True)]
            lines.append([f"`{row.entry}`", *("-" if part is None else f"{part:.2f}" for part in parts)])
    return markdown_table(lines)


def kept(results: Results) -> str:
    """Of each norm scheme and family, the share of `output_var_global` that is left at the longest length, and the OOD TVD."""
    boards = _global(results, "output_var_global")
    scores = {(board.name, row.entry): row for board in boards_of(results) for row in board.rows}
    names = [board.name for board in boards]
    lines = [[f"{boards[0].protocol}: share of the variance that is left (OOD TVD)", *names], [":--", *["--:"] * len(boards)]]
    for entry in (NO_NORM, FINAL_NORM, *SCHEMES):
        rows = {board.name: row for board in boards for row in board.rows if row.entry == entry}
        shares = [share_left(board, rows[board.name]) if board.name in rows else None for board in boards]
        tvd = [cell.mean if (row := scores.get((name, entry))) and (cell := row.cell("OOD")) else nan for name in names]
        lines.append([f"`{entry}`", *(f"{s} ({t:.3f})" if s else "-" for s, t in zip(shares, tvd, strict=True))])
    return markdown_table(lines)


def drift(results: Results) -> str:
    """Of each norm scheme and family, how far the global mean of outputs moves, in deviations at the training length."""
    boards = {board.name: board for board in _global(results, "output_mean_global")}
    spreads = {board.name: {row.entry: row for row in board.rows} for board in _global(results, "output_var_global")}
    protocol = next(iter(boards.values())).protocol
    lines = [[f"{protocol}: drift of the mean / deviation", *boards], [":--", *["--:"] * len(boards)]]
    for entry in (NO_NORM, *SCHEMES):
        rows = {name: next((row for row in board.rows if row.entry == entry), None) for name, board in boards.items()}
        shown = [_drift(boards[name], row, spreads[name][entry]) if row else "-" for name, row in rows.items()]
        lines.append([f"`{entry}`", *shown])
    return markdown_table(lines)


def _global(results: Results, metric: str) -> list[Board]:
    """Boards of all families that have a probe of the whole output."""
    return [board for board in results.boards(metric, None, PROTOCOL, inside=EVERYWHERE) if board.rows]


def _drift(board: Board, means: Row, variances: Row) -> str:
    """Seed by seed: how far the mean at the longest length is from that at the training length, in deviations at the latter."""
    first, last = (_at(means, length) for length in (board.train_length, max(board.all_lengths)))
    moved = abs(last - first) / _at(variances, board.train_length) ** 0.5
    low, high = (end.item() for end in interval(moved[None]))
    return f"{np.nanmean(moved):.2f} [{max(low, 0):.2f}, {high:.2f}]"


def _at(row: Row, length: int) -> Floats:
    """Value of each seed at a length; NaN where it is not known."""
    cell = row.cell("length", length)
    return np.array([nan if value is None else value for value in (cell.values if cell else ())])


def share_left(board: Board, row: Row) -> str:
    """Seed by seed: of the value at the training length, the share at the longest one, with its 95 % interval."""
    first, last = (_at(row, length) for length in (board.train_length, max(board.all_lengths)))
    shares = last / first
    low, high = (end.item() for end in interval(shares[None]))
    return f"{np.nanmean(shares):.2f} [{low:.2f}, {high:.2f}]"


def separation(results: Results) -> str:
    """The separation of logits in the minimal model at every length of the board, and the closed forms at their shapes."""
    (board,) = results.boards("logit_separation", "set-complement", PROTOCOL, inside=EVERYWHERE)
    lengths = [length for length in board.all_lengths if length < TOKENS]
    lines = [[f"{board.protocol}: logit separation at", *map(str, lengths), "exponent"], [":--", *["--:"] * (len(lengths) + 1)]]
    rows = {row.entry: row for row in board.rows}
    for entry in filter(rows.__contains__, dict.fromkeys((*MINIMAL, *ONE_PLACE, *SCHEMES))):
        cells = [rows[entry].cell("length", length) for length in lengths]
        fitted = str(exponent(rows[entry]) or "-").removeprefix("N^")
        lines.append([f"`{entry}`", *("-" if cell is None else f"{cell.mean:.2f}" for cell in cells), fitted])
    forms: dict[str, Callable[[int], float]] = {
        "theory without a norm, 1/s": lambda s: 1 / s,
        "theory with one, (s (1 - s/v))^-1/2": lambda s: (s * (1 - s / TOKENS)) ** -0.5,
    }
    for name, form in forms.items():
        shape = [form(s) / form(1) for s in lengths]
        power = np.polyfit(np.log(lengths), np.log(shape), 1)[0]
        lines.append([f"{name}, of 1 at s = 1", *(f"{value:.2f}" for value in shape), f"{power:.2f}"])
    return markdown_table(lines)


def width(swept: Results) -> str:
    """OOD TVD by width: a line for each family and entry."""
    return _by_value(swept, "model.width", {"tvd": "OOD TVD"})


def depth(swept: Results) -> str:
    """How good models of several depths are, and how their training went."""
    shown = {"tvd": "OOD TVD", "gradient_norm": "largest gradient norm", "loss_variance": "variance of the loss"}
    return _by_value(swept, "model.layers", shown)


def diverged(swept: Results) -> str:
    """How many of the models of the sweep over depth diverged."""
    found = sweeps(swept, SweepRequest("model.layers", "diverged"))
    cells = [cell for sweep in found for own in sweep.cells.values() for cell in own.values()]
    lost, every = sum(round(cell.mean * cell.n) for cell in cells), sum(cell.n for cell in cells)
    return f"Of {every} models {lost or 'none'} diverged.\n"


def precision(swept: Results) -> str:
    """OOD TVD on max retrieval of models trained in bfloat16, with a part in float32, against float32 in all parts."""
    boards = {
        dict(board.protocol.changes).get("precision", "float32"): board
        for board in swept.boards("tvd", "max-retrieval")
        if ("train.lr", "0.006") in board.protocol.changes
    }
    (wide,) = (row for row in boards["float32"].rows if row.entry == BASELINE)
    lines = [["part in float32", "OOD TVD", "against float32 in all parts"], [":--", "--:", "--:"]]
    lines.append(["all", f"{_ood(wide):.3f}", ""])
    for row in sorted(boards["bfloat16"].rows, key=lambda row: -_ood(row)):
        part = "none" if row.entry == BASELINE else row.entry.split("~")[0].removeprefix("exact-")
        lines.append([PARTS.get(part, part), f"{_ood(row):.3f}", with_interval(*_apart(row, wide))])
    return markdown_table(lines)


MARGIN = 0.02
"""Difference of TVD below which two precisions count as alike."""


def alike(results: Results, swept: Results) -> str:
    """OOD TVD of entries trained in bfloat16 less that in float32, paired by seed, by family. Bold: alike within MARGIN."""
    boards = [*swept.boards("tvd", None, PROTOCOL), *results.boards("tvd", None, PROTOCOL)]
    wide = {(board.name, row.entry): row for board in boards for row in board.rows}
    apart: dict[str, dict[str, str]] = {}
    for board in swept.boards("tvd", None, f"{PROTOCOL} precision=bfloat16"):
        for row in board.rows:
            mean, low, high = _apart(row, wide[board.name, row.entry])
            text = with_interval(mean, low, high)
            apart.setdefault(row.entry, {})[board.name] = f"**{text}**" if low > -MARGIN and high < MARGIN else text
    families = sorted({family for cells in apart.values() for family in cells})
    lines = [[f"bfloat16 less float32, margin {MARGIN}", *families], [":--", *["--:"] * len(families)]]
    # A part that is a file has a hash in its name.
    lines += [
        [f"`{entry.partition('~')[0]}`", *(cells.get(family, "-") for family in families)] for entry, cells in apart.items()
    ]
    return markdown_table(lines)


def _ood(row: Row) -> float:
    cell = row.cell("OOD")
    return cell.mean if cell else nan


def _apart(first: Row, second: Row) -> tuple[float, float, float]:
    """Difference of OOD TVD, first less second, and the ends of its interval, over the seeds that both have."""
    values = [dict(zip(row.seeds, cell.values, strict=True)) for row in (first, second) if (cell := row.cell("OOD"))]
    seeds = sorted(values[0].keys() & values[1].keys())
    ours, others = (np.array([own[seed] for seed in seeds], dtype=float) for own in values)
    found = paired_t(ours - others)
    return float(found.mean), float(found.low), float(found.high)


def _by_value(swept: Results, setting: str, metrics: dict[str, str]) -> str:
    """A table for each protocol, and each set of values that families were run with."""
    found = [(title, sweep) for metric, title in metrics.items() for sweep in sweeps(swept, SweepRequest(setting, metric))]

    def table_of(each: tuple[str, Sweep]) -> tuple[str, list[float]]:
        return str(each[1].board.protocol), [float(value) for value in _values(each[1])]

    tables = []
    for (protocol, _), group in groupby(sorted(found, key=table_of), key=table_of):
        own = list(group)
        values = _values(own[0][1])
        about = f"{protocol}: {own[0][0]}" if len(metrics) == 1 else protocol
        lines = [[about, *(f"{setting.removeprefix('model.')} {value}" for value in values)], [":--", *["--:"] * len(values)]]
        for title, sweep in own:
            for entry in sweep.lines:
                cells = {str(value): cell for value, cell in sweep.cells[entry].items()}
                name = f"{sweep.board.name}, `{entry.removeprefix('transformer+')}`"
                lines.append([name if len(metrics) == 1 else f"{name}: {title}", *(_number(cells.get(v)) for v in values)])
        tables.append(markdown_table(lines))
    return "\n".join(tables)


def _values(sweep: Sweep) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for cells in sweep.cells.values() for value in cells))


def _number(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    around = "" if cell.low is None or cell.high is None else f" [{cell.low:.3g}, {cell.high:.3g}]"
    return f"{cell.mean:.3g}{around}"


def tables_of_internals(results: Results, swept: Results) -> dict[str, str]:
    """The tables of inside/README.md, by the names that it gives."""
    return {
        "without_repetition": without_repetition(results),
        "kept": kept(results),
        "drift": drift(results),
        "separation": separation(results),
        "width": width(swept),
        "depth": depth(swept),
        "diverged": diverged(swept),
        "alike": alike(results, swept),
        "precision": precision(swept),
    }
