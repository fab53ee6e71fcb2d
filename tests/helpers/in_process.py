"""Training in the process of a test: no interpreter is started, and patches and registries of the test apply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lgbench.execution import engines, jobs
from lgbench.execution.executor import InProcess
from lgbench.execution.workers import Train, Trainer, Workers, trained_alone


def train_here(patch: pytest.MonkeyPatch) -> None:
    """Let `lgbench run`, :func:`lgbench.run` and :func:`lgbench.run_population` train in this process."""
    patch.setattr(engines, "Workers", lambda *given, **named: InProcess())
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
    monkeypatch.setattr(engines, "Workers", Workers)
    monkeypatch.setattr(jobs, "trained_alone", trained_alone)


def _trained_here(population, folder, setup, display) -> list[Path]:
    return list(Trainer(setup, population.plugins, display).train(Train(setup, population, folder)))
