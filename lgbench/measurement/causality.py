"""Whether an answer depends on what comes after it: contexts are cut or changed after a position, and logits before compared.

Shapes: n contexts, T positions, V classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Signature, Task, Tokens
from lgbench.experiment.contexts import draw
from lgbench.experiment.lengths import context_lengths, context_positions
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.randomness import Random

Predict = Callable[[Tensor], Tensor]
"""A model: inputs to logits."""

TOLERANCE = 1e-4
"""How far logits may move by rounding alone, as a share of the largest logit of the context (at least 1).

float32 rounds otherwise where a tensor has another shape. That moved the logits of every built-in model and pack, trained or
not, by 1e-6 at most.
"""

TOLERANCES = {"float32": TOLERANCE, "bfloat16": 0.05}
"""The same by the precision in which models compute. bfloat16 has 8 binary digits."""

CONTEXTS = 2
"""How many contexts are cut, each in several places."""


PLACES = 4
"""How many cuts there are."""


class Question(NamedTuple):
    """Contexts of one length, and places to cut them. Cut i is in context i % n."""

    length: int
    inputs: Tensor
    """(n, T), or (n, T, F)."""
    changed: Tensor
    """For each cut, its context with other inputs at every position after the cut: (cuts, T), or (cuts, T, F)."""
    cuts: tuple[int, ...]
    """How many positions are before each cut: from 1 to T - 1."""

    def to(self, device: torch.device) -> Question:
        return self._replace(inputs=self.inputs.to(device), changed=self.changed.to(device))


class Moved(NamedTuple):
    """How far the logits before the cuts moved."""

    distance: float
    """The largest distance, as a share of the largest logit of its context (at least 1); infinite where one is not finite."""
    cuts: tuple[int, ...]
    """The cuts before which logits moved further than rounding moves them."""


def places(task: Task, inputs: Tensor) -> int:
    """How many cuts a :func:`question` has for a task with such inputs, (n, T) or (n, T, F).

    0 where nothing comes after an answer. A task that asks for an answer at the end alone may depend on everything.
    """
    return PLACES if task.signature.answers is not Answers.LAST and inputs.shape[1] > 1 else 0


def question(task: Task, training: Training, evaluation: Evaluation, seed: int) -> Question | None:
    """Contexts of the longest tested length, a cut for each; None where there is nothing after an answer.

    They derive from the seed, the task and the length alone.
    """
    lengths = context_lengths(task, training, evaluation)
    if not lengths:
        return None
    key = seeds.key(seed, "causality", task.name, lengths[-1])
    inputs = draw(task, lengths[-1], Random.stacked([key], CONTEXTS)).inputs
    if not places(task, inputs):
        return None
    random = Random.stacked([key], PLACES, first=CONTEXTS)
    cuts = cut_positions(context_positions(task, training.max_length), inputs.shape[1], random)
    return Question(lengths[-1], inputs, cut(inputs, cuts, task.signature, random), tuple(cuts))


def cut(inputs: Tensor, cuts: Sequence[int], signature: Signature, random: Random) -> Tensor:
    """For each cut a context in which everything after the cut is another input: (cuts, T), or (cuts, T, F).

    `random.n` is the number of cuts.
    """
    contexts = inputs[torch.arange(len(cuts)) % len(inputs)]
    after = torch.arange(inputs.shape[1])[None] >= torch.tensor(cuts)[:, None]
    other = _other_inputs(contexts, signature, random)
    return other.where(after.view(*after.shape, *[1] * (inputs.ndim - 2)), contexts)


def cut_positions(trained: int, tested: int, random: Random) -> list[int]:
    """Where to cut inputs of `tested` positions, of models that were trained on `trained`: one place in each region.

    Within the training length, just beyond it, in the middle half, and near the end, as far as there are such positions.
    `random` has a number for each of the PLACES.
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
def moved(predict: Predict, question: Question, tolerance: float = TOLERANCE) -> Moved:
    """How the logits before the cuts move when the rest is changed, and when it is cut off."""
    contexts = len(question.inputs)
    together = predict(torch.cat([question.inputs, question.changed]))
    whole, changed = together[:contexts], together[contexts:]
    farthest, wrong = 0.0, []
    for index, kept in enumerate(question.cuts):
        context = index % contexts
        before = whole[context, :kept].double()
        alone = predict(question.inputs[context : context + 1, :kept])[0]
        apart = max(_apart(before, changed[index, :kept]), _apart(before, alone))
        farthest = max(farthest, apart)
        if apart > tolerance:
            wrong.append(kept)
    return Moved(farthest, tuple(sorted(wrong)))


def _apart(expected: Tensor, found: Tensor) -> float:
    """How far two (A, V) logits are apart, as a share of the largest. Infinite where one is finite and the other is not."""
    found = found.double()
    largest = expected.where(expected.isfinite(), 0).abs().max().clamp(min=1)
    distance = (expected - found).abs() / largest
    same = (expected == found) | (expected.isnan() & found.isnan())
    return distance.nan_to_num(nan=torch.inf, posinf=torch.inf).masked_fill(same, 0).max().item()


def _other_inputs(inputs: Tensor, signature: Signature, random: Random) -> Tensor:
    """Inputs of which every one is valid, and another than the one in its place, as far as there is another."""
    shape = inputs.shape[1:]
    if isinstance(signature.inputs, Tokens):
        size = signature.inputs.size
        return (inputs + 1 + random.integers(max(1, size - 1), *shape)) % size
    return inputs + 1 + random.uniform(*shape)
