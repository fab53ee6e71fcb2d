"""Sets of items with a query: max retrieval and dictionary lookup."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.uniform import are_uniform

from lgbench import Random, Task
from lgbench_tasks.dictionary_lookup import DictionaryLookup
from lgbench_tasks.max_retrieval import MaxRetrieval

CLASSES = 10
"""Items end with one class of these, bit by bit. Before it they have a priority, or a key of 32 numbers."""
tasks = pytest.mark.parametrize("task", [MaxRetrieval(), DictionaryLookup()], ids=lambda task: task.name)


def drawn(task: Task, n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    inputs, distribution, _ = task.sample(length, Random(n))
    return inputs.numpy(), distribution.numpy()


def asked_item(context: np.ndarray) -> int:
    """The item of highest priority, or the one item whose key is the query's."""
    items, query = context[:-1, :-CLASSES], context[-1, :-CLASSES]
    if len(query) == 1:
        return max(range(len(items)), key=lambda at: items[at, 0])
    (found,) = [at for at, item in enumerate(items) if (item == query).all()]
    return found


@tasks
@pytest.mark.parametrize("length", [1, 2, 5, 16, 300])
def test_the_answer_is_the_class_of_the_item_that_is_asked_for(task: Task, length: int) -> None:
    inputs, distribution = drawn(task, 150, length)
    width = CLASSES + (1 if task.name == "max-retrieval" else 32)
    assert inputs.shape == (150, length + 1, width) and distribution.shape == (150, 1, CLASSES)
    for context, answer in zip(inputs, distribution[:, 0], strict=True):
        assert answer.tolist() == context[asked_item(context), -CLASSES:].tolist()


@tasks
def test_every_item_has_one_class_and_the_query_has_none(task: Task) -> None:
    classes = drawn(task, 100, 16)[0][..., -CLASSES:]
    assert set(np.unique(classes)) == {0, 1}
    assert (classes[:, :-1].sum(-1) == 1).all() and (classes[:, -1] == 0).all()


@tasks
def test_classes_are_uniform_and_do_not_depend_on_which_item_is_asked_for_which_is_any(task: Task) -> None:
    inputs, distribution = drawn(task, 6000, 5)
    assert are_uniform(inputs[..., -CLASSES:].sum((0, 1))) and are_uniform(distribution[:, 0].sum(0))
    assert are_uniform(np.bincount([asked_item(context) for context in inputs], minlength=5))


def test_a_query_above_every_priority_does_not_win() -> None:
    inputs, distribution = drawn(MaxRetrieval(), 400, 5)
    loudest = inputs[:, -1, 0] > inputs[:, :-1, 0].max(1)
    assert loudest.sum() > 30
    assert (distribution[loudest].sum((1, 2)) == 1).all()


def test_a_context_that_is_written_and_read_again_has_the_same_answer() -> None:
    task = MaxRetrieval()
    inputs, distribution, _ = task.sample(200, Random(100))
    texts = [task.text(context) for context in inputs]
    assert sum(":" in text and len(text.split(":")[0]) > len("0.12") for text in texts) > 10  # two decimals often do not do
    for text, answer in zip(texts, distribution[:, 0].tolist(), strict=True):
        assert task.reference(task.context(text)) == answer
    assert task.reference(task.context("0.5:4 0.7:6 0.7:2 ?")).index(1) == 6


def test_priorities_are_uniform_and_the_query_is_drawn_as_they_are() -> None:
    inputs, _ = drawn(MaxRetrieval(), 4000, 7)
    for column in (inputs[:, :-1, 0].ravel(), inputs[:, -1, 0]):
        ordered = np.sort(column)
        assert ordered[0] >= 0 and ordered[-1] < 1
        distance = np.abs(ordered - (np.arange(len(ordered)) + 0.5) / len(ordered)).max()
        assert distance * len(ordered) ** 0.5 < 2.0  # Kolmogorov-Smirnov, p about 1e-3


def test_keys_are_unit_vectors_in_random_directions() -> None:
    keys = drawn(DictionaryLookup(), 2000, 8)[0][:, :-1, :-CLASSES].reshape(-1, 32).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(keys, axis=-1), 1, atol=1e-6)
    # Uniform on the sphere: mean 0 and covariance I / 32 (entries deviate by about 1 / 32 / sqrt(16000)).
    np.testing.assert_allclose(keys.mean(0), 0, atol=6 * 32**-0.5 / 16_000**0.5)
    np.testing.assert_allclose(keys.T @ keys / len(keys), np.eye(32) / 32, atol=9 / 32 / 16_000**0.5)
