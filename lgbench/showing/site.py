"""All boards as one page that needs no network and no server, with what they are made of and how."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import vl_convert
from markdown_it import MarkdownIt

import lgbench
from lgbench import runfiles
from lgbench.contracts import METRICS
from lgbench.errors import RunFileError, UsageError
from lgbench.ranking.boards import LOWER_IS_BETTER, Board
from lgbench.ranking.leaderboard import Results
from lgbench.showing import plots, render
from lgbench.showing.replacing import replace

SCRIPTS = ("data.js", "elements.js", "charts.js", "board.js", "entry.js", "compare.js", "main.js")
"""Run as one, in this order: the later ones use the earlier ones."""

CURVES = ("train_loss", "gradient_norm")

PAGE = "index.html"


@dataclass(frozen=True)
class Place:
    """A board of the page: of a whole family, or of one of its tasks."""

    kind: str
    board: Board


def page(results: Results, protocol: str | None = None) -> str:
    """The page of all boards of these results, HTML as text. UsageError where there is nothing to show.

    The same results make the same text, wherever and whenever it is made.
    """
    families = _families(results)
    places = _places(results, families, protocol)
    if not places:
        raise UsageError(f"nothing in {results.folder} belongs on a board" + (f" of protocol {protocol!r}" if protocol else ""))
    runs = _runs(results.folder, {place.board.protocol for place in places})
    documents: dict[str, Any] = {"index": _index(results, families, places, runs)}
    documents["specs"] = {metric: plots.page_spec(metric) for metric in METRICS}
    documents |= {f"board-{i}": asdict(place.board) for i, place in enumerate(places)}
    documents |= {f"runs-{i}": own for i, own in enumerate(runs.values())}
    return _filled(documents, _summary(places, runs))


def write(text: str, folder: Path) -> Path:
    """Put the page into a folder, whole or not at all, in place of one that is there. UsageError where that cannot be done."""
    path = folder / PAGE
    replace(path, text.encode())
    return path


def _families(results: Results) -> dict[str, list[str]]:
    """The tasks of each family."""
    found: dict[str, list[str]] = {}
    for family, task in results.ask("select distinct family, task from results order by all")[1]:
        found.setdefault(family, []).append(task)
    return found


def _places(results: Results, families: Mapping[str, Sequence[str]], protocol: str | None) -> list[Place]:
    """Every board: by metric, and within a metric each family before its tasks."""
    places = []
    for metric in METRICS:
        of_families = results.boards(metric, None, protocol)
        for family, tasks in families.items():
            places += [Place("family", board) for board in of_families if board.name == family]
            for task in tasks:
                if task != family:
                    places += [Place("task", board) for board in results.boards(metric, task, protocol)]
    return [place for place in places if place.board.rows]


def _index(
    results: Results, families: Mapping[str, Sequence[str]], places: Sequence[Place], runs: Mapping[str, Any]
) -> dict[str, Any]:
    """What is embedded, and where; what a reader needs before any board is read."""
    shown = {place.board.name for place in places}
    ranked = {row.entry for place in places for row in place.board.rows}
    entries = {}
    found = results.ask("select distinct entry, weights from results")[1]
    for entry, weights in sorted(found, key=lambda pair: (pair[0], pair[1] != "raw", pair[1])):
        label = entry if weights == "raw" else f"{entry}@{weights}"
        if label in ranked:
            entries[label] = {"base": entry, "weights": weights}
    return {
        "lower_is_better": LOWER_IS_BETTER,
        "families": [{"name": name, "tasks": tasks} for name, tasks in families.items() if {name, *tasks} & shown],
        "boards": [
            {
                "id": i,
                "kind": place.kind,
                "name": place.board.name,
                "metric": place.board.metric,
                "protocol": place.board.protocol,
                "version": place.board.task_version,
                "entries": [row.entry for row in place.board.rows],
            }
            for i, place in enumerate(places)
        ],
        "notes": [render.notes(place.board) for place in places],
        "entries": entries,
        "runs": {entry: i for i, entry in enumerate(runs)},
    }


def _runs(folder: Path, protocols: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """By entry, its runs under these protocols: what they are, what their footers say, how their training went."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in runfiles.find(folder):
        try:
            table, about = runfiles.read(path), runfiles.metadata(path)
        except RunFileError:
            continue  # said when the results were opened
        first = table.slice(0, 1).to_pylist()[0]
        if first["protocol"] in protocols:
            columns = ("run_id", "task", "task_version", "protocol", "seed", "diverged_step")
            run = (
                {name: first[name] for name in columns}
                | {name: _curve(table, name) for name in CURVES}
                | {"about": _finite(about)}
            )
            found.setdefault(first["entry"], {}).setdefault(first["run_id"], run)
    order = ("protocol", "task", "task_version", "seed", "run_id")
    return {entry: sorted(own.values(), key=lambda run: [run[name] for name in order]) for entry, own in sorted(found.items())}


def _curve(table: pa.Table, metric: str) -> dict[str, list[Any]]:
    """Steps and values of a training; four significant digits are more than a small chart shows."""
    own = table.filter(pc.equal(table["metric"], metric)).sort_by("step")
    values = [None if v is None or not math.isfinite(v) else float(f"{v:.4g}") for v in own["value"].to_pylist()]
    return {"steps": own["step"].to_pylist(), "values": values}


def _summary(places: Sequence[Place], runs: Mapping[str, Sequence[Any]]) -> str:
    count = sum(len(own) for own in runs.values())
    protocols = sorted({place.board.protocol for place in places})
    under = f"protocol {protocols[0]}" if len(protocols) == 1 else f"{len(protocols)} protocols"
    return (
        f"{count} {'run' if count == 1 else 'runs'}, {under}. "
        f"Made by lgbench {lgbench.__version__} from run files alone; this page loads nothing from anywhere."
    )


def _filled(documents: Mapping[str, Any], summary: str) -> str:
    """The page's HTML with everything in its place. Scripts and style run by their hashes alone, and nothing is fetched."""
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    libraries = _libraries()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_hash(script)} {_hash(libraries)}; style-src {_hash(style)}"
    )
    parts = {
        "policy": policy,
        "generator": f"lgbench {lgbench.__version__}",
        "style": style,
        "summary": escape(summary),
        "rules": MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md")),
        "data": "\n".join(_document(name, content) for name, content in documents.items()),
        "script": script,
        "libraries": libraries,
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda place: parts[place[1]], _text("page.html"))


def _document(name: str, content: Any) -> str:
    """JSON that no HTML parser takes for anything else, whatever strings are in it."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", r"\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _finite(content: Any) -> Any:
    """Footers are read with a parser that takes NaN; JSON has no word for it."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, without what would end its element. Bundling takes seconds."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return re.sub(r"<(?=/?script|!--)", r"\\x3c", bundle, flags=re.IGNORECASE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return _packaged(f"page/{name}")


def _packaged(name: str) -> str:
    return files("lgbench.showing").joinpath(*name.split("/")).read_text(encoding="utf-8")
