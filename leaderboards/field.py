"""The tables of field.md: what is claimed about the tasks of the field, and what the runs say."""

import csv
from collections.abc import Sequence
from pathlib import Path

import classes
from findings import UNFITTED, family_of, markdown_table

from lgbench.claims.claim import Claim, ClaimTest, read_claims
from lgbench.claims.verdicts import STATES, Verdict, decide, latest
from lgbench.experiment.protocols import BOARDS_PROTOCOL
from lgbench.reports.claims import Judged, summary
from lgbench.results.boards import Board, Row
from lgbench.results.leaderboard import Results

HERE = Path(__file__).parent

DAGGER = "\u2020"
"""Mark of a prediction that a guess from the length alone meets."""

LENGTHS = 64, 128, 256, 512
"""Tested lengths of the table of languages with a program."""


def judged(results: Results) -> Judged:
    """Every claim about tasks of packs, with one verdict on each test and task."""
    every = [claim for claim in read_claims(HERE / "claims") if not all(family_of(task) for task, _ in claim.parts)]
    return [(claim, latest(claim, decide(claim, results))) for claim in every]


def papers(found: Judged) -> str:
    """Lines of papers: how many of a paper's predictions hold."""
    by_source: dict[tuple[str, str], list[tuple[Claim, Sequence[Verdict]]]] = {}
    for claim, verdicts in found:
        by_source.setdefault((claim.source.paper, claim.source.title), []).append((claim, verdicts))
    lines = [["paper", "predictions", "claims"], [":--", ":--", ":--"]]
    for (paper, title), own in sorted(by_source.items()):
        names = ", ".join(f"[{claim.name}](claims/{claim.name}.toml)" for claim, _ in own)
        lines.append([f"{title} ({paper})", summary(own), names])
    return markdown_table(lines)


def programs(found: Judged) -> str:
    """Lines of the claims on programs in C-RASP: predictions that hold, with a program and without one."""
    lines = [["transformer", "published", "predicted", "predictions"], [":--"] * 4]
    for claim, verdicts in found:
        if claim.name.startswith("c-rasp-"):
            for published, predicted, expect in (("a program", "generalizes", "better"), ("no program", "does not", "worse")):
                own = [verdict for verdict in verdicts if verdict.test.expect == expect]
                lines.append([f"`{_short(claim.tests[0].entry)}`", published, predicted, summary([(claim, own)])])
    return markdown_table(lines)


def untold(found: Judged) -> str:
    """How many predictions say nothing on generalization, such as "133 of 196 predictions say nothing on generalization"."""
    ran = [verdict for _, verdicts in found for verdict in verdicts if verdict.state != "not run"]
    return f"{sum(not verdict.is_telling for verdict in ran)} of {len(ran)} predictions say nothing on generalization"


def predictions(found: Judged) -> str:
    """Lines of tests: the tasks of each verdict, with mean or difference and the share of seeds at which all models fit."""
    lines = [["claim", "prediction", *STATES], [":--"] * (2 + len(STATES))]
    for claim, verdicts in found:
        about = claim.claim
        for test in claim.tests:
            lines.append([about, _short(test), *(_tasks(verdicts, test, state) for state in STATES)])
            about = ""
    return markdown_table(lines)


def _short(text: ClaimTest | str) -> str:
    return str(text).replace("transformer+", "")


def _tasks(verdicts: Sequence[Verdict], test: ClaimTest, state: str) -> str:
    own = [verdict for verdict in verdicts if verdict.test == test and verdict.state == state]
    return ", ".join(f"{verdict.task}{DAGGER * verdict.blind}{_numbers(verdict)}" for verdict in own)


def _numbers(verdict: Verdict) -> str:
    if verdict.first is None or verdict.difference is None:
        return ""
    value = f"{verdict.first:.3f}" if verdict.test.against is None else f"{verdict.difference:+.3f}"
    return f" {value} ({verdict.fitted}/{verdict.n})"


def by_length(results: Results, found: Judged) -> str:
    """Lines of tasks on which a program in C-RASP predicts generalization: mean at each length, with its 95 % interval."""
    lines = [
        ["transformer", "task", "trained to", "metric", *map(str, LENGTHS)],
        [":--"] * 2 + ["--:", ":--"] + ["--:"] * len(LENGTHS),
    ]
    for claim, verdicts in found:
        if claim.name.startswith("c-rasp-"):
            for verdict in verdicts:
                if verdict.test.expect == "better" and verdict.is_telling:
                    lines.append(_at_lengths(results, verdict))
    return markdown_table(lines)


