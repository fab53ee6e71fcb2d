"""Published runs, and own runs beside them: on their boards, or below where the training was another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lgbench.checkout import ROOT
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import Board, ranked_rows
from lgbench.results.columns import ID, OOD, BoardValues, Column
from lgbench.results.leaderboard import Inside, Results

PACKAGE = "lgbench_published"
"""Package with a submission file of published runs, for installations without a checkout."""


def published() -> Path:
    """Folder with the published runs: of the checkout, or of the installed package. Raises UsageError without either."""
    in_checkout = ROOT / "leaderboards" / "runs"
    if in_checkout.is_dir():
        return in_checkout
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "the published runs are not here: a checkout of lgbench has them, and so has the package lgbench-published, which "
            "`pip install hatchling && pip wheel --no-deps --no-build-isolation ./leaderboards/published` makes in a checkout"
        )
    return Path(spec.submodule_search_locations[0])


def shown(
    results: Results,
    metric: str,
    name: str | None = None,
    protocol: str | None = None,
    entries: Sequence[str] = (),
    *,
    baseline: str | None = None,
    inside: Inside | None = None,
) -> tuple[list[Board], str | None, list[str]]:
    """Boards of the most telling protocol with all `entries`; that protocol and the others, as in :meth:`Results.one_protocol`.

    Beside reference runs, every family has the most telling protocol of its own reference runs, and own runs of other
    protocols are below the ranked entries.
    """
    if results.reference is None:
        label, others = results.one_protocol(metric, name, protocol, entries, inside)
        return results.boards(metric, name, label, baseline=baseline, inside=inside), label, others
    label, others = results.one_protocol(metric, name, protocol, inside=inside)
    boards: list[Board] = []
    for each in sorted(results.families) if name is None else [name]:
        own, _ = results.one_protocol(metric, each, protocol, inside=inside)
        found = results.boards(metric, each, own, baseline=baseline, inside=inside)
        boards += found if own is None else [with_own(results, board, inside) for board in found]
    return boards, label, others


def with_own(results: Results, board: Board, inside: Inside | None = None) -> Board:
    """Board with the names of own entries, and with own runs of other protocols below."""
    versions = "unnest(versions_of(family, task_version, family_versions, $name, false))"
    ran = "own and entry is not null and belongs(family, task, $name)"
    query = f"select distinct protocol, {versions}, entry from models where {ran}"
    own = {(results.protocols[number], version, entry) for number, version, entry in results.rows(query, {"name": board.name})}
    if not own:
        return replace(board, own=())
    named = {(protocol, entry) for protocol, _, entry in own}
    named -= {(protocol, entry) for protocol, version, entry in own if version == board.task_version}
    if other := sorted(f"{entry} ({protocol})" for protocol, entry in named):
        said = f"{', '.join(other)}: left out, with runs of other versions of the tasks of {board.name}"
        board = replace(board, incomplete=(*board.incomplete, said))
    every = [
        (header.protocol, models)
        for header, models in results.models(board.metric.name, board.name, inside=inside)
        if (header.task_version, header.metric) == (board.task_version, board.metric)
    ]
    ranked = dict(every)[board.protocol]
    board = replace(board, own=tuple(r.entry for r in board.rows if (board.protocol, board.task_version, r.entry) in own))
    for protocol, models in every:
        entries = [entry for entry in models.entries if (protocol, board.task_version, entry) in own]
        if entries and protocol != board.protocol:
            board = _with_unranked(board, ranked, protocol, models, entries)
    return board


def _with_unranked(
    board: Board, ranked: BoardValues, protocol: ProtocolUse, models: BoardValues, entries: Sequence[str]
) -> Board:
    """Board with entries of another protocol below, named with the protocol. Their means are over its lengths, or left out."""
    named = {entry: f"{entry} ({protocol})" for entry in entries}
    on = _on(ranked, models, entries)
    rows = ranked_rows(on, board.metric, board.train_length, board.context_free, "") if on and on.columns else ()
    means = {column for column in (ID, OOD) if on and _lengths(ranked, column) == _lengths(on, column)}
    below = [
        replace(
            row,
            entry=named[row.entry],
            protocol=protocol,
            tier=None,
            rank_interval=None,
            better_than=(),
            cells=tuple(cell for cell in row.cells if cell.length is not None or (cell.kind, None) in means),
        )
        for row in rows
    ]
    missing = [named[entry] for entry in entries if entry not in {row.entry for row in rows}]
    left_out = [f"{', '.join(missing)}: left out for want of values on all tasks of {board.name}"] if missing else []
    reasons = {name: on.unsound(entry) for entry, name in named.items()} if on else {}
    unsound = [f"the numbers of {name} have no meaning: {reason}" for name, reason in reasons.items() if reason]
    return replace(
        board,
        unranked=(*board.unranked, *below),
        incomplete=(*board.incomplete, *left_out),
        unsound=(*board.unsound, *unsound),
    )


def _on(board: BoardValues, models: BoardValues, entries: Sequence[str]) -> BoardValues | None:
    """Values of entries on the tasks of another board, at the lengths that both have. None without a common length or task."""
    lengths = [length for length in board.lengths if length in models.lengths]
    if not lengths or not {*board.tasks} <= {*models.tasks}:
        return None
    places = [
        [models.entries.index(entry) for entry in entries],
        range(len(models.seeds)),
        [models.tasks.index(task) for task in board.tasks],
        [models.lengths.index(length) for length in lengths],
    ]
    return replace(
        models,
        entries=tuple(entries),
        tasks=board.tasks,
        lengths=tuple(lengths),
        values=models.values[np.ix_(*places)],
        measured=models.measured[np.ix_(*places)],
        in_distribution=board.in_distribution[:, [board.lengths.index(length) for length in lengths]],
    )


def _lengths(models: BoardValues, column: Column) -> list[int]:
    """Lengths of the mean ID or OOD."""
    trained = np.all(models.in_distribution, axis=0)
    return [length for place, length in enumerate(models.lengths) if trained[place] == (column == ID)]
