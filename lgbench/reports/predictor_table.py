"""How probes go with a score, as a table, Markdown or JSON: a line for each probe, a column for each family."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.reports.markdown import pipes
from lgbench.results.metrics import Metric
from lgbench.results.predictors import Predictor


def table(found: Sequence[Predictor], metric: Metric, console: Console) -> None:
    """A table for each protocol, for a terminal."""
    for protocol, own in _by_protocol(found).items():
        lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title_style="bold")
        lines.title = escape(f"rank correlation with {metric.label} beyond the training range, {protocol}")
        header, *rows = _cells(own, "[bold]{}[/bold]".format)
        lines.add_column(header[0], overflow="fold")
        for name in header[1:]:
            lines.add_column(escape(name), justify="right", overflow="fold")
        for probe, *cells in rows:
            lines.add_row(escape(probe), *cells)
        console.print(lines)
        for family in sorted({each.family for each in own}):
            models = _counted("model", [each.models for each in own if each.family == family])
            said = f"{family}: {_entries(own, family)}, {models} on a task"
            console.print(said, style="dim", highlight=False, markup=False)


def markdown(found: Sequence[Predictor], metric: Metric) -> str:
    """GitHub tables, which say of how many entries each column is; the probe that tells most of a family is bold."""
    parts = []
    for protocol, own in _by_protocol(found).items():
        (_, *families), *rows = _cells(own, "**{}**".format)
        columns = [f"{family}, {_entries(own, family)}" for family in families]
        header = [f"{protocol}: rank correlation with OOD {metric.label}", *columns]
        parts.append("\n".join(pipes([header, [":--", *["--:"] * len(families)], *rows])) + "\n")
    return "\n".join(parts)


def as_json(found: Sequence[Predictor], metric: Metric) -> str:
    """Correlations as they are."""
    every = [asdict(each) | {"protocol": str(each.protocol), "metric": metric.name} for each in found]
    return json.dumps(every, indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Predictor], Metric], str]] = {"markdown": markdown, "json": as_json}


def _by_protocol(found: Sequence[Predictor]) -> dict[str, list[Predictor]]:
    every: dict[str, list[Predictor]] = {}
    for each in found:
        every.setdefault(str(each.protocol), []).append(each)
    return every


def _entries(found: Sequence[Predictor], family: str) -> str:
    """Of how many entries the correlations of a family are."""
    return _counted("entry", [each.entries for each in found if each.family == family])


def _counted(thing: str, counts: Sequence[int]) -> str:
    """Such as "4 entries", or "8 to 26 entries" where not all models have every probe."""
    things = {"entry": "entries"}.get(thing, f"{thing}s")
    least, most = min(counts), max(counts)
    return f"{least} to {most} {things}" if least < most else f"{most} {thing if most == 1 else things}"


def _cells(found: Sequence[Predictor], bold: Callable[[str], str]) -> list[list[str]]:
    """The header, and a line for each probe. The probe that tells most of a family is bold."""
    families = sorted({each.family for each in found})
    best = {each.family: each.probe for each in reversed(found)}  # the first of each family tells most
    cells = {(each.probe, each.family): each for each in found}

    def cell(probe: str, family: str) -> str:
        if (each := cells.get((probe, family))) is None:
            return "-"
        ends = "" if each.low is None else f" {each.low:+.2f} to {each.high:+.2f}"
        text = f"{each.correlation:+.2f}{ends}"
        return bold(text) if best[family] == probe else text

    rows = [[probe, *(cell(probe, family) for family in families)] for probe in sorted({each.probe for each in found})]
    return [["probe", *families], *rows]
