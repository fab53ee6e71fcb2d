"""The setup of commands: they open installed plugins and a results folder before they begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.cli.output import call_copy, complain, keep_output
from lgbench.errors import UsageError
from lgbench.results.addresses import Address, Place
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


def opened(folder: Place) -> Results:
    """The runs of a folder or an address. Warns of each file that is no run file."""
    from lgbench.results.leaderboard import Results

    if isinstance(folder, Address):
        named_as(folder)
    results = Results(folder)
    warn(results.left_out)
    return results


def warn(sentences: Iterable[str]) -> None:
    """Say what is left out, on standard error."""
    for sentence in sentences:
        complain(f"warning: left out: {printable(sentence)}")


def here(places: Iterable[Place]) -> list[Path]:
    """Run files and folders of them on this machine: an address is copied."""
    return [_copied(each) if isinstance(each, Address) else each for each in places]


def _copied(address: Address) -> Path:
    from lgbench.results.mirror import fetched

    named_as(address.folder if address.is_file else address)
    return fetched(address)


def named_as(address: Address) -> None:
    """From now on, sentences name files by their addresses."""
    from lgbench.results.mirror import place_of

    call_copy(place_of(address), address)


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
        place = printable(str(results.place))
        raise UsageError(f"no {metric} in {place} for this task and protocol; leave one out to see all boards")
    return found
