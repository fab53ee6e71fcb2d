"""Helpers of several test files: registries, a plain training loop, fabricated distributions, subprocesses, small results."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
import toys
from helpers.folders import TESTS
from helpers.in_process import in_process, worker_processes  # noqa: F401  # fixtures
from helpers.kept_runs import kept_runs  # noqa: F401  # a fixture
from helpers.tuned import tuned, tuned_everywhere  # noqa: F401  # fixtures
from helpers.warm import warm  # noqa: F401  # a fixture

import lgbench
import lgbench_measurements
import lgbench_optimizers
from lgbench import Averager, Parts, hookimpl, seeds, user_cache
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Request, plan
from lgbench.experiment.probes import is_probe
from lgbench.extensions.registry import Distribution, Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.results import run_files
from lgbench.results.metrics import descriptions
from lgbench.results.run_schema import METADATA_KEY, SCHEMA, sealed
from lgbench.training.data import stream

BUILT_IN = (
    "lgbench_averaging",
    "lgbench_measurements",
    "lgbench_norms",
    "lgbench_optimizers",
    "lgbench_tasks",
    "lgbench_trackers",
    "lgbench_transformer",
)
CPU = torch.device("cpu")
CHEAP = {
    "train.steps": 3,
    "train.batch": 4,
    "evaluate.contexts": 4,
    "evaluate.strings": 8,
    "evaluate.max_length": 48,
}


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(user_cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in plugins, whatever else is installed."""
    return Registry.load({"LGBENCH_PLUGINS": ",".join(BUILT_IN)})


@pytest.fixture(scope="session")
def toy_registry() -> Registry:
    """The toy plugins, with the built-in optimizer and metrics, and nothing else."""
    registry = with_essentials()
    registry.add(toys, "toys", Distribution("lgbench-toys", "1.2.3"))
    assert not registry.problems()
    return registry


@pytest.fixture(scope="session")
def planned() -> Callable[..., tuple[Experiment, ...]]:
    """Experiments of a request, with quick settings changed by keyword: train_steps=3 is train.steps=3."""

    def build(registry: Registry, task: Any, arch: Any, seeds: Any = (0,), averagers: Any = (), **changes: Any):
        settings = {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
        tasks, archs = ([names] if isinstance(names, str) else names for names in (task, arch))
        return plan(Request(tasks, archs, averagers, seeds, "quick", settings), registry).experiments

    return build


def parts_of(registry: Registry, norm: str = "pre-norm", attention: str = "softmax", position: str = "nope") -> Parts:
    """The parts that an architecture is given to build with."""
    return Parts(registry.norms[norm], registry.attentions[attention], registry.positions[position], 17, 65)


def initial(experiment):
    """A model as it is before its training."""
    with seeds.initial(experiment.seed, "weights"):
        return experiment.build()


def plain_training(experiment):
    """Train one model as any PyTorch tutorial does: backward(), AdamW. Yields the model and the loss after each step."""
    training = experiment.train
    model = initial(experiment)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": training.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    )
    warmup = max(1, round(training.warmup * training.steps))
    knots, heights = [-1, warmup - 1, warmup, max(training.steps, warmup + 1)], [0.0, 1.0, 1.0, 0.0]
    members = [(experiment.task, experiment.seed)]
    for done, ((inputs,), (targets,), _) in enumerate(stream(members, training, CPU)):
        for group in optimizer.param_groups:
            group["lr"] = training.lr * np.interp(done, knots, heights)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).transpose(1, 2), targets)
        loss.backward()
        optimizer.step()
        yield model, loss.item()


def scores(experiment, run, index):
    """Every score of one model of a trained population."""
    found = evaluate(experiment, run.models(index), CPU)
    return {(s.weights, s.metric, s.length, s.n): s.value for s in found}


def with_essentials() -> Registry:
    """A registry that has what every run needs: an optimizer and the metrics."""
    registry = Registry()
    for module in (lgbench_optimizers, lgbench_measurements):
        registry.add(module, module.__name__, Distribution("lgbench", lgbench.__version__))
    return registry


def with_model(model) -> Registry:
    """The toys and an architecture `toy-own` that builds this model."""

    class Own(toys.FragileArchitecture):
        name = "toy-own"

        def build(self, signature, parts):
            return model()

    return _with("lgbench_architectures", Own())


