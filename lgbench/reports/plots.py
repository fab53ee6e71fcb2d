"""Figures of `lgbench plot`, and their files: a Vega-Lite specification, built with Altair, makes PNG, SVG and PDF."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import altair as alt
import vl_convert

from lgbench.contracts import TRAINING_METRICS
from lgbench.errors import UsageError
from lgbench.experiment.protocols import ALL_PROTOCOLS
from lgbench.reports import files, panel_figures
from lgbench.reports.figure import Spec
from lgbench.reports.marks import COLOURS, LENGTH, MAX_ENTRIES, STEP, slots
from lgbench.results.boards import Board
from lgbench.results.entries import find_entry
from lgbench.results.leaderboard import Inside, Results
from lgbench.results.published import shown
from lgbench.results.steps import BoardSteps
from lgbench.results.sweeps import SweepRequest, sweeps

MAX_UNNAMED = len(COLOURS)
"""Maximum number of entries drawn by default, all with different colours. More entries must be named."""
MAX_PANELS = 40
"""Maximum number of panels of an overview, limited by a page of a paper."""

DOTS_PER_INCH = 300
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite written by Altair."""


@dataclass(frozen=True)
class PlotRequest:
    """Options of `lgbench plot`. Raises UsageError for incompatible options."""

    metric: str
    task: str | None = None
    protocol: str | None = None
    named: Sequence[str] = ()
    """Names of entries, full or short; by default the first entries of the boards."""
    across: str = LENGTH.field
    """Horizontal axis: length, step, or the name of a setting."""
    lengths: Sequence[int] | None = None
    loglog: bool = False
    fit: bool = False
    layer: int | None = None
    head: int | None = None
    heatmap: bool = False
    wide: bool = False

    def __post_init__(self) -> None:
        if self.lengths and self.across == LENGTH.field:
            raise UsageError(
                "--length chooses the panels of a plot against training steps or a setting; add --x step or --x model.width, "
                "or leave it out"
            )
        if self.across == STEP.field and (self.loglog or self.fit or self.heatmap):
            raise UsageError("--loglog, --fit and --heatmap draw against the length; leave out --x step")
        if self.of_setting and (self.fit or self.heatmap):
            raise UsageError(f"--fit and --heatmap draw against the length; leave out --x {self.across}")
        if self.heatmap and (self.loglog or self.fit or self.wide or self.layer is not None):
            raise UsageError("--heatmap draws all layers as wide as a column; leave out --loglog, --fit, --wide and --layer")

    @property
    def of_setting(self) -> bool:
        """Whether the horizontal axis is a setting."""
        return self.across not in (LENGTH.field, STEP.field)

    @property
    def path(self) -> Path:
        """Default file of the figure."""
        kind = f"-by-{self.across}" if self.across != LENGTH.field else "-by-layer" if self.heatmap else ""
        return Path(f"{self.task or 'overview'}-{self.metric}{kind}.png")


def requested(results: Results, asked: PlotRequest, say: Callable[[str], None]) -> Spec:
    """Figure of a request. `say` gets a sentence for each omission. Raises UsageError for an impossible figure."""
    inside = _inside(results, asked)
    if asked.of_setting:
        every = asked.protocol == ALL_PROTOCOLS
        return _against_setting(results, replace(asked, protocol=None) if every else asked, inside, say)
    boards, protocol, others = shown(results, asked.metric, asked.task, asked.protocol, asked.named, inside=inside)
    results.require_some(boards, asked.metric)
    if asked.across == STEP.field or asked.heatmap:
        boards = [replace(board, unranked=()) for board in boards]
    if others:
        say(f"drawn are runs of {protocol}; choose with --protocol: {', '.join(others)}, or all")
    asked = replace(asked, protocol=protocol)
    if asked.fit and len(boards) > 1:
        raise UsageError(f"--fit writes the exponents of one board, and {len(boards)} are found; choose with --task")
    steps = _steps(results, asked) if asked.across == STEP.field else None
    found = _first_of_most_boards(boards)
    results.require_entries(asked.named, found, asked.metric, asked.task, protocol, inside)
    for board in boards:
        for sentence in board.incomplete:
            say(sentence if len(boards) == 1 else f"{board.title}: {sentence}")
    entries = chosen(found, asked.named, say)
    order = list(dict.fromkeys([*results.entry_order, *found]))
    if steps is not None:
        return _against_steps(steps, asked, slots(entries, order))
    boards = [board for board in boards if any(row.entry in entries for row in board.shown)]
    if asked.heatmap:
        return _by_layer(results, boards, entries, asked.head)
    _require_room(len(boards), "boards", "--task or --protocol")
    if asked.loglog:
        rows = (row for board in boards for row in board.shown if row.entry in entries)
        _say_left_out([cell.mean for row in rows for cell in row.cells if cell.kind == "length"], say)
    return panel_figures.figure(boards, slots(entries, order), asked.loglog, asked.fit, asked.wide)


