"""Claims and verdicts as tables and as JSON. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from lgbench.claims.claim import Claim, ClaimTest
from lgbench.claims.missing import Wanted, command, orders
from lgbench.claims.verdicts import BLIND, STATES, Verdict, latest
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.reports.tables import Cell, Column, Styled, Table, say, show
from lgbench.results.entries import short
from lgbench.terminal import counted, printable

Judged = Sequence[tuple[Claim, Sequence[Verdict]]]
"""Claims with all verdicts of each claim."""

STYLES = {"confirmed": "bold green", "refuted": "bold red", "undecided": "yellow", "not run": "dim"}
"""Colours of verdicts. The words say the same, so reading a verdict needs no colour."""

UNTELLING = "*"
"""Mark of a verdict that says nothing on generalization."""

MAX_OBSTACLES = 5
"""Largest number of claims with an obstacle in the list of all claims."""


def show_claims(found: Judged, console: Console) -> None:
    """Print claims with a line for each verdict, the number of claims without one, and obstacles to missing runs."""
    decided = [(claim, [verdict for verdict in verdicts if verdict.state != "not run"]) for claim, verdicts in found]
    for claim, verdicts in decided:
        if verdicts:
            _say_heading(claim, console)
            show(verdict_table(verdicts, full=False), console)
    without = sum(not verdicts for _, verdicts in decided)
    more = f" {counted(without, 'claim', 'has', 'have')} no verdict." if without else ""
    say(f"{_about_marks(found)}{summary(found)}.{more}", console)
    obstacles = _obstacles(found)
    for sentence in obstacles[:MAX_OBSTACLES]:
        say(sentence, console)
    if len(obstacles) > MAX_OBSTACLES:
        say(f"and {len(obstacles) - MAX_OBSTACLES} more", console)
    say("With a claim's NAME, the same command shows it in full; with --missing, the commands for what was not run.", console)


def _says_nothing(verdict: Verdict) -> bool:
    """Whether a test ran that says nothing on generalization."""
    return verdict.state != "not run" and not verdict.is_telling


def _about_marks(found: Judged) -> str:
    """Sentence on the mark of verdicts, empty where none has it."""
    marked = any(_says_nothing(verdict) for _, verdicts in found for verdict in verdicts)
    why = "no seed at which all entries fit the training range, or a guess from the length alone is good enough"
    return f"{UNTELLING} says nothing on generalization and counts apart: {why}. " if marked else ""


def _obstacles(found: Judged) -> list[str]:
    """Sentence for each claim with an obstacle: a test was not run, and yet no run is missing."""
    obstacles: list[str] = []
    for claim, verdicts in found:
        stuck = [verdict for verdict in verdicts if verdict.state == "not run" and not verdict.wanted]
        if stuck:
            part = "" if len(stuck) == len(verdicts) else "in full "
            nearest = stuck[0].reason.partition(" known: ")[0].removesuffix(";")  # all known names would fill a screen
            obstacles.append(f"{claim.name} cannot be decided {part}here: {nearest}{'' if nearest.endswith('?') else '.'}")
    return obstacles


def show_missing(found: Judged, options: Sequence[str], console: Console) -> None:
    """Print the commands for the missing runs of claims, and the reasons why others cannot be run here.

    `options` are options of every command, such as `--results FOLDER`.
    """
    for claim, verdicts in found:
        lines = commands(claim, verdicts, options)
        impossible = reasons([each for each in verdicts if each.state == "not run" and not (lines and each.wanted)])
        if lines or impossible:
            _say_heading(claim, console)
        else:
            say(f"{claim.name}: no run is missing.", console)
        for sentence in impossible:
            say(sentence, console)
        _print_commands(lines, console)


def show_claim(claim: Claim, verdicts: Sequence[Verdict], console: Console) -> None:
    """Print one claim in full: source, needed runs and all numbers."""
    _say_heading(claim, console)
    runs, tasks = claim.runs, dict.fromkeys(task for task, _ in claim.parts)
    archs = dict.fromkeys(entry.partition("@")[0] for test in claim.tests for entry in test.entries)
    seeds = f"seeds {runs.seeds[0]} to {runs.seeds[-1]}" if runs.seeds.alone else f"{len(runs.seeds)} seeds"
    needs = f"Needs {seeds} of {', '.join(archs)} on {', '.join(tasks)}, "
    needs += f"protocol {' and '.join(runs.protocols)}{_with('plugins', runs.plugins)}{_with('averages', runs.average)}."
    for sentence in (*filter(None, [claim.note]), needs, *(f"Expected: {test}." for test in claim.tests)):
        say(sentence, console)
    show(verdict_table(verdicts, full=True), console)
    found = [(claim, verdicts)]
    say(f"{_about_marks(found)}{summary(found)}.", console)
    for sentence in reasons(verdicts):
        say(sentence, console)
    if any(verdict.wanted for verdict in verdicts):
        say("With --missing, the same command lists the commands for what was not run.", console)
    console.print()


def _print_commands(lines: Iterable[str], console: Console) -> None:
    """Print commands, one a line, for copying into a shell."""
    for line in lines:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True, highlight=False)
    console.print()


def reasons(verdicts: Sequence[Verdict]) -> list[str]:
    """Sentence for each reason of an undecided verdict, a missing run or a test that says little, with tasks and tests.

    `verdicts` are all verdicts on one claim.
    """
    tests: dict[str, set[ClaimTest]] = {}
    found: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        tests.setdefault(verdict.task, set()).add(verdict.test)
        if verdict.state in ("undecided", "not run"):
            found.setdefault((str(verdict.protocol), verdict.state, verdict.reason), []).append(verdict)
        elif verdict.blind:
            found.setdefault((str(verdict.protocol), verdict.state, BLIND), []).append(verdict)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (use, state, reason), own in found.items():
        alike.setdefault((state, reason, _places(own, tests)), []).append(use)
    return [f"{' and '.join(uses)}: {state}: {reason}{places}." for (state, reason, places), uses in alike.items()]


def _places(verdicts: Sequence[Verdict], tests: Mapping[str, set[ClaimTest]]) -> str:
    """Tasks and tests in brackets. Empty for all tasks of a claim; a task alone stands for all tests on the task."""
    if len(verdicts) == sum(map(len, tests.values())):
        return ""
    by_task: dict[str, list[ClaimTest]] = {}
    for verdict in verdicts:
        by_task.setdefault(verdict.task, []).append(verdict.test)
    named = [task if {*own} == tests[task] else f"{task}, {' and '.join(map(pair, own))}" for task, own in by_task.items()]
    return f" ({'; '.join(named)})"


def commands(claim: Claim, verdicts: Iterable[Verdict], options: Sequence[str] = ()) -> list[str]:
    """Commands for the runs missing from undecided verdicts, under the protocols of the claim."""
    named = {ProtocolUse(name, PROTOCOLS[name].version): name for name in claim.runs.protocols}
    lacking: dict[str, list[Wanted]] = {}
    for verdict in verdicts:
        if verdict.state in ("undecided", "not run") and verdict.protocol in named:
            lacking.setdefault(named[verdict.protocol], []).extend(verdict.wanted)
    return [command(order, name, options) for name, own in lacking.items() for order in orders(claim, own)]


def summary(found: Judged) -> str:
    """Count of confirmed tests, such as "2 of 3 predictions hold (1 refuted); 4 not run". A test counts once on each task.

    Two kinds of tests say little about generalization and are counted apart: those without a seed at which all entries fit the
    training range, and those for which the context-free baseline is good enough.
    """
    counting = [verdict for claim, verdicts in found for verdict in latest(claim, verdicts)]
    ran = [verdict for verdict in counting if verdict.state != "not run"]
    if not ran:
        return f"0 of {counted(len(counting), 'prediction')} run"
    unfitted = sum(verdict.is_unfitted for verdict in ran)
    telling = [verdict.state for verdict in ran if verdict.is_telling]
    blind = len(ran) - unfitted - len(telling)
    others = [f"{telling.count(state)} {state}" for state in STATES[1:] if state in telling]
    holds = counted(len(telling), "prediction", "holds", "hold")
    told = [f"{telling.count('confirmed')} of {holds}" + (f" ({', '.join(others)})" if others else "")] if telling else []
    rest = {"not fitted": unfitted, "met by ignoring the context": blind, "not run": len(counting) - len(ran)}
    apart = ", ".join(f"{count} {what}" for what, count in rest.items() if count)
    return "; ".join([*told, *filter(None, [apart])])


def pair(test: ClaimTest, names: Sequence[str] = ()) -> str:
    """Both sides of a test, such as "transformer+peri-norm against transformer+pre-norm" or "lstm better than 0.9".

    `names` are shorter names of its entries.
    """
    entry, *against = names or test.entries
    if test.value is not None:
        return f"{entry} {'like' if test.expect == 'alike' else f'{test.expect} than'} {test.value:g}"
    return f"{entry} against {against[0] if against else f'length^{test.exponent:g}'}"


def number(verdict: Verdict) -> str:
    """Difference with its interval, empty without runs."""
    if verdict.difference is None:
        return ""
    ends = "" if verdict.low is None else f" [{verdict.low:+.4f}, {verdict.high:+.4f}]"
    return f"{verdict.difference:+.4f}{ends}"


def seed_count(verdict: Verdict) -> str:
    """Number of seeds, such as "5", or "5, 2 fit" where not all fit the training range; empty without runs."""
    if not verdict.n:
        return ""
    return str(verdict.n) if verdict.fitted == verdict.n else f"{verdict.n}, {verdict.fitted} fit"


def _say_heading(claim: Claim, console: Console) -> None:
    say(f"{claim.name}: {claim.claim}", console, "bold")
    say(str(claim.source), console, "dim")


def verdict_table(verdicts: Sequence[Verdict], full: bool) -> Table:
    """Table with a line for each verdict; a `full` table also has means and p."""
    texts = (Column(name, text=True) for name in ("task", "test", "protocol", "verdict"))
    numbers = ("difference [95 % interval]", "seeds", *(("means", "p") if full else ()))
    rows: list[list[Cell]] = []
    for verdict in verdicts:
        tasks = f" ({verdict.tasks} tasks)" if full and verdict.tasks > 1 else ""
        rows.append([verdict.task + tasks, pair(verdict.test, short(verdict.test.entries)), str(verdict.protocol)])
        state = Styled(verdict.state, STYLES[verdict.state], mark=UNTELLING * _says_nothing(verdict))
        rows[-1] += [state, number(verdict), seed_count(verdict)]
        if full:
            rows[-1] += ["" if verdict.first is None else f"{verdict.first:.4f} {verdict.second:.4f}"]
            rows[-1] += ["" if verdict.p is None else f"{verdict.p:.2g}"]
    return Table("", [*texts, *map(Column, numbers)], rows)


def _with(what: str, names: Sequence[str]) -> str:
    return f", {what} {' and '.join(names)}" if names else ""


def documents(found: Judged, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Claims as plain values for JSON, with readable labels of verdicts."""
    return [
        asdict(claim)
        | {
            "verdicts": [
                asdict(verdict) | {"protocol": str(verdict.protocol), "pair": pair(verdict.test), "expected": str(verdict.test)}
                for verdict in verdicts
            ],
            "reasons": reasons(verdicts),
            "commands": commands(claim, verdicts, options),
        }
        for claim, verdicts in found
    ]
