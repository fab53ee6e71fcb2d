"""The gradient and the loss of every model of a population, in the fastest way that its models allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_leaves, tree_map

from lgbench.errors import first_line, lacks_memory

Loss = Callable[..., Tensor]
"""The loss of one model, (), from its weights and whatever else decides it: tensors, or dicts and tuples of tensors."""
Of = Callable[..., tuple[Any, Tensor]]
"""From the same to the gradient, which looks as the weights do, and the loss."""


class Gradients:
    """Gradients and losses of stacked models, from the same as :data:`Loss` with a leading P: looking as that, and (P,).

    Calls `say` with a sentence for each way that the models do not allow: all in one stack, one after the other by torch.func,
    and one after the other by ordinary autograd, which takes whatever `backward` takes.
    """

    def __init__(self, loss: Loss, say: Callable[[str], None]) -> None:
        self.say = say
        of_one: Of = grad_and_value(loss)
        self._ways: list[tuple[Of, str]] = [
            (vmap(of_one), "vmap cannot take this model, so its seeds are trained one after the other, which is slower"),
            (one_by_one(of_one), "torch.func cannot take this model, so its gradients come from ordinary autograd"),
            (one_by_one(_by_backward(loss)), ""),
        ]

    def __call__(self, *stacked: Any) -> tuple[Any, Tensor]:
        """A model that fails in every way raises its error of the last one."""
        refusals: list[str] = []
        for way, otherwise in self._ways:
            try:
                found = way(*stacked)
                break
            except RuntimeError as error:
                if not otherwise or lacks_memory(error):
                    raise
                refusals.append(f"{otherwise}: {first_line(error)}")
        del self._ways[: len(refusals)]
        for sentence in refusals:
            self.say(sentence)
        return found


def one_by_one(of_one: Of) -> Of:
    """The same for stacked models, one after the other."""

    def of_all(*stacked: Any) -> tuple[Any, Tensor]:
        models = len(tree_leaves(stacked)[0])
        each = [of_one(*tree_map(lambda tensor, index=index: tensor[index], stacked)) for index in range(models)]
        found: tuple[Any, Tensor] = tree_map(lambda *tensors: torch.stack(tensors), *each)
        return found

    return of_all


def _by_backward(loss: Loss) -> Of:
    def of_one(weights: Any, *rest: Any) -> tuple[Any, Tensor]:
        with torch.enable_grad():
            leaves = tree_map(lambda tensor: tensor.detach().requires_grad_(), weights)
            value = loss(leaves, *rest)
        gradients = iter(torch.autograd.grad(value, tree_leaves(leaves), materialize_grads=True))
        return tree_map(lambda leaf: next(gradients), leaves), value.detach()

    return of_one
