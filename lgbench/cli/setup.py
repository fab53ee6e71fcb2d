"""What commands open before they begin: installed plugins, a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.cli.output import complain, keep_output
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from lgbench.extensions.registry import Registry
    from lgbench.results.boards import Board
    from lgbench.results.leaderboard import Results


def installed(plugins: Sequence[Path] = ()) -> Registry:
    """Everything that is installed, and these files. Warns of each broken plugin."""
    from lgbench.extensions.registry import Registry

    keep_output()
    registry = Registry.load(files=plugins)
    for problem in [*registry.problems(), *registry.notes()]:
        complain(f"warning: {problem}")
    return registry


def opened(folder: Path) -> Results:
    """The runs of a folder. Warns of each file that is no run file."""
    from lgbench.results.leaderboard import Results

    results = Results(folder)
    for sentence in results.left_out:
        complain(f"warning: left out: {sentence}")
    return results


def boards(folder: Path, metric: str, task: str | None, protocol: str | None) -> list[Board]:
    """The boards that the options of :func:`lgbench.cli.options.board_options` choose. Raises UsageError if there are none."""
    found = opened(folder).boards(metric, task, protocol)
    if not found:
        raise UsageError(f"no {metric} in {folder} for this task and protocol; leave one out to see all boards")
    return found
