"""All boards as a folder of pages for offline use: grid, tasks, curves, claims, seeds, trainings and origins of every entry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import metadata
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
from lgbench.claims.verdicts import Verdict
from lgbench.contracts import CURVE_METRICS, PRIMARY_METRIC
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.experiment.tuning import Tuning
from lgbench.reports.boards import notes, overall_notes
from lgbench.reports.claims import documents as documents_of
from lgbench.reports.files import replace
from lgbench.reports.panel_figures import marked, step_marks
from lgbench.results.boards import Board, BoardHeader, Row
from lgbench.results.database import packaged
from lgbench.results.entries import PREFIX
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import described
from lgbench.results.overall import Grid, grid
from lgbench.results.published import with_own
from lgbench.results.steps import BoardSteps
from lgbench.terminal import counted

Documents = dict[str, dict[str, Any]]
"""Documents by protocol and name."""


@dataclass(frozen=True)
class PageBoard:
    """Board of the page: of a whole family, or of a single task."""

    kind: Literal["family", "task"]
    board: Board
    steps: BoardSteps | None
    """Curves against training steps, None for models without eval steps."""


def pages(
    results: Results,
    protocol: str | None = None,
    baseline: str | None = None,
    judged: Sequence[tuple[Claim, Sequence[Verdict]]] = (),
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    docs: str | None = None,
) -> dict[str, str]:
    """Files by name: a page that reads its data as scripts, since a page from a disk may not fetch. UsageError without boards.

    `baseline` is an entry for comparison, as in :meth:`Results.boards`. `judged` are claims with their verdicts; claims
    that did not run are only counted. `tasks` are the descriptions :func:`lgbench.extensions.describe.task_document` by name,
    and `docs` the address of the documentation.

    Equal results and descriptions make equal text, on any machine at any time.
    """
    order = "order by count(distinct entry) filter (weights = 'raw') desc, family"  # those with most to compare first
    by_family = f"select family, list(distinct task order by task) from models group by family {order}"
    families: dict[str, list[str]] = dict(results.rows(by_family))
    boards = _boards(results, families, protocol, baseline)
    if not boards:
        raise UsageError(f"nothing in {results.place} belongs on a board" + (f" of protocol {protocol!r}" if protocol else ""))
    shown = {page_board.board.protocol for page_board in boards}
    about = dict(reversed([*results.metadata()]))  # a run may be in several files, and the first counts
    runs, internals = run_documents(results, about, shown), internals_documents(results, shown)
    classes = {name: own["class"] for name, own in (tasks or {}).items() if own["class"]} | {
        name: facts.kind for name, facts in results.facts.items()
    }
    summary = [own for metric in results.ranking_names for own in results.overall(metric, protocol, baseline=baseline)]
    decided = [(claim, own) for claim, own in judged if any(verdict.state != "not run" for verdict in own)]
    index = _index(results, families, boards) | {
        "overall": [vars(own) | {"notes": overall_notes(own)} for own in summary],
        "grids": list(_grids(results, families, boards, classes)),
        "tasks": dict(tasks or {}),
        "claims": documents_of(decided),
        "undecided": len(judged) - len(decided),
        "glossary": glossary(),
        "links": [link.split(", ", 1) for link in metadata("lgbench").get_all("Project-URL", [])],
        "docs": docs,
    }
    data: dict[str, Any] = {"index": index}
    for number, use in enumerate(index["protocols"]):
        for place, metric in enumerate(dict.fromkeys(each.board.metric.name for each in boards)):
            ranked = {str(i): each for i, each in enumerate(boards) if _use(each) == (use, metric)}
            data[f"boards-{number}-{place}"] = {i: _board_document(each.board) for i, each in ranked.items()}
            if steps := {i: _step_document(each.steps) for i, each in ranked.items() if each.steps}:
                data[f"steps-{number}-{place}"] = steps
        seeds = _seeds(boards, use)
        for place, base in enumerate(index["trained"]):
            if own := sorted(entry for entry in seeds if index["entries"][entry]["base"] == base):
                data[f"runs-{number}-{place}"] = {
                    "runs": runs.get(use, {}).get(base, []),
                    "internals": {entry: internals.get(use, {}).get(entry, []) for entry in own},
                    "seeds": {entry: seeds[entry] for entry in own},
                }
    return _files(data, _summary(boards, runs))


def write(made: Mapping[str, str], folder: Path) -> Path:
    """Write all files into a folder, in place of older ones. Returns the page.

    Raises UsageError if writing fails, and for a folder with a page that lgbench did not write.
    """
    page = folder / "index.html"
    if page.is_file() and b'content="lgbench' not in page.read_bytes():
        raise UsageError(f"{str(page)!r} is not a page of lgbench, and stays as it is; name another folder with --out")
    for name, text in made.items():
        replace(folder / name, text.encode())
    return page


def _boards(
    results: Results, families: Mapping[str, Sequence[str]], protocol: str | None, baseline: str | None
) -> list[PageBoard]:
    """Boards by metric, each family before its tasks."""
    found: list[PageBoard] = []
    for metric in results.ranking_names:
        of_families = _by_name(results, "family", metric, protocol, baseline)
        of_tasks = _by_name(results, "task", metric, protocol, baseline, families)  # a family named like its task has the name
        for family, tasks in families.items():
            found += of_families.get(family, ())
            for task in tasks:
                found += of_tasks.get(task, ())
    return [page_board for page_board in found if page_board.board.rows]


def _by_name(
    results: Results,
    kind: Literal["family", "task"],
    metric: str,
    protocol: str | None,
    baseline: str | None,
    left_out: Collection[str] = (),
) -> dict[str, list[PageBoard]]:
    apart = kind == "task"
    # Curves of the primary metric only, at few lengths: more would be most of the page.
    with_steps = results.steps(metric, None, protocol, apart=apart) if metric == PRIMARY_METRIC else []
    steps = {_place(each.board): each for each in with_steps if each.curves}
    found: dict[str, list[PageBoard]] = {}
    for board in results.boards(metric, None, protocol, baseline=baseline, apart=apart):
        if board.name not in left_out:
            whole = board if results.reference is None else with_own(results, board)
            found.setdefault(board.name, []).append(PageBoard(kind, whole, steps.get(_place(board))))
    return found


def _place(board: BoardHeader) -> tuple[object, ...]:
    """Key of a board: name, metric, task version and protocol."""
    return board.name, board.metric, board.task_version, board.protocol


def _index(results: Results, families: Mapping[str, Sequence[str]], boards: Sequence[PageBoard]) -> dict[str, Any]:
    """Index of the page: names and places of all boards, and the content needed before a board is read."""
    shown = {page_board.board.name for page_board in boards}
    used = {page_board.board.protocol for page_board in boards}
    entries = _entries(results, boards)
    return {
        "metrics": {metric.key: metric for metric in dict.fromkeys(each.board.metric for each in boards)},
        "families": [{"name": name, "tasks": tasks} for name, tasks in families.items() if {name, *tasks} & shown],
        "boards": [{"id": i} | _summary_of(page_board) for i, page_board in enumerate(boards)],
        "start": _start(results, boards),
        "protocols": [str(use) for use in results.protocols.values() if use in used],
        "entries": entries,
        "trained": sorted({own["base"] for own in entries.values()}),
    }


def _start(results: Results, boards: Sequence[PageBoard]) -> dict[str, Any]:
    """First board on the page: primary metric, then the protocol of most families, then the most telling, then most entries."""
    place = list(results.protocols.values()).index
    families: dict[ProtocolUse, set[str]] = defaultdict(set)
    for each in boards:
        if each.kind == "family" and each.board.metric.name == PRIMARY_METRIC:
            families[each.board.protocol].add(each.board.name)

    def wanted(page_board: PageBoard) -> tuple[bool, int, int, int]:
        board = page_board.board
        return board.metric.name == PRIMARY_METRIC, len(families[board.protocol]), -place(board.protocol), len(board.rows)

    board = max(boards, key=wanted).board
    versions = {"version": board.task_version, "metric_version": board.metric.version, "key": board.metric.key}
    return {"name": board.name, "metric": board.metric.name, "protocol": str(board.protocol)} | versions


def _grids(
    results: Results, families: Mapping[str, Sequence[str]], boards: Sequence[PageBoard], classes: Mapping[str, str]
) -> Iterable[Grid]:
    """Grid of the primary metric, for each protocol with a board of a family."""
    for use in results.protocols.values():
        own = [each for each in boards if each.board.protocol == use and each.board.metric.name == PRIMARY_METRIC]
        newest: dict[str, PageBoard] = {}  # of several versions of a task, the first
        for each in own:
            newest.setdefault(each.board.name, each)
        of_families = [each.board for each in newest.values() if each.kind == "family"]
        of_tasks = {name: each.board for name, each in newest.items() if [name] == [*families.get(name, [name])]}
        if of_families:
            yield grid(of_families, of_tasks, classes)


def _use(page_board: PageBoard) -> tuple[str, str]:
    """Protocol and metric of a board."""
    return str(page_board.board.protocol), page_board.board.metric.name


def _summary_of(page_board: PageBoard) -> dict[str, Any]:
    board = page_board.board
    return {
        "kind": page_board.kind,
        "name": board.name,
        "metric": board.metric.name,
        "metric_version": board.metric.version,
        "protocol": str(board.protocol),
        "version": board.task_version,
        "entries": [row.entry for row in board.rows],
        "own": [*(board.own or ()), *(row.entry for row in board.unranked)],
        "axis": {"train_length": board.train_length, "lengths": marked(board.all_lengths, board.train_length)},
        "steps": list(page_board.steps.curves) if page_board.steps else [],
    }


def _board_document(board: Board) -> dict[str, Any]:
    """Board with its notes. The values of seeds, half of its size, are left out: only the view of an entry shows them."""

    def without_values(row: Row) -> dict[str, Any]:
        cells = [{name: value for name, value in vars(cell).items() if name != "values"} for cell in row.cells]
        return vars(row) | {"cells": cells}

    shown = {name: [without_values(row) for row in rows] for name, rows in (("rows", board.rows), ("unranked", board.unranked))}
    return vars(board) | shown | {"notes": notes(board)}


def _seeds(boards: Sequence[PageBoard], protocol: str) -> dict[str, dict[str, list[tuple[float | None, ...]]]]:
    """Values of the seeds of each cell, by entry and id of the board, in the order of the cells."""
    found: dict[str, dict[str, list[tuple[float | None, ...]]]] = defaultdict(dict)
    for i, each in enumerate(boards):
        if str(each.board.protocol) == protocol:
            for row in each.board.rows:
                found[row.entry][str(i)] = [cell.values for cell in row.cells]
    return found


def _step_document(steps: BoardSteps) -> dict[str, Any]:
    """Step curves of a board. Points are lists of step, mean, low, high and n, half as long as objects."""
    return {
        str(length): {
            "context_free": curves.context_free,
            "axis": {"shortest": curves.steps[0], "longest": curves.steps[-1], "lengths": step_marks(curves.steps)},
            "entries": {
                entry: [[cell.length, cell.mean, cell.low, cell.high, cell.n] for cell in own]
                for entry, own in curves.cells.items()
            },
        }
        for length, curves in steps.curves.items()
    }


def _entries(results: Results, boards: Iterable[PageBoard]) -> dict[str, dict[str, Any]]:
    """Base entry (that of the training), tested weights, place among colours and short name of the entries on the boards."""
    ranked = {row.entry for page_board in boards for row in page_board.board.rows}
    found = results.rows("select distinct run_id, entry, weights from models where entry is not null")
    trained = {run: entry for run, entry, weights in found if weights == "raw"}
    known = {(trained.get(run, entry), weights != "raw", weights, entry) for run, entry, weights in found if entry in ranked}
    place = results.entry_order.index
    return {
        entry: {"base": base, "weights": weights, "place": place(entry), "short": entry.removeprefix(PREFIX)}
        for base, _, weights, entry in sorted(known)
    }


def _summary(boards: Sequence[PageBoard], runs: Documents) -> str:
    count = sum(len(own) for by_entry in runs.values() for own in by_entry.values())
    protocols = sorted({str(page_board.board.protocol) for page_board in boards})
    under = f"protocol {protocols[0]}" if len(protocols) == 1 else counted(len(protocols), "protocol")
    return (
        f"{counted(count, 'run')}, {under}. "
        f"lgbench {VERSION} made this page from run files alone. It loads nothing from elsewhere."
    )


def run_documents(results: Results, metadata: Mapping[str, Mapping[str, Any]], protocols: Collection[ProtocolUse]) -> Documents:
    """Metadata and training curves of runs by protocol and entry, under the given protocols."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    names = ("run_id", "task", "task_version", "seed", "diverged_step")
    for *own, number, entry, curves in results.rows(packaged("trainings"), {"curves": list(CURVE_METRICS)}):
        if (protocol := results.protocols[number]) in protocols:
            run = dict(zip(names, own, strict=True))
            about = metadata[run["run_id"]]
            run |= {name: _curve((curves or {}).get(name, ())) for name in CURVE_METRICS}
            run |= {"measurements": [metric.key for metric in described(about)]}
            run |= {"about": _shown(about), "tuning": _tuning(about)}
            found[str(protocol)][entry].append(run)
    return {
        protocol: {entry: _each_tuning_once(own) for entry, own in sorted(by_entry.items())}
        for protocol, by_entry in found.items()
    }


