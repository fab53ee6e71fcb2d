"""Variable tracking: name the value of a variable after assignments, most of which have nothing to do with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens

VARIABLES, VALUES = 16, 10
PRINT = VARIABLES + VALUES


@final
class VariableTracking(Task):
    """A context is L assignments and a variable to print; the answer is the variable's value.

    A variable gets a value or, with probability 1/2, what an assigned variable has at that moment, which may be itself. Later
    assignments take its place, and assignments of other variables distract:

    >>> inputs, distribution, _ = VariableTracking().sample(5, Random(1, seed=6))
    >>> VariableTracking().text(inputs[0]), VariableTracking().answers[distribution[0, 0].argmax()]
    ('b 8 g 5 m g d m h d print h', '5')

    Length counts assignments. Source: after the variable tracking of RULER (arXiv 2404.06654), which asks a language model for
    all variables of a value and assigns each once. Our choices: the value is asked for; there are 16 variables and 10 values;
    each assignment draws its variable uniformly, and a source is the variable of a uniform earlier assignment; training is on
    up to 32 assignments.
    """

    name = family = "variable-tracking"
    version = 1
    signature = Signature(Tokens(PRINT + 1), VALUES, Answers.LAST)
    train_lengths = (1, 32)
    budgets = {name: Budget(max_length=256) for name in ("quick", "short", "standard", "long", "paper")}
    facts = Facts("recall", sources=("arXiv 2404.06654",))
    words = (*"abcdefghijklmnop", *map(str, range(VALUES)), "print")

    def sample(self, length: int, random: Random) -> Batch:
        """Assignments and a question, (n, 2 L + 2), with p* (n, 1, 10)."""
        assigned, values = random.integers(VARIABLES, length), random.integers(VALUES, length)
        before = torch.arange(length, device=random.device)
        earlier = assigned.gather(1, random.integers(before.clamp(min=1), length))
        is_value = (random.integers(2, length) == 0) | (before == 0)
        assignments = torch.stack([assigned, torch.where(is_value, VARIABLES + values, earlier)], -1)
        asked = assigned.gather(1, random.integers(length, 1))
        inputs = torch.cat([assignments.flatten(1), torch.full_like(asked, PRINT), asked], 1)
        return Batch(inputs, F.one_hot(values.gather(1, origins(inputs)), VALUES).float())

    def reference(self, context: Tensor) -> Sequence[float]:
        if not re.fullmatch(r"([a-p] ([a-p]|\d) )+print [a-p]", self.text(context)):
            raise ValueError("expected assignments of a value or of a variable, as in 'b 8 g b', then print and a variable")
        held: dict[int, int] = {}
        tokens = context.tolist()
        try:
            for variable, source in zip(tokens[:-2:2], tokens[1:-2:2], strict=True):
                held[variable] = held[source] if source < VARIABLES else source - VARIABLES
            right = held[tokens[-1]]
        except KeyError as missing:
            raise ValueError(f"{self.words[missing.args[0]]} has no value where it is read") from missing
        return [float(right == value) for value in range(VALUES)]

    def sources(self, inputs: Tensor) -> Tensor:
        """The value, where it was first assigned."""
        return torch.arange(inputs.shape[1], device=inputs.device) == 2 * origins(inputs) + 1


def origins(inputs: Tensor) -> Tensor:
    """Assignment of the value that the variable at the end has: (n, 2 L + 2) -> (n, 1)."""
    assigned, source = inputs[:, :-2:2], inputs[:, 1:-2:2]
    places = torch.arange(assigned.shape[1], device=inputs.device)
    variables = torch.arange(VARIABLES, device=inputs.device)[:, None]
    latest = torch.where(assigned[:, None] == variables, places, -1).cummax(-1).values  # (n, variables, L)
    before = F.pad(latest, (1, -1)).gather(1, source.clamp(max=VARIABLES - 1)[:, None])[:, 0]
    origin = torch.where(source < VARIABLES, before, places)
    for _ in range(len(places).bit_length()):  # twice as far back each time
        origin = origin.gather(1, origin)
    return origin.gather(1, latest[..., -1].gather(1, inputs[:, -1:]))
