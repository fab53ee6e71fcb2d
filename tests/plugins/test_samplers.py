from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lgbench import Batch, Random, Task
from lgbench.extensions.registry import Registry

LANGUAGES = [
    *("dyck-1-8", "dyck-2-3", "dyck-2-5", "dyck-8-5"),
    *("tomita-1", "tomita-2", "tomita-3", "tomita-4", "tomita-5", "tomita-6", "tomita-7"),
]
SETS = ["dictionary-lookup", "max-retrieval"]
BUILT_IN = ["set-complement", *SETS, *LANGUAGES]
CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")])


def sample(task: Task, n: int, length: int, seed: int, device: str = "cpu") -> Batch:
    return task.sample(length, Random(n, seed, device))


def answers_by_prefix(batch: Batch) -> dict[tuple[int, ...], list[float]]:
    """p* of every prefix in the batch; a prefix that comes twice must have the same."""
    found: dict[tuple[int, ...], list[float]] = {}
    for context, rows in zip(batch.inputs.tolist(), batch.distribution.tolist(), strict=True):
        for end, row in enumerate(rows, start=1):
            assert found.setdefault(tuple(context[:end]), row) == row
    return found


def recomputed(task: Task, inputs: Tensor) -> Tensor:
    """The one-hot answer to a set of items, in plain Python."""
    rows = []
    for context in inputs.tolist():
        *items, query = context
        if task.name == "max-retrieval":
            rows.append(max(items)[1:])
        else:
            (found,) = [item[32:] for item in items if item[:32] == query[:32]]
            rows.append(found)
    return torch.tensor(rows)[:, None]


def test_the_built_in_tasks_are_these_fourteen(registry: Registry) -> None:
    ours = [name for name in registry.tasks.names() if type(registry.tasks[name]).__module__.startswith("lgbench_tasks.")]
    assert ours == sorted(BUILT_IN)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("name", BUILT_IN)
def test_answers_on_any_device_are_those_that_the_cpu_finds(registry: Registry, name: str, device: str) -> None:
    task = registry.tasks[name]
    batch = sample(task, 3000, 2, 9, device)
    assert batch.inputs.device.type == batch.distribution.device.type == device
    inputs, distribution = batch.inputs.cpu(), batch.distribution.cpu()
    torch.testing.assert_close(distribution.sum(-1), torch.ones(distribution.shape[:-1]))
    if name in SETS:
        assert torch.equal(distribution, recomputed(task, inputs))
    else:
        there, here = answers_by_prefix(Batch(inputs, distribution)), answers_by_prefix(sample(task, 6000, 2, 10))
        shared = there.keys() & here.keys()
        assert len(shared) > len(there) / 2
        assert all(there[prefix] == pytest.approx(here[prefix]) for prefix in shared)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("name", LANGUAGES)
def test_strings_on_any_device_are_told_apart_as_on_the_cpu(registry: Registry, name: str, device: str) -> None:
    task = registry.tasks[name]
    inputs, is_member = task.strings(24, Random(60, 3, device))
    assert inputs.device.type == is_member.device.type == device
    assert torch.equal(task.accepts(inputs[:, 1:].cpu()), is_member.cpu())
