from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lgbench import Answers, Batch, Language, Random, Task, Tokens
from lgbench.extensions.registry import Registry

LANGUAGES = [
    *("dyck-1-8", "dyck-2-3", "dyck-2-5", "dyck-8-5"),
    *("tomita-1", "tomita-2", "tomita-3", "tomita-4", "tomita-5", "tomita-6", "tomita-7"),
]
SETS = ["dictionary-lookup", "max-retrieval"]
BUILT_IN = ["set-complement", *SETS, *LANGUAGES]
CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")])

few = settings(deadline=None, max_examples=30)
names = st.sampled_from(BUILT_IN)
sizes = st.integers(1, 6)
lengths = st.integers(1, 40)
seeds = st.integers(0, 2**40)


def sample(task: Task, n: int, length: int, seed: int, device: str = "cpu") -> Batch:
    return task.sample(length, Random(n, seed, device))


def positions(task: Task, length: int) -> int:
    """A begin token or a query is no symbol or item."""
    return length if task.name == "set-complement" else length + 1


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


@few
@given(name=names, n=sizes, length=lengths, seed=seeds)
def test_a_batch_has_the_shapes_and_types_of_the_contract(
    registry: Registry, name: str, n: int, length: int, seed: int
) -> None:
    task = registry.tasks[name]
    inputs, distribution, _ = sample(task, n, length, seed)
    steps = positions(task, length)
    if isinstance(task.signature.inputs, Tokens):
        assert inputs.shape == (n, steps) and inputs.dtype == torch.int64
        assert inputs.min() >= 0 and inputs.max() < task.signature.inputs.size
    else:
        assert inputs.shape == (n, steps, task.signature.inputs.width) and inputs.dtype == torch.float32
    answered = steps if task.signature.answers is Answers.EVERY_PREFIX else 1
    assert distribution.shape == (n, answered, task.signature.classes)
    assert distribution.dtype == torch.float32
    assert len(task.answers) == task.signature.classes


@few
@given(name=names, length=lengths, seed=seeds)
def test_every_answer_is_a_distribution(registry: Registry, name: str, length: int, seed: int) -> None:
    distribution = sample(registry.tasks[name], 8, length, seed).distribution
    assert (distribution >= 0).all()
    torch.testing.assert_close(distribution.sum(-1), torch.ones(distribution.shape[:-1]))


@few
@given(name=names, length=lengths, seed=seeds)
def test_the_same_seed_draws_the_same_batch_and_another_one_another(
    registry: Registry, name: str, length: int, seed: int
) -> None:
    task = registry.tasks[name]
    first, second, other = sample(task, 8, length, seed), sample(task, 8, length, seed), sample(task, 8, length, seed + 1)
    assert torch.equal(first.inputs, second.inputs) and torch.equal(first.distribution, second.distribution)
    if name in SETS:
        assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.slow
@few
@given(name=names, length=lengths, seed=seeds)
def test_no_global_generator_is_read_or_moved(registry: Registry, name: str, length: int, seed: int) -> None:
    task = registry.tasks[name]
    batches = []
    for unrelated in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(unrelated)
            before = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())
            batches.append(sample(task, 4, length, seed))
            if isinstance(task, Language):
                task.strings(task.testable_length(length), Random(8, seed))
            assert torch.equal(torch.get_rng_state(), before[0])
            assert (random.getstate(), repr(np.random.get_state())) == before[1:]
    assert torch.equal(batches[0].inputs, batches[1].inputs)


@few
@given(name=st.sampled_from(LANGUAGES), n=st.integers(2, 9), length=lengths, seed=seeds)
def test_strings_have_the_shapes_and_types_of_the_contract(
    registry: Registry, name: str, n: int, length: int, seed: int
) -> None:
    task = registry.tasks[name]
    assert isinstance(task, Language)
    testable = task.testable_length(length)
    assert task.testable_length(testable) == testable
    inputs, is_member = task.strings(testable, Random(n, seed))
    assert inputs.shape == (n, testable + 1) and inputs.dtype == torch.int64
    assert is_member.shape == (n,) and is_member.dtype == torch.bool
    begin = task.signature.classes - 1
    assert (inputs[:, 0] == begin).all() and (inputs[:, 1:] < begin).all()


@pytest.mark.parametrize("name", ["set-complement", *LANGUAGES])
def test_the_answer_to_a_prefix_does_not_depend_on_how_long_the_context_is(registry: Registry, name: str) -> None:
    task = registry.tasks[name]
    long, short = (answers_by_prefix(sample(task, 400, length, length)) for length in (12, 3))
    shared = long.keys() & short.keys()
    assert len(shared) > len(short) / 2 or name in ("set-complement", "dyck-8-5")
    assert all(long[prefix] == short[prefix] for prefix in shared)


@pytest.mark.parametrize("name", ["set-complement", *LANGUAGES])
def test_the_prefix_of_a_context_is_distributed_as_a_shorter_context_is(registry: Registry, name: str) -> None:
    task = registry.tasks[name]
    short = sample(task, 6000, 3, 1).inputs
    prefix = sample(task, 6000, 9, 2).inputs[:, : short.shape[1]]
    columns = slice(None) if task.signature.classes < 10 else slice(1, 2)  # too many contexts: one position of them
    one, other = (Counter(map(tuple, inputs[:, columns].tolist())) for inputs in (short, prefix))
    seen = one.keys() | other.keys()
    chi_square = sum((one[context] - other[context]) ** 2 / (one[context] + other[context]) for context in seen)
    assert chi_square <= len(seen) + 6 * (2 * len(seen)) ** 0.5


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_empty_context_has_an_answer(registry: Registry, name: str) -> None:
    task = registry.tasks[name]
    inputs, distribution, _ = sample(task, 5, 0, 0)
    assert inputs.tolist() == [[task.signature.classes - 1]] * 5
    torch.testing.assert_close(distribution.sum(-1), torch.ones(5, 1))


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
