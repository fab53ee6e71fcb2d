"""Figures, looked at as the SVG that they become, and colours, shapes and dashes of entries as different eyes see them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.plot_runs import CONTEXT_FREE, ENTRIES, LENGTHS, TRAINED, Drawing, context_free_line, entry_lines, means

from lgbench.experiment.record import ProtocolUse
from lgbench.reports import figure as figures
from lgbench.reports import marks, plots
from lgbench.reports.marks import slots
from lgbench.reports.panel_figures import figure


@pytest.fixture(scope="module")
def boards(plotted):
    return plotted.boards("tvd")


@pytest.fixture(scope="module")
def alpha(boards):
    return boards[:1]


def test_a_figure_has_a_line_a_band_and_points_for_each_entry(drawing):
    assert len(entry_lines(drawing)) == len(drawing.of("area mark")) == len(ENTRIES)
    found = Counter(label for label, _ in drawing.points())
    assert found == dict.fromkeys(["pre-norm", "peri-norm", "post-norm", "post-norm@bema"], len(LENGTHS))


def test_points_stand_where_the_labels_of_the_axes_say(drawing, alpha):
    """Ticks and points are two ways to the same scale: between two ticks, a point is as far as its number says."""
    points = drawing.points()
    left = min(x for x, _ in points.values())
    ticks = {float(text): y for text, (x, y), _ in drawing.texts() if re.fullmatch(r"\d\.\d+", text) and x < left}
    (low, bottom), (high, top) = min(ticks.items()), max(ticks.items())
    shift = {int(text): x for text, (x, _), _ in drawing.texts() if text in ("4", "64")}
    baseline = None
    for (entry, length), mean in means(alpha[0]).items():
        x, y = points[entry.removeprefix("transformer+"), length]
        expected = bottom + (mean - low) / (high - low) * (top - bottom)
        baseline = y - expected if baseline is None else baseline  # letters stand a little below their ticks
        assert y - expected == pytest.approx(baseline, abs=1e-6)
        assert x == pytest.approx(shift[4] + np.log2(length / 4) / 4 * (shift[64] - shift[4]), abs=1e-6)
    assert abs(baseline) < marks.TEXT / 2


def test_bands_are_the_intervals_of_the_board(drawing, alpha):
    (board,) = alpha
    points = drawing.points()
    place = {mean: points[entry.removeprefix("transformer+"), length][1] for (entry, length), mean in means(board).items()}
    slope, offset = np.polyfit(list(place), list(place.values()), 1)
    origin = points["pre-norm", 4][0]
    for node, (x, y) in drawing.of("area mark"):
        label = node.get("aria-label").rpartition(": ")[2]
        (row,) = [row for row in board.rows if row.entry == f"transformer+{label}"]
        corners = [tuple(map(float, corner)) for corner in re.findall(r"([-\d.]+),([-\d.]+)", node.get("d"))]
        ends = [(cell.low, cell.high) for length in LENGTHS for cell in [row.cell("length", length)]]
        drawn = [low for low, _ in ends] + [high for _, high in reversed(ends)]
        tall = [slope * value + offset - y for value in drawn]
        assert sorted(corner[1] for corner in corners) == pytest.approx(sorted(tall), abs=0.01)
        assert min(corner[0] for corner in corners) + x == pytest.approx(origin, abs=0.01)


def test_the_context_free_level_is_a_dashed_grey_curve_that_the_legend_names(drawing, alpha):
    node, places = context_free_line(drawing)
    assert node.get("stroke") == marks.GREY and node.get("stroke-dasharray")
    points = drawing.points()
    assert [x for x, _ in places] == pytest.approx([points["pre-norm", length][0] for length in LENGTHS], abs=1e-3)
    height = {mean: points[entry.removeprefix("transformer+"), length][1] for (entry, length), mean in means(alpha[0]).items()}
    slope, offset = np.polyfit(list(height), list(height.values()), 1)
    assert [y for _, y in places] == pytest.approx([slope * CONTEXT_FREE[length] + offset for length in LENGTHS], abs=0.01)
    ((_, (x, y), _),) = [found for found in drawing.texts() if found[0] == "context-free baseline"]
    legend = [
        (place, n) for n, place in drawing.marks if n.get("stroke-dasharray") == node.get("stroke-dasharray") and n != node
    ]
    assert any(0 < x - left < 1.5 * figures.SAMPLE and abs(y - middle) < figures.ROW / 2 for (left, middle), _ in legend)


@pytest.mark.slow
def test_no_context_free_level_is_drawn_or_named_where_it_is_unknown(boards):
    (beta,) = [board for board in boards if board.name == "beta"]
    drawing = Drawing(figure([beta], {"arch+norm": 0}))
    assert context_free_line(drawing) is None and "context-free baseline" not in drawing.words()
    assert len(drawing.of("line mark")) == 1


def test_the_training_lengths_are_shaded_to_the_training_length(drawing):
    ((node, place),) = [(n, p) for n, p in drawing.of("rect mark") if n.get("aria-label")]
    width = float(re.search(r"h([\d.]+)v", node.get("d"))[1])
    assert place[0] + width == pytest.approx(drawing.points()["pre-norm", TRAINED][0], abs=1e-3)
    assert "trained to 40" in drawing.words()


def test_a_figure_says_what_it_shows(drawing):
    words = drawing.words()
    assert "alpha: TVD, lower is better" in words
    assert "protocol quick/1, task version 1" in words
    assert "3 seeds: mean and 95 % interval over seeds" in words
    assert {"length", "total variation distance (TVD)", "exact"} <= set(words)
    assert {"pre-norm", "peri-norm", "post-norm", "post-norm@bema"} <= set(words)


@pytest.mark.slow
def test_what_is_written_stays_on_the_page_and_does_not_overlap(plotted, drawing):
    """With a generous guess at the width of letters, for a board and for an overview."""
    overview = plotted.boards("roc_auc") * 3
    narrow, wide = (Drawing(figure(overview, slots(ENTRIES, ENTRIES), wide=wide)) for wide in (False, True))
    for shown, page in ((drawing, figures.WIDTH), (narrow, figures.WIDTH), (wide, figures.PAGE)):
        height = float(shown.root.get("viewBox").split()[3])
        boxes = []
        for text, (x, y), node in shown.texts():
            if "rotate" not in node.get("transform"):
                size = float(node.get("font-size").removesuffix("px"))
                width = 0.52 * size * len(text)
                x -= {"start": 0, "middle": width / 2, "end": width}[node.get("text-anchor")]
                boxes.append((x, y - 0.7 * size, x + width, y + 0.2 * size, text))
        assert min(box[0] for box in boxes) >= 0 and max(box[2] for box in boxes) <= page
        assert min(box[1] for box in boxes) >= 0 and max(box[3] for box in boxes) <= height
        for a, b in itertools.combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


@pytest.mark.slow
def test_every_panel_labels_its_first_and_last_length(plotted):
    drawing = Drawing(figure(plotted.boards("roc_auc") * 3, slots(ENTRIES, ENTRIES)))
    words = Counter(drawing.words())
    ends = Counter(str(n) for board in plotted.boards("roc_auc") * 3 for n in (board.all_lengths[0], board.all_lengths[-1]))
    assert all(words[text] >= n for text, n in ends.items())


@pytest.mark.slow
def test_one_seed_has_no_band_and_says_so(boards):
    (board,) = [board for board in boards if board.name == "beta"]
    drawing = Drawing(figure([board], {"arch+norm": 0}))
    assert "1 seed" in drawing.words() and not any("interval" in word for word in drawing.words())
    assert len(drawing.points()) == 3
    for node, _ in drawing.of("area mark"):
        assert not node.get("d")


@pytest.mark.slow
def test_an_overview_has_a_panel_for_each_board_with_the_same_looks_and_own_lengths(boards, drawing):
    overview = Drawing(figure(boards, slots([*ENTRIES, "arch+norm"], [*ENTRIES, "arch+norm"])))
    words = overview.words()
    assert {"alpha", "beta", "TVD, lower is better", "protocol quick/1, each panel has axes of its own"} <= set(words)
    assert {"1024", "100"} <= set(words)
    assert "1 to 3 seeds: mean and 95 % interval over seeds" in words
    assert (
        len([n for n, _ in overview.of("line mark") if n.get("aria-label") == "context-free baseline"]) == 1
    )  # only alpha has one
    assert words.count("context-free baseline") == 1
    alone = {n.get("fill") for n, _ in drawing.of("point")}
    assert alone <= {n.get("fill") for n, _ in overview.of("point")}
    for entry in ENTRIES:
        assert words.count(entry) == 1  # in the legend; with another architecture beside it, in full


def test_titles_of_panels_say_whatever_differs(boards):
    (board,) = [board for board in boards if board.name == "beta"]
    assert figures.panel_title(board, boards) == ["beta"]
    assert figures.panel_title(replace(board, tasks=4), boards) == ["beta (4 tasks)"]
    changed = replace(board, protocol=ProtocolUse("quick", 1, (("train.lr", "0.1"),)))
    newer, remeasured = replace(board, task_version=2), replace(board, metric=replace(board.metric, version=2))
    every = [board, newer, changed]
    assert figures.panel_title(board, every) == ["beta quick/1 version", "1"]
    assert figures.panel_title(newer, every) == ["beta quick/1 version", "2"]
    assert figures.panel_title(changed, every) == ["beta quick/1", "train.lr=0.1"]
    assert figures.panel_title(remeasured, [board, remeasured]) == ["beta TVD version 2"]


def test_entries_look_different_to_everyone_and_on_every_paper():
    seen = {kind: [seen_as(colour, kind) for colour in marks.COLOURS] for kind in SIMULATED}
    for first, second in itertools.combinations(range(len(marks.COLOURS)), 2):
        for kind, colours in seen.items():
            assert np.linalg.norm(colours[first] - colours[second]) > 15, (kind, first, second)  # CIE 1976
    for colour in marks.COLOURS:
        assert 1.05 / (luminance(colour) + 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_entries_look_different_in_grey_too():
    """By shape, always; and neighbours of the legend by how dark they are, or by their dashes."""
    assert len(set(marks.SHAPES)) == len(marks.COLOURS) == plots.MAX_UNNAMED
    looks = [(marks.SHAPES[i % 8], marks.DASHES[i % 5]) for i in range(marks.MAX_ENTRIES)]
    assert len(set(looks)) == marks.MAX_ENTRIES
    for i in range(plots.MAX_UNNAMED):
        darker = abs(lightness(marks.COLOURS[i]) - lightness(marks.COLOURS[i - 1])) > 10
        assert darker or marks.DASHES[i % 5] != marks.DASHES[(i - 1) % 5]


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIMULATED = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]),
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return XYZ[1] @ linear(colour)


def lightness(colour):
    return seen_as(colour, "all cones")[0]


def seen_as(colour, kind):
    """CIELAB (L, a, b) under D65."""
    xyz = XYZ @ np.clip(SIMULATED[kind] @ linear(colour), 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
