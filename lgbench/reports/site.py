"""All boards as one offline page: curves, seeds, trainings, settings and provenance of every entry."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt

import lgbench
from lgbench.claims.claim import Claim
from lgbench.claims.verdicts import decide
from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import UsageError
from lgbench.experiment.protocols import BOARDS_PROTOCOL
from lgbench.reports import plots
from lgbench.reports.boards import notes, overall_notes
from lgbench.reports.claims import documents as documents_of
from lgbench.reports.drawing import drawn
from lgbench.reports.figure import about as axis_of
from lgbench.reports.files import replace
from lgbench.reports.marks import LENGTH, STEP, Across
from lgbench.reports.panel_figures import step_document
from lgbench.reports.site_data import inside_documents, run_documents
from lgbench.results.boards import Board, BoardHeader
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.steps import BoardSteps
from lgbench.terminal import counted

PAGE = "index.html"


@dataclass(frozen=True)
class PageBoard:
    """Board of the page: of a whole family, or of a single task."""

    kind: Literal["family", "task"]
    board: Board
    steps: BoardSteps | None
    """Curves against training steps, None for models without tests during training."""


def page(results: Results, protocol: str | None = None, baseline: str | None = None, claims: Sequence[Claim] = ()) -> str:
    """HTML of the page with all boards of the results. Raises UsageError without any board.

    `baseline` is an entry for comparison, as in :meth:`Results.boards`. Claims appear with verdicts if runs test at least one
    claim.

    Equal results make equal text, on any machine at any time.
    """
    families = _families(results)
    boards = _boards(results, families, protocol, baseline)
    if not boards:
        raise UsageError(f"nothing in {results.folder} belongs on a board" + (f" of protocol {protocol!r}" if protocol else ""))
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
    if any(verdict.n for _, verdicts in judged for verdict in verdicts):
        documents["claims"] = documents_of(judged)
        documents["index"]["claims"] = True
    return filled(documents, _summary(boards, runs))


def write(text: str, folder: Path) -> Path:
    """Write the whole page into a folder, in place of an older page. Raises UsageError if writing fails."""
    path = folder / PAGE
    replace(path, text.encode())
    return path


def _families(results: Results) -> dict[str, list[str]]:
    """Tasks by family."""
    found: dict[str, list[str]] = {}
    for family, task in results.rows("select distinct family, task from models order by all"):
        found.setdefault(family, []).append(task)
    return found


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
        "start": _start(boards),
        "notes": [notes(page_board.board) for page_board in boards],
        "entries": _entries(results, boards),
        "runs": {entry: i for i, entry in enumerate(runs)},
    }


def _start(boards: Sequence[PageBoard]) -> dict[str, Any]:
    """First board on the page: primary metric, preferably under the protocol of boards, then with most entries."""

    def wanted(page_board: PageBoard) -> tuple[bool, bool, int, int]:
        board = page_board.board
        of_boards = board.protocol.name == BOARDS_PROTOCOL and not board.protocol.changes
        return board.metric.name == PRIMARY_METRIC, of_boards, board.protocol.version if of_boards else 0, len(board.rows)

    board = max(boards, key=wanted).board
    versions = {"version": board.task_version, "metric_version": board.metric.version, "key": board.metric.key}
    return {"metric": board.metric.name, "protocol": str(board.protocol)} | versions


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


def _entries(results: Results, boards: Iterable[PageBoard]) -> dict[str, dict[str, str]]:
    """Base entry and tested weights by entry on the boards. The base entry is the entry of the training."""
    ranked = {row.entry for page_board in boards for row in page_board.board.rows}
    found = results.rows("select distinct run_id, entry, weights from models where entry is not null")
    trained = {run: entry for run, entry, weights in found if weights == "raw"}
    known = {(trained.get(run, entry), weights != "raw", weights, entry) for run, entry, weights in found if entry in ranked}
    return {entry: {"base": base, "weights": weights} for base, _, weights, entry in sorted(known)}


def _summary(boards: Sequence[PageBoard], runs: Mapping[str, Sequence[Any]]) -> str:
    count = sum(len(own) for own in runs.values())
    protocols = sorted({str(page_board.board.protocol) for page_board in boards})
    under = f"protocol {protocols[0]}" if len(protocols) == 1 else counted(len(protocols), "protocol")
    return (
        f"{counted(count, 'run')}, {under}. "
        f"lgbench {lgbench.__version__} made this page from run files alone. It loads nothing from anywhere."
    )


@cache
def _spec(metric: Metric, across: Across = LENGTH) -> Mapping[str, Any]:
    """Specification of a metric's curves, cached because making a specification takes a third of a second."""
    return plots.page_spec(metric, across)


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
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    libraries = _libraries()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_hash(script)} {_hash(libraries)}; style-src {_hash(style)}"
    )
    rules = MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md"))
    # The template escapes all foreign text, and writes JSON without characters of HTML markup.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(_text("page.html")).render(
        policy=policy,
        generator=f"lgbench {lgbench.__version__}",
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


def _text(name: str) -> str:
    return _packaged(f"page/{name}")


def _packaged(name: str) -> str:
    return files("lgbench.reports").joinpath(*name.split("/")).read_text(encoding="utf-8")
