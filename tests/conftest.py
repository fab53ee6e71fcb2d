"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.folders import TESTS
from helpers.in_process import in_process, worker_processes  # noqa: F401  # fixtures
from helpers.plain_training import CHEAP
from helpers.planning import plan_of
from helpers.processes import install
from helpers.published import installed  # noqa: F401  # a fixture
from helpers.registries import BUILT_IN, toys_and
from helpers.saved_runs import saved_runs  # noqa: F401  # a fixture
from helpers.tuned import tuned, tuned_everywhere  # noqa: F401  # fixtures
from helpers.warm import warm  # noqa: F401  # a fixture

import lgbench
from lgbench.experiment.experiment import Experiment
from lgbench.extensions.registry import Registry


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in plugins, whatever else is installed."""
    return Registry.load({"LGBENCH_PLUGINS": ",".join(BUILT_IN)})


@pytest.fixture(scope="session")
def toy_registry() -> Registry:
    """The toy plugins, with the built-in optimizer and metrics, and nothing else."""
    return toys_and()


@pytest.fixture(scope="session")
def planned() -> Callable[..., tuple[Experiment, ...]]:
    """Experiments of a request, with quick settings changed by keyword: train_steps=3 is train.steps=3."""

    def build(registry: Registry, task: Any, arch: Any, seeds: Any = (0,), averagers: Any = (), **changes: Any):
        settings = {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
        tasks, archs = ([names] if isinstance(names, str) else names for names in (task, arch))
        return plan_of(registry, tasks, archs, average=averagers, seeds=seeds, set=settings).experiments

    return build


@pytest.fixture(scope="session")
def toys_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the toys are an installed distribution."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, "toys", (TESTS / "toys.py").read_text(), "1.2.3", "lgbench-toys")
    return folder


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs: tomita-1 with two norms and two seeds. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("runs") / "results"
    lgbench.run("tomita-1", ["pre-norm", "peri-norm"], seeds=(0, 1), protocol="quick", set=CHEAP, results=folder)
    return folder


@pytest.fixture
def double() -> Iterator[None]:
    """Double precision: optimizers divide a gradient by its own size, which turns rounding of tiny gradients into steps."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def environ(toys_installed: Path) -> dict[str, str]:
    """The environment of a process in which only the toys are installed, and what every run needs."""
    return {"PYTHONPATH": str(toys_installed), "LGBENCH_PLUGINS": "toys,lgbench_measurements,lgbench_optimizers"}


@pytest.fixture
def toys_alone(toys_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this interpreter and in its workers, only the toys are installed, and what every run needs."""
    monkeypatch.syspath_prepend(toys_installed)
    monkeypatch.setenv("PYTHONPATH", str(toys_installed))
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers")