def _at_lengths(results: Results, verdict: Verdict) -> list[str]:
    test = verdict.test
    board = _newest(results, test.metric, verdict.task)
    row = next(row for row in board.rows if row.entry == test.entry)
    cells = [row.cell("length", length) for length in LENGTHS]
    values = [f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]" if cell and cell.low is not None else "-" for cell in cells]
    return [f"`{_short(test.entry)}`", verdict.task, str(board.train_length), test.metric, *values]


def copying(results: Results, found: Judged) -> str:
    """Lines of models: OOD accuracy on each task of the claim on copying, its 95 % interval, and the seeds that fit."""
    ((claim, _),) = [(claim, verdicts) for claim, verdicts in found if claim.name == "copying"]
    tasks = sorted({task for task, _ in claim.parts})
    boards = {task: _newest(results, "accuracy", task) for task in tasks}
    lines = [["model", *tasks], [":--", *["--:"] * len(tasks)]]
    for entry in dict.fromkeys(entry for test in claim.tests for entry in test.entries):
        rows = [next(row for row in boards[task].rows if row.entry == entry) for task in tasks]
        lines.append([f"`{_short(entry)}`", *map(_ood, rows)])
    return markdown_table(lines)


def _ood(row: Row) -> str:
    cell, fitted = row.cell("OOD"), row.fitted
    if not cell or cell.low is None or not fitted:
        return "-"
    return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}] ({fitted.seeds}/{fitted.n})"


def _newest(results: Results, metric: str, task: str) -> Board:
    """Board of a task under the newest version of the boards' protocol."""
    return max(results.boards(metric, task, BOARDS_PROTOCOL), key=lambda board: board.protocol.version)


def _published() -> list[list[str]]:
    """Header and rows of chomsky.csv: a task with the published score of each network; "solved" or "not solved" where we have
    read that alone, and "" where nothing."""
    with (HERE / "chomsky.csv").open(encoding="utf-8") as file:
        return list(csv.reader(file))


def chomsky(results: Results) -> str:
    """Accuracy (%) on the Chomsky benchmark: the published score of each network, and ours under the newest version."""
    header, *rows = _published()
    lines = [[task.replace("transformer+pre-norm", "transformer") for task in header], [":--", *["--:"] * (len(header) - 1)]]
    for task, *published in rows:
        ours = _accuracies(results, task)
        cells = zip(published, header[1:], strict=True)
        lines.append([task, *(f"{score or '?'} / {ours.get(entry, 'not run')}" for score, entry in cells)])
    return markdown_table(lines)


def from_memory(found: Judged) -> str:
    """Sentence on how many decided predictions of the Chomsky benchmark rest on results that we have not read."""
    header, *rows = _published()
    read = {(task, entry) for task, *scores in rows for entry, score in zip(header[1:], scores, strict=True) if score}
    own = [verdict for claim, verdicts in found if claim.name.startswith("chomsky-") for verdict in verdicts]
    decided = [verdict for verdict in own if verdict.state in ("confirmed", "refuted") and verdict.is_telling]
    unread = sum((verdict.task, verdict.test.entry) not in read for verdict in decided)
    return f"Of the {len(decided)} predictions decided there, {unread} rest on such a result."


def _accuracies(results: Results, task: str) -> dict[str, str]:
    """OOD accuracy in percent of the best seed, and the mean over seeds, by entry; empty without runs.

    A star tells that no seed fits the training range.
    """
    boards = results.boards("accuracy", task, BOARDS_PROTOCOL) if task in results.task_names else []
    if not boards:
        return {}
    newest: Board = max(boards, key=lambda board: board.protocol.version)
    return {
        row.entry: f"{100 * max(known):.1f} ({100 * cell.mean:.1f})"
        + UNFITTED * (row.fitted is not None and row.fitted.seeds == 0)
        for row in newest.rows
        if (cell := row.cell("OOD")) and (known := [value for value in cell.values if value is not None])
    }


def tables(results: Results) -> dict[str, str]:
    """The tables of field.md, by the names that it gives."""
    found, scores = judged(results), classes.scores(results)
    return {
        "summary": summary(found),
        "untold": untold(found),
        "by_task": markdown_table(classes.by_task(results)),
        "by_length": by_length(results, found),
        "copying": copying(results, found),
        "classes": markdown_table(classes.table(scores)),
        "fitted": classes.fitted(scores),
        "papers": papers(found),
        "programs": programs(found),
        "predictions": predictions(found),
        "chomsky": chomsky(results),
        "from_memory": from_memory(found),
    }
