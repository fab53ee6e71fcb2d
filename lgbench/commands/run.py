"""`lgbench run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.commands.surroundings import console, installed, plugin_option, results_option
from lgbench.errors import Interrupted, RunFailed, UsageError
from lgbench.options import Change, Names, Seeds, joined, split


@click.command()
@click.option("--task", "tasks", type=Names("tasks"), multiple=True, required=True, help="Task, family, or all.")
@click.option(
    "--arch",
    "archs",
    type=Names("archs", "norms", "attentions", "positions"),
    multiple=True,
    required=True,
    help="Architecture, its parts (norm, attention, position), or all joined by +, as in transformer+peri-norm.",
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
    help="Leave the protocol: train.steps=500, model.layers=4. Several values (train.lr=1e-3,3e-3, or repeated) make a grid.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--compile/--no-compile", default=None, help="Compile the training step.  [default: where it takes less time]")
@click.option("--population", type=int, help="Most models to train together.  [default: as many as fit into memory]")
@click.option("--checkpoint", type=float, default=60.0, show_default=True, help="Seconds of training between checkpoints.")
@plugin_option
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
    plugins: Sequence[Path],
    results: Path,
) -> None:
    """Train and test entries on tasks, and write a Parquet file a run.

    Options that take names can be repeated, or take several with commas between; together they make a grid. A run that
    is already among the results is not run again, and several commands at once share the work.
    """
    from lgbench.experiment import Request, plan
    from lgbench.running.execution import Execution, choose_device
    from lgbench.running.grid import path_of
    from lgbench.running.progress import ConsoleWatcher
    from lgbench.running.runner import run_plan
    from lgbench.showing import curves

    registry = installed(plugins)
    request = Request(split(tasks), split(archs), _averagers(average), seeds, protocol, joined(changes))
    planned = plan(request, registry)
    execution = Execution(choose_device(device), compile, population, checkpoint)
    watcher = ConsoleWatcher(console(stderr=True))
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
        click.echo(f"{runs} written to {results}/; see `lgbench leaderboard{same_folder(results)}`")
    paths = {*outcome.written, *outcome.found}
    done = [(own, path) for own in planned.experiments if (path := path_of(own, results)) in paths]
    for line in curves.lines(done, console().encoding):
        click.echo(line)
    if outcome.failed:
        raise RunFailed("; ".join(str(failure) for failure in outcome.failed))


def _averagers(average: Sequence[str]) -> list[str] | None:
    """Those that `--average` names; None, which means all, where it is not said."""
    names = split(average)
    others = [name for name in names if name != "none"]
    if others and "none" in names:
        raise UsageError(f"--average names none and {', '.join(others)}: say none for the raw weights alone, or leave it out")
    return others if average else None


def same_folder(results: Path) -> str:
    return "" if results == Path("results") else f" --results {results}"