def with_averager(averager: Averager) -> Registry:
    """The toys and this averager."""
    return _with("lgbench_averagers", averager)


def _with(hook: str, thing: object) -> Registry:
    module = ModuleType("own")
    setattr(module, hook, hookimpl(specname=hook)(lambda: [thing]))
    registry = with_essentials()
    for plugin in (toys, module):
        registry.add(plugin, plugin.__name__, Distribution(plugin.__name__, "1"))
    assert not registry.problems()
    return registry


def install(
    folder: Path, module: str, source: str | None = None, version: str = "1.0", distribution: str | None = None
) -> None:
    """Write the files that pip leaves behind: a module (if `source` is given) and the folder that names its entry point."""
    name = distribution or module
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[lgbench]\n{module} = {module}\n")
    if source is not None:
        (folder / f"{module}.py").write_text(source)


@pytest.fixture(scope="session")
def toys_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the toys are an installed distribution."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, "toys", (TESTS / "toys.py").read_text(), "1.2.3", "lgbench-toys")
    return folder


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`code` in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | environ, check=False)


def lgbench_command(*arguments: str, then: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line in a fresh interpreter; `then` runs after it, whatever its exit."""
    command = "from lgbench.cli.main import main\ntry:\n    main(prog_name='lgbench')"
    code = f"{command}\nfinally:\n    import sys\n    {then or 'pass'}"
    return python(code, *arguments, **environ)


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs: tomita-1 with two norms and two seeds. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("runs") / "results"
    lgbench.run("tomita-1", ["pre-norm", "peri-norm"], seeds=(0, 1), protocol="quick", set=CHEAP, results=folder)
    return folder


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


def simulated(values: Mapping[int, float | None], trained: int = 8, **columns: Any) -> list[dict[str, Any]]:
    """Rows of a run from {length: value}; keywords replace any column. Boards show what they show of the built-in tasks.

    The run id changes with everything that makes another run.
    """
    shown = {length for length in values if length > 0 and length & (length - 1) == 0} | {trained, max(values, default=0)}
    same = {
        "entry": "arch+norm",
        "task": "alpha",
        "task_version": 1,
        "protocol": "quick",
        "protocol_version": 1,
        "changes": [],
        "plugins": [],
        "metric_version": 1,
        "seed": 0,
        "weights": "raw",
        "metric": "tvd",
        "step": 5,
        "n": 4,
    } | columns
    same.setdefault("family", same["task"])
    names = ("entry", "task", "task_version", "protocol", "protocol_version", "changes", "plugins", "seed")
    same.setdefault("run_id", hashlib.sha256(repr([same[name] for name in names]).encode()).hexdigest()[:16])
    return [
        same | {"length": length, "value": value, "in_distribution": length <= trained, "on_boards": length in shown}
        for length, value in values.items()
    ]


def measured_by_all() -> list[dict[str, Any]]:
    """How run files describe the built-in measurements that every run has, which are those that are no probes."""
    return descriptions(each for each in lgbench_measurements.lgbench_measurements() if not is_probe(each))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], **metadata: Any) -> Path:
    """A run file of these rows, which describes the built-in metrics."""
    about = metadata or {"experiment": {}, "measurements": measured_by_all()}
    run_files.write(path, pa.Table.from_pylist(list(rows), schema=SCHEMA), about)
    return path


def write_sealed(path: Path, rows: pa.Table, footer: bytes | None, **options: Any) -> Path:
    """A file with a right checksum, whatever its columns and the text of its footer are."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema.remove_metadata(), **options) as writer:
        writer.write_table(rows.replace_schema_metadata(None))
        own = {} if footer is None else {METADATA_KEY: footer}
        writer.add_key_value_metadata(own | {b"seal": b'"checksum": "%s"' % (b"0" * 64)})
    path.write_bytes(sealed(out.getvalue().to_pybytes()))
    return path


def corrupt(path: Path) -> None:
    """Ruin the first pages and leave the footer alone, with a checksum that fits."""
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(resealed(bytes(content)))


def resealed(content: bytes) -> bytes:
    """The bytes of a run file with a checksum that fits, as somebody makes it who means harm."""
    return sealed(re.sub(rb'(?<="checksum": ")[0-9a-f]{64}(?=")', b"0" * 64, content))
