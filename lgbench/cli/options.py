"""Options of `lgbench run` and of commands that read results, types of options for all commands, and the opening of results."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from lgbench.cli.output import warn
from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import LgbenchError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.settings import MAX_SEEDS
from lgbench.options import RunOptions
from lgbench.results.entries import BASELINE_ENTRY

if TYPE_CHECKING:
    from lgbench.results.leaderboard import Results

RESULTS = Path("results")
"""The results folder unless --results names another."""


class Completed(click.ParamType):  # type: ignore[type-arg]  # generic in later releases of click only
    """Name, several names joined by commas, or entry joined by plus signs. The shell completes the names of `known`."""

    name = "name"

    def __init__(self, known: Callable[[click.Context], Iterable[str]]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        last = re.split("[,+]", incomplete)[-1]
        before = incomplete[: len(incomplete) - len(last)]
        try:
            names = dict.fromkeys(self.known(ctx))
        except (LgbenchError, OSError):  # a folder without results, for example: there is nothing to complete
            return []
        return [CompletionItem(before + name) for name in names if name.startswith(last)]


class Names(Completed):
    """Installed names of some kinds."""

    def __init__(self, *kinds: str) -> None:
        super().__init__(lambda _: _installed_names(kinds))


def seeds(text: str) -> tuple[int, ...]:
    """Seeds of an option: `0:3` is 0, 1, 2; `0,7` is 0 and 7; `5` is 5 alone. Raises BadParameter for any other text."""
    parts = text.split(",")
    ranges = [_range(part) for part in parts]
    for part, found in zip(parts, ranges, strict=True):
        if found and found.stop > 2**63:
            raise click.BadParameter(f"{part!r} is beyond the greatest seed, {2**63 - 1}")
        if not found or found.start < 0:
            raise click.BadParameter(f"{part!r} names no seeds; use a range such as 0:3, or whole numbers from 0 such as 0,5")
    if sum(found.stop - found.start for found in ranges) > MAX_SEEDS:  # len() fails for a range beyond 2^63
        raise click.BadParameter(f"{text!r} names more than {MAX_SEEDS} seeds, the most that one command runs")
    return tuple(dict.fromkeys(chain.from_iterable(ranges)))


def lengths(text: str) -> tuple[int, ...]:
    """Lengths of an option: `40,80` is 40 and 80. Raises BadParameter for any other text."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):  # isdigit alone takes ², which int() refuses
        raise click.BadParameter(f"{text!r} names no lengths; use whole numbers joined by commas, such as 40,80,160")
    return tuple(dict.fromkeys(map(int, parts)))


def change(text: str) -> tuple[str, str]:
    """Key and value of `key=value`. Raises BadParameter for any other text."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise click.BadParameter(f"{text!r} sets nothing; use key=value, as in the help of this option")
    return key.strip(), value.strip()


FILE = click.Path(path_type=Path)
"""File or folder."""
EXISTING = click.Path(exists=True, path_type=Path)
"""File or folder that is there."""
FOLDER = click.Path(path_type=Path, file_okay=False)


def _range(text: str) -> range:
    """Seeds of `0:3`, or of `5`; an empty range for any other text."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        return range(0)


def _installed_names(kinds: Iterable[str]) -> list[str]:
    """Installed names of some kinds, kind by kind in alphabetical order."""
    from lgbench.experiment.components import families_of, is_probe
    from lgbench.extensions.registry import Registry

    registry = Registry.load()
    catalogs, found = registry.catalogs(), list[str]()
    for kind in kinds:
        match kind:
            case "protocol":
                found += sorted(PROTOCOLS)
            case "probe":
                found += sorted([*(each.name for each in registry.measurements if is_probe(each)), "all"])
            case "task":
                found += sorted({*registry.tasks.names(), *families_of(registry), "all"})
            case _:
                found += catalogs[kind].names()
    return found


def split(values: Sequence[str]) -> list[str]:
    """Names in the values of a repeated option. A value may have several names joined by commas."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def values_by_key(changes: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """All given values of each key.

    >>> values_by_key([("train.lr", "1e-3"), ("train.steps", "500"), ("train.lr", "3e-3")])
    {'train.lr': ['1e-3', '3e-3'], 'train.steps': ['500']}
    """
    found: dict[str, list[str]] = {}
    for key, text in changes:
        found.setdefault(key, []).append(text)
    return found


Command = TypeVar("Command", bound=Callable[..., Any])


def _click_option(own: Field[Any]) -> Callable[[Command], Command]:
    """Click's option of one field of the options of `lgbench run`."""
    about, kind = own.metadata, own.metadata["kind"]
    named = about.get("flag", f"--{own.name.replace('_', '-')}")
    settings: dict[str, Any] = {"help": about["help"], "multiple": kind in _READ or kind == "files"}
    if read := _READ.get(kind):
        settings["callback"] = lambda context, parameter, given: read(given)
    if kind == "flag":
        return click.option(named, own.name, is_flag=True, help=about["help"])
    if kind == "switch":
        # The default None tells an option left out from --no-.
        return click.option(f"{named}/--no-{named[2:]}", own.name, default=None, help=about["help"])
    if own.default is MISSING and own.default_factory is MISSING:
        settings["required"] = True
    elif not settings["multiple"]:
        shown = about.get("shown", own.default)
        settings |= {"default": shown, "show_default": shown is not None}
    metavar = "KEY=VALUE" if kind == "changes" else None
    return click.option(named, own.name, type=_TYPES[kind](about.get("of", ())), metavar=metavar, **settings)


