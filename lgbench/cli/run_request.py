"""Running what a command asks for, and saying what was done: `lgbench run` and `lgbench claims --run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.cli.option_types import RESULTS
from lgbench.cli.output import console, echo
from lgbench.errors import Interrupted, RunFailed, RunFileError, UsageError
from lgbench.experiment.protocols import BOARDS_PROTOCOL, DEFAULT_PROTOCOL
from lgbench.options import RunOptions

if TYPE_CHECKING:
    from lgbench.execution.console import ConsoleProgress
    from lgbench.execution.manner import Command, PlanOutcome
    from lgbench.experiment.experiment import Experiment
    from lgbench.experiment.plan import Plan, Request
    from lgbench.extensions.registry import Registry


def run_request(options: RunOptions, registry: Registry, dry_run: bool = False) -> None:
    """Run everything that the options ask for, and print the outcome. Raises RunFailed where some runs failed."""
    from lgbench.execution.console import ConsoleProgress
    from lgbench.execution.engines import carry_out
    from lgbench.functions import command_of

    display, results = ConsoleProgress(console(stderr=True)), Path(options.results)
    command = command_of(options, registry, display)
    for sentence in command.plan.refusals:
        display.say(sentence)
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
    _tell(outcome, command.plan, results, options.keep_weights)
    if options.protocol == DEFAULT_PROTOCOL and not options.set:
        echo(_longer(command.request, registry, display))


def _forecast(command: Command, results: Path) -> None:
    """Say what would run. Raises RunFailed where a training cannot make a step."""
    from lgbench.execution.forecast import Forecast
    from lgbench.execution.progress import duration
    from lgbench.execution.tuning import Stage

    plan, execution, display = command.plan, command.manner.here(), command.display
    stage = Stage.begin(results)
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


def _tell(outcome: PlanOutcome, planned: Plan, results: Path, keep_weights: bool) -> None:
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


def same_folder(results: Path) -> str:
    """The option by which another command reads this results folder."""
    return "" if results == RESULTS else f" --results {results}"
