"""Contexts of an experiment: draws from a task, checks of its p*, lengths on boards, and eval steps."""

from __future__ import annotations

from torch import Tensor, finfo

from lgbench.contracts import Answers, Batch, Language, Task, Tokens
from lgbench.errors import PluginError
from lgbench.experiment.record import MULTIPLES, Evaluation, Training
from lgbench.randomness import Random, key_of

TOLERANCE = 1e-3
"""Tolerance for the sum of a float32 p*, which should be 1."""


def draw(task: Task, length: int, random: Random, check: bool = True) -> Batch:
    """Batch of `random.n` contexts of a task. The check of the batch waits for the device.

    Raises PluginError with the first flaw of the batch, if `check` is true.
    """
    batch = task.sample(length, random)
    if check and (sentence := problem(task, batch, random.n)):
        raise PluginError(f"task {task.name} at length {length}: {sentence}")
    return batch


def problem(task: Task, batch: Batch, n: int) -> str | None:
    """First flaw of a batch of n contexts, as a sentence; None for a valid batch."""
    if not isinstance(batch, Batch):
        return f"`sample` gives {type(batch).__name__}, expected lgbench.Batch: return Batch(inputs, distribution)"
    inputs, p, weights = batch.inputs, batch.distribution, batch.weights
    signature = task.signature
    answers = 1 if signature.answers is Answers.LAST else inputs.shape[1]
    for name, tensor in (("p*", p), ("the tensor of weights", weights)):
        if tensor is not None and not tensor.is_floating_point():
            return f"{name} has the type {tensor.dtype}, expected float32"
    if p.shape[:1] + p.shape[2:] != (n, signature.classes) or p.ndim != 3:
        return f"p* has the shape {tuple(p.shape)}, expected ({n}, {answers}, {signature.classes}) for n, answers, classes"
    if p.shape[1] != answers:
        return f"p* has {p.shape[1]} answers to a context, expected {answers}: it answers {signature.answers.value}"
    if isinstance(signature.inputs, Tokens):
        if signature.inputs.positions is not None:
            if batch.positions is None or inputs.shape[2] != 2:
                return f"its inputs have the shape {tuple(inputs.shape)}, expected (n, T, 2): a token and its position id"
            if not _within(batch.positions, 0, signature.inputs.positions - 1):
                return f"its position ids are not all from 0 to {signature.inputs.positions - 1}, as its signature says"
            inputs = inputs[..., 0]
        if not _within(inputs, 0, signature.inputs.size - 1):
            return f"its inputs are not all from 0 to {signature.inputs.size - 1}, as its signature says"
    sums = p.sum(-1)
    if not (_within(p, -TOLERANCE, 1 + TOLERANCE) and _within(sums, 1 - TOLERANCE, 1 + TOLERANCE)):
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        values = f"values from {p.min().item():.4g} to {p.max().item():.4g}"
        return f"p* is no probability distribution: it has {values} and a sum of {worst:.4g}, expected 0 to 1 and a sum of 1"
    if weights is not None and weights.shape != p.shape[:2]:
        return f"its weights have the shape {tuple(weights.shape)}, expected {tuple(p.shape[:2])} for n, answers"
    if weights is not None and not _within(weights, 0, finfo(weights.dtype).max):
        values = f"values from {weights.min().item():.4g} to {weights.max().item():.4g}"
        return f"its weights have {values}, expected finite numbers, none below 0"
    if weights is None and signature.answers is Answers.MARKED:
        return "it answers at marked positions and gives no weights: return Batch(inputs, distribution, weights)"
    return None


def _within(values: Tensor, low: float, high: float) -> bool:
    """Whether all values are from `low` to `high`. A NaN is outside: both ends are NaN then."""
    if not values.numel():  # has no ends
        return True
    least, greatest = values.aminmax()
    return bool((least >= low) & (greatest <= high))


CONTEXTS = 32
"""Contexts to draw per length in the search for an answer with a positive weight."""


