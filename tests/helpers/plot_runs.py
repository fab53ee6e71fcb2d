"""Small results to draw, and a drawing taken apart."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from helpers.run_files import measured_by_all, simulated, write_rows
from lgbench.reports import plots
from lgbench.reports.figure import Spec
from lgbench.reports.marks import slots
from lgbench.reports.panel_figures import figure
from lgbench.results.leaderboard import Results

LENGTHS = [4, 8, 16, 32, 40, 64, 100]
TRAINED = 40
CONTEXT_FREE = {length: 0.2 + length / 1000 for length in LENGTHS}
"""The context-free baseline of TVD on alpha; it is unknown on beta, and by ROC AUC."""
ENTRIES = ["transformer+pre-norm", "transformer+peri-norm", "transformer+post-norm", "transformer+post-norm@bema"]


def write_all(folder: Path) -> Path:
    """Two families; four entries with three seeds on one, and one with one seed on the other."""
    for number, (entry, seed) in enumerate(itertools.product(ENTRIES, range(3))):
        name, _, weights = entry.partition("@")
        for metric, sign in (("tvd", 1), ("roc_auc", -1)):
            values = {length: 0.5 + sign * 0.5 * (length / 128) ** (1 + number / 4) for length in LENGTHS}
            rows = simulated(values, TRAINED, task="alpha", entry=name, seed=seed, weights=weights or "raw", metric=metric)
            context_free = simulated(
                CONTEXT_FREE, TRAINED, task="alpha", entry=name, seed=seed, weights="chance", metric=metric
            )
            about = {"experiment": {"averagers": ["bema"] if "post" in name else []}, "measurements": measured_by_all()}
            write_rows(folder / f"alpha-{metric}-{number}.parquet", rows + (context_free if metric == "tvd" else []), **about)
    write_rows(folder / "beta.parquet", simulated({2: 0.25, 4: 0.5, 1024: 0.75}, 4, task="beta", entry="arch+norm"))
    return folder


@pytest.fixture(scope="session")
def plotted(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """These results. Tests must not write into their folder."""
    return Results(write_all(tmp_path_factory.mktemp("plots")))


@pytest.fixture(scope="session")
def alpha_spec(plotted: Results) -> Spec:
    """Figure of alpha with all entries."""
    return figure(plotted.boards("tvd", "alpha"), slots(ENTRIES, ENTRIES))


@pytest.fixture(scope="session")
def drawing(alpha_spec: Spec) -> Drawing:
    return Drawing(alpha_spec)


class Drawing:
    """An SVG as it is on the page: every mark with its place, whatever groups it is in."""

    def __init__(self, spec):
        self.root = ET.fromstring(plots.FORMATS[".svg"](spec))
        self.marks = list(self._walk(self.root, (0.0, 0.0)))

    def _walk(self, node, place):
        moved = re.match(r"translate\(([-\d.e]+),([-\d.e]+)\)", node.get("transform", ""))
        if moved:
            place = place[0] + float(moved[1]), place[1] + float(moved[2])
        yield node, place
        for child in node:
            yield from self._walk(child, place)

    def of(self, role):
        return [(node, place) for node, place in self.marks if node.get("aria-roledescription") == role]

    def points(self):
        """(label, length) -> (x, y), as the labels for screen readers say."""
        found = {}
        for node, place in self.of("point"):
            said = dict(part.split(": ") for part in node.get("aria-label").split("; "))
            found[said["label"], int(said["length"])] = place
        return found

    def texts(self):
        """Lines of text with the place of each and the element that says how it is set."""
        found = []
        for node, (x, y) in self.marks:
            if node.tag.endswith("text"):
                lines = [node, *node] if node.text else list(node)
                found += [(line.text, (x, y + float(line.get("dy", 0)) * at), node) for at, line in enumerate(lines)]
        return found

    def words(self):
        return [text for text, *_ in self.texts()]


def entry_lines(drawing):
    return [node for node, _ in drawing.of("line mark") if "label: " in node.get("aria-label")]


def context_free_line(drawing):
    """The curve of the context-free baseline and where its points are; None where there is no such curve."""
    found = [(node, place) for node, place in drawing.of("line mark") if node.get("aria-label") == "context-free baseline"]
    for node, (x, y) in found:
        return node, [(float(a) + x, float(b) + y) for a, b in re.findall(r"([-\d.]+),([-\d.]+)", node.get("d"))]
    return None


def means(board):
    return {(row.entry, cell.length): cell.mean for row in board.rows for cell in row.cells if cell.kind == "length"}
