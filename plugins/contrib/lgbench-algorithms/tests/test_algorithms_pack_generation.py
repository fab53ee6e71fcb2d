"""Exact match under teacher forcing, against answers that a model writes symbol by symbol until it ends them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest
import torch
import torch.nn.functional as F

import lgbench_algorithms
from lgbench import Predictions, Random
from lgbench_algorithms.layouts import END, Written
from lgbench_measurements import ExactMatch

WRITTEN = [task for task in lgbench_algorithms.lgbench_tasks() if isinstance(task, Written) and not task.positions]


def next_symbol(task: Written, words: Sequence[str]) -> str:
    """Answer of a model that is right, except after one prefix in ten: whether it errs depends on all that it has read."""
    separator = words.index("=")
    answer = [*task.solve(" ".join(words[1:separator])), END]
    right = answer[min(len(words) - separator, len(answer)) - 1]
    errs = sha256(" ".join(words).encode()).digest()[0] < 26
    return next(name for name in task.outputs if name != right) if errs else right


def written(task: Written, words: Sequence[str]) -> list[str]:
    """The model's answer to a context that stops at the separator."""
    found: list[str] = []
    while END not in found and len(found) < 40:
        found.append(next_symbol(task, [*words, *found]))
    return found


@pytest.mark.parametrize("task", WRITTEN, ids=lambda task: task.name)
def test_teacher_forced_exact_match_is_that_of_greedy_generation(task: Written) -> None:
    batch = task.sample(max(5, task.train_lengths[0]), Random(60))
    assert batch.weights is not None
    answers, expected = torch.zeros(batch.distribution.shape[:2], dtype=torch.int64), []
    for place, (context, counts) in enumerate(zip(batch.inputs, batch.weights.tolist(), strict=True)):
        words = task.text(context).split()
        for end in (end for end, count in enumerate(counts) if count):
            answers[place, end] = task.outputs.index(next_symbol(task, words[: end + 1]))
        asked = words[: words.index("=") + 1]
        expected.append(written(task, asked) == list(task.solve(" ".join(asked[1:-1]))))
    logits = F.one_hot(answers, len(task.outputs)).float()
    found = ExactMatch().of_sequences(Predictions(logits, batch.distribution, batch.weights))
    assert found.bool().tolist() == expected
    assert 0 < sum(expected) < len(expected)
