"""Training in the process of a test: no interpreter is started, and patches and registries of the test apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from lgbench import Demand, Pool
from lgbench.execution import command, workers
from lgbench.execution.device import Execution
from lgbench.execution.loggers import Loggers
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.scheduler import PlanOutcome, Scheduler
from lgbench.execution.workers import Job, Local, Outcome, Setup, trained_alone, trainer
from lgbench.experiment.components import experiments_of
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, plan
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results import run_files


class InProcess:
    """A pool that trains each population when it is submitted, in this process."""

    workers = 1

    def __init__(self, train: Callable[[Job], Iterator[Path]]) -> None:
        self.train = train

    def submit(self, job: Job) -> Future[Outcome]:
        written, ended = [], Future()
        try:
            for path in self.train(job):
                written.append(path)
        except Exception as error:
            ended.set_result(Outcome(error, written))
        else:
            ended.set_result(Outcome(None, written))
        return ended


def run_here(
    experiments: Sequence[Experiment] | Plan,
    execution: Execution,
    folder: Path,
    display: ProgressDisplay | None = None,
    loaded: Sequence[Distribution] = (),
    kind: type[InProcess] = InProcess,
) -> PlanOutcome:
    """Outcome of experiments, trained in this process. `loaded` are the plugins of the metadata."""
    experiments = experiments.experiments if isinstance(experiments, Plan) else experiments
    by_id, display = {experiment.run_id: experiment for experiment in experiments}, display or ProgressDisplay()
    runner = PopulationRunner(execution, folder, display, loaded)

    def train(job: Job) -> Iterator[Path]:
        return runner.run(job.population, [by_id[record.run_id] for record in job.population.runs], job.folder)

    run_files.require_writable(folder)
    return Scheduler(experiments, Setup(folder, execution), display).run(kind(train))


_LATEST: list[Registry] = []
"""Registry of the latest command."""


def train_here(patch: pytest.MonkeyPatch) -> None:
    """Let `lgbench run` and :func:`lgbench.run` train in this process, and jobs in that of the executor."""
    patch.setattr(command, "resolve", _resolved)
    patch.setattr(command, "Local", _Here)
    patch.setattr(workers, "trained_alone", _trained_here)


@pytest.fixture(scope="session", autouse=True)
def in_process() -> Iterator[None]:
    """Tests train in their own process, except where they ask for `worker_processes`."""
    with pytest.MonkeyPatch.context() as patch:
        train_here(patch)
        yield


@pytest.fixture
def worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training in worker processes, as users have it."""
    monkeypatch.setattr(command, "Local", Local)
    monkeypatch.setattr(workers, "trained_alone", trained_alone)


def _resolved(options: RunOptions, registry: Registry) -> Plan:
    _LATEST[:] = [registry]
    return plan(options, registry)


class _Here(Local):
    """Loading the plugins again, as a worker does, would take a second for each command."""

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Pool]:
        (registry,) = _LATEST
        runners: list[PopulationRunner] = []

        def train(job: Job) -> Iterator[Path]:
            setup, population = job.setup, job.population
            if not runners:
                loggers = Loggers([registry.loggers[name] for name in setup.loggers], self.display.say)
                runners.append(PopulationRunner(setup.execution, setup.results, self.display, registry.loaded(), loggers))
            experiments = list(experiments_of(population.runs, population.measurements, registry))
            return runners[0].run(population, experiments, job.folder)

        yield Pool(InProcess(train).submit, 1)


def _trained_here(job: Job, display: ProgressDisplay) -> Outcome:
    return Outcome(None, list(trainer(job, display)(job)))
