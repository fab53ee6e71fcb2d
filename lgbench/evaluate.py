"""Testing trained models at every length, all weight variants on the same contexts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Batch, Language, Task
from lgbench.metrics import roc_auc, support_found, total_variation
from lgbench.protocols import Evaluation, Training

POSITIONS = 2**18
"""Positions drawn at once at most, which bounds memory; at least one context is. Changing it changes the contexts."""

AT_ONCE = {"cpu": 2**15, "cuda": POSITIONS}
"""Positions that a model sees at once at most, by device: on a CPU larger activations outgrow caches and allocator (with 2^18
retrieval at 2^14 took twice as long, most of it in the system).
"""

SCORE_DIGITS = 4
"""Digits after the point, in nats, to which strings are told apart; float32 models are sure of about five."""

Predict = Callable[[Tensor], Tensor]


class Score(NamedTuple):
    """One number: `value` is the mean over `n` contexts (or the AUC of `n` strings), None where it is not defined."""

    weights: str
    metric: str
    length: int
    value: float | None
    n: int


def spaced_lengths(low: int, trained: int, longest: int) -> list[int]:
    """Powers of two from `low` to `longest`, with the training length and the longest, which boards show.

    >>> spaced_lengths(5, 16, 63)
    [8, 16, 32, 63]
    """
    powers = {2**k for k in range(longest.bit_length()) if low <= 2**k <= longest}
    return sorted(powers | {n for n in (trained, longest) if n <= longest})


@torch.inference_mode()
def evaluate(
    task: Task, models: Mapping[str, Predict], training: Training, evaluation: Evaluation, seed: int, device: torch.device
) -> list[Score]:
    """Every metric at every length for each weight variant in `models`.

    Contexts derive from (seed, task, length) alone and are drawn on the CPU, so every entry on every device is tested on
    the same ones.
    """
    lengths = spaced_lengths(max(1, training.min_length), training.max_length, evaluation.max_length)
    every_prefix = task.signature.answers is Answers.EVERY_PREFIX
    scores: list[Score] = []
    for length in lengths[-1:] if every_prefix else lengths:
        scores += _score_contexts(task, models, length, evaluation.contexts, seed, device)
    if isinstance(task, Language):
        for length in sorted({task.testable_length(length) for length in lengths}):
            scores += _score_strings(task, models, length, evaluation.strings, seed, device)
    return scores


def _score_contexts(
    task: Task, models: Mapping[str, Predict], length: int, n: int, seed: int, device: torch.device
) -> Iterator[Score]:
    """Scores of contexts of `length` and, for tasks that answer at every prefix, of all their prefixes."""
    rows: dict[tuple[str, str], list[Tensor]] = defaultdict(list)  # each (n, A)
    for inputs, distribution in _contexts(task, length, n, seed):
        inputs, distribution = inputs.to(device), distribution.to(device)
        for variant, predict in models.items():
            logits = _in_parts(predict, inputs)
            for metric, values in context_values(task, logits, distribution).items():
                rows[variant, metric].append(values)
    for (variant, metric), chunks in rows.items():
        values = torch.cat(chunks)
        counts = values.isfinite().sum(0).tolist()
        for back, (value, count) in enumerate(zip(reversed(values.nanmean(0).tolist()), reversed(counts), strict=True)):
            yield Score(variant, metric, length - back, value if count else None, count)


def _contexts(task: Task, length: int, n: int, seed: int) -> Iterator[Batch]:
    generator = seeds.generator(seed, "evaluate", task.name, "contexts", length)
    size = max(1, POSITIONS // (length + 1))
    for start in range(0, n, size):
        yield task.sample(min(size, n - start), length, generator)


def _in_parts(function: Predict, inputs: Tensor) -> Tensor:
    """`function` of all inputs, as many contexts at once as memory allows."""
    size = min(len(inputs), max(1, AT_ONCE[inputs.device.type] // inputs.shape[1]))
    while True:
        try:
            return torch.cat([function(part) for part in torch.split(inputs, size)])
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2


def context_values(task: Task, logits: Tensor, distribution: Tensor) -> dict[str, Tensor]:
    """Each metric for every context and position: (n, A, V), (n, A, V) -> (n, A) float64.

    NaN where the AUC is not defined, because every token is legal.
    """
    probability = logits.double().softmax(-1)
    values = {
        "tvd": total_variation(probability, distribution),
        "accuracy": support_found(probability, distribution).double(),
    }
    if not isinstance(task, Language):
        values["roc_auc"] = roc_auc(probability, distribution > 0)
    return values


def _score_strings(
    task: Language, models: Mapping[str, Predict], length: int, n: int, seed: int, device: torch.device
) -> Iterator[Score]:
    inputs, is_member = task.strings(n, length, seeds.generator(seed, "evaluate", task.name, "strings", length))
    inputs, is_member = inputs.to(device), is_member.to(device)
    for variant, predict in models.items():
        score = _in_parts(lambda part, predict=predict: string_scores(predict(part), part), inputs)  # type: ignore[misc]
        yield Score(variant, "roc_auc", length, roc_auc(score, is_member).item(), n)


def string_scores(logits: Tensor, inputs: Tensor) -> Tensor:
    """Log of the smallest probability that the model gave to any step of a string, its end included.

    logits (n, L + 1, V), inputs (n, L + 1) with the begin token first -> (n,) float64; the last class is the end. Rounded to
    SCORE_DIGITS: a model without position code gives whole sets of strings the same score, and which of them are ahead by a
    rounding error would otherwise move the AUC by as much as 0.03.
    """
    steps = F.pad(inputs[:, 1:], (0, 1), value=logits.shape[-1] - 1)
    taken = logits.double().log_softmax(-1).gather(-1, steps[..., None])
    return taken.amin((-1, -2)).round(decimals=SCORE_DIGITS)
