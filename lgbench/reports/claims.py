"""Claims and verdicts as tables for a terminal, as Markdown and as JSON. Nothing is computed here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lgbench.claims.claim import Claim, ClaimTest
from lgbench.claims.verdicts import Verdict, counts
from lgbench.claims.wanted import Wanted, command, orders
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.reports.markdown import pipes
from lgbench.terminal import printable

Judged = Sequence[tuple[Claim, Sequence[Verdict]]]
"""Claims, each with all its verdicts."""

STYLES = {"confirmed": "bold green", "refuted": "bold red", "undecided": "yellow", "not run": "dim"}
"""The words say the same: no colour is needed to read a verdict."""


def table(found: Judged, console: Console) -> None:
    """All claims for a terminal, a line for each verdict."""
    for claim, verdicts in found:
        _heading(claim, console)
        _print_verdicts(verdicts, console, full=False)
    every = [verdict for _, verdicts in found for verdict in verdicts]
    _say(f"{summary(every)}. `lgbench claims NAME` shows one claim in full, with the commands for what was not run.", console)


def page(claim: Claim, verdicts: Sequence[Verdict], results: str | None, console: Console) -> None:
    """One claim in full: its source, the runs that it needs, all numbers, and commands for what is missing."""
    _heading(claim, console)
    if claim.note:
        _say(claim.note, console)
    runs = claim.runs
    _say(
        f"Needs {len(runs.seeds)} seeds of {', '.join(_archs(claim))} on {', '.join(runs.tasks)}, "
        f"protocol {' and '.join(runs.protocols)}{_with('plugins', runs.plugins)}{_with('averages', runs.average)}.",
        console,
    )
    for test in claim.tests:
        _say(f"Expected: {test}.", console)
    _print_verdicts(verdicts, console, full=True)
    for sentence in reasons(verdicts):
        _say(sentence, console)
    for line in commands(claim, verdicts, results):
        _say(f"  {line}", console)
    console.print()


def reasons(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence for each reason why something is undecided or was not run, with all that it is said of.

    `verdicts` are all those on one claim.
    """
    tests: dict[str, set[ClaimTest]] = {}
    found: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        tests.setdefault(verdict.task, set()).add(verdict.test)
        if verdict.state in ("undecided", "not run"):
            found.setdefault((str(verdict.protocol), verdict.state, verdict.reason), []).append(verdict)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (use, state, reason), own in found.items():
        alike.setdefault((state, reason, _places(own, tests)), []).append(use)
    return [f"{' and '.join(uses)}: {state}: {reason}{places}." for (state, reason, places), uses in alike.items()]


def _places(verdicts: Sequence[Verdict], tests: Mapping[str, set[ClaimTest]]) -> str:
    """On which tasks and tests, in brackets. Nothing where that is all of a claim; a task alone where it is all its tests."""
    if len(verdicts) == sum(map(len, tests.values())):
        return ""
    by_task: dict[str, list[ClaimTest]] = {}
    for verdict in verdicts:
        by_task.setdefault(verdict.task, []).append(verdict.test)
    named = [task if {*own} == tests[task] else f"{task}, {' and '.join(map(pair, own))}" for task, own in by_task.items()]
    return f" ({'; '.join(named)})"


