"""Word problems of finite groups: name the product of the elements so far."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Batch, Budget, Facts, Random, Signature, Task, Tokens
from lgbench_state_tracking.groups import elements, order, table, title

NAME = re.compile(r"word-problem-([zsa][0-9]+(x[zsa][0-9]+)*)")
LARGEST = 1000
"""Most elements of a group."""


@final
class WordProblem(Task):
    """A context is random elements of a group, as numbers; the answer, at every prefix, is the number of their product.

    Elements are in lexicographic order as permutations, 0 is the identity, and the element that comes first acts first.
    In S_3 the numbers 1 and 2 swap the last and the first two places, and 4 rotates all three:

    >>> inputs, distribution, _ = WordProblem("s3").sample(5, Random(1))
    >>> inputs[0].tolist(), distribution[0].argmax(-1).tolist()
    ([4, 2, 2, 0, 1], [4, 5, 4, 4, 2])

    Source: Merrill et al. 2024 (arXiv 2404.08819) and its code, with Z_60, A_4 x Z_5 and A_5, and training on 128 elements
    from DeltaProduct (arXiv 2502.10297). Z_2 is parity, and so has no program in C-RASP, nor has Z_3.
    """

    family = "word-problem"
    version = 1
    train_lengths = (1, 128)
    budgets = {"quick": Budget(max_length=256)}

    def __init__(self, group: str) -> None:
        self.name, self.group, self.order = f"word-problem-{group}", group, order(group)
        self.about = f"the product of random elements of {title(group)}, at every prefix"
        self.signature = Signature(Tokens(self.order), self.order, Answers.EVERY_PREFIX)
        program = False if group in ("z2", "z3") else None
        sources = ("arXiv 2404.08819", "arXiv 2410.02140") if program is False else ("arXiv 2404.08819",)
        self.facts = Facts("state tracking", "regular", False, program, program, title(group), sources)

    def sample(self, length: int, random: Random) -> Batch:
        """Elements (n, length), with p* (n, length, order)."""
        inputs = random.integers(self.order, length)
        products, after = inputs.clone(), table(self.group, random.device)
        step = 1
        while step < length:  # each product covers twice as many elements as before
            pairs = products[:, :-step] * self.order + products[:, step:]
            products = torch.cat([products[:, :step], after[pairs]], 1)
            step *= 2
        distribution = torch.zeros(random.n, length, self.order, device=random.device)
        return Batch(inputs, distribution.scatter_(2, products[..., None], 1.0))

    def reference(self, context: Tensor) -> Sequence[float]:
        known = elements(self.group)
        product = known[0]
        for number in context.tolist():
            pairs = zip(product, known[number], strict=True)
            product = tuple(tuple(then[place] for place in first) for first, then in pairs)
        return [float(element == product) for element in known]

    def sibling(self, name: str) -> Task | None:
        found = NAME.fullmatch(name)
        if not found:
            return None
        factors = [(factor[0], factor[1:]) for factor in found[1].split("x")]
        fits = all(not n.startswith("0") and int(n) <= (LARGEST if kind == "z" else 6) for kind, n in factors)
        if not fits or not 2 <= order(found[1]) <= LARGEST:
            raise ValueError(
                f"word-problem-GROUP takes zN, sN or aN (of s and a, N up to 6), or a product, with 2 to {LARGEST} elements, "
                "as in word-problem-s4 or word-problem-a4xz5"
            )
        task = WordProblem(found[1])
        task.family = task.name  # asked for by hand: the mean over the family stays over the listed members
        return task
