"""Training and testing on a device that is not the CPU and has no values, to find tensors of two devices in one operator.

PyTorch follows shapes, types and devices alone, on a device of ours that a CPU-only build has too. Nobody can take that device
away again, so tests run this file in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from helpers.combinations import pairwise, population
from helpers.planning import plan_of
from helpers.registries import with_model
from lgbench import Batch
from lgbench.contracts import Language, Predictions, Strings, StringScores
from lgbench.errors import first_line
from lgbench.experiment.contexts import draw
from lgbench.experiment.experiment import Experiment
from lgbench.extensions.registry import Registry
from lgbench.measurement import evaluate
from lgbench.measurement.scores import of_source
from lgbench.randomness import Random
from lgbench.training import data
from lgbench.training.population import Population

_setup_privateuseone_for_python_backend("gpu")
torch._C._set_only_lift_cpu_tensors(True)  # otherwise torch.tensor(1.0, device=...) makes its copy where no mode sees it
GPU = torch.device("gpu", 0)
# Functions that modules of real devices have, and that PyTorch asks for.
torch.gpu.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
torch.gpu.get_rng_state = lambda device=GPU: torch.empty(0, dtype=torch.uint8)
torch.gpu.set_rng_state = lambda state, device=GPU: None

FUSED = {
    torch.ops.aten._thnn_fused_gru_cell.default: lambda x, h, state, *biases: (
        torch.empty_like(state),
        state.new_empty(len(state), 5 * state.shape[1]),
    ),
    torch.ops.aten._thnn_fused_lstm_cell.default: lambda x, h, state, *biases: (
        torch.empty_like(state),
        torch.empty_like(state),
        torch.empty_like(x),
    ),
}
"""Shapes of what these give, by operator: PyTorch does not know them."""


class OneDevice(TorchDispatchMode):
    """Inside, no operator takes or gives tensors of two devices, and nothing is copied from one to the other.

    A tensor of one number may be on the CPU: it goes into an operator by its value, unless it is copied.
    """

    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        result = FUSED.get(operator, operator)(*arguments, **(keywords or {}))
        copies = operator._schema.name in ("aten::_to_copy", "aten::copy_")
        devices = {str(t.device) for t in _tensors((arguments, keywords, result)) if t.ndim or copies}
        if len(devices) > 1:
            raise AssertionError(f"{operator} has tensors on {' and '.join(sorted(devices))}")
        return result


class Lift(TorchFunctionMode):
    """Inside, an ordinary tensor that is copied to the device, such as a table that a task keeps, becomes a fake one first."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is torch.tensor and keywords.get("device") == GPU:  # PyTorch would really copy a single number
            with unset_fake_temporarily():
                made = function(*arguments, **(keywords | {"device": "cpu"}))
            return self.mode.from_tensor(made).to(GPU)
        copied = arguments[0] if function is Tensor.to else None
        if type(copied) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(copied):
            arguments = (self.mode.from_tensor(copied), *arguments[1:])
        return function(*arguments, **keywords)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on ordinary tensors of the CPU."""

    def called(*arguments: Any) -> Any:
        with unset_fake_temporarily():
            return function(*arguments)

    return called


@contextmanager
def device(mode: FakeTensorMode) -> Iterator[None]:
    """Inside, new tensors are fake. Models are built, and lengths drawn and asked for, on the CPU. Nobody checks p*."""

    checked = data.draw
    with pytest.MonkeyPatch.context() as patch, mode, Lift(mode), torch.no_grad():
        patch.setattr(data, "draw", lambda *given: checked(*given[:-1], False))
        patch.setattr(data, "_lengths", outside(data._lengths))
        patch.setattr(Experiment, "build", outside(Experiment.build))
        patch.setattr(Experiment, "_longest", outside(Experiment._longest))
        yield


def run(experiments: Sequence[Experiment], mode: FakeTensorMode) -> None:
    """Train for two steps and test every variant of the weights. Raises an error of any kind where devices are mixed."""
    tested = _drawn(experiments[0])
    with device(mode):
        population = Population(experiments, GPU)
        members = [(experiment.task, experiment.seed) for experiment in experiments]
        for step, batch in zip((1, 2), data.stream(members, experiments[0].train, GPU), strict=False):
            _expect_there(batch._asdict())
            population.draw_noise(step)  # it copies the keys of many steps at once, and is not captured
            with OneDevice():
                _expect_there({"the losses": population.advance(*batch.tensors)})
                population.average()
                population.mark(population.marks[0])
        _expect_there({**population.tensors(), **population.buffers})
        population.skeleton.eval()
        for variant, weights in population.variants().items():
            _expect_there({f"{variant} {name}": tensor for name, tensor in weights.items()})
            state = {name: tensor[0] for name, tensor in (weights | population.buffers).items()}
            _test(experiments[0], partial(functional_call, population.skeleton, state), tested, mode)


def _drawn(experiment: Experiment) -> tuple[Batch, Strings | None]:
    """Contexts, and strings, to test models on. They are drawn on the CPU."""
    task, length = experiment.task, experiment.evaluate.max_length
    strings = task.strings(length, Random(4)) if isinstance(task, Language) else None
    return draw(task, length, Random(4)), strings


def _test(experiment: Experiment, predict: Callable[..., Tensor], drawn: tuple[Batch, Strings | None], mode: Any) -> None:
    (inputs, distribution, weights), strings = drawn
    on_contexts, on_sequences, on_strings = (
        of_source(source, experiment.task, experiment.measurements) for source in ("contexts", "sequences", "strings")
    )
    inputs, distribution = (mode.from_tensor(tensor).to(GPU) for tensor in (inputs, distribution))
    weights = None if weights is None else mode.from_tensor(weights).to(GPU)
    with OneDevice():
        predictions = Predictions(predict((inputs,)), distribution, weights)
        _expect_there({m.name: evaluate.values_of(m, predictions) for m in on_contexts})
        _expect_there({m.name: evaluate.values_of_sequences(m, predictions) for m in on_sequences})
    if strings:
        taken, member = (mode.from_tensor(tensor).to(GPU) for tensor in strings)
        with OneDevice():
            scores = StringScores(evaluate.step_log_probability(predict((taken,)), taken), member)
            _expect_there({m.name: m.of_strings(scores) for m in on_strings})


def _expect_there(tensors: dict[str, Tensor | None]) -> None:
    for name, tensor in tensors.items():
        assert tensor is None or tensor.device == GPU, f"{name} is on {tensor.device}"


def problem(experiments: Sequence[Experiment], mode: FakeTensorMode) -> str | None:
    """The error of a population on the device, in a sentence; None if there is none."""
    try:
        run(experiments, mode)
    except Exception as error:  # a mixed device shows as an error of whatever operator meets it
        return f"{experiments[0].record.title}: {type(error).__name__}: {first_line(error)}"
    return None


class Own(nn.Module):
    """A model whose logits `change` makes others."""

    def __init__(self, change: Callable[..., Tensor]) -> None:
        super().__init__()
        self.table, self.change = nn.Embedding(3, 3), change

    def forward(self, inputs: Tensor) -> Tensor:
        return self.change(self.table(inputs))


def faults() -> dict[str, tuple[Experiment, ...]]:
    """Populations of toys: one without a mistake, and one for each that a model could make."""
    models = {
        "none": lambda x: 2 * x + torch.ones(3, device=x.device) * torch.tensor(2.0),
        "a constant on the CPU": lambda x: x + torch.ones(3),
        "a number that is copied to the device": lambda x: x * torch.tensor(2.0, device=x.device),
        "a value that is asked for": lambda x: x * x.max().item(),
    }
    asked = {"seeds": (0, 1), "set": {"train.steps": "4", "train.batch": "2"}}
    registries = {name: with_model(partial(Own, change)) for name, change in models.items()}
    return {name: plan_of(registry, "toy-walk", "toy-own", **asked).experiments for name, registry in registries.items()}


FEW = ({"architecture": "transformer", "norm": "peri-norm", "task": "tomita-4"},)


def main(what: str, share: str = "0", shares: str = "1") -> None:
    """Print, as JSON, what is wrong with each of some populations: a few, a share of all combinations, or those with faults."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    if what == "faults":
        found: Any = {name: problem(experiments, mode) for name, experiments in faults().items()}
    elif what == "few":
        found = [problem(population(Registry.load(), row), mode) for row in FEW]
    else:
        found = [problem(experiments, mode) for experiments in islice(pairwise(Registry.load()), int(share), None, int(shares))]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
