"""Dictionary lookup: name the value stored under the key that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Random, Signature, Task, Vectors

KEY_WIDTH = 32
VALUES = 10
_VALUE_NAMES = [str(value) for value in range(VALUES)]
AT_ONCE = 2**17
"""Numbers of inputs made at once on a CPU: few enough to stay in its cache."""


@final
class DictionaryLookup(Task):
    """A context is a set of items [unit key vector; one-hot value] and a query key equal to one of them.

    The answer is the value stored under that key:

    >>> inputs, distribution, _ = DictionaryLookup().sample(4, Random(1))
    >>> DictionaryLookup().text(inputs[0])
    'a:4 b:8 c:3 d:5 a?'
    >>> distribution[0, 0].argmax().item()
    4

    Source: "On Vanishing Variance in Transformer Length Generalization" (arXiv 2504.02827), trained to length 16. How
    keys and values are drawn is not published: random directions in 32 dimensions and 10 values are our choice.
    """

    name = family = "dictionary-lookup"
    version = 3
    signature = Signature(Vectors(KEY_WIDTH + VALUES), VALUES, Answers.LAST)
    train_lengths = (1, 16)
    model = {"layers": 1, "heads": 1, "width": 128, "mlp": True}
    budgets = {
        "short": Budget(steps=2000, batch=128, lr=2e-3),
        "standard": Budget(steps=8000, batch=128, lr=2e-3),
        "long": Budget(batch=128, lr=1e-3),
        "paper": Budget(steps=10_000, batch=128, lr=1e-3),
    }

    def sample(self, length: int, random: Random) -> Batch:
        """Sets of `length` items and a query, (n, length + 1, 42), with p* (n, 1, 10)."""
        keys = random.normal(length, KEY_WIDTH)
        value, asked = random.integers(VALUES, length, 1), random.integers(length, 1, 1)
        values = torch.arange(VALUES, dtype=torch.float32, device=random.device)
        inputs = torch.empty(random.n, length + 1, KEY_WIDTH + VALUES, device=random.device)
        inputs[:, length, KEY_WIDTH:] = 0
        at_once = max(1, AT_ONCE // inputs[0].numel()) if random.device.type == "cpu" else max(1, random.n)
        for own, key, held, place in zip(*(torch.split(t, at_once) for t in (inputs, keys, value, asked)), strict=True):
            items = own[:, :length]
            torch.div(key, torch.linalg.vector_norm(key, dim=-1, keepdim=True), out=items[..., :KEY_WIDTH])
            torch.eq(held.float(), values, out=items[..., KEY_WIDTH:])
            own[:, length:, :KEY_WIDTH] = items[..., :KEY_WIDTH].take_along_dim(place, 1)
        return Batch(inputs, (value.take_along_dim(asked, 1) == values).float())

    def reference(self, context: Tensor) -> Sequence[float]:
        *items, query = context.tolist()
        return next(item[KEY_WIDTH:] for item in items if item[:KEY_WIDTH] == query[:KEY_WIDTH])

    def sources(self, inputs: Tensor) -> Tensor:
        """The item with the key that is asked for."""
        keys = inputs[..., :KEY_WIDTH]
        return F.pad((keys[:, :-1] == keys[:, -1:]).all(-1), (0, 1))

    def context(self, text: str) -> Tensor:
        """As `text` writes it. The keys are random directions, the same for every text with so many items."""
        *items, query = text.split() or [""]
        pairs = [(name, value) for name, _, value in (item.rpartition(":") for item in items)]
        held, asked = dict(pairs), query.removesuffix("?")
        if not items or len(held) < len(pairs) or not all(name and value in _VALUE_NAMES for name, value in pairs):
            raise ValueError("it reads items as key:value, each key once, with values from 0 to 9, as in 'a:4 b:8 a?'")
        if not query.endswith("?") or asked not in held:
            raise ValueError("it reads, last, one of its keys and a question mark, as in 'a:4 b:8 a?'")
        keys = Random(1).normal(len(pairs), KEY_WIDTH)[0]
        inputs = torch.zeros(len(pairs) + 1, KEY_WIDTH + VALUES)
        inputs[:-1, :KEY_WIDTH] = keys / torch.linalg.vector_norm(keys, dim=-1, keepdim=True)
        for place, (_, value) in enumerate(pairs):
            inputs[place, KEY_WIDTH + int(value)] = 1
        inputs[-1, :KEY_WIDTH] = inputs[[name for name, _ in pairs].index(asked), :KEY_WIDTH]
        return inputs

    def text(self, inputs: Tensor) -> str:
        """Items as key:value, keys named in order of appearance, and the key that is asked for."""
        keys, query = inputs[:-1, :KEY_WIDTH], inputs[-1, :KEY_WIDTH]
        names = [chr(ord("a") + i) if i < 26 else f"k{i}" for i in range(len(keys))]
        items = [f"{name}:{row[KEY_WIDTH:].argmax().item()}" for name, row in zip(names, inputs[:-1], strict=True)]
        return " ".join([*items, names[int((keys @ query).argmax())] + "?"])
