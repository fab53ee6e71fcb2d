"""Boards and overall boards as tables, CSV and JSON. Nothing is computed here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import EXTERNAL, ProtocolUse
from lgbench.reports.tables import Cell, Column, Interval, Styled, Table, as_csv, markdown
from lgbench.results.boards import Board, Row
from lgbench.results.entries import short
from lgbench.results.overall import Estimate, Overall, OverallRow
from lgbench.terminal import counted

FLAGS = {"not_causal": "not causal", "not_finite": "not finite", "diverged": "diverged", "not_fitted": "not fitted"}
"""Fields of a row with seeds, and names for tables. An entry with seeds in one of the first two is not ranked."""

DIFFERENCE = tuple(f"baseline_{name}" for name in ("difference", "low", "high", "n", "p", "verdict"))
"""CSV columns of the difference from the baseline."""
FITTED = ("fitted", "fitted_low", "fitted_high")
"""CSV columns of the seeds that have fitted every task, and of the interval of their share."""
CSV_COLUMNS = (
    *("board", "metric", "metric_version", "task_version", "protocol"),
    *("entry", "tier", "best_rank", "worst_rank", *DIFFERENCE),
    *("effective_length", "effective_multiple", "seeds", *FLAGS, *FITTED),
    *("column", "length", "mean", "low", "high", "n", "context_free"),
)

SHOWN_LIMITS = (0.25, 0.5, 1.0)
"""Limits of the performance profile in tables."""

OVERALL = "overall"
"""Name of an overall board, in place of a family's name."""

OWN = " *"
"""Mark of own entries on a board with published runs."""
BELOW = "not ranked:"
"""Line of a table between the board and the own entries of other protocols."""


def boards_markdown(boards: Sequence[Board], summary: Sequence[Overall] = ()) -> str:
    """Overall boards, then boards, as GitHub tables."""
    return "\n".join(map(markdown, tables(boards, summary)))


def tables(boards: Sequence[Board], summary: Sequence[Overall] = (), compares: bool = False) -> Iterator[Table]:
    """Overall boards, then boards. With `compares`, the comparison with the baseline has room in the narrowest terminal."""
    for own in summary:
        yield overall_table(own, {entry for board in boards if board.protocol == own.protocol for entry in board.own or ()})
    yield from (board_table(board, compares) for board in boards)


def boards_csv(boards: Sequence[Board], summary: Sequence[Overall] = ()) -> str:
    """CSV with one line for each cell, overall boards first."""
    lines = [*_overall_lines(summary), *_board_lines(boards)]
    return as_csv(CSV_COLUMNS, [[line.get(name) for name in CSV_COLUMNS] for line in lines])


def board_table(board: Board, compares: bool = False) -> Table:
    """Means over seeds with 95 % intervals, and the context-free baseline below the entries. `compares`: see :func:`tables`."""
    lengths = [("length", length) for length in board.lengths]
    against = [Column("against baseline", group=0 if compares else 1)] if board.compared else []
    fitted = [Column("fitted", group=1)] if any(row.not_fitted for row in board.shown) else []
    columns = [
        *(Column("tier"), Column("rank interval", group=1), Column("entry", text=True), Column("seeds"), *fitted),
        *(Column("ID"), Column("OOD"), *against, Column("effective length", group=1)),
        *(Column(str(length), group=2) for length in board.lengths),
    ]
    rows: list[list[Cell]] = []
    names = [name for part in (board.rows, board.unranked) for name in short([row.entry for row in part])]
    for row, name in zip(board.shown, names, strict=True):
        ranks = ("-", "-") if row.tier is None or row.rank_interval is None else (str(row.tier), _span(*row.rank_interval))
        rows.append([*ranks, _entry(row.entry, name, board.own or ()), _seeds(row), *([_fitted(row)] if fitted else [])])
        rows[-1] += [_mean(row, "ID"), _mean(row, "OOD"), *([_against(board, row)] if against else [])]
        rows[-1] += [effective_length(board, row), *(_mean(row, *length) for length in lengths)]
    ranked, below = rows[: len(board.rows)], rows[len(board.rows) :]
    if board.context_free:
        levels = [board.context_free_level(*column) for column in (("ID", None), ("OOD", None), *lengths)]
        shown = ["-" if level is None else f"{level:.4f}" for level in levels]
        means = [*shown[:2], *[""] * len(against), "", *shown[2:]]
        ranked.append([Styled(cell, "dim") for cell in ("", "", "context-free baseline", "", *[""] * len(fitted), *means)])
    if below:
        below.insert(0, [Styled(BELOW if column.name == "entry" else "", "dim") for column in columns])
    return Table(title(board), columns, [*ranked, *below], notes(board))