def _first_of_most_boards(boards: Sequence[Board]) -> list[str]:
    """Entries, those of most boards first; own and published entries take turns."""
    found = [entry for entry, _ in Counter(row.entry for board in boards for row in board.shown).most_common()]
    own = {entry for board in boards for entry in (*(board.own or ()), *(row.entry for row in board.unranked))}
    turns = zip_longest((entry for entry in found if entry in own), (entry for entry in found if entry not in own))
    return [entry for turn in turns for entry in turn if entry is not None]


def chosen(known: Iterable[str], named: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """Entries to draw: without names, the raw weights of the first entries of `known`, sorted. `say` tells of the others."""
    known = list(known)
    if named:
        entries = list(dict.fromkeys(find_entry(name, known) for name in named))
        if len(entries) > MAX_ENTRIES:
            raise UsageError(f"{len(entries)} entries are named, and a figure can draw {MAX_ENTRIES}; name fewer with --entry")
        return entries
    raw = [entry for entry in known if "@" not in entry] or known
    if len(raw) > MAX_UNNAMED:
        say(f"drawn are the first {MAX_UNNAMED} of {len(raw)} entries; choose others with --entry")
    return sorted(raw[:MAX_UNNAMED])


def _inside(results: Results, asked: PlotRequest) -> Inside | None:
    """Layer and head of a drawn probe; None for metrics without layers."""
    metric = asked.metric
    of_training = metric in TRAINING_METRICS and metric not in results.metric_names
    if of_training and not asked.of_setting:
        raise UsageError(f"{metric} is one number of a training; draw it against a setting, as in --x model.layers")
    results.chosen(metric, setting=asked.across if asked.of_setting else "")
    known = results.layers(metric)
    if asked.layer is not None and known and asked.layer not in known:
        raise UsageError(f"no run has layer {asked.layer} of {metric}; layers that were read: {', '.join(map(str, known))}")
    if asked.head is not None and (heads := results.heads(metric)) and asked.head not in heads:
        raise UsageError(f"no run has head {asked.head} of {metric}; heads that were read: {', '.join(map(str, heads))}")
    if not of_training and (metric not in results.ranking_names or known):
        if asked.across == STEP.field:
            raise UsageError(f"{metric} is a probe, which is read when a model is trained; leave out --x step")
        return Inside(asked.layer, asked.head)
    if asked.layer is not None or asked.head is not None or asked.heatmap:
        raise UsageError(f"--layer, --head and --heatmap are for probes, and {metric} is measured of whole models")
    return None


def _by_layer(results: Results, boards: Sequence[Board], entries: Sequence[str], head: int | None) -> Spec:
    if len(boards) > 1:
        raise UsageError(f"--heatmap draws one board, and {len(boards)} are found; choose with --task or --protocol")
    maps = panel_figures.layer_maps(results, boards[0], entries, head)
    _require_room(len(maps), "entries", "--entry")
    return panel_figures.heatmap(boards[0], maps)


def _steps(results: Results, asked: PlotRequest) -> list[BoardSteps]:
    """Curves at the requested lengths. Raises UsageError for a length without measurements on any board."""
    found = results.steps(asked.metric, asked.task, asked.protocol, lengths=asked.lengths or ())
    if not found:
        raise UsageError(
            f"no {asked.metric} was measured while these models trained: runs need evaluate.points, which protocols have from "
            "version 5 on, and for measurements of whole strings evaluate.point_strings"
        )
    measured = sorted({length for steps in found for length in steps.measured})
    for length in asked.lengths or ():
        if length not in measured:
            known = ", ".join(map(str, measured))
            raise UsageError(f"length {length} was not measured while models trained; measured: {known}")
    return found


def _against_steps(found: Sequence[BoardSteps], asked: PlotRequest, entries: Mapping[str, int]) -> Spec:
    own = [{n: curves for n, curves in each.curves.items() if curves.cells.keys() & {*entries}} for each in found]
    steps = [replace(each, curves=curves) for each, curves in zip(found, own, strict=True) if curves]
    if not steps:
        raise UsageError(
            f"no {asked.metric} of {' and '.join(entries)} was measured while they trained; name others with --entry"
        )
    _require_room(sum(map(len, own)), "boards and lengths", "--task, --protocol or --length")
    return panel_figures.step_figure(steps, entries, asked.wide)


def _against_setting(results: Results, asked: PlotRequest, inside: Inside | None, say: Callable[[str], None]) -> Spec:
    left_out: dict[str, None] = {}
    request = SweepRequest(asked.across, asked.metric, asked.task, asked.protocol, asked.lengths or (), inside)
    found = sweeps(results, request, lambda sentence: left_out.update({sentence: None}))
    for sentence in left_out:
        say(f"warning: left out: {sentence}")
    lines = sorted({entry for sweep in found for entry in sweep.lines})
    entries = chosen(sorted({entry for sweep in found for entry in sweep.cells}) if asked.named else lines, asked.named, say)
    if alone := [entry for entry in entries if entry not in lines]:
        said = f"with one value of {asked.across} alone: {', '.join(alone)}"
        if alone == entries:
            raise UsageError(f"all that --entry names has runs {said}; there are lines of {', '.join(lines)}")
        say(f"not drawn, {said}")
    entries = [entry for entry in entries if entry in lines]
    swept = [sweep for sweep in found if {*entries} & {*sweep.lines}]
    _require_room(len(swept), "boards and lengths", "--task, --protocol or --length")
    if asked.loglog:
        _say_left_out([cell.mean for sweep in swept for entry in entries for cell in sweep.cells.get(entry, {}).values()], say)
    return panel_figures.sweep_figure(swept, asked.across, slots(entries, results.entry_order), asked.loglog, asked.wide)


def _say_left_out(means: Sequence[float], say: Callable[[str], None]) -> None:
    if lost := sum(mean <= 0 for mean in means):
        say(f"{lost} of {len(means)} means are not above 0, and logarithmic axes leave them out")


def _require_room(panels: int, things: str, options: str) -> None:
    if panels > MAX_PANELS:
        raise UsageError(f"{panels} {things} are found, and a figure has {MAX_PANELS} panels at most; choose with {options}")


def write(spec: Spec, path: Path) -> None:
    """Draw a specification in the format of the path's extension, in place of an older file.

    Raises UsageError if the format is unknown or writing fails.
    """
    files.replace(path, FORMATS[files.known_format(path, FORMATS)](spec))


def _svg(spec: Spec) -> bytes:
    """SVG with the size in points, because numbers without a unit would be pixels, a smaller unit."""
    picture = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    return re.sub(r'\b(width|height)="([\d.]+)"', r'\1="\2pt"', picture, count=2).encode()


FORMATS: dict[str, Callable[[Spec], bytes]] = {
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, ppi=DOTS_PER_INCH),
    ".svg": _svg,
    ".pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE),
    ".json": lambda spec: json.dumps(spec, indent=1).encode() + b"\n",
}