_TYPES: dict[str, Callable[[Sequence[str]], Any]] = {
    "name": lambda kinds: Names(*kinds),
    "names": lambda kinds: Names(*kinds),
    "averagers": lambda kinds: Names(*kinds),
    "seeds": lambda _: seeds,
    "changes": lambda _: change,
    "choice": click.Choice,
    "number": lambda _: click.INT,
    "seconds": lambda _: click.FLOAT,
    "text": lambda _: click.STRING,
    "files": lambda _: FILE,
    "folder": lambda _: FOLDER,
}

_READ: dict[str, Callable[[Any], Any]] = {
    "names": split,
    "averagers": lambda values: split(values) or None,
    "changes": values_by_key,
}

_RUN = {own.name: _click_option(own) for own in fields(RunOptions)}

plugin_option, device_option, results_option = _RUN["plugins"], _RUN["device"], _RUN["results"]


def gathered(kind: type[Any], name: str) -> Callable[[Command], Callable[..., Any]]:
    """Decorator for a command with a dataclass as argument `name`: the fields are options of the command."""

    def decorated(command: Command) -> Callable[..., Any]:
        @wraps(command)
        def collected(**given: Any) -> Any:
            own = {each.name: given.pop(each.name) for each in fields(kind)}
            return command(**{name: kind(**own)}, **given)

        return collected

    return decorated


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator with all options of `lgbench run`. The command gets a :class:`RunOptions` with unchecked names."""
    collected = gathered(RunOptions, "options")(command)
    for option in reversed(_RUN.values()):  # the last decorator is the first option in the help
        collected = option(collected)
    return collected


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def _results(folder: Path, beside: str | None) -> Results:
    from lgbench.results.leaderboard import Results
    from lgbench.results.published import published

    return Results(folder, published() if beside else None)


def opened(folder: Path, beside: str | None = None) -> Results:
    """Results of a folder, with published runs if `beside` says so. Warns of each unusable file."""
    gc.disable()  # the search for cycles among the labels of all runs takes a tenth of the time of a board
    click.get_current_context().call_on_close(gc.enable)
    results = _results(folder, beside)
    warn(results.left_out)
    return results


class NameInResults(Completed):
    """Name from the runs of the results folder."""

    def __init__(self, names: Callable[[Results], Iterable[str]]) -> None:
        super().__init__(lambda ctx: names(_results(ctx.params.get("results") or RESULTS, ctx.params.get("beside"))))


claims_option = click.option(
    "--claims",
    "claims_folder",
    type=click.Path(path_type=Path),
    help="Folder of claims.  [default: those that come with lgbench]",
)

_task = click.option(
    "--task",
    type=NameInResults(lambda results: results.task_names),
    help="Family or task to show.  [default: every family]",
)
protocol_name = NameInResults(lambda results: (name for use in results.protocols.values() for name in (use.name, str(use))))


def protocol_option(default: str) -> Callable[[Command], Command]:
    """Option --protocol, with a description of its default."""
    return click.option(
        "--protocol",
        type=protocol_name,
        help=f'Protocol to show: a name, a full label such as "standard/3 train.lr=0.001", or all.  [default: {default}]',
    )


baseline_option = click.option(
    "--baseline",
    metavar="ENTRY",
    help=f"Entry that the others are compared with, as on boards or short: peri-norm, lstm.  [default: {BASELINE_ENTRY}]",
)


beside_option = click.option(
    "--with",
    "beside",
    type=click.Choice(["published"]),
    help="Add the published runs. Boards mark your entries, and have those of other protocols below, without a rank.",
)


@dataclass(frozen=True)
class BoardQuery:
    """Choice of boards by the options of :func:`board_options` and --results."""

    task: str | None
    metric: str
    protocol: str | None
    beside: str | None
    results: Path


def board_options(purpose: str) -> Callable[[Command], Command]:
    """Options --task, --metric, --protocol and --with for the choice of boards; `purpose` is the help of the metric."""
    names = NameInResults(lambda results: results.metric_names)
    metric = click.option("--metric", type=names, default=PRIMARY_METRIC, show_default=True, help=purpose)
    protocol = protocol_option("one with runs: the newest standard, or else paper, long, short or quick")
    return lambda command: _task(metric(protocol(beside_option(command))))


def format_option(*others: str) -> Callable[[Command], Command]:
    """Option --format, by default a table; `others` are further formats."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", *others]),
        default="table",
        show_default=True,
        help="Format of the output.",
    )
