"""Writes BOARDS.md, and the pages of findings with their pictures, from the runs; --check names the files that are stale.

BOARDS.md is large and follows from the runs, so it is not committed; its SHA-256 is, which changes if any number does.
"""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import classes
import field
import lengths
import predictors
from factors import PROTOCOL, cells, picture, tested
from findings import OVERVIEW, boards_of, tables, tvd
from internals import tables_of_internals
from jinja2 import Environment, StrictUndefined
from queries import Queries

from lgbench.cli.main import main as lgbench
from lgbench.reports import plots
from lgbench.reports.boards import boards_markdown
from lgbench.reports.figure import Spec
from lgbench.reports.marks import slots
from lgbench.reports.panel_figures import figure
from lgbench.results.leaderboard import Results
from lgbench.results.predictors import probed

HERE = Path(__file__).parent
INSIDE = HERE / "inside"

HEADER = """# Leaderboards

`make boards` generates this page from the runs in [runs/](runs/). [README.md](README.md) explains how to read it.

A cell is the mean over seeds with its 95 % interval. "ID" is the mean over the in-distribution lengths, up to the training
length. "OOD" is the mean over the out-of-distribution lengths above it, and orders the entries. Boards show powers of two,
the training length and the longest length. No entry of a tier is significantly better than another of it (p below 0.001).
The rank interval holds the best and the worst rank that an entry may have, in 95 % of cases. "fitted" is the share of seeds
that have fitted every task, with its exact 95 % interval: five of five seeds allow for anything from 48 to 100 %. "against
baseline" is the difference to `transformer+pre-norm`, and whether it is significantly better or worse. The effective length,
in training lengths, is the longest length up to which the mean is better than the threshold of the metric: TVD below 0.1,
accuracy and ROC AUC above 0.9. `@ema` and `@bema` are averages of the weights of the same training runs. The context-free
baseline is the best prediction that ignores the context. The first board of a metric has all families together, for the
entries that ran all of them.
"""
PLOT = re.compile(r"^lgbench (?P<words>plot .*?) --out (?P<out>\S+)$", re.MULTILINE)
"""A picture of a page stands under the command that makes it, from the top of the checkout."""


def boards_page(results: Results) -> str:
    """The whole of BOARDS.md."""
    own = {metric: boards_markdown(results.boards(metric), results.overall(metric)) for metric in results.ranking_names}
    return "\n".join([HEADER, *(f"## {metric}\n\n{boards}" for metric, boards in own.items())])


def pictures(results: Results, swept: Results) -> Iterator[tuple[Path, Spec]]:
    """Every picture with its specification."""
    yield HERE / "overview.svg", figure(boards_of(results), slots(OVERVIEW, results.entry_order), wide=True)
    maps = cells(results)
    yield HERE / "factors.svg", picture(maps, tested(maps))
    (readings,) = probed(results, protocol=PROTOCOL)
    yield HERE / "predictors.svg", predictors.picture(readings.predictors(), tvd(results))
    yield HERE / "classes.svg", classes.picture(classes.scores(results))
    yield HERE / "lengths.svg", lengths.picture(lengths.reaches(swept))
    for folder in (HERE, INSIDE):
        for command in PLOT.finditer((folder / "README.md.jinja").read_text(encoding="utf-8")):
            yield HERE.parent / command["out"], plotted(shlex.split(command["words"]))


def plotted(words: list[str]) -> Spec:
    """The specification of the picture that this command of lgbench makes in a checkout."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.json"
        there = [str(HERE.parent / word) if word.startswith(f"{HERE.name}/") else word for word in words]
        with redirect_stdout(StringIO()):  # it says where it wrote
            lgbench([*there, "--out", str(path)], standalone_mode=False)
        found: Spec = json.loads(path.read_text(encoding="utf-8"))
        return found


def mark(spec: Spec) -> str:
    """The last line of a picture: the hash of its specification, for the drawing itself depends on the fonts of a machine.

    It is the same whichever version of Vega-Lite Altair writes.
    """
    lasting = {key: value for key, value in spec.items() if key != "$schema"}
    return f"<!-- specification {hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()} -->\n"


def pages(results: Results, swept: Results) -> dict[Path, str]:
    """The content that every generated page must have, by path."""
    queries, ablated = Queries(results, swept), Queries(Results(INSIDE / "runs", reference=results.folder), swept)
    given = {**queries.functions, "ablated": ablated, "protocol": PROTOCOL, "field": field.tables(results)}
    given["tables"] = tables(results, swept)
    return {
        HERE / "BOARDS.sha256": f"{hashlib.sha256(boards_page(results).encode()).hexdigest()}  BOARDS.md\n",
        **{page: filled(page, **given) for page in (HERE / "README.md", HERE / "claims.md", HERE / "overall.md")},
        HERE / "field.md": filled(HERE / "field.md", lengths=lengths.tables(lengths.reaches(swept)), **given),
        INSIDE / "README.md": filled(INSIDE / "README.md", **{**given, "tables": tables_of_internals(results, swept)}),
    }


def filled(page: Path, **given: Any) -> str:
    """Page from its template, PAGE.jinja, which holds the queries of its numbers."""
    template = page.with_suffix(".md.jinja").read_text(encoding="utf-8")
    made = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)
    return made.render(given)


def stale(results: Results, swept: Results) -> list[Path]:
    """The generated files that are not what the runs say."""
    found = [
        path for path, text in pages(results, swept).items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    return found + [path for path, spec in pictures(results, swept) if not is_drawn(path, spec)]


def is_drawn(path: Path, spec: Spec) -> bool:
    """Whether a picture has this specification."""
    return path.exists() and path.read_text(encoding="utf-8").endswith(mark(spec))


def main() -> None:
    results, swept = Results(HERE / "runs"), Results(INSIDE / "runs")
    if left_out := [*results.left_out, *swept.left_out]:
        raise SystemExit("\n".join(left_out))
    if "--check" in sys.argv:
        if files := stale(results, swept):
            raise SystemExit(f"{', '.join(map(str, files))}: not what the runs say; run `make boards`")
        return
    (HERE / "BOARDS.md").write_text(boards_page(results), encoding="utf-8")
    for path, text in pages(results, swept).items():
        path.write_text(text, encoding="utf-8")
    for path, spec in pictures(results, swept):
        if not is_drawn(path, spec):
            plots.write(spec, path)
            path.write_text(path.read_text(encoding="utf-8") + mark(spec), encoding="utf-8")


if __name__ == "__main__":
    main()