def commands(claim: Claim, verdicts: Iterable[Verdict], results: str | None = None) -> list[str]:
    """Commands for the runs without which something was not decided under the protocols that the claim names."""
    named = {ProtocolUse(name, PROTOCOLS[name].version): name for name in claim.runs.protocols}
    lacking: dict[str, list[Wanted]] = {}
    for verdict in verdicts:
        if verdict.state in ("undecided", "not run") and verdict.protocol in named:
            lacking.setdefault(named[verdict.protocol], []).extend(verdict.wanted)
    return [command(order, name, results) for name, own in lacking.items() for order in orders(claim, own)]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Such as "2 confirmed, 1 refuted, 3 not run"."""
    return ", ".join(f"{count} {state}" for state, count in counts(verdicts).items())


def pair(test: ClaimTest) -> str:
    """The entries of a test, such as "transformer+peri-norm against transformer+pre-norm"."""
    other = f"length^{test.exponent:g}" if test.exponent is not None else test.against
    return f"{test.entry} against {other}"


def number(verdict: Verdict, digits: int = 4) -> str:
    """The difference with its interval; empty where nothing was run."""
    if verdict.difference is None:
        return ""
    ends = "" if verdict.low is None else f" [{verdict.low:+.{digits}f}, {verdict.high:+.{digits}f}]"
    return f"{verdict.difference:+.{digits}f}{ends}"


def _heading(claim: Claim, console: Console) -> None:
    console.print(Text(printable(f"{claim.name}: {claim.claim}"), style="bold"), soft_wrap=True, highlight=False)
    console.print(Text(printable(str(claim.source)), style="dim"), soft_wrap=True, highlight=False)


def _say(text: str, console: Console) -> None:
    console.print(Text(printable(text)), soft_wrap=True, highlight=False)


def _print_verdicts(verdicts: Sequence[Verdict], console: Console, full: bool) -> None:
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    header = ["task", "test", "protocol", "verdict", "difference [95 % interval]", "seeds"]
    for name in [*header, *(["means", "p"] if full else [])]:
        lines.add_column(name, overflow="fold")
    for verdict in verdicts:
        tasks = f" ({verdict.tasks} tasks)" if full and verdict.tasks > 1 else ""
        cells = [verdict.task + tasks, pair(verdict.test), str(verdict.protocol)]
        cells += [verdict.state, number(verdict), str(verdict.n) if verdict.n else ""]
        if full:
            means = "" if verdict.first is None else f"{verdict.first:.4f} {verdict.second:.4f}"
            cells += [means, "" if verdict.p is None else f"{verdict.p:.2g}"]
        texts = [Text(printable(cell)) for cell in cells]
        texts[3].stylize(STYLES[verdict.state])
        lines.add_row(*texts)
    console.print(lines)


def _archs(claim: Claim) -> list[str]:
    return list(dict.fromkeys(entry.partition("@")[0] for test in claim.tests for entry in test.entries))


def _with(what: str, names: Sequence[str]) -> str:
    return f", {what} {' and '.join(names)}" if names else ""


def as_json(found: Judged, results: str | None = None) -> str:
    """Claims as they are, each with its verdicts and the commands for what is missing."""
    return json.dumps(documents(found, results), indent=1) + "\n"


def documents(found: Judged, results: str | None = None) -> list[dict[str, Any]]:
    """For JSON: plain values alone."""
    return [
        asdict(claim)
        | {
            "verdicts": [_plain(verdict) for verdict in verdicts],
            "reasons": reasons(verdicts),
            "commands": commands(claim, verdicts, results),
        }
        for claim, verdicts in found
    ]


def _plain(verdict: Verdict) -> dict[str, Any]:
    """Without the claim, with labels for people."""
    own = asdict(verdict) | {"protocol": str(verdict.protocol), "pair": pair(verdict.test), "expected": str(verdict.test)}
    return {key: value for key, value in own.items() if key != "claim"}


def markdown(found: Judged, digits: int = 3) -> str:
    """A GitHub table: a line for each task and test of each claim, a column for each protocol."""
    uses = list(dict.fromkeys(verdict.protocol for _, verdicts in found for verdict in verdicts))
    lines = [["claim", "source", "task", "test", *map(str, uses)], [":--"] * (4 + len(uses))]
    for claim, verdicts in found:
        by_part: dict[tuple[str, ClaimTest], dict[ProtocolUse, Verdict]] = {}
        for verdict in verdicts:
            by_part.setdefault((verdict.task, verdict.test), {})[verdict.protocol] = verdict
        about = [claim.claim, _cited(claim)]
        for (task, test), own in by_part.items():
            lines.append([*about, task, pair(test), *(_cell(own.get(use), digits) for use in uses)])
            about = ["", ""]
    return "".join(f"{line}\n" for line in pipes([[cell.replace("|", "\\|") for cell in line] for line in lines]))


def _cited(claim: Claim) -> str:
    place = f", {claim.source.place}" if claim.source.place else ""
    return f"{claim.source.paper}{place}"


def _cell(verdict: Verdict | None, digits: int) -> str:
    if verdict is None:
        return "-"
    if verdict.difference is None:
        return verdict.state
    state = verdict.state if verdict.state == "undecided" else f"**{verdict.state}**"
    return f"{state} {number(verdict, digits)}, n = {verdict.n}"