def spaced_lengths(low: int, trained: int, longest: int) -> list[int]:
    """Powers of two from `low` to `longest`, with the training length and the longest.

    >>> spaced_lengths(5, 16, 63)
    [8, 16, 32, 63]
    """
    powers = {2**k for k in range(longest.bit_length()) if low <= 2**k <= longest}
    return sorted(powers | {n for n in (trained, longest) if n <= longest})


def board_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """Lengths on boards and in their averages: the task's own, or powers of two, so that each doubling counts once."""
    if task.lengths is None:
        return spaced_lengths(max(1, training.min_length), training.max_length, evaluation.max_length)
    return sorted({length for length in task.lengths if length <= evaluation.max_length})


def context_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """Lengths of the contexts to draw. With an answer at every prefix, the longest context covers all lengths."""
    lengths = board_lengths(task, training, evaluation)
    return lengths[-1:] if task.signature.answers is Answers.EVERY_PREFIX else lengths


def answered_lengths(task: Task, length: int, answers: int) -> list[int]:
    """Length of each of the A answers to contexts of `length`, or a single length for all."""
    if task.signature.answers is not Answers.EVERY_PREFIX:
        return [length]
    return list(range(length - answers + 1, length + 1))


def no_answer_counts(task: Task, training: Training, evaluation: Evaluation) -> str | None:
    """Sentence for a task without a counted answer at any length on boards; None for other tasks."""
    shown = board_lengths(task, training, evaluation)
    for length in context_lengths(task, training, evaluation):
        key = key_of(0, "counted", task.name, length)
        for n in (1, CONTEXTS):  # one context is enough, except for tasks with random weights
            weights = draw(task, length, Random.stacked([key], n)).weights
            if weights is None or not _counted(task, length, weights).isdisjoint(shown):
                return None
    said = ", ".join([*map(str, shown[:3]), *(["..."] if len(shown) > 3 else [])]) or "none"
    return f"no answer of {task.name} counts at a length that boards show ({said}): give Task.lengths at which some count"


def _counted(task: Task, length: int, weights: Tensor) -> set[int]:
    """Lengths with a counted answer among n contexts of `length`. weights: (n, A)."""
    answered = answered_lengths(task, length, weights.shape[1])
    each = answered if len(answered) > 1 else answered * weights.shape[1]
    return {answer for answer, counts in zip(each, (weights > 0).any(0).tolist(), strict=True) if counts}


def context_positions(task: Task, length: int) -> int:
    """T, the number of positions in a context of `length`. Draws one context."""
    return draw(task, length, Random.stacked([key_of(0, "positions", task.name)], 1)).inputs.shape[1]


def string_positions(task: Task, length: int) -> int:
    """Positions of a string, with the begin token, at the testable length nearest to `length`; 0 if the task is no language."""
    return task.testable_length(length) + 1 if isinstance(task, Language) else 0


def eval_steps(training: Training, evaluation: Evaluation) -> list[int]:
    """Eval steps of a training: half of all steps, a quarter, and so on.

    >>> from types import SimpleNamespace
    >>> eval_steps(SimpleNamespace(steps=1000), SimpleNamespace(points=10))
    [1, 3, 7, 15, 31, 62, 125, 250, 500]
    """
    halved = (training.steps // 2**k for k in range(1, evaluation.points + 1))
    return sorted({step for step in halved if step})


def eval_step_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """Lengths of tests at eval steps, all of them also tested at the end.

    Lengths on boards from the training length on. With an answer at every prefix, also multiples of the training length.
    """
    lengths = board_lengths(task, training, evaluation)
    longest = min(evaluation.point_max_length, lengths[-1])  # a task's own lengths may end before evaluation.max_length
    shown = [length for length in lengths if length <= longest]
    from_length = max((length for length in shown if length <= training.max_length), default=0)
    found = {length for length in shown if length >= from_length}
    if task.signature.answers is Answers.EVERY_PREFIX:
        found |= {n for n in (m * training.max_length for m in MULTIPLES) if n <= longest}
    return sorted(found)
