from __future__ import annotations

import numpy as np
import pytest
from helpers.uniform import are_uniform

from lgbench import Random
from lgbench_tasks.max_retrieval import MaxRetrieval


def drawn(n: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    inputs, distribution, _ = MaxRetrieval().sample(length, Random(n, seed))
    return inputs.numpy(), distribution.numpy()


@pytest.mark.parametrize("length", [1, 2, 5, 16, 300])
def test_the_answer_is_the_class_of_the_item_of_highest_priority(length: int) -> None:
    inputs, distribution = drawn(200, length)
    assert inputs.shape == (200, length + 1, 11) and distribution.shape == (200, 1, 10)
    for context, answer in zip(inputs, distribution[:, 0], strict=True):
        best = max(context[:-1], key=lambda item: item[0])
        assert answer.tolist() == best[1:].tolist()


def test_every_item_has_one_class_and_the_query_has_none() -> None:
    inputs, _ = drawn(100, 16)
    assert set(np.unique(inputs[..., 1:])) == {0, 1}
    assert (inputs[:, :-1, 1:].sum(-1) == 1).all()
    assert (inputs[:, -1, 1:] == 0).all()


def test_a_query_above_every_priority_does_not_win() -> None:
    inputs, distribution = drawn(400, 5)
    loudest = inputs[:, -1, 0] > inputs[:, :-1, 0].max(1)
    assert loudest.sum() > 30
    assert (distribution[loudest].sum((1, 2)) == 1).all()


def test_priorities_are_uniform_and_the_query_is_drawn_as_they_are() -> None:
    inputs, _ = drawn(4000, 7)
    for column in (inputs[:, :-1, 0].ravel(), inputs[:, -1, 0]):
        ordered = np.sort(column)
        assert ordered[0] >= 0 and ordered[-1] < 1
        distance = np.abs(ordered - (np.arange(len(ordered)) + 0.5) / len(ordered)).max()
        assert distance * len(ordered) ** 0.5 < 2.0  # Kolmogorov-Smirnov, p about 1e-3


def test_classes_are_uniform_and_do_not_depend_on_the_priority() -> None:
    inputs, distribution = drawn(20_000, 5)
    assert are_uniform(inputs[..., 1:].sum((0, 1))) and are_uniform(distribution[:, 0].sum(0))
