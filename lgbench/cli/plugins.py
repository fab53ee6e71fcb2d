"""`lgbench list`, `show`, `plugins`, `check`, `new-plugin` and `selftest`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from lgbench.cli import options
from lgbench.cli.output import complain, console, echo, installed, keep_output
from lgbench.errors import LgbenchError, PluginError, unknown
from lgbench.extensions import commands
from lgbench.extensions import new_plugin as packages
from lgbench.extensions.describe import KINDS
from lgbench.terminal import counted, printable, wrapped

if TYPE_CHECKING:
    from lgbench.conformance.check import Check
    from lgbench.extensions.loading import Distribution
    from lgbench.extensions.registry import Plugin, Registry
    from lgbench.reports.tables import Table


@click.command(name="list")
@click.argument("kind", type=click.Choice(list(KINDS)), required=False, metavar="[KIND]")
@options.plugin_option
def list_names(kind: str | None, plugins: Sequence[Path]) -> None:
    """List what is installed, by kind.

    Without KIND, the kinds are listed, with the number of things of each. Each line has a name and a sentence about it;
    `lgbench show NAME` says more. Metrics are a table: whether a lower or a higher value is better, the range of values, the
    threshold of the effective length, and what each is computed from.
    """
    from lgbench.extensions import describe

    registry = installed(plugins)
    if kind is None:
        for each in KINDS:
            echo(f"{each:<12}{len(describe.summaries(each, registry)):>4}")
        return
    if kind == "metrics":
        from lgbench.reports.tables import Column, Table, show

        columns = [Column(name, text=True, group=group) for name, group in describe.METRIC_COLUMNS.items()]
        show(Table("", columns, describe.metric_table(registry)), console())
        return
    for name, about in describe.summaries(kind, registry):
        echo(printable(f"{name:<23} {about}".rstrip()), hang=24)


@click.command()
@click.argument("name", type=options.Names(*KINDS.values()))
@options.plugin_option
def show(name: str, plugins: Sequence[Path]) -> None:
    """Show one thing: its rule, its sizes and its options.

    NAME is anything that `lgbench list` prints, or a family of tasks. For a task, three sample contexts and p* are shown.
    """
    from lgbench.extensions import describe
    from lgbench.extensions.function_files import take_functions

    (name,), files = take_functions([name])
    echo(describe.page(name, installed([*plugins, *files])))


@click.command()
@options.plugin_option
def plugins(plugins: Sequence[Path]) -> None:
    """Show the installed plugins, and why one failed to load.

    The table says what each plugin provides, and where it was installed from. The exit code is 1 if a plugin failed, or if two
    plugins provide the same name.
    """
    from lgbench.extensions.registry import Registry
    from lgbench.reports.tables import show

    keep_output()
    registry = Registry.load(files=plugins)
    registry.plugins += _commands()
    show(table(registry), console())
    for sentence in (*registry.problems(), *registry.notes()):
        echo(sentence)
    if registry.problems():  # the table has said why
        sys.exit(1)


def _commands() -> Iterator[Plugin]:
    """Commands of plugins, each listed as a separate plugin, since commands load independently."""
    from lgbench.extensions.loading import installed_source
    from lgbench.extensions.registry import Plugin

    for name, own in commands.named().items():
        error = None
        try:
            commands.command(name, _built_in())
        except PluginError as raised:
            error = str(raised)
        for entry_point in own:
            provides = {} if error else {"command": [name]}
            yield Plugin(entry_point.module, installed_source(entry_point).distribution, provides, error)


def _built_in() -> Collection[str]:
    """Names of the commands of lgbench."""
    main = click.get_current_context().find_root().command
    return main.commands if isinstance(main, click.Group) else ()


def table(registry: Registry) -> Table:
    """Table of plugins with source and provided names. Failed plugins are red."""
    from lgbench.reports.tables import Column, Styled, Table

    groups = {"plugin": 0, "distribution": 1, "version": 1, "from": 1, "provides": 0}
    columns = [Column(name, text=True, group=group) for name, group in groups.items()]
    rows = []
    for plugin in registry.plugins:
        origin = plugin.distribution
        version = f"sha256:{origin.stamp}" if origin.stamp else origin.version
        provides = "\n".join(wrapped(f"{kind}: {', '.join(names)}", 48, hang=2) for kind, names in plugin.provides.items())
        texts = plugin.name, origin.name, version, _from(origin), provides or "nothing, see below"
        rows.append([Styled(text, "red" if plugin.error else "") for text in texts])
    return Table("", columns, rows)


def _from(origin: Distribution) -> str:
    if origin.name == "lgbench":
        return "built in"
    if origin.stamp:
        return f"file {origin.url}"
    if not origin.url:
        return "index"
    place = unquote(urlsplit(origin.url).path) if origin.url.startswith("file:") else origin.url
    return place + (" (editable)" if origin.installed == "editable" else "")


@click.command()
@click.argument("names", metavar="[PLUGIN]...", nargs=-1)
@options.plugin_option
@click.option("--verbose", "-v", is_flag=True, help="Show the checks that passed, too.")
def check(names: Sequence[str], plugins: Sequence[Path], verbose: bool) -> None:
    """Check whether plugins keep to the contracts.

    PLUGIN is a file, a function in a file that builds a model, as in ./my_model.py:build, or the name of a plugin, of a
    package, of a command, or of a task, architecture or other provided part. Without it, the files of --plugin are checked, or
    all installed plugins and commands. The exit code is 1 if a check failed.
    """
    from lgbench.conformance.check import CheckFailed
    from lgbench.extensions.loading import parted
    from lgbench.extensions.registry import Registry

    keep_output()
    files = {name: Path(name) for name in names if parted(Path(name))[0].suffix == ".py"}
    registry = Registry.load(files=[*plugins, *files.values()])
    chosen = _chosen([files[name].name if name in files else name for name in names], bool(plugins), registry)
    failed = noted = 0
    for thing, own in groupby(chosen, key=lambda each: each.thing):
        echo(thing)
        said: set[str] = set()
        for each in own:
            try:
                note = each()
            except CheckFailed as error:
                failed += 1
                reason = str(error).removeprefix(f"{thing}: ")
                echo(f"  FAILED {each.name}" + (" (for the same reason)" if reason in said else f"\n    {reason}"))
                said.add(reason)
                continue
            noted += note is not None
            if note:
                echo(f"  note   {each.name}\n    {note}")
            elif verbose:
                echo(f"  passed {each.name}")
    notes = f", {noted} with a note" if noted else ""
    if failed:
        raise LgbenchError(f"{failed} of {len(chosen)} checks failed{notes}")
    echo(f"{'all ' * (len(chosen) > 1)}{counted(len(chosen), 'check')} passed{notes}")


def _chosen(names: Sequence[str], files_alone: bool, registry: Registry) -> list[Check]:
    from packaging.utils import canonicalize_name

    from lgbench.conformance.collect import checks_of, checks_of_commands, checks_of_plugin

    every = registry.plugins
    if not names:
        own = [plugin for plugin in every if plugin.distribution.stamp] if files_alone else every
        found = [each for plugin in own for each in checks_of_plugin(plugin, registry)]
        return found if files_alone else found + checks_of_commands(commands.named(), _built_in())
    owners = {name: [commands.owner(each) for each in own] for name, own in commands.named().items()}
    found = []
    for name in names:
        spelled = canonicalize_name(name)
        own = [p for p in every if spelled in (canonicalize_name(p.name), canonicalize_name(p.distribution.name))]
        things = [thing for catalog in registry.catalogs().values() if (thing := catalog.get(name)) is not None]
        given = [each for each, who in owners.items() if spelled in map(canonicalize_name, (each, *who))]
        if not (own or things or given):
            for problem in registry.problems():  # the name may be that of what a broken plugin would provide
                complain(f"warning: {problem}")
            known = {called for plugin in every for called in (plugin.name, plugin.distribution.name)}
            known |= {called for each, who in owners.items() for called in (each, *who)}
            raise unknown("plugin", name, known | {each for c in registry.catalogs().values() for each in c.names()})
        found += [each for plugin in own for each in checks_of_plugin(plugin, registry)]
        found += [] if own else [each for thing in things for each in checks_of(thing, registry)]
        found += checks_of_commands(given, _built_in())
    return found


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(packages.EXAMPLES)),
    metavar="KIND",
    required=True,
    help=f"Kind of thing that it provides: {', '.join(packages.EXAMPLES)}.",
)
@click.option("--out", "folder", type=options.FILE, help="Folder to write.  [default: lgbench-NAME]")
def new_plugin(name: str, kind: str, folder: Path | None) -> None:
    """Write a new plugin as a package, ready to be published.

    The package is a worked example of its kind: a method from the literature, with tests. Replace the method by yours. The
    author is taken from the settings of git, and the license is MIT.
    """
    package = packages.Package.named(name, kind)
    folder = folder or Path(package.distribution)
    packages.require_empty(folder)
    packages.require_free(package, installed())
    author, email = packages.author_by_git()
    packages.write(package.files(author or "YOUR NAME", email), folder)
    if not author:
        complain("git knows no author: replace YOUR NAME in pyproject.toml and LICENSE")
    what = packages.EXAMPLES[kind].what
    echo(f"{folder} has the {what} {package.provides}, in {package.module}/__init__.py. Next:\n")
    for command in (
        f"cd {shlex.quote(str(folder))}",
        'pip install -e ".[test]"',
        f"lgbench check {package.module}",
        f"lgbench run {package.run} --protocol quick",
    ):
        echo(f"  {command}")


@click.command()
@click.option("--device", default="cuda", show_default=True, help="Device: cuda, mps, or cpu to try the command itself.")
@click.option("--out", default="selftest.md", show_default=True, type=options.FILE, help="Report to write.")
@click.option("--small", is_flag=True, help="A few steps of each part: whether the parts run, and no proof.")
def selftest(device: str, out: Path, small: bool) -> None:
    """Compare a GPU with a CPU, and measure its pace.

    Trains one task with every norm scheme, and every task with four. Compares captured and compiled steps with plain ones, and
    counted memory with real memory. Measures populations of up to 1,024 models, bfloat16, and one family under the protocol
    standard. Takes about ten minutes on a GPU, and needs neither DuckDB nor a network. Exits with 1 if a part does not hold,
    and with 2 if there is no such device.
    """
    from lgbench import selftest as parts
    from lgbench.execution.device import choose_device

    where = choose_device(device)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.open("a").close()  # a file that cannot be written is told before ten minutes of work
    report, holds = parts.selftest(where, parts.SMALL if small else parts.Sizes(), complain)
    out.write_text(report, encoding="utf-8")
    echo(f"report written to {out}: please attach it to an issue")
    if not holds:
        complain(f"some part does not hold on {where.type}: see {out}")
        raise SystemExit(1)