def _curve(points: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Steps and values of a training curve, with as many digits as a small chart tells."""
    known = (own["value"] for own in points)
    values = [None if value is None or not isfinite(value) else float(f"{value:.3g}") for value in known]
    return {"steps": [own["step"] for own in points], "values": values}


def _shown(about: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata that the page shows, but the tuning."""
    experiment = {name: value for name, value in about["experiment"].items() if name != "tuning"}
    plugins = [each for each in about.get("plugins", ()) if each["takes_part"]]
    others = {name: about.get(name) for name in ("execution", "seconds", "environment")}
    return {"experiment": experiment, "plugins": plugins, **others}


def _tuning(about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Learning rates that were tried, each with the loss of every tuning seed, None if it diverged. None without a tuning."""
    tuning = msgspec.convert(about["experiment"].get("tuning"), Tuning | None)
    if tuning is None:
        return None
    losses = {(run.lr, run.seed): run.loss for run in tuning.runs if isfinite(run.loss)}
    rates = sorted({*tuning.grid, *(run.lr for run in tuning.runs)})
    tried = [(lr, [losses.get((lr, seed)) for seed in tuning.seeds]) for lr in rates]
    return {"chosen": tuning.chosen, "steps": tuning.steps, "seeds": tuning.seeds, "tried": tried}


def _each_tuning_once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of an entry under one protocol, in order. A tuning shared by several runs of a task stays only in the first."""
    runs = sorted(runs, key=lambda run: [run[name] for name in ("task", "task_version", "seed", "run_id")])
    seen: set[str] = set()
    for run in runs:
        said = repr((run["task"], run["task_version"], run["tuning"]))
        if said in seen:
            run["tuning"] = None
        seen.add(said)
    return runs


def internals_documents(results: Results, protocols: Collection[ProtocolUse]) -> Documents:
    """Probe readings by protocol and entry: for each task and probe, means over heads and seeds by layer and length.

    Entries without probe readings are left out.
    """
    known = {(metric.name, metric.version): metric for metric in results.metrics}
    unranked = sorted({metric.name for metric in results.metrics if not metric.ranks})
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for (entry, task, version, number, *metric), own in groupby(
        results.rows(packaged("layers"), {"unranked": unranked}), key=lambda row: row[:6]
    ):
        about, protocol = known.get((metric[0], metric[1])), results.protocols[number]
        if about is not None and protocol in protocols:
            of = {"task": task, "task_version": version, "metric": about.key, "title": about.title}
            layers = groupby(own, key=lambda row: row[6])
            found[str(protocol)][entry].append(of | {"layers": [_line(layer, list(rows)) for layer, rows in layers]})
    return dict(found)


def _line(layer: int | None, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Probe readings of one layer by length, with as many digits as a small chart tells."""
    values = [float(f"{value:.3g}") for *_, value, _ in rows]  # a row of layers.sql ends with layer, length, value, seeds
    return {"layer": layer, "lengths": [row[7] for row in rows], "values": values, "seeds": max(row[9] for row in rows)}


def glossary() -> list[dict[str, Any]]:
    """Words of glossary.md, with all their names and their explanation as plain text."""
    return [
        {"names": re.sub(r" \(([^)]*)\)", r", \1", _plain(names)).split(", "), "text": _plain(text)}
        for names, text in re.findall(r"^(\S.*)\n:   (.*(?:\n    .*)*)", _packaged("glossary.md"), re.MULTILINE)
    ]


def _plain(markdown: str) -> str:
    """Text of a line of Markdown, without marks of code and emphasis."""
    return re.sub(r"\\(.)", r"\1", re.sub(r"`|(?<!\\)\*|\n +", lambda mark: " " if mark[0][0] == "\n" else "", markdown))


SCRIPTS = ("data", "elements", "charts", "board", "entry", "compare", "overall", "claims", "start", "main")
"""Scripts in order of execution: later scripts use earlier scripts."""


def _files(data: Mapping[str, Any], summary: str) -> dict[str, str]:
    """Files of the page. Its security policy allows only scripts and styles in files of their own, and no requests."""
    rules = MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page = environment.from_string(_packaged("page/page.html"))
    script = "\n".join(_packaged(f"page/{name}.js") for name in SCRIPTS)
    plain = {name: msgspec.json.encode(content).decode() for name, content in data.items()}
    return {
        "index.html": page.render(generator=f"lgbench {VERSION}", summary=summary, rules=rules, index=data["index"]),
        "page.css": _packaged("page/page.css"),
        "page.js": f'"use strict";\n(() => {{\n{script}}})();\n',
        **{f"data/{name}.js": f'(window.lgbench ??= {{}})["{name}"] = {content};\n' for name, content in plain.items()},
    }


def _packaged(name: str) -> str:
    return files("lgbench.reports").joinpath(*name.split("/")).read_text(encoding="utf-8")
