"""The setup of commands: they open installed plugins and a results folder before they begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.cli.output import complain, keep_output
from lgbench.errors import UsageError
from lgbench.terminal import printable

if TYPE_CHECKING:
    from lgbench.extensions.registry import Registry
    from lgbench.results.boards import Board
    from lgbench.results.leaderboard import Results
    from lgbench.results.values import Inside


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
    warn(results.left_out)
    return results


def warn(sentences: Iterable[str]) -> None:
    """Say what is left out, on standard error."""
    for sentence in sentences:
        complain(f"warning: left out: {printable(sentence)}")


def boards_of(
    results: Results,
    metric: str,
    task: str | None,
    protocol: str | None,
    baseline: str | None = None,
    inside: Inside | None = None,
) -> list[Board]:
    """The boards that the options of :func:`lgbench.cli.options.board_options` choose; of probes, inside of models.

    Raises UsageError if there are none.
    """
    found = results.boards(metric, task, protocol, baseline=baseline, inside=inside)
    warn(results.no_boards)
    if not found:
        place = printable(str(results.folder))
        raise UsageError(f"no {metric} in {place} for this task and protocol; leave one out to see all boards")
    return found
