"""`lgbench plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import Lengths, NameInResults, board_options, results_option, split
from lgbench.cli.output import boards_of, complain, echo, opened, warn
from lgbench.contracts import TRAINING_METRICS
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from lgbench.reports.figure import Spec
    from lgbench.results.boards import Board
    from lgbench.results.leaderboard import Inside, Results
    from lgbench.results.steps import BoardSteps
    from lgbench.results.sweeps import SweepRequest

LENGTH, STEP = "length", "step"
"""Horizontal axes besides settings."""


@click.command()
@board_options("Metric to draw.")
@click.option(
    "--entry",
    "named",
    multiple=True,
    help="Entries to draw, named as on boards, joined by commas. Can be repeated.  [default: the raw weights of 8 entries]",
)
@click.option(
    "--x",
    "across",
    type=NameInResults(lambda results: (LENGTH, STEP, *(key for use in results.protocols.values() for key, _ in use.changes))),
    metavar="[length|step|SETTING]",
    default=LENGTH,
    show_default=True,
    help="Draw against the length; against training steps: how good each entry was while it trained; or against a setting in "
    "which runs differ, such as model.width.",
)
@click.option(
    "--length",
    "lengths",
    type=Lengths(),
    help="With --x step or a setting, the lengths to draw, each in a panel, such as 40,80.  [default: 1, 2, 4 and 8 times the "
    "training length, as far as they were measured; the OOD mean against a setting]",
)
@click.option("--loglog", is_flag=True, help="Draw with logarithmic axes, as power laws are straight lines there.")
@click.option(
    "--fit", is_flag=True, help="Fit a power of the length to each entry, and write its exponent N^... with its 95 % interval."
)
@click.option("--layer", type=click.IntRange(1), help="Of a probe, the layer to draw.  [default: the mean over all]")
@click.option("--head", type=click.IntRange(1), help="Of a probe, the head to draw.  [default: the mean over all]")
@click.option("--heatmap", is_flag=True, help="Of a probe, draw a map of layers by lengths for each entry, not curves.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write. Its name ends with .png, .svg, .pdf, or .json for the Vega-Lite specification.  "
    "[default: TASK-METRIC.png, TASK-METRIC-by-step.png or TASK-METRIC-by-SETTING.png]",
)
@results_option
def plot(
    task: str | None,
    metric: str,
    protocol: str | None,
    named: Sequence[str],
    across: str,
    lengths: tuple[int, ...] | None,
    loglog: bool,
    fit: bool,
    layer: int | None,
    head: int | None,
    heatmap: bool,
    out: Path | None,
    results: Path,
) -> None:
    """Draw a metric against length, training steps or a setting.

    The figure is 3.3 inches wide, as a column of a paper. Without --task it has a panel for each family. peri-norm is short for
    transformer+peri-norm. The order of the entries decides their colours and shapes.

    A probe of `lgbench run --probe` is drawn as the mean over layers and heads, or for one layer or head:

    lgbench plot --task max-retrieval --metric output_std --loglog --fit

    Against a setting, runs with otherwise equal settings form one line:

    lgbench plot --x model.width --task dyck

    There, --metric can also be gradient_norm, the largest while a model trained; loss_variance, of the training loss over the
    last half of the steps; or diverged, the share of seeds whose training diverged.
    """
    from lgbench.reports import plots
    from lgbench.results.sweeps import SweepRequest

    _require_fitting(across, lengths, loglog, fit, layer, heatmap)
    kind = f"-by-{across}" if across != LENGTH else "-by-layer" if heatmap else ""
    path = out or Path(f"{task or 'overview'}-{metric}{kind}.png")
    plots.known_format(path)
    runs = opened(results)
    inside = _inside(runs, across, metric, layer, head, heatmap)
    asked = SweepRequest(across, metric, task, protocol, lengths or (), inside)
    if across in (LENGTH, STEP):
        spec = _on_boards(runs, asked, split(named), loglog, fit, heatmap)
    else:
        spec = _against_setting(runs, asked, split(named), loglog)
    plots.write(spec, path)
    echo(path)


def _on_boards(runs: Results, asked: SweepRequest, named: Sequence[str], loglog: bool, fit: bool, heatmap: bool) -> Spec:
    """Against lengths or steps."""
    from lgbench.reports import plots

    found = boards_of(runs, asked.metric, asked.name, asked.protocol, inside=asked.inside)
    if fit and len(found) > 1:
        raise UsageError(f"--fit writes the exponents of one board, and {len(found)} are found; choose with --task")
    steps = _steps(runs, asked.metric, asked.name, asked.protocol, asked.lengths) if asked.setting == STEP else None
    entries = _chosen(plots.entries_of(found), named)
    drawn = [board for board in found if any(row.entry in entries for row in board.rows)]
    if heatmap and asked.inside:
        return _by_layer(runs, drawn, entries, asked.inside.head)
    if steps is None:
        return _against_lengths(drawn, entries, loglog, fit)
    return _against_steps(steps, entries, asked.lengths, asked.metric)


def _require_fitting(
    across: str, lengths: Sequence[int] | None, loglog: bool, fit: bool, layer: int | None, heatmap: bool
) -> None:
    """Raise UsageError for incompatible options."""
    if lengths and across == LENGTH:
        raise UsageError(
            "--length chooses the panels of a plot against training steps or a setting; add --x step or --x model.width, or "
            "leave it out"
        )
    if across == STEP and (loglog or fit or heatmap):
        raise UsageError("--loglog, --fit and --heatmap draw against the length; leave out --x step")
    if across not in (LENGTH, STEP) and (fit or heatmap):
        raise UsageError(f"--fit and --heatmap draw against the length; leave out --x {across}")
    if heatmap and (loglog or fit or layer is not None):
        raise UsageError("--heatmap draws all layers; leave out --loglog, --fit and --layer")


def _chosen(known: Sequence[str], named: Sequence[str]) -> list[str]:
    """Entries to draw. Warns of entries beyond the colours of a figure."""
    from lgbench.reports import plots

    entries, left_out = plots.chosen(known, named)
    if left_out:
        others = ", ".join(left_out)
        complain(f"a figure has {plots.MAX_UNNAMED} colours; not drawn: {others}; choose with --entry")
    return entries


def _inside(runs: Results, across: str, metric: str, layer: int | None, head: int | None, heatmap: bool) -> Inside | None:
    """Layer and head of a drawn probe; None for metrics without layers. Raises UsageError for impossible figures."""
    from lgbench.results.leaderboard import Inside

    if across in (LENGTH, STEP) and metric in TRAINING_METRICS and metric not in runs.metric_names:
        raise UsageError(f"{metric} is one number of a training; draw it against a setting, as in --x model.layers")
    also = () if across in (LENGTH, STEP) else TRAINING_METRICS  # not described in run files
    runs.chosen(metric, also=also)
    known = [] if metric in also else runs.layers(metric)
    if layer is not None and known and layer not in known:
        raise UsageError(f"no run has layer {layer} of {metric}; layers that were read: {', '.join(map(str, known))}")
    if metric not in also and (metric not in runs.ranking_names or known):
        if across == STEP:
            raise UsageError(f"{metric} is a probe, which is read when a model is trained; leave out --x step")
        return Inside(layer, head)
    if layer is not None or head is not None or heatmap:
        raise UsageError(f"--layer, --head and --heatmap are for probes, and {metric} is measured of whole models")
    return None


def _by_layer(runs: Results, drawn: Sequence[Board], entries: Sequence[str], head: int | None) -> Spec:
    from lgbench.reports.probe_figures import heatmap, layer_maps

    if len(drawn) > 1:
        raise UsageError(f"--heatmap draws one board, and {len(drawn)} are found; choose with --task or --protocol")
    maps = layer_maps(runs, drawn[0], entries, head)
    _require_room(len(maps), "entries", "--entry")
    return heatmap(drawn[0], maps)


def _steps(runs: Results, metric: str, task: str | None, protocol: str | None, lengths: Sequence[int]) -> list[BoardSteps]:
    found = runs.steps(metric, task, protocol, lengths=lengths)
    if not found:
        raise UsageError(
            f"no {metric} was measured while these models trained: runs need evaluate.points, which protocols have from "
            "version 5 on, and for measurements of whole strings evaluate.point_strings"
        )
    return found


def _against_lengths(drawn: Sequence[Board], entries: Sequence[str], loglog: bool, fit: bool) -> Spec:
    from lgbench.reports import figure

    _require_room(len(drawn), "boards", "--task or --protocol")
    if loglog:
        rows = (row for board in drawn for row in board.rows if row.entry in entries)
        _say_left_out([cell.mean for row in rows for cell in row.cells if cell.kind == "length"])
    return figure.figure(drawn, entries, loglog, fit)


def _against_steps(found: Sequence[BoardSteps], entries: Sequence[str], lengths: Sequence[int], metric: str) -> Spec:
    from lgbench.reports.panel_figures import at_lengths, step_figure

    drawn = [each for each in at_lengths(found, lengths) if set(entries) & each.curves.cells.keys()]
    if not drawn:
        raise UsageError(f"no {metric} of {' and '.join(entries)} was measured while they trained; name others with --entry")
    _require_room(len(drawn), "boards and lengths", "--task, --protocol or --length")
    return step_figure(drawn, entries)


def _against_setting(runs: Results, asked: SweepRequest, named: Sequence[str], loglog: bool) -> Spec:
    from lgbench.reports.panel_figures import sweep_figure
    from lgbench.results.sweeps import sweeps

    left_out: dict[str, None] = {}
    found = sweeps(runs, asked, lambda sentence: left_out.update({sentence: None}))
    warn(left_out)
    lines = sorted({entry for sweep in found for entry in sweep.lines})
    entries = _chosen(sorted({entry for sweep in found for entry in sweep.cells}) if named else lines, named)
    if alone := [entry for entry in entries if entry not in lines]:
        said = f"with one value of {asked.setting} alone: {', '.join(alone)}"
        if alone == entries:
            raise UsageError(f"all that --entry names has runs {said}; there are lines of {', '.join(lines)}")
        complain(f"not drawn, {said}")
    entries = [entry for entry in entries if entry in lines]
    drawn = [sweep for sweep in found if {*entries} & {*sweep.lines}]
    _require_room(len(drawn), "boards and lengths", "--task, --protocol or --length")
    if loglog:
        _say_left_out([cell.mean for sweep in drawn for entry in entries for cell in sweep.cells.get(entry, ())])
    return sweep_figure(drawn, asked.setting, entries, loglog)


def _say_left_out(means: Sequence[float]) -> None:
    """Warn of means outside a logarithmic axis."""
    if lost := sum(mean <= 0 for mean in means):
        complain(f"{lost} of {len(means)} means are not above 0, and logarithmic axes leave them out")


def _require_room(panels: int, things: str, options: str) -> None:
    from lgbench.reports import plots

    if panels > plots.MAX_PANELS:
        raise UsageError(
            f"{panels} {things} are found, and a figure has {plots.MAX_PANELS} panels at most; choose with {options}"
        )
