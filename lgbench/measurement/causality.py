"""Causality: independence of an answer from later inputs. Contexts are cut or changed after a position; earlier logits stay.

Shapes: n contexts, T positions, V classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench.contracts import Answers, Signature, Task, Tokens
from lgbench.experiment.contexts import context_lengths, context_positions, draw
from lgbench.experiment.record import Evaluation, Training
from lgbench.randomness import Random, key_of

Predict = Callable[[Tensor], Tensor]
"""Model as a function from inputs to logits."""

TOLERANCE = 1e-4
"""Largest movement of logits by rounding alone, relative to the largest logit of the context (at least 1).

float32 rounds differently for tensors of another shape. The logits of every built-in model and pack, trained or not, moved by
at most 1e-6. A tape RNN with large weights amplified rounding to 0.2, so :func:`moved` compares inputs of one shape.
"""

TOLERANCES = {"float32": TOLERANCE, "bfloat16": 0.05}
"""Tolerance by the precision of models. bfloat16 has 8 binary digits."""

CONTEXTS = 2
"""Contexts for the cuts, each with several cuts."""

PLACES = 4
"""Number of cuts."""


class Question(NamedTuple):
    """Contexts of one length with cuts. Cut i is in context i % n."""

    length: int
    inputs: Tensor
    """(n, T), or (n, T, F)."""
    changed: Tensor
    """Context of each cut, with different inputs at every position after the cut: (cuts, T), or (cuts, T, F)."""
    cuts: tuple[int, ...]
    """Number of positions before each cut: 1 to T - 1."""

    @classmethod
    def of(cls, length: int, inputs: Tensor, trained: int, signature: Signature, random: Random) -> Question:
        """Question about contexts of `length`, for a model trained on `trained` positions. `random` is for PLACES cuts."""
        cuts = cut_positions(trained, inputs.shape[1], random)
        contexts = inputs[torch.arange(len(cuts)) % len(inputs)]
        after = torch.arange(inputs.shape[1])[None] >= torch.tensor(cuts)[:, None]
        other = _other_inputs(contexts, signature, random)
        changed = other.where(after.view(*after.shape, *[1] * (inputs.ndim - 2)), contexts)
        return cls(length, inputs, changed, tuple(cuts))

    def to(self, device: torch.device) -> Question:
        return self._replace(inputs=self.inputs.to(device), changed=self.changed.to(device))


class Moved(NamedTuple):
    """Movement of the logits before the cuts."""

    distance: float
    """Largest distance, relative to the largest logit of the context (at least 1); infinite for logits that are not finite."""
    cuts: tuple[int, ...]
    """Cuts with a movement beyond rounding."""


def question(task: Task, training: Training, evaluation: Evaluation, seed: int) -> Question | None:
    """Contexts of the longest tested length, with cuts; None where nothing follows an answer.

    The answer at the end of a context may depend on all inputs. Contexts and cuts derive from seed, task and length alone.
    """
    lengths = context_lengths(task, training, evaluation)
    if not lengths:
        return None
    key = key_of(seed, "causality", task.name, lengths[-1])
    inputs = draw(task, lengths[-1], Random.stacked([key], CONTEXTS)).inputs
    if task.signature.answers is Answers.LAST or inputs.shape[1] == 1:
        return None
    random = Random.stacked([key], PLACES, first=CONTEXTS)  # other numbers than those of the contexts
    return Question.of(lengths[-1], inputs, context_positions(task, training.max_length), task.signature, random)


def cut_positions(trained: int, tested: int, random: Random) -> list[int]:
    """Cuts of inputs with `tested` positions, for models trained on `trained` positions: one cut in each of four regions.

    The regions: within the training length, just beyond it, the middle half, and near the end. Short inputs clamp all regions.
    `random` has one number for each of the PLACES.
    """
    regions = (
        (1, trained - 1),
        (trained + 1, trained + 3),
        (tested // 4, tested - tested // 4),
        (tested - 3, tested - 1),
    )
    lows, highs = torch.tensor(regions).clamp(1, max(1, tested - 1)).unbind(1)
    found: list[int] = (lows + random.integers(highs - lows.minimum(highs) + 1)).tolist()
    return found


@torch.inference_mode()
def moved(predict: Predict, question: Question, tolerance: float = TOLERANCE, removed: bool = True) -> Moved:
    """Movement of the logits before the cuts, with changed and, if `removed`, with removed later inputs.

    Compared inputs have the same shape, apart from removed positions: rounding depends on the shape, and a recurrent network
    may amplify it at every step.
    """
    contexts = [index % len(question.inputs) for index in range(len(question.cuts))]
    beside, changed = predict(question.inputs[contexts]), predict(question.changed)
    alone = [predict(each[None])[0] for each in question.inputs] if removed else []
    farthest, wrong = 0.0, []
    for index, (context, kept) in enumerate(zip(contexts, question.cuts, strict=True)):
        apart = _apart(beside[index, :kept], changed[index, :kept])
        if removed:
            short = predict(question.inputs[context : context + 1, :kept])[0]
            apart = max(apart, _apart(alone[context][:kept], short))
        farthest = max(farthest, apart)
        if apart > tolerance:
            wrong.append(kept)
    return Moved(farthest, tuple(sorted(wrong)))


def _apart(expected: Tensor, found: Tensor) -> float:
    """Distance of two logits, (A, V), relative to the largest. Infinite where only one is finite."""
    expected, found = expected.double(), found.double()
    largest = expected.where(expected.isfinite(), 0).abs().max().clamp(min=1)
    distance = (expected - found).abs() / largest
    same = (expected == found) | (expected.isnan() & found.isnan())
    return distance.nan_to_num(nan=torch.inf, posinf=torch.inf).masked_fill(same, 0).max().item()


def _other_inputs(inputs: Tensor, signature: Signature, random: Random) -> Tensor:
    """Valid inputs, different from the given inputs at every position where the task has more than one input.

    Position ids stay.
    """
    if not isinstance(signature.inputs, Tokens):
        return inputs + 1 + random.uniform(*inputs.shape[1:])
    size, has_ids = signature.inputs.size, signature.inputs.positions is not None
    tokens = inputs[..., 0] if has_ids else inputs
    other = (tokens + 1 + random.integers(max(1, size - 1), *tokens.shape[1:])) % size
    return torch.stack((other, inputs[..., 1]), -1) if has_ids else other
