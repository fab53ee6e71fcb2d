"""The command line. Help imports neither torch nor DuckDB nor any plugin, so heavy modules are imported by commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lgbench.contracts import METRICS
from lgbench.errors import Interrupted, LgbenchError, RunFailed, UsageError
from lgbench.options import Change, Names, Seeds

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.leaderboard import Results
    from lgbench.registry import Registry

KINDS = ("tasks", "archs", "norms", "averagers", "protocols")


class Group(click.Group):
    """Errors of lgbench become one sentence and their exit code; an interrupt says what is left."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LgbenchError as error:
            click.echo(f"lgbench: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Interrupted.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads on, as in `lgbench list tasks | head`
            ctx.exit(0)


results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder where runs live.",
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lgbench")
def main() -> None:
    """Train sequence models on short inputs, test them on long ones, and measure what survives."""


@main.command()
@click.option("--task", "tasks", type=Names("tasks"), multiple=True, required=True, help="Task, family, or all.")
@click.option(
    "--arch",
    "archs",
    type=Names("archs", "norms"),
    multiple=True,
    required=True,
    help="Norm, architecture, or both as arch+norm.",
)
@click.option(
    "--average",
    type=Names("averagers"),
    multiple=True,
    help="Averagers to evaluate beside the raw weights, or none.  [default: all]",
)
@click.option("--seeds", type=Seeds(), default="0:3", show_default=True, help="A range such as 0:3, or numbers such as 0,5.")
@click.option(
    "--protocol",
    type=Names("protocols"),
    default="standard",
    show_default=True,
    help="What must be equal for entries to be compared.",
)
@click.option(
    "--set",
    "changes",
    type=Change(),
    multiple=True,
    help="Leave the protocol: train.steps=500, model.layers=4. Several values, as in train.lr=1e-3,3e-3, make a grid.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--compile/--no-compile", default=None, help="Compile the training step.  [default: where it takes less time]")
@click.option("--population", type=int, help="Most models to train together.  [default: as many as fit into memory]")
@click.option("--checkpoint", type=float, default=60.0, show_default=True, help="Seconds of training between checkpoints.")
@results_option
def run(
    tasks: Sequence[str],
    archs: Sequence[str],
    average: Sequence[str],
    seeds: tuple[int, ...],
    protocol: str,
    changes: Sequence[tuple[str, str]],
    device: str,
    compile: bool | None,
    population: int | None,
    checkpoint: float,
    results: Path,
) -> None:
    """Train and test entries on tasks, and write a Parquet file a run.

    Options that take names can be repeated, or take several with commas between; together they make a grid. A run that
    is already among the results is not run again, and several commands at once share the work.
    """
    from lgbench.execution import Execution, choose_device
    from lgbench.experiment import Request, plan
    from lgbench.progress import ConsoleWatcher
    from lgbench.runner import run_plan

    registry = _registry()
    averagers = None if not average else [name for name in _split(average) if name != "none"]
    request = Request(_split(tasks), _split(archs), averagers, seeds, protocol, dict(changes))
    planned = plan(request, registry)
    execution = Execution(choose_device(device), compile, population, checkpoint)
    watcher = ConsoleWatcher(_console(stderr=True))
    for sentence in planned.refusals:
        watcher.say(sentence)
    try:
        outcome = run_plan(planned, registry, execution, results, watcher)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; no file was left half written. Runs that were done are kept, and the same command goes on "
            "with the others, from the latest checkpoint where there is one."
        ) from None
    if outcome.found:
        runs = "1 run was" if len(outcome.found) == 1 else f"{len(outcome.found)} runs were"
        where = outcome.found[0] if len(outcome.found) == 1 else f"{results}/"
        click.echo(f"{runs} done before and not run again: {where}")
    if outcome.written:
        runs = "1 run" if len(outcome.written) == 1 else f"{len(outcome.written)} runs"
        click.echo(f"{runs} written to {results}/; see `lgbench leaderboard{_same_folder(results)}`")
    if outcome.failed:
        raise RunFailed("; ".join(str(failure) for failure in outcome.failed))


@main.command()
@click.option("--task", help="Family or task.  [default: every family]")
@click.option("--metric", type=click.Choice(METRICS), default="tvd", show_default=True, help="What to rank by.")
@click.option("--protocol", help="Protocol, or its full label.  [default: every one found]")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "csv", "json"]), default="table", show_default=True)
@results_option
def leaderboard(task: str | None, metric: str, protocol: str | None, form: str, results: Path) -> None:
    """Rank the entries: mean over seeds at each length, in the training range, and beyond it."""
    from lgbench import render

    opened = _open(results)
    boards = opened.boards(metric, task, protocol)
    if not boards:
        raise UsageError(f"no {metric} in {results} for this task and protocol")
    if form == "table":
        render.table(boards, _console())
    else:
        click.echo(render.FORMATS[form](boards), nl=False)


@main.command()
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@results_option
def sql(query: str, form: str, results: Path) -> None:
    """Ask anything of the table `results`, in DuckDB's SQL.

    For example: lgbench sql "select entry, avg(value) from results where metric = 'tvd' and length = 64 group by all"
    """
    from lgbench import render

    names, rows = _open(results).ask(query)
    render.answer(names, rows, form, _console())


@main.command(name="list")
@click.argument("kind", type=click.Choice(KINDS))
def list_names(kind: str) -> None:
    """List what can be named."""
    from lgbench import describe

    for name, about in describe.summaries(kind, _registry()):
        click.echo(f"{name:<24}{about}".rstrip())


@main.command()
@click.argument("name", type=Names("tasks", "archs", "norms", "averagers", "protocols"))
def show(name: str) -> None:
    """Show what NAME is: its rule, its sizes and, for a task, three sample contexts with p*."""
    from lgbench import describe

    click.echo(describe.page(name, _registry()))


@main.command()
def plugins() -> None:
    """Show what is installed, what each plugin provides, and what failed to load."""
    from lgbench import describe
    from lgbench.registry import Registry

    registry = Registry.load()
    click.echo("\n".join(describe.plugins(registry)))
    if registry.problems():
        sys.exit(1)


def _split(values: Sequence[str]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _registry() -> Registry:
    """Everything installed; what is wrong with a plugin is told, and nothing else is hurt by it."""
    from lgbench.registry import Registry

    registry = Registry.load()
    for problem in registry.problems():
        click.echo(f"lgbench: warning: {problem}", err=True)
    return registry


def _open(folder: Path) -> Results:
    from lgbench.leaderboard import Results

    opened = Results(folder)
    for sentence in opened.left_out:
        click.echo(f"lgbench: warning: left out: {sentence}", err=True)
    return opened


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr)
    # A pipe has no width to fit into: nothing is cut there.
    return console if console.is_terminal else Console(stderr=stderr, width=200)


def _same_folder(results: Path) -> str:
    return "" if results == Path("results") else f" --results {results}"