def _entry(entry: str, name: str, own: Collection[str]) -> Styled:
    """Name of an entry, with a mark if it is among the own ones."""
    return Styled(entry, "bold", name, OWN) if entry in own else Styled(entry, "code", name)


def _board_lines(boards: Sequence[Board]) -> Iterator[dict[str, Any]]:
    for board in boards:
        about = {"board": board.name, "metric": board.metric.name, "metric_version": board.metric.version}
        about |= {"task_version": board.task_version}
        for row in board.shown:
            best, worst = row.rank_interval or (None, None)
            # Tables have the protocol of an entry without a rank in its name.
            entry = row.entry.removesuffix(f" ({row.protocol})")
            own = about | {"protocol": row.protocol or board.protocol, "entry": entry}
            own |= {"tier": row.tier, "best_rank": best, "worst_rank": worst}
            own |= {name: getattr(row.against, name.removeprefix("baseline_"), None) for name in DIFFERENCE}
            own |= {name: getattr(row, name) for name in ("effective_length", "effective_multiple")} | {"seeds": len(row.seeds)}
            own |= {flag: len(getattr(row, flag)) for flag in FLAGS}
            own |= dict(zip(FITTED, (row.fitted.seeds, row.fitted.low, row.fitted.high), strict=True)) if row.fitted else {}
            for cell in row.cells:
                context_free = board.context_free_level(cell.kind, cell.length)
                yield (
                    own
                    | {"column": cell.kind, "context_free": context_free}
                    | {n: getattr(cell, n) for n in CSV_COLUMNS[-6:-1]}  # length to n
                )


def title(board: Board) -> str:
    """Title of a board, in one line."""
    tasks = "" if board.tasks == 1 else f", mean over {board.tasks} tasks"
    version = "" if board.metric.version == 1 else f", {board.metric.label} version {board.metric.version}"
    trained = "in distribution" if board.protocol.is_external else "trained"
    return (
        f"{board.title}: {board.metric.label} ({board.metric.direction}){tasks}, "
        f"{trained} to length {board.train_length}, protocol {board.protocol}, task version {board.task_version}{version}"
    )


def notes(board: Board) -> list[str]:
    """Sentences below a board: left-out runs, runs without the metric, tasks not fitted, learning rates and the baseline."""
    found = [*(f"{sentence}." for sentence in board.unsound), *board.incomplete]
    if board.protocol.is_external:
        found.insert(0, "lgbench did not train these models, so nobody can make their runs again.")
    if board.lacking:
        entries = (f"{entry} ({counted(count, 'seed')})" for entry, count in sorted(board.lacking.items()))
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
            "By TVD, no seed fits the training lengths and no entry beats the context-free baseline on longer ones, so the ID "
            "mean orders the board."
        )
    if board.learning_rates:
        found.append(f"Learning rates, chosen in-distribution on other seeds: {'; '.join(_learning_rates(board))}.")
    return [*found, *_about_baseline(board), *_about_own(board)]


