"""`lgbench run`: training, and the outcome in a terminal. `lgbench merge`: results folders become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli import options as cli_options
from lgbench.cli.output import complain, console, echo, installed, warn
from lgbench.errors import Interrupted, RunFailed, RunFileError
from lgbench.experiment.protocols import BOARDS_PROTOCOL, DEFAULT_PROTOCOL
from lgbench.options import RunOptions
from lgbench.terminal import counted, duration

if TYPE_CHECKING:
    from lgbench.execution.command import Command
    from lgbench.execution.scheduler import PlanOutcome
    from lgbench.experiment.experiment import Experiment
    from lgbench.experiment.plan import Plan
    from lgbench.extensions.registry import Registry


@click.command()
@cli_options.run_options
@click.option("--dry-run", is_flag=True, help="Say what would run and what that would take, and run nothing.")
def run(options: RunOptions, dry_run: bool) -> None:
    """Train entries on tasks and test them at every length.

    A run is one entry on one task with one seed, in one Parquet file. --task, --arch, --average, --probe and --logger can be
    repeated, or take several names joined by commas. Every combination of tasks, entries, seeds and values of --set is run.
    --optimizer and --protocol take one name, the last if repeated. Runs in the results folder are not repeated. Several
    commands at the same time share the work. A protocol may have tuning runs, which come first and choose a learning rate for
    each entry on each task.
    """
    from lgbench.execution.command import with_functions

    options = with_functions(options)
    run_request(options, installed([*map(Path, options.plugins)]), dry_run)


def run_request(options: RunOptions, registry: Registry, dry_run: bool = False) -> None:
    """Carry out the command of some options, and print the outcome. Raises RunFailed if any run failed."""
    from lgbench.execution.command import Command
    from lgbench.execution.progress import ConsoleProgress

    display = ConsoleProgress(console(stderr=True))
    command = Command.of(options, registry, display)
    for sentence in (*command.plan.refusals, *command.plan.notes):
        display.say(sentence)
    if dry_run:
        _forecast(command)
        return
    try:
        outcome = command.carry_out()
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; no file was left half written. Finished runs are kept. The same command continues with the others, "
            f"each from its latest checkpoint, if it has one yet: a training is saved every {options.checkpoint:g} s."
        ) from None
    _tell(outcome, command.plan, Path(options.results), options.save_weights)
    if options.protocol == DEFAULT_PROTOCOL and not options.set:
        boards = f"boards use --protocol {BOARDS_PROTOCOL}, and --dry-run says how long that takes at least"
        echo(f"{DEFAULT_PROTOCOL} shows what is learned fast; {boards}")


def _forecast(command: Command) -> None:
    """Print a forecast. Raises RunFailed if any first training step fails."""
    from lgbench.execution.device import Execution
    from lgbench.execution.scheduler import Forecast, Scheduler
    from lgbench.execution.workers import Setup

    rates, execution = command.rates, Execution.of(command.options)
    kinds: list[tuple[str, Sequence[Experiment], Path]] = [("run", command.plan.experiments, rates.results)]
    if due := rates.due():
        kinds.insert(0, ("tuning run", due, rates.folder))
    forecasts = [
        (kind, Forecast.of(Scheduler(experiments, Setup(folder, execution), command.display, rates.every)))
        for kind, experiments, folder in kinds
    ]
    for kind, forecast in forecasts:
        for line in forecast.lines(kind):
            echo(line)
    if len(forecasts) > 1:
        echo(f"tuning and runs together take about {duration(sum(forecast.seconds for _, forecast in forecasts))}")
    if failed := [sentence for _, forecast in forecasts for sentence in forecast.failed]:
        raise RunFailed("; ".join(dict.fromkeys(failed)))


def _tell(outcome: PlanOutcome, planned: Plan, results: Path, save_weights: bool) -> None:
    """Print the outcome of a command with training curves. Raises RunFailed if any run failed."""
    from lgbench.execution.work_queue import path_of
    from lgbench.reports import curves

    experiments = {path_of(experiment, Path()).name: experiment for experiment in planned.experiments}
    if outcome.found:
        where = results / outcome.found[0].name if len(outcome.found) == 1 else f"{results}/"
        echo(f"{counted(len(outcome.found), 'run', 'was', 'were')} done before and not run again: {where}")
        for sentence in _lacking({path: experiments[path.name] for path in outcome.found}, save_weights):
            echo(sentence)
    if outcome.written:
        folder = "" if results == cli_options.RESULTS else f" --results {results}"
        echo(f"{counted(len(outcome.written), 'run')} written to {results}/; see `lgbench leaderboard{folder}`")
    paths = {path.name: path for path in [*outcome.written, *outcome.found]}
    done = [(experiment.record, paths[name]) for name, experiment in experiments.items() if name in paths]
    shown = console()
    for line in curves.lines(done, shown.width if shown.is_terminal else None):
        echo(line)
    if outcome.failed:
        raise RunFailed("; ".join(str(failure) for failure in outcome.failed))


def _lacking(found: Mapping[Path, Experiment], save_weights: bool) -> list[str]:
    """Sentences about missing measurements of earlier runs, and about missing weights.

    A measurement is missing if not installed at the time, or not requested by --probe.
    """
    from lgbench.experiment.components import is_probe
    from lgbench.results.metrics import described
    from lgbench.results.run_files import metadata, saved_by

    lacking: Counter[str] = Counter()
    for path, experiment in found.items():
        about = metadata(path)
        known = {(metric.name, metric.version) for metric in described(about)}
        for each in experiment.measurements:
            if each.source(experiment.task) and (each.name, each.version) not in known:
                kind = "probe" if is_probe(each) else "measurement"
                lacking[f"the {kind} {each.name} (version {each.version})"] += 1
        if save_weights and saved_by(about) is None:
            lacking["saved weights"] += 1
    remedy = "run again with another --results folder"
    return [f"{counted(number, 'run', 'lacks', 'lack')} {what}: {remedy}" for what, number in sorted(lacking.items())]


@click.command()
@click.argument("folders", type=cli_options.FOLDER, nargs=-1, required=True)
@click.option("--out", type=cli_options.FOLDER, required=True, help="Folder that gets the runs. It may have some already.")
def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge the runs of several folders into one folder.

    FOLDERS are folders of runs, for example from several machines. A run in several folders is copied once. If two files of a
    run have different numbers, lgbench names both files. Tuning runs and saved weights are copied, too. Runs already in the
    target folder stay unchanged, and no file is removed.
    """
    from lgbench.results import merging

    try:
        done = merging.merge(folders, out)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; every file that was written is whole. The same command merges the others") from None
    weights = f", {done.weights} with weights" if done.weights else ""
    echo(f"{counted(done.written, 'run')} written to {out}/{weights}; {done.equal} were there already")
    warn(done.left_out)
    if done.different:
        for sentence in done.different:
            complain(sentence)
        files = counted(len(done.different), "file", "has", "have")
        raise RunFileError(f"{files} other numbers than another file of the same run; keep one file of each")
    if done.left_out:
        raise RunFileError(f"{counted(len(done.left_out), 'file', 'is', 'are')} left out; all else is merged")
