"""A command of `lgbench run`, also from Python: options become a plan, tuning runs choose learning rates, and runs follow.

Tuning runs are ordinary runs in a separate folder. The chosen learning rate follows from their files, which are written once.
Concurrent and resumed commands therefore choose the same rate.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from lgbench.contracts import Demand, Executor, Logger
from lgbench.contracts.training import option_types
from lgbench.errors import LgbenchError, RunFailed, UsageError, first_line, message_of, unknown
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import tuning_run
from lgbench.execution.scheduler import PlanOutcome, Scheduler
from lgbench.execution.work_queue import path_of, unfinished
from lgbench.execution.workers import ONE_THREAD, Local, Setup
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.experiment.plan import plan as resolve
from lgbench.experiment.tuning import Tuning
from lgbench.extensions.function_files import take_functions
from lgbench.extensions.loading import parted
from lgbench.extensions.registry import Catalog, Registry, not_installed
from lgbench.options import RunOptions, listed
from lgbench.results import run_files

__all__ = ["run"]

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _taking(make: Callable[Given, object]) -> Callable[[Callable[..., Result]], Callable[Given, Result]]:
    """Decorator: the function takes the arguments of `make`, for type checkers and help()."""

    def decorate(function: Callable[..., Result]) -> Callable[Given, Result]:
        shown = signature(make).replace(return_annotation=signature(function).return_annotation)
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return decorate


@_taking(RunOptions)
def run(*args: Any, **options: Any) -> pa.Table:
    """Train and test every task with every entry and seed, as `lgbench run` does, and return the rows of all runs.

    The arguments are the options of the command, under the same names; `plugins` are plugin files. An architecture may be a
    function in a file, such as "./my_model.py:build". A run that is already in `results` is read, not repeated. `average=None`
    tests every averager that comes with lgbench; a list as a value of `set` makes a grid over it. `probe` names probes, or is
    "all". With `save_weights`, :func:`lgbench.load` gives the models of the runs. `logger` names
    loggers, such as "tensorboard".

    Raises UsageError for unknown names and values out of range, before anything is trained, and RunFailed, with its cause,
    where training or testing broke. Warnings name each combination that a plugin refuses, each probe that a task
    lacks, and each entry that gets a task's tokens without their position ids.
    """
    asked = with_functions(RunOptions(*args, **options))
    command = Command.of(asked, Registry.load(files=[*map(Path, asked.plugins)]), ProgressDisplay())
    for sentence in (*command.plan.refusals, *command.plan.notes):
        warnings.warn(sentence, stacklevel=2)
    outcome = command.carry_out()
    if outcome.failed:
        raise outcome.failed[0]
    return pa.concat_tables([run_files.read(path) for path in outcome.found + outcome.written])


def with_functions(options: RunOptions) -> RunOptions:
    """Options with names of architectures in place of functions in files, which become plugin files."""
    names, files = take_functions(listed(options.arch))
    return replace(options, arch=names, plugins=[*listed(options.plugins), *files])


PASSED_ON = ("LGBENCH_PLUGINS", "LGBENCH_TRACE")
"""Environment variables copied to other machines."""


@dataclass(frozen=True)
class Command:
    """A user's command of `lgbench run`, with all names resolved."""

    options: RunOptions
    plan: Plan
    display: ProgressDisplay
    executor: Executor
    loggers: Mapping[str, str]
    """Plugin of each logger of the runs, by logger. Tuning runs have no loggers."""

    @classmethod
    def of(cls, options: RunOptions, registry: Registry, display: ProgressDisplay) -> Command:
        """Raises UsageError for unknown names, for values out of range, and for a device absent from this machine."""
        local = Local(display, Execution.of(options).workers)
        own = {option: ",".join(map(str, listed(value))) for option, value in options.executor_options.items()}
        executor = executor_named(options.executor, own, registry.executors, local)
        loggers = loggers_named(listed(options.logger), registry.loggers)
        return cls(options, resolve(options, registry), display, executor, loggers)

    @property
    def rates(self) -> LearningRates:
        """Learning rates of the experiments."""
        return LearningRates(self.plan.experiments, Path(self.options.results))

    def carry_out(self) -> PlanOutcome:
        """Run the plan: first tuning runs for the choice of learning rates, if any, then the runs with known rates.

        Raises UsageError for an unusable executor or an unwritable results folder.
        """
        failed = self.tune()
        outcome = self._run(self.rates.tuned(), self.rates.results, self.loggers, self.options.save_weights)
        return replace(outcome, failed=[*failed, *outcome.failed])

    def tune(self) -> list[RunFailed]:
        """Make tuning runs until each learning rate is chosen or has a failed run. Returns the failures."""
        rates, failed, tried = self.rates, list[RunFailed](), set[str]()
        # An open grid may go on several times.
        while due := [run for run in rates.due() if run.run_id not in tried]:
            tried |= {run.run_id for run in due}
            known = {experiment.run_id for experiment in rates.tuned()}
            failed += self._run(due, rates.folder, {}, False, unfinished(self.plan.experiments, rates.results)).failed
            for experiment in one_of_each(rates.tuned()):
                if experiment.run_id not in known:
                    self.display.say(said(experiment))
        return failed

    def _run(
        self,
        experiments: Sequence[Experiment],
        folder: Path,
        loggers: Mapping[str, str],
        save_weights: bool,
        later: Sequence[Experiment] = (),
    ) -> PlanOutcome:
        options, gpu = self.options, choose_device(self.options.device).type == "cuda"
        environ = ONE_THREAD | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        demand = Demand(options.workers, gpu, environ, folder.resolve() / f".{self.executor.name}")
        with ExitStack() as opened:
            try:
                pool = opened.enter_context(self.executor.open(demand))
            except LgbenchError:
                raise
            except Exception as error:  # a plugin's code may raise anything
                raise UsageError(f"the executor {self.executor.name} cannot be used: {message_of(error)}") from error
            run_files.require_writable(folder)
            execution = Execution.of(replace(options, workers=pool.workers, save_weights=save_weights))
            plugins = {path: parted(path)[0].read_bytes() for path in map(Path, options.plugins)}
            setup = Setup(folder, execution, plugins, loggers)
            return Scheduler(experiments, setup, self.display, self.rates.every).run(pool, later)


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of experiments, from the files of a results folder."""

    experiments: Sequence[Experiment]
    results: Path

    @property
    def folder(self) -> Path:
        """Folder of the tuning runs."""
        return self.results / run_files.TUNING

    @property
    def every(self) -> list[Experiment]:
        """The experiments, and the tuning runs of their grids."""
        return [*(run for own in one_of_each(self.experiments) for run in own.tuning_runs), *self.experiments]

    def due(self) -> list[Experiment]:
        """Tuning runs of the next stage, each once, for experiments without a learning rate in a finished run.

        Includes the finished runs of the stage, since a population left by a killed process may have some of them.
        """
        return [*{run.run_id: run for _, due in self._found().values() for run in due}.values()]

    def tuned(self) -> list[Experiment]:
        """Experiments with their learning rates. An experiment with a missing tuning run is left out."""
        known = {key: tuning for key, (tuning, due) in self._found().items() if not due}
        every = ((experiment, _key(experiment)) for experiment in self.experiments)
        return [each.tuned(known[key]) if key else each for each, key in every if not key or key in known]

    def _found(self) -> dict[str, tuple[Tuning, list[Experiment]]]:
        """Outcome of each tuning so far, and the tuning runs of its next stage.

        The learning rate of a finished run stays, and holds for other seeds, too.
        """
        found: dict[str, tuple[Tuning, list[Experiment]]] = {}
        tuned = [experiment for experiment in self.experiments if experiment.first_tuning_run]
        left = {experiment.run_id for experiment in unfinished(tuned, self.results)}
        for experiment in tuned:
            if (key := _key(experiment)) not in found and experiment.run_id not in left:
                metadata = run_files.metadata(path_of(experiment, self.results))
                found[key] = msgspec.convert(metadata["experiment"]["tuning"], Tuning), []
        for experiment in one_of_each(tuned):
            if (key := _key(experiment)) not in found:
                found[key] = self._so_far(experiment)
        return found

    def _so_far(self, experiment: Experiment) -> tuple[Tuning, list[Experiment]]:
        """Outcome of an experiment's finished stages of tuning, and the runs of the next; none once the rate is known."""
        found = experiment.record.tuning
        assert found
        while further := found.further:
            due = [experiment.tuning_run(lr, seed) for lr in further for seed in found.seeds]
            if unfinished(due, self.folder):
                return found, due
            found = found.ended([*found.runs, *(tuning_run(path_of(run, self.folder)) for run in due)])
        return found, []


