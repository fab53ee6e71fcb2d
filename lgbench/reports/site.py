"""All boards as one offline page: curves, seeds, trainings, settings and provenance of every entry."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec
from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt

from lgbench.checkout import VERSION
from lgbench.claims.claim import Claim
from lgbench.claims.verdicts import decide
from lgbench.contracts import CURVE_METRICS, PRIMARY_METRIC
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.reports import plots
from lgbench.reports.boards import notes, overall_notes
from lgbench.reports.claims import documents as documents_of
from lgbench.reports.drawing import drawn
from lgbench.reports.figure import about as axis_of
from lgbench.reports.files import replace
from lgbench.reports.marks import LENGTH, STEP, Across
from lgbench.reports.panel_figures import step_document
from lgbench.results.boards import Board, BoardHeader
from lgbench.results.database import packaged
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric, described
from lgbench.results.run_schema import CHECKSUM
from lgbench.results.trainings import BoardSteps, trainings
from lgbench.terminal import counted


@dataclass(frozen=True)
class PageBoard:
    """Board of the page: of a whole family, or of a single task."""

    kind: Literal["family", "task"]
    board: Board
    steps: BoardSteps | None
    """Curves against training steps, None for models without tests during training."""


def page(results: Results, protocol: str | None = None, baseline: str | None = None, claims: Sequence[Claim] = ()) -> str:
    """HTML of the page with all boards of the results. Raises UsageError without any board.

    `baseline` is an entry for comparison, as in :meth:`Results.boards`. Claims without a verdict are only counted.

    Equal results make equal text, on any machine at any time.
    """
    by_family = "select family, list(distinct task order by task) from models group by family order by family"
    families: dict[str, list[str]] = dict(results.rows(by_family))
    boards = _boards(results, families, protocol, baseline)
    if not boards:
        raise UsageError(f"nothing in {results.place} belongs on a board" + (f" of protocol {protocol!r}" if protocol else ""))
    protocols = {page_board.board.protocol for page_board in boards}
    runs, insides = run_documents(results, protocols), inside_documents(results, protocols)
    summary = [own for metric in results.ranking_names for own in results.overall(metric, protocol, baseline=baseline)]
    documents: dict[str, Any] = {"index": _index(results, families, boards, runs)}
    documents["index"]["insides"] = {entry: i for i, entry in enumerate(insides)}
    documents["index"]["overall_notes"] = [overall_notes(own) for own in summary]
    documents["overall"] = [asdict(own) for own in summary]
    documents["specs"] = {metric.key: _spec(metric) for metric in _metrics(boards)}
    with_steps = {i: page_board.steps for i, page_board in enumerate(boards) if page_board.steps}
    documents["step-specs"] = {own.board.metric.key: _spec(own.board.metric, STEP) for own in with_steps.values()}
    # dataclasses.asdict copies every number: several seconds for thousands of runs
    documents |= {f"board-{i}": msgspec.to_builtins(page_board.board) for i, page_board in enumerate(boards)}
    documents |= {f"steps-{i}": step_document(own) for i, own in with_steps.items()}
    documents |= {f"runs-{i}": own for i, own in enumerate(runs.values())}
    documents |= {f"inside-{i}": own for i, own in enumerate(insides.values())}
    judged = [(claim, decide(claim, results, protocol)) for claim in claims]
    decided = [(claim, own) for claim, own in judged if any(verdict.state != "not run" for verdict in own)]
    documents["index"]["claims"] = {"decided": len(decided), "without": len(judged) - len(decided)}
    if decided:
        documents["claims"] = documents_of(decided)
    return filled(documents, _summary(boards, runs))


def write(text: str, folder: Path) -> Path:
    """Write the whole page into a folder, in place of an older page. Raises UsageError if writing fails."""
    path = folder / "index.html"
    replace(path, text.encode())
    return path


def _boards(
    results: Results, families: Mapping[str, Sequence[str]], protocol: str | None, baseline: str | None
) -> list[PageBoard]:
    """Boards by metric, each family before its tasks."""
    found: list[PageBoard] = []
    for metric in results.ranking_names:
        of_families = _by_name(results, "family", metric, protocol, baseline)
        of_tasks = _by_name(results, "task", metric, protocol, baseline)
        for family, tasks in families.items():
            found += of_families.get(family, ())
            for task in tasks:
                if task not in families:  # a task named like a family: the board of the family has the name
                    found += of_tasks.get(task, ())
    return [page_board for page_board in found if page_board.board.rows]


def _by_name(
    results: Results, kind: Literal["family", "task"], metric: str, protocol: str | None, baseline: str | None
) -> dict[str, list[PageBoard]]:
    apart = kind == "task"
    # Curves of the primary metric only, at few lengths: more would be most of the page.
    with_steps = results.steps(metric, None, protocol, apart=apart) if metric == PRIMARY_METRIC else []
    steps = {_place(each.board): each for each in with_steps if each.curves}
    found: dict[str, list[PageBoard]] = {}
    for board in results.boards(metric, None, protocol, baseline=baseline, apart=apart):
        found.setdefault(board.name, []).append(PageBoard(kind, board, steps.get(_place(board))))
    return found


def _place(board: BoardHeader) -> tuple[object, ...]:
    """Key of a board: name, metric, task version and protocol."""
    return board.name, board.metric, board.task_version, board.protocol


def _metrics(boards: Iterable[PageBoard]) -> list[Metric]:
    """Metrics of the boards, in order."""
    return list(dict.fromkeys(page_board.board.metric for page_board in boards))


def _index(
    results: Results, families: Mapping[str, Sequence[str]], boards: Sequence[PageBoard], runs: Mapping[str, Any]
) -> dict[str, Any]:
    """Index of the page: names and places of all documents, and the content needed before a board is read."""
    shown = {page_board.board.name for page_board in boards}
    return {
        "metrics": {metric.key: asdict(metric) for metric in _metrics(boards)},
        "families": [{"name": name, "tasks": tasks} for name, tasks in families.items() if {name, *tasks} & shown],
        "boards": [{"id": i} | _summary_of(page_board) for i, page_board in enumerate(boards)],
        "start": _start(results, boards),
        "protocols": [str(use) for use in results.protocols.values()],
        "notes": [notes(page_board.board) for page_board in boards],
        "entries": _entries(results, boards),
        "runs": {entry: i for i, entry in enumerate(runs)},
    }


def _start(results: Results, boards: Sequence[PageBoard]) -> dict[str, Any]:
    """First board on the page: primary metric, then the most telling protocol, then most entries."""
    place = list(results.protocols.values()).index

    def wanted(page_board: PageBoard) -> tuple[bool, int, int]:
        board = page_board.board
        return board.metric.name == PRIMARY_METRIC, -place(board.protocol), len(board.rows)

    board = max(boards, key=wanted).board
    versions = {"version": board.task_version, "metric_version": board.metric.version, "key": board.metric.key}
    return {"name": board.name, "metric": board.metric.name, "protocol": str(board.protocol)} | versions


def _summary_of(page_board: PageBoard) -> dict[str, Any]:
    board = page_board.board
    (axis,) = axis_of(board)
    return {
        "kind": page_board.kind,
        "name": board.name,
        "metric": board.metric.name,
        "metric_version": board.metric.version,
        "protocol": str(board.protocol),
        "version": board.task_version,
        "entries": [row.entry for row in board.rows],
        "axis": axis,
        "steps": list(page_board.steps.curves) if page_board.steps else [],
    }


def _entries(results: Results, boards: Iterable[PageBoard]) -> dict[str, dict[str, Any]]:
    """Base entry, tested weights and place among colours, by entry on the boards. The base entry is that of the training."""
    ranked = {row.entry for page_board in boards for row in page_board.board.rows}
    found = results.rows("select distinct run_id, entry, weights from models where entry is not null")
    trained = {run: entry for run, entry, weights in found if weights == "raw"}
    known = {(trained.get(run, entry), weights != "raw", weights, entry) for run, entry, weights in found if entry in ranked}
    place = results.entry_order.index
    return {entry: {"base": base, "weights": weights, "place": place(entry)} for base, _, weights, entry in sorted(known)}


def _summary(boards: Sequence[PageBoard], runs: Mapping[str, Sequence[Any]]) -> str:
    count = sum(len(own) for own in runs.values())
    protocols = sorted({str(page_board.board.protocol) for page_board in boards})
    under = f"protocol {protocols[0]}" if len(protocols) == 1 else counted(len(protocols), "protocol")
    return (
        f"{counted(count, 'run')}, {under}. "
        f"lgbench {VERSION} made this page from run files alone. It loads nothing from anywhere."
    )


@cache
def _spec(metric: Metric, across: Across = LENGTH) -> Mapping[str, Any]:
    """Specification of a metric's curves, cached because making a specification takes a third of a second."""
    return plots.page_spec(metric, across)


