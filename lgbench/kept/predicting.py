"""The prediction of a model after one context, beside the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lgbench.contracts import Language, Task
from lgbench.errors import PluginError, UsageError, first_line
from lgbench.experiment.contexts import TOLERANCE
from lgbench.kept.loading import LoadedModel


@dataclass(frozen=True)
class Prediction:
    """Distributions over the answers of a task after one context."""

    context: str
    """As the task writes it."""
    answers: tuple[str, ...]
    p: Sequence[float]
    """The model's; NaN where its logits are not finite."""
    right: Sequence[float] | None
    """p*; None where the task cannot say it of a context that it has not drawn."""

    @property
    def tvd(self) -> float | None:
        """The total variation distance between the two."""
        return None if self.right is None else sum(abs(a - b) for a, b in zip(self.p, self.right, strict=True)) / 2


def predicted(model: LoadedModel, text: str) -> Prediction:
    """The model's prediction after a context that somebody wrote. Raises UsageError where the task has no such context."""
    task = model.task
    inputs = _read(task, text)
    if len(inputs) > model.positions:
        raise UsageError(
            f"the context has {len(inputs)} positions, and the model was built for {model.positions} at most: use a shorter one"
        )
    with torch.inference_mode():
        device = next(model.model.parameters()).device
        logits = model(inputs[None].to(device))[0, -1].cpu().double()  # a device may have no float64
    return Prediction(task.text(inputs), tuple(task.answers), logits.softmax(-1).tolist(), _right(task, inputs))


def _read(task: Task, text: str) -> Tensor:
    try:
        return task.context(text)
    except ValueError as error:
        raise UsageError(f"{task.name} has no context {text!r}: {first_line(error)}") from error
    except Exception as error:  # the code of a task may raise anything
        raise PluginError(f"{task.name} failed to read {text!r}: {type(error).__name__}: {first_line(error)}") from error


def _right(task: Task, inputs: Tensor) -> Sequence[float] | None:
    """p* after a context. Raises UsageError where nothing may follow, since the task has no such context."""
    try:
        found = task.reference(inputs)
    except Exception as error:  # the code of a task may raise anything
        raise PluginError(f"{task.name} failed to say p*: {type(error).__name__}: {first_line(error)}") from error
    if found is None:
        return None
    if abs(sum(found) - 1) > TOLERANCE:
        what = "no member of the language begins with that" if isinstance(task, Language) else "nothing may follow it"
        raise UsageError(f"{task.name} has no context {task.text(inputs)!r}: {what}; `lgbench show {task.name}` has examples")
    return [float(value) for value in found]
