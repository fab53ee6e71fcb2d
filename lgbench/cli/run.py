"""`lgbench run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.executors import executor_options
from lgbench.cli.option_types import RESULTS, Change, Names, Seeds
from lgbench.cli.options import device_option, joined, plugin_option, results_option, split
from lgbench.cli.output import console, echo
from lgbench.cli.setup import installed
from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.errors import Interrupted, RunFailed, RunFileError, UsageError
from lgbench.experiment.protocols import BOARDS_PROTOCOL, DEFAULT_PROTOCOL, PRECISIONS
from lgbench.results.addresses import Place

if TYPE_CHECKING:
    from lgbench.execution.console import ConsoleProgress
    from lgbench.execution.manner import Command, Engine, Manner, PlanOutcome
    from lgbench.experiment.experiment import Experiment
    from lgbench.experiment.plan import Plan, Request
    from lgbench.extensions.registry import Registry


@click.command()
@click.option("--task", "tasks", type=Names("tasks"), multiple=True, required=True, help="Task, family of tasks, or all.")
@click.option(
    "--arch",
    "archs",
    type=Names("archs", "norms", "attentions", "positions"),
    multiple=True,
    required=True,
    help="Architecture, parts of one (norm, attention, position code), or both joined by +, as in transformer+peri-norm; or a "
    "function in a file that builds a model, as in ./my_model.py:build.",
)
@click.option(
    "--optimizer",
    type=Names("optimizers"),
    default=DEFAULT_OPTIMIZER,
    show_default=True,
    help="Optimizer that trains the models.",
)
@click.option(
    "--average",
    type=Names("averagers"),
    multiple=True,
    help="Averages of the weights to test beside the raw weights, or none.  [default: those that come with lgbench]",
)
@click.option(
    "--seeds", type=Seeds(), default="0:3", show_default=True, help="Seeds: a range such as 0:3, or numbers such as 0,5."
)
@click.option(
    "--protocol",
    type=Names("protocols"),
    default=DEFAULT_PROTOCOL,
    show_default=True,
    help="Protocol: the settings that must be equal for entries to be compared.",
)
@click.option(
    "--set",
    "changes",
    type=Change(),
    multiple=True,
    help="Change a setting of the protocol, or an option of the model, a part or the optimizer, as in train.steps=500, "
    "model.layers=4 or attention.window=64. Several values, as in train.lr=1e-3,3e-3, are all run.",
)
@device_option
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=PRECISIONS[0],
    show_default=True,
    help="Precision in which models compute. Boards keep the runs of each apart.",
)
@click.option(
    "--probe",
    "probes",
    type=Names("probes"),
    multiple=True,
    help="Probes to read, of what is inside the models: all, none, or names joined by commas. They change no other number.  "
    "[default: none]",
)
@click.option(
    "--keep-weights",
    is_flag=True,
    help="Keep the raw and the averaged weights of each run, in a file beside its run file. They change no number.",
)
@click.option(
    "--track",
    type=Names("trackers"),
    multiple=True,
    help="Trackers that follow the runs while they train. They change no number.  [default: none]",
)
@click.option(
    "--compile/--no-compile", default=None, help="Compile the training step, or never do.  [default: if that saves time]"
)
@click.option("--population", type=int, help="Models to train together, at most.  [default: as many as fit in memory]")
@click.option("--workers", type=int, help="Processes that train at the same time.  [default: one for each core, one on a GPU]")
@click.option("--checkpoint", type=float, default=60.0, show_default=True, help="Seconds of training between two checkpoints.")
@executor_options
@click.option("--dry-run", is_flag=True, help="Say what would run and what that would take, and run nothing.")
@plugin_option
@results_option
def run(
    tasks: Sequence[str],
    archs: Sequence[str],
    optimizer: str,
    average: Sequence[str],
    seeds: tuple[int, ...],
    protocol: str,
    changes: Sequence[tuple[str, str]],
    device: str,
    precision: str,
    probes: Sequence[str],
    keep_weights: bool,
    track: Sequence[str],
    compile: bool | None,
    population: int | None,
    workers: int | None,
    checkpoint: float,
    engine: Engine,
    dry_run: bool,
    plugins: Sequence[Path],
    results: Place,
) -> None:
    """Train entries on tasks and test them at every length.

    One entry on one task with one seed is a run, and has a Parquet file. --task, --arch, --average, --probe and --track can be
    repeated, or take several names joined by commas. Every combination of tasks, entries, seeds and values of --set is run.
    --optimizer and --protocol take one name; repeated, the last one counts. A run that is in the results folder already is not
    run again. Several commands at the same time share the work. Under a protocol that tries learning rates, tuning runs come
    first, which choose one for each entry on each task. Runs for an address are made in the cache folder of this machine and
    published as they are done; an object that is there already is never replaced.
    """
    from lgbench.execution.manner import Manner
    from lgbench.experiment.plan import Request
    from lgbench.extensions.function_files import take_functions
    from lgbench.extensions.tracking import usable

    averagers, settings = _averagers(average), joined(changes)
    names, functions = take_functions(split(archs))
    files = [*plugins, *functions]
    named = Request(split(tasks), names, averagers, seeds, protocol, settings, optimizer, precision, split(probes))
    registry = installed(files)
    manner = Manner(device, compile, population, checkpoint, workers, keep_weights, usable(split(track), registry))
    ordered(named, registry, manner, engine, files, results, dry_run)


def ordered(
    request: Request,
    registry: Registry,
    manner: Manner,
    engine: Engine,
    plugins: Sequence[Path],
    results: Place,
    dry_run: bool = False,
) -> None:
    """Do what a command asks for, and say what was done. Raises RunFailed where some runs failed."""
    from lgbench.execution.console import ConsoleProgress
    from lgbench.execution.engines import carry_out
    from lgbench.execution.manner import Command
    from lgbench.experiment.plan import plan

    planned = plan(request, registry)
    display = ConsoleProgress(console(stderr=True))
    for sentence in planned.refusals:
        display.say(sentence)
    command = Command(request, planned, manner, engine, plugins, display)
    if dry_run:
        _forecast(command, results)
        return
    try:
        outcome = carry_out(command, results)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; no file was left half written. Finished runs are kept. The same command continues with the others, "
            "each from its latest checkpoint."
        ) from None
    _tell(outcome, planned, results, manner.keep_weights)
    if request.protocol == DEFAULT_PROTOCOL and not request.changes:
        echo(_longer(request, registry, display))


def _forecast(command: Command, results: Place) -> None:
    """Say what would run. Raises RunFailed where a training cannot make a step."""
    from lgbench.execution.forecast import Forecast
    from lgbench.execution.progress import duration
    from lgbench.execution.tuning import Stage

    plan, execution, display = command.plan, command.manner.here(), command.display
    stage = Stage.begin(plan.experiments, results, display.say)
    stages = [("run", plan, stage.results)]
    if any(experiment.tuning_runs for experiment in plan.experiments):
        first = stage.plan(plan)
        stages = [("tuning run", first, stage.tuning), ("run", replace(first, experiments=plan.experiments), stage.results)]
    forecasts = [(kind, Forecast.of(planned, execution, folder, display)) for kind, planned, folder in stages]
    for kind, forecast in forecasts:
        for line in forecast.lines(kind):
            echo(line)
    if len(forecasts) > 1:
        echo(f"tuning and runs together take about {duration(sum(forecast.seconds for _, forecast in forecasts))}")
    if failed := [sentence for _, forecast in forecasts for sentence in forecast.failed]:
        raise RunFailed("; ".join(dict.fromkeys(failed)))


def _longer(request: Request, registry: Registry, display: ConsoleProgress) -> str:
    """A sentence about the protocol of the boards, and how long the same runs would take under it."""
    from lgbench.execution.progress import duration
    from lgbench.experiment.plan import plan

    try:
        planned = plan(replace(request, protocol=BOARDS_PROTOCOL), registry).experiments
    except UsageError:  # such as a seed that chooses learning rates there
        planned = ()
    tuning = {run.run_id: run for experiment in planned for run in experiment.tuning_runs}
    seconds = display.would_take([*planned, *tuning.values()]) if planned else None
    takes = "" if seconds is None else f", which would take about {duration(seconds)} here"
    return f"{DEFAULT_PROTOCOL} shows what is learned fast; boards use --protocol {BOARDS_PROTOCOL}{takes}"


def _tell(outcome: PlanOutcome, planned: Plan, results: Place, keep_weights: bool) -> None:
    """Say which runs there are, and draw their curves. Raises RunFailed where some failed."""
    from lgbench.execution.scheduler import path_of
    from lgbench.reports import curves

    experiments = {path_of(experiment, Path()).name: experiment for experiment in planned.experiments}
    if outcome.found:
        where = results / outcome.found[0].name if len(outcome.found) == 1 else f"{results}/"
        echo(f"{_runs(len(outcome.found), 'was', 'were')} done before and not run again: {where}")
        for sentence in _lacking({path: experiments[path.name] for path in outcome.found}, keep_weights):
            echo(sentence)
    if outcome.written:
        echo(f"{_runs(len(outcome.written))} written to {results}/; see `lgbench leaderboard{same_folder(results)}`")
    paths = {path.name: path for path in [*outcome.written, *outcome.found]}
    done = [(experiment.record, paths[name]) for name, experiment in experiments.items() if name in paths]
    for line in curves.lines(done, console().encoding):
        echo(line)
    if outcome.failed:
        raise RunFailed("; ".join(str(failure) for failure in outcome.failed))


def _averagers(average: Sequence[str]) -> list[str] | None:
    """The averagers that `--average` names; None, for the default, if it is not given."""
    names = split(average)
    others = [name for name in names if name != "none"]
    if others and "none" in names:
        raise UsageError(f"--average names none and {', '.join(others)}: use none alone, or leave it out")
    return others if average else None


def _lacking(found: Mapping[Path, Experiment], keep_weights: bool) -> list[str]:
    """A sentence for each measurement that some of these runs lack, and for weights that were to be kept.

    A measurement was not installed, or --probe did not ask for it.
    """
    from lgbench.results.metrics import described
    from lgbench.results.run_files import metadata
    from lgbench.results.weights_files import kept_by

    lacking: Counter[str] = Counter()
    unkept = 0
    for path, experiment in found.items():
        try:
            about = metadata(path)
        except RunFileError:  # readers of results report it
            continue
        known = {(metric.name, metric.version) for metric in described(about)}
        unkept += keep_weights and kept_by(about) is None
        missing = [m for m in experiment.measurements if m.source(experiment.task) and (m.name, m.version) not in known]
        for each in missing:
            name, of_insides = f"{each.name} (version {each.version})", each.name in experiment.probes
            lacking[f"the probe {name}" if of_insides else f"the measurement {name}, which is installed now"] += 1
    sentences = [
        f"{_runs(count, 'lacks', 'lack')} {name}: to measure it, run again with another --results folder"
        for name, count in sorted(lacking.items())
    ]
    if unkept:
        sentences.append(
            f"{_runs(unkept, 'has', 'have')} no kept weights: to keep them, run again with another --results folder"
        )
    return sentences


def _runs(count: int, one: str = "", several: str = "") -> str:
    """The number of runs, with the verb that goes with it."""
    return f"1 run {one}".rstrip() if count == 1 else f"{count} runs {several}".rstrip()


def same_folder(results: Place) -> str:
    """The option by which another command reads this results folder."""
    return "" if results == RESULTS else f" --results {results}"