def run_documents(results: Results, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """Metadata and training curves of runs by entry, under the given protocols."""
    found: dict[str, list[dict[str, Any]]] = {}
    metadata: dict[str, Mapping[str, Any]] = {}
    for run_id, about in results.metadata():
        metadata.setdefault(run_id, about)  # a run may be in several files
    for training in trainings(results):
        protocol = training.protocol
        if protocol in protocols:
            about = metadata[training.run_id]
            names = ("run_id", "task", "task_version", "seed", "diverged_step")
            run = {name: getattr(training, name) for name in names} | {"protocol": str(protocol)}
            run |= {name: _curve(training.curves.get(name, ())) for name in CURVE_METRICS}
            tuning, about = _without_tuning(about)
            shown = {key: value for key, value in about.items() if key not in ("measurements", CHECKSUM)}
            run |= {"measurements": [metric.key for metric in described(about)], "about": _finite(shown)}
            run |= {"tuning": _finite(tuning)}
            found.setdefault(training.entry, []).append(run)
    order = ("protocol", "task", "task_version", "seed", "run_id")
    return {
        entry: _each_tuning_once(sorted(own, key=lambda run: [run[name] for name in order]))
        for entry, own in sorted(found.items())
    }


def _curve(points: Sequence[tuple[int, float | None]]) -> dict[str, list[Any]]:
    """Steps and values of a training curve. Four significant digits suffice for a small chart."""
    values = [None if value is None or not isfinite(value) else float(f"{value:.4g}") for _, value in points]
    return {"steps": [step for step, _ in points], "values": values}


def _finite(content: Any) -> Any:
    """Content for JSON, with NaN and infinity as text."""
    if isinstance(content, float) and not isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


def inside_documents(results: Results, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """Probe readings by entry: for each task, protocol and probe, means over heads and seeds by layer and length.

    Entries without probe readings are left out.
    """
    known = {(metric.name, metric.version): metric for metric in results.metrics}
    unranked = sorted({metric.name for metric in results.metrics if not metric.ranks})
    found: dict[str, list[dict[str, Any]]] = {}
    for (entry, task, version, number, *metric), own in groupby(
        results.rows(packaged("layers"), {"unranked": unranked}), key=lambda row: row[:6]
    ):
        about, protocol = known.get((metric[0], metric[1])), results.protocols[number]
        if about is not None and protocol in protocols:
            of = {"task": task, "task_version": version, "protocol": str(protocol)}
            of |= {"metric": about.key, "title": about.title}
            layers = groupby(own, key=lambda row: row[6])
            found.setdefault(entry, []).append(of | {"layers": [_line(layer, list(rows)) for layer, rows in layers]})
    return found


def _line(layer: int | None, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Probe readings of one layer by length. Four significant digits suffice for a small chart."""
    values = [float(f"{value:.4g}") for *_, value, _ in rows]
    return {"layer": layer, "lengths": [row[7] for row in rows], "values": values, "seeds": max(row[9] for row in rows)}


def _without_tuning(about: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Tuning in the metadata of a run file, and metadata without tuning. Metadata are untrusted: any field may be missing."""
    experiment = about.get("experiment")
    if not isinstance(experiment, dict):
        return None, dict(about)
    left = {key: value for key, value in experiment.items() if key != "tuning"}
    return experiment.get("tuning"), {**about, "experiment": left}


def _each_tuning_once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of an entry. A tuning shared by several runs of a task stays only in the first."""
    seen: set[str] = set()
    for run in runs:
        said = repr((run["protocol"], run["task"], run["task_version"], run["tuning"]))
        if said in seen:
            run["tuning"] = None
        seen.add(said)
    return runs


SCRIPTS = (
    "data.js",
    "elements.js",
    "charts.js",
    "steps.js",
    "board.js",
    "entry.js",
    "compare.js",
    "overall.js",
    "claims.js",
    "start.js",
    "main.js",
)
"""Scripts in order of execution: later scripts use earlier scripts."""


def filled(documents: Mapping[str, Any], summary: str) -> str:
    """HTML of the whole page. Hashes in the security policy allow only the page's own scripts and style, and no requests."""
    style = _packaged("page/page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_packaged(f"page/{name}") for name in SCRIPTS) + "})();\n"
    libraries = _libraries()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_hash(script)} {_hash(libraries)}; style-src {_hash(style)}"
    )
    rules = MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md"))
    # The template escapes all foreign text, and writes JSON without characters of HTML markup.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(_packaged("page/page.html")).render(
        policy=policy,
        generator=f"lgbench {VERSION}",
        style=style,
        summary=summary,
        rules=rules,
        documents=documents,
        script=script,
        libraries=libraries,
    )


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, without text that could end the script element. Bundling takes seconds."""
    bundle = drawn(
        "javascript_bundle", "window.vegaEmbed = vegaEmbed;", ways_out="more memory helps, or a higher `ulimit -v`"
    ).decode()
    return re.sub(r"<(?=/?script|!--)", r"\\x3c", bundle, flags=re.IGNORECASE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packaged(name: str) -> str:
    return files("lgbench.reports").joinpath(*name.split("/")).read_text(encoding="utf-8")
