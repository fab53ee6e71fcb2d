"""Checks of the tensors that a model keeps: it is stacked and called from those that it has when it is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from lgbench.contracts import Weights
from lgbench.extensions.conformance.check import CheckFailed, Outcome, expect
from lgbench.extensions.conformance.probes import kind_of
from lgbench.extensions.conformance.signatures import shown


def keeps_tensors(models: Iterable[tuple[nn.Module, Sequence[Tensor]]]) -> Outcome:
    """Raise CheckFailed where a model makes or changes weights when it is called. `models` have inputs to call each with."""
    moving = set[str]()
    for model, inputs in models:
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            before = {name: tensor.detach().clone() for name, tensor in _tensors(model)}
            for given in inputs:
                with torch.no_grad():
                    model(given)
            moving |= _moved(before, model, f"in {mode} a forward pass")
    return f"a forward pass changes {', '.join(sorted(moving))}, which a stack of models does not keep" if moving else None


def _moved(before: Weights, model: nn.Module, what: str) -> set[str]:
    """The buffers that have other values than before. Raises CheckFailed for other changes."""
    known, moving = dict(model.named_parameters()), set[str]()
    for name, tensor in _tensors(model):
        kind = "parameter" if name in known else "buffer"
        expect(name in before, f"{what} makes the {kind} {name}: make it in __init__, since a stack is made of what is there")
        was = before[name]
        anew = f"{what} makes the {kind} {name} anew, {kind_of(tensor)} where it was {kind_of(was)}"
        expect(tensor.shape == was.shape, f"{anew}: make it in __init__ as large as it will be")
        if not torch.equal(tensor.nan_to_num(), was.nan_to_num()):
            expect(kind == "buffer", f"{what} changes the parameter {name}, which an optimizer alone may change")
            moving.add(name)
    return moving


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def leaves_nothing(new: nn.Module, trained: nn.Module, inputs: Tensor) -> None:
    """Raise CheckFailed unless a model with which training steps were computed answers as a new one."""
    kept = "is the tensor that it keeps made in training? Make it in __init__, or anew in each forward pass"
    with torch.no_grad():
        expected = new.eval()(inputs)
        try:
            found = trained.eval()(inputs)
            same = bool(torch.allclose(found, expected, atol=1e-5, equal_nan=True))
        except Exception as error:  # whatever torch says of tensors that it made for a transformation
            raise CheckFailed(f"after a training step it raised {shown(error)}; {kept}") from error
    expect(same, f"after a training step that changed no weight its logits are other ones; {kept}")
