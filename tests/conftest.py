"""Fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
import torch
from helpers.claim_files import around, write_runs
from helpers.folders import TESTS
from helpers.in_process import in_process, worker_processes  # noqa: F401  # fixtures
from helpers.planning import plan_of
from helpers.plot_runs import alpha_spec, drawing, plotted  # noqa: F401  # fixtures
from helpers.processes import install, visible
from helpers.published import installed  # noqa: F401  # a fixture
from helpers.registries import BUILT_IN, toys_and
from helpers.saved_runs import saved_runs  # noqa: F401  # a fixture
from helpers.tuned import tuned, tuned_everywhere  # noqa: F401  # fixtures
from helpers.warm import warm  # noqa: F401  # a fixture

from lgbench import checkout
from lgbench.experiment.experiment import Experiment
from lgbench.extensions.registry import Registry


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def without_waits() -> Iterator[None]:
    """Tests do not wait for the disk, as no file of theirs has to outlast a loss of power, and read each source once.

    DuckDB takes 20 ms to start, so the databases of all tests are in one instance, each with names of its own.
    """
    instance, numbers = duckdb.connect(), count()

    def attached() -> duckdb.DuckDBPyConnection:
        connection, name = instance.cursor(), f"database_{next(numbers)}"
        return connection.execute(f"attach ':memory:' as {name}").execute(f"use {name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", attached)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(checkout, "code", cache(checkout.code))
        yield


@pytest.fixture(scope="session", autouse=True)
def built_in_only() -> Iterator[None]:
    """Commands load the built-in plugins, whatever else is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LGBENCH_PLUGINS", ",".join(BUILT_IN))
        yield


@pytest.fixture
def all_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands load all installed plugins, the packs among them."""
    monkeypatch.delenv("LGBENCH_PLUGINS")


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
    """Made-up runs: tomita-1 with two norms and two seeds. Tests must not write into it."""
    entries = {f"transformer+{norm}": around(0.5, seeds=2) for norm in ("pre-norm", "peri-norm")}
    return write_runs(tmp_path_factory.mktemp("runs") / "results", entries, "tomita-1", family="tomita")


@pytest.fixture
def double() -> Iterator[None]:
    """Double precision: optimizers divide a gradient by its own size, which turns rounding of tiny gradients into steps."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """Folder of installed packages, for this interpreter and this test alone."""
    folder = tmp_path / "site"
    folder.mkdir()
    with visible(folder):
        yield folder


@pytest.fixture
def environ(toys_installed: Path) -> dict[str, str]:
    """The environment of a process in which only the toys are installed, and what every run needs."""
    return {"PYTHONPATH": str(toys_installed), "LGBENCH_PLUGINS": "toys,lgbench_measurements,lgbench_optimizers"}


@pytest.fixture
def toys_alone(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this interpreter and in its workers, the same is installed."""
    monkeypatch.syspath_prepend(environ["PYTHONPATH"])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