def _about_own(board: Board) -> list[str]:
    """Sentences on own runs beside published ones, and how to have entries of other protocols ranked."""
    if board.own is None:
        return []
    found = [f"Entries with{OWN} have runs of yours." if board.own else "No entry of yours is ranked here."]
    if len(board.own) == len(board.rows):
        found.append(f"No published run is of {board.name} and {board.protocol}.")
    if board.unranked:
        found.append("Your entries of other protocols have no rank, since their training was another.")
    # Names without weights, protocol and versions; lgbench cannot train models that were trained elsewhere.
    archs = {row.entry.partition(" (")[0].partition("@")[0] for row in board.unranked if f" ({EXTERNAL}/" not in row.entry}
    if archs and (now := PROTOCOLS.get(board.protocol.name)):
        arch, seeds = ",".join(sorted(archs)), f"0:{now.submitted_seeds}"
        files = " --plugin FILE" if "~" in arch else ""  # a hash follows the names in plugin files
        run = f"`lgbench run --task {board.name} --arch {arch}{files} --protocol {now.name} --seeds {seeds}`"
        newest = board.protocol == ProtocolUse(now.name, now.version)
        today = f"is of {now.name}/{now.version} by now: run the entries that you compare with, too"
        about = "; FILE is your plugin file" if files else ""
        found.append(f"{run} {'makes runs to be ranked' if newest else today}{about}.")
    return found


def _about_baseline(board: Board) -> list[str]:
    compared = sum(row.against is not None for row in board.rows)
    if compared:
        verdicts = f"verdicts are corrected for {counted(compared, 'comparison')}"
        return [f"The baseline is {board.baseline}. Differences from it are over common seeds, and {verdicts}."]
    if sum(row.tier is not None for row in board.rows) < 2:
        return []
    return [f"No entry is compared with {board.baseline}, which is not ranked here; --baseline names another entry."]


def _learning_rates(board: Board) -> list[str]:
    """Chosen and tried learning rates with entries: the lowest and the highest over tasks, and tasks with a chosen end."""
    entries: dict[str, list[str]] = defaultdict(list)
    for entry, by_task in sorted(board.learning_rates.items()):
        rates = [rate for own in by_task.values() for rate in own]
        chosen, tried = _ends(rate.chosen for rate in rates), _ends(lr for rate in rates for lr in rate.tried)
        ends = sum(any(rate.is_end for rate in own) for own in by_task.values())
        where = "" if len(by_task) == 1 else f" on {ends} of {len(by_task)} tasks"
        entries[f"{chosen} of {tried}{f' (an end{where})' if ends else ''}"].append(entry)
    return [f"{rates} for {', '.join(short(own))}" for rates, own in sorted(entries.items())]


def _ends(rates: Iterable[float]) -> str:
    """Lowest and highest of these rates."""
    known = sorted(set(rates))
    return " to ".join(f"{lr:g}" for lr in dict.fromkeys((known[0], known[-1])))


def _mean(row: Row, kind: str, length: int | None = None) -> Cell:
    cell = row.cell(kind, length)
    return "-" if cell is None else Interval(cell.mean, cell.low, cell.high)


def _against(board: Board, row: Row) -> Cell:
    """Difference from the baseline."""
    if row.entry == board.baseline:
        return "baseline"
    own = row.against
    if own is None:
        return "-"
    seeds = f"by failing seed {' or '.join(map(str, own.decided_by))}" if own.decided_by else ""
    verdict = " ".join(filter(None, (own.verdict or (seeds and "undecided"), seeds)))
    return Interval(own.difference, own.low, own.high, sign="+", verdict=verdict)


def _fitted(row: Row) -> Cell:
    """Share of the seeds that have fitted every task."""
    own = row.fitted
    return "-" if own is None else Interval(own.seeds / own.n, own.low, own.high, digits=2)


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def effective_length(board: Board, row: Row) -> str:
    """Effective length in training lengths, with >= at the longest measured length, and "-" without an effective length."""
    if not row.effective_length or row.effective_multiple is None:
        return "-"
    multiple = f"{row.effective_multiple:.0f}" if row.effective_multiple >= 100 else f"{row.effective_multiple:.3g}"
    return f"{'>=' if row.effective_length == board.all_lengths[-1] else ''}{multiple}x"


def _seeds(row: Row) -> str:
    flagged = [f"{len(seeds)} {name}" for flag, name in FLAGS.items() if (seeds := getattr(row, flag))]
    return f"{len(row.seeds)} ({', '.join(flagged)})" if flagged else str(len(row.seeds))


