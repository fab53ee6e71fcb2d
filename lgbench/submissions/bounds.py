"""Bounds of memory and time, held against a stranger's settings before anything large is made.

The model is built on the meta device, where tensors have shapes and no numbers, and takes one training step there at short
lengths. Memory and work at the real lengths are a parabola through those: attention grows with the square of the length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import Answers, Tokens
from lgbench.errors import UsageError, first_line
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.protocols import check_settings, override, parse_value
from lgbench.experiment.record import ExperimentRecord
from lgbench.seeds import initial
from lgbench.training import cost
from lgbench.training.data import CHUNK

MAX_MODELS = 64
"""Models that are trained together at most to verify one run, whatever its file says."""
LENGTHS = (8, 16, 32)
"""The lengths at which a step is counted."""
FLOPS_PER_SECOND = {"cpu": 1e12, "cuda": 1e14}
"""More than any machine of the kind reaches on such models, so that no run is refused which could be in time."""
SECONDS_PER_OPERATOR = 1e-6
"""Less than any operator takes."""
ROW_BYTES = 500
"""What a row of a run file takes in memory at least, as an object of Python."""


@dataclass(frozen=True)
class Bounds:
    """How much a rerun may need."""

    memory: int
    """In bytes."""
    seconds: float
    """Of one population, training and testing."""
    device: torch.device

    @classmethod
    def here(cls, device: torch.device, seconds: float) -> Bounds:
        """What a population may take of the memory that is free now."""
        return cls(int(cost.SHARE_OF_MEMORY * cost.free_memory(device)), seconds, device)


@dataclass(frozen=True)
class Needs:
    """What one model needs at least."""

    memory: int
    seconds: float


def reason_against(experiment: Experiment, models: int, bounds: Bounds) -> str | None:
    """A sentence if so many models need more memory or time than the bounds allow; None if they do not."""
    try:
        each = needs(experiment, bounds.device)
    except UsageError:
        return None  # planning says why
    except Exception as error:  # a plugin's model may raise anything where tensors have no numbers
        why = f"{type(error).__name__}: {first_line(error)}"
        return (
            f"nobody can tell beforehand how much memory and time its settings need ({why}); --unbounded tries it all the same"
        )
    seconds = models * each.seconds
    if each.memory > bounds.memory:  # more models than fit are trained one part after the other
        return (
            f"its settings need at least {_gigabytes(each.memory)} of memory, and {_gigabytes(bounds.memory)} may be used; "
            "use a machine with more, or --unbounded"
        )
    if seconds > bounds.seconds:
        return (
            f"its settings need at least {seconds / 3600:.3g} hours for a population of {models}, and the limit is "
            f"{bounds.seconds / 3600:.3g}; --hours allows more"
        )
    return None


def with_changes(plain: Experiment, record: ExperimentRecord) -> Experiment:
    """An experiment under the protocol's own settings, with the changes that a record names; nothing is built.

    Raises UsageError for a change that :func:`lgbench.experiment.plan.plan` refuses, too.
    """
    changes, defaults = dict(record.protocol.changes), dict(plain.record.options)
    given = {key: text for key, text in changes.items() if key.partition(".")[0] not in ("train", "evaluate")}
    if unknown := [key for key in given if key not in defaults]:
        raise UsageError(f"no setting {unknown[0]!r} of {record.entry}")
    options = defaults | {key: parse_value(key, text, defaults[key]) for key, text in given.items()}
    train, evaluate = override("train", plain.train, changes), override("evaluate", plain.evaluate, changes)
    check_settings(plain.task, train, evaluate)
    parts = {kind: _configured(kind, part, options) for kind, part in plain.parts.items()}
    optimizer = _configured("optimizer", plain.optimizer, options)
    changed = replace(plain.record, options=tuple(sorted(options.items())), train=train, evaluate=evaluate)
    return replace(plain, record=changed, parts=parts, optimizer=optimizer, positions={})


def needs(experiment: Experiment, device: torch.device) -> Needs:
    """What one model of an experiment needs at least. Raises whatever the code of its plugins raises."""
    train, test, task = experiment.train, experiment.evaluate, experiment.task
    positions = {length: length + 1 for length in (train.max_length, max(train.max_length, test.max_length))}
    with initial(experiment.seed, "weights"), torch.device("meta"):
        model = replace(experiment, positions=positions).build()
    variants, metrics = 1 + len(experiment.averagers), max(1, len(experiment.measurements))
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    step = _extrapolated([_counted(model, experiment, train.batch, length, True) for length in LENGTHS], train.max_length)
    seen = _extrapolated([_counted(model, experiment, 1, length, False) for length in LENGTHS], test.max_length)
    answers = test.max_length if task.signature.answers is Answers.EVERY_PREFIX else 1
    rows = answers * variants * metrics
    tested = rows * (4 * test.contexts + ROW_BYTES) + 16 * test.strings
    inputs = task.signature.inputs
    drawn = (
        min(train.steps, CHUNK) * train.batch * train.max_length * (8 + (8 if isinstance(inputs, Tokens) else 4 * inputs.width))
    )
    trained = weights * (3 + variants) + step.peak + drawn + 8 * train.steps  # gradients and moments; the length of each step
    return Needs(
        memory=max(trained, weights * variants + seen.peak + tested),
        seconds=train.steps * _seconds(step, device) + test.contexts * variants * seen.flops / _rate(device),
    )


def _counted(model: nn.Module, experiment: Experiment, n: int, length: int, trains: bool) -> cost.Cost:
    """The cost of a training step, or of a look, on n contexts, found on the meta device."""
    inputs = experiment.task.signature.inputs
    with torch.device("meta"):
        given = (
            torch.zeros(n, length, dtype=torch.int64) if isinstance(inputs, Tokens) else torch.zeros(n, length, inputs.width)
        )

        def step() -> Tensor:
            answers: Tensor = model(given)
            if trains:
                answers.sum().backward()  # type: ignore[no-untyped-call]
            return answers

        model.train(trains)
        with torch.set_grad_enabled(trains):
            return cost.measure(step, 0)


def _extrapolated(counted: Sequence[cost.Cost], length: int) -> cost.Cost:
    """The cost at any length: for each number the parabola through those that were counted, or the last if that is more."""
    a, b, c = LENGTHS
    shares = (
        (length - b) * (length - c) / ((a - b) * (a - c)),
        (length - a) * (length - c) / ((b - a) * (b - c)),
        (length - a) * (length - b) / ((c - a) * (c - b)),
    )

    def at(values: Sequence[int]) -> int:
        there = int(sum(share * value for share, value in zip(shares, values, strict=True)))
        return max(there, values[0] if length < c else values[-1])

    return cost.Cost(*(at([getattr(each, name) for each in counted]) for name in cost.Cost.__dataclass_fields__))


def _seconds(step: cost.Cost, device: torch.device) -> float:
    return max(step.flops / _rate(device), step.operators * SECONDS_PER_OPERATOR)


def _rate(device: torch.device) -> float:
    return FLOPS_PER_SECOND.get(device.type, FLOPS_PER_SECOND["cuda"])


def _configured(section: str, thing: Any, options: Mapping[str, Any]) -> Any:
    own = {key.partition(".")[2]: value for key, value in options.items() if key.startswith(f"{section}.")}
    return thing.configured(**own) if own else thing


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.3g} GB"