def said(experiment: Experiment) -> str:
    """Sentence about the chosen learning rate of an experiment."""
    record, tuning = experiment.record, experiment.record.tuning
    assert tuning
    losses = {lr: tuning.loss(lr) for lr in tuning.tried}
    tried = ", ".join(f"{lr:g}: {f'{loss:.4f}' if loss < float('inf') else 'diverged'}" for lr, loss in losses.items())
    why = ", the smallest, since all diverged" if min(losses.values()) == float("inf") else ""
    end = ", an end of the rates tried" if record.train.lr in (tuning.tried[0], tuning.tried[-1]) else ""
    return f"{record.entry} on {record.task}: learning rate {record.train.lr:g}{why or end} (loss with {tried})"


def one_of_each(experiments: Iterable[Experiment]) -> list[Experiment]:
    """First experiment of each tuning."""
    first: dict[str, Experiment] = {}
    for experiment in experiments:
        if key := _key(experiment):
            first.setdefault(key, experiment)
    return list(first.values())


def _key(experiment: Experiment) -> str:
    """Run id of the first tuning run, equal for experiments with one learning rate; empty for a fixed learning rate."""
    return experiment.first_tuning_run.run_id if experiment.first_tuning_run else ""


def loggers_named(names: Iterable[str], known: Catalog[Logger]) -> dict[str, str]:
    """Plugin of each logger, by logger. Raises UsageError for an unknown or unusable logger."""
    found = [known.found(name) for name in dict.fromkeys(names)]
    for logger in (each.thing for each in found):
        try:
            why = logger.missing()
        except Exception as error:  # a plugin's code may raise anything
            why = f"{logger.name} cannot be used, since it raised {message_of(error)}"
        if why:
            raise UsageError(why)
    return {each.thing.name: each.origin.name for each in found}


def executor_named(name: str, options: Mapping[str, str], known: Catalog[Executor], local: Executor) -> Executor:
    """Executor with the options of a user, `local` by its name. Raises UsageError for unknown names and wrong values."""
    if name == local.name:
        if options:
            raise UsageError(f"--executor-option {next(iter(options))} needs another executor: {name} has no options")
        return local
    executor = known.get(name)
    if executor is None:
        raise not_installed("executor", name, [local.name, *known.names()])
    hints = option_types(executor)
    own: dict[str, Any] = {}
    for option, text in options.items():
        if option not in hints:
            raise unknown(f"option of the executor {name}", option, hints)
        try:
            own[option] = msgspec.convert(text, hints[option], strict=False)  # not strict, because options are texts
        except msgspec.ValidationError as error:
            raise UsageError(f"the option {option} of the executor {name} cannot be {text!r}: {first_line(error)}") from error
    return replace(executor, **own) if own else executor  # type: ignore[type-var]