def overall_table(board: Overall, own: Collection[str] = ()) -> Table:
    """Scores over all families, and the mean of each family. Own entries are marked."""
    columns = [
        Column("entry", text=True),
        Column("seeds"),
        Column("IQM"),
        Column("mean"),
        Column("rank without a family", group=1),
    ]
    compared = any(row.improvement for row in board.rows)
    columns += [Column("P(better)")] if compared else []
    columns += [Column(f"runs <={limit:g}", group=1) for limit in SHOWN_LIMITS]
    columns += [Column(family, group=2) for family in board.families]
    rows: list[list[Cell]] = []
    for row, name in zip(board.rows, short([row.entry for row in board.rows]), strict=True):
        rows.append([_entry(row.entry, name, own), _span(min(row.seeds), max(row.seeds)), _estimate(row.score, 4)])
        rows[-1] += [_estimate(row.mean, 4), _span(min(row.ranks_without), max(row.ranks_without))]
        rows[-1] += [_improvement(board, row)] if compared else []
        rows[-1] += [f"{100 * row.profile[board.limits.index(limit)]:.0f} %" for limit in SHOWN_LIMITS]
        rows[-1] += [f"{mean:.4f}" for mean in row.families]
    return Table(overall_title(board), columns, rows, overall_notes(board))


def _improvement(board: Overall, row: OverallRow) -> Cell:
    """Probability of a run of the entry being better than a run of the baseline."""
    if row.entry == board.baseline:
        return "baseline"
    return "-" if row.improvement is None else _estimate(row.improvement, 2)


def _estimate(estimate: Estimate, digits: int) -> Interval:
    return Interval(estimate.value, estimate.low, estimate.high, digits)


def _overall_lines(found: Sequence[Overall]) -> Iterator[dict[str, Any]]:
    """CSV lines, one for each number except the profile. `n` of a score counts the runs of all families."""
    for board in found:
        about = {
            "board": OVERALL,
            "metric": board.metric.name,
            "metric_version": board.metric.version,
            "protocol": board.protocol,
        }
        for row in board.rows:
            own = about | {"entry": row.entry}
            for column, score in (("IQM", row.score), ("mean", row.mean)):
                yield own | {"column": column, "mean": score.value, "low": score.low, "high": score.high, "n": sum(row.seeds)}
            if better := row.improvement:
                yield own | {"column": "improvement", "mean": better.value, "low": better.low, "high": better.high}
            for family, mean, n, rank in zip(board.families, row.families, row.seeds, row.ranks_without, strict=True):
                yield own | {"column": family, "mean": mean, "n": n}
                yield own | {"column": f"rank without {family}", "mean": rank}


def overall_title(board: Overall) -> str:
    """Title of an overall board, in one line."""
    version = "" if board.metric.version == 1 else f" version {board.metric.version}"
    return (
        f"{OVERALL}: OOD {board.metric.label}{version} as a share of the context-free baseline "
        f"(0 is perfect, 1 is as bad as the baseline), {len(board.families)} families, protocol {board.protocol}"
    )


def overall_notes(board: Overall) -> list[str]:
    """Sentences below an overall board."""
    found = ["IQM is the interquartile mean over families and seeds: the middle half of all scores. Families count alike."]
    orders = {family: _order(board, place) for place, family in enumerate(board.families)}
    found += [f"Without {family} the order is {order}." for family, order in orders.items() if order != _order(board)]
    found.append("runs <=x is the share of runs with a score of at most x.")
    if any(row.improvement for row in board.rows):
        found.append(f"P(better) is the probability that a run is better than one of {board.baseline}, mean over families.")
    if board.left_out:
        entries = counted(board.left_out, "entry", "is", "are")
        found.append(f"{entries} left out for want of runs on all of {', '.join(board.families)}.")
    return [*found, *(f"{sentence}." for sentence in board.unsound)]


def _order(board: Overall, without: int | None = None) -> str:
    """Raw entries by the interquartile mean, with one family left out."""
    rows = [row for row in board.rows if "@" not in row.entry]
    if without is not None:
        rows.sort(key=lambda row: row.ranks_without[without])
    return ", ".join(short([row.entry for row in rows]))
