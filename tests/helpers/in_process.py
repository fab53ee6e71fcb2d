"""Training in the process of a test: no interpreter is started, and patches and registries of the test apply."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lgbench import functions
from lgbench.execution import jobs
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.tracking import Tracking
from lgbench.execution.work_queue import Dispatcher, Done, LockedPopulation, released
from lgbench.execution.workers import Setup, Train, Trainer, Workers, trained_alone
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, plan
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.functions import PlanOutcome, run_plan
from lgbench.options import RunOptions


class InProcess(Dispatcher):
    """Trains one population after another in this process."""

    most = 1

    def __init__(self, runner: PopulationRunner) -> None:
        self.runner, self.done = runner, list[Done]()

    @property
    def busy(self) -> int:
        return len(self.done)

    def begin(self, locked: LockedPopulation) -> None:
        written: list[Path] = []
        try:
            for path in self.runner.run(locked.planned, locked.experiments, locked.folder):
                written.append(path)
        except Exception as error:
            self.done.append(released(locked, written, error))
        except BaseException as interrupt:
            locked.release(interrupt)
            raise
        else:
            self.done.append(released(locked, written))

    def ended(self, seconds: float | None) -> Iterator[Done]:
        if self.done:
            yield self.done.pop()
        else:  # other commands train all that is left
            time.sleep(seconds or 0)

    def stop(self) -> None:
        """Nothing runs in between."""


def run_here(
    experiments: Sequence[Experiment] | Plan,
    execution: Execution,
    folder: Path,
    display: ProgressDisplay | None = None,
    loaded: Sequence[Distribution] = (),
    kind: type[InProcess] = InProcess,
) -> PlanOutcome:
    """Outcome of a plan, trained in this process. `loaded` are the plugins of the metadata."""
    plan = experiments if isinstance(experiments, Plan) else Plan(tuple(experiments), ())
    display = display or ProgressDisplay()
    return run_plan(plan, execution, folder, display, kind(PopulationRunner(execution, folder, display, loaded)))


_LATEST: list[Registry] = []
"""Registry of the latest command."""


def train_here(patch: pytest.MonkeyPatch) -> None:
    """Let `lgbench run`, :func:`lgbench.run` and :func:`lgbench.run_population` train in this process."""
    patch.setattr(functions, "resolve", _resolved)
    patch.setattr(functions, "Workers", _of_latest)
    patch.setattr(jobs, "trained_alone", _trained_here)


@pytest.fixture(scope="session", autouse=True)
def in_process() -> Iterator[None]:
    """Tests train in their own process, except where they ask for `worker_processes`."""
    with pytest.MonkeyPatch.context() as patch:
        train_here(patch)
        yield


@pytest.fixture
def worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training in worker processes, as users have it."""
    monkeypatch.setattr(functions, "Workers", Workers)
    monkeypatch.setattr(jobs, "trained_alone", trained_alone)


def _resolved(options: RunOptions, registry: Registry) -> Plan:
    _LATEST[:] = [registry]
    return plan(options, registry)


def _of_latest(setup: Setup, display: ProgressDisplay) -> InProcess:
    """Loading the plugins again, as a worker does, would take a second for each command."""
    (registry,) = _LATEST
    tracking = Tracking([registry.trackers[name] for name in setup.trackers], display.say)
    return InProcess(PopulationRunner(setup.execution, setup.results, display, registry.loaded(), tracking))


def _trained_here(population, folder, setup, display) -> list[Path]:
    return list(Trainer(setup, population.plugins, display).train(Train(setup, population, folder)))
