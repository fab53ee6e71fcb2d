"""Checks of training steps of several models at once."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from lgbench.contracts import Weights
from lgbench.extensions.conformance.check import Outcome, expect, expect_close
from lgbench.extensions.conformance.kept_tensors import leaves_nothing
from lgbench.extensions.conformance.probes import built, numbers, stirred
from lgbench.extensions.conformance.signatures import TRAINED, Build, inputs_of, served, shown
from lgbench.noise import Noise
from lgbench.training.gradients import Gradients as StackedGradients
from lgbench.training.gradients import Loss, one_by_one
from lgbench.training.tracing import traced

CHUNK = 2**8 + 1
"""Positions of an input that is longer than a chunk of most models that compute in chunks: 64, 128 or 256 positions."""
MODELS = 3


Stack = tuple[Weights, Weights, Tensor]
"""Weights, buffers and inputs of several models, each with a leading dimension for the model."""


def _loss_of(model: nn.Module) -> Loss:
    def loss(weights: Weights, buffers: Weights, inputs: Tensor) -> Tensor:
        logits = functional_call(model, {**weights, **buffers}, (inputs,))
        return F.cross_entropy(logits.flatten(0, 1), logits.new_zeros(logits.shape[:2], dtype=torch.int64).flatten())

    return loss


def _stack(build: Build, length: int = TRAINED, models: int = MODELS, n: int = 2) -> tuple[nn.Module, Stack]:
    """A model to call, and weights, buffers and n inputs of each of several."""
    signature, model = served(build)[0]
    stacked = [stirred(built(lambda: build(signature), seed)).train() for seed in range(models)]
    for each, seeded in enumerate(stacked):
        for module in seeded.modules():
            if isinstance(module, Noise):
                module.value.copy_(numbers(*module.value.shape, seed=each).sigmoid())
    weights, buffers = stack_module_state(stacked)
    detached = {name: w.detach() for name, w in weights.items()}
    inputs = torch.stack([inputs_of(signature, length, n, seed) for seed in range(models)])
    return model.train(), (detached, buffers, inputs)


def is_alone(build: Build) -> Outcome:
    """Raise CheckFailed unless models have the gradients in a stack that each has alone."""
    model, given = _stack(build)
    loss, said = _loss_of(model), list[str]()
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        StackedGradients(loss, said.append)(*given)  # a model that fails in any case raises here
        if said:
            return "; ".join(said)
        of_one = grad_and_value(loss)
        try:
            # In float64, for rounding in float32 moves a steep gradient. Some models accept float32 only.
            together, alone = vmap(of_one)(*_wide(given))[0], one_by_one(of_one)(*_wide(given))[0]
        except RuntimeError:
            together, alone = vmap(of_one)(*given)[0], one_by_one(of_one)(*given)[0]
    for name, gradient in together.items():
        expect_close(gradient, alone[name], f"in a stack the gradient of {name} is not the one that it has alone", 1e-3)
    slow = [str(warning.message) for warning in caught if "performance drop" in str(warning.message)]
    return f"vmap takes some of it one model at a time, which is slower: {slow[0]}" if slow else None


def _wide(stack: Stack) -> Stack:
    def wide(tensor: Tensor) -> Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    weights, buffers, inputs = stack
    return {k: wide(w) for k, w in weights.items()}, {k: wide(b) for k, b in buffers.items()}, wide(inputs)


def compiles(build: Build) -> Outcome:
    """A note where a training step is no one graph. Raises CheckFailed where it leaves something in the module."""
    model, given = _stack(build)
    step = StackedGradients(_loss_of(model), lambda sentence: None)
    tensors, form = tree_flatten(given)
    note = None
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        step(*given)
        try:
            traced(lambda *flat: step(*tree_unflatten(flat, form)), tensors)
        except Exception as error:  # tracing runs the model, which may raise anything there
            note = f"its training step cannot be traced as one graph, so the step is not compiled: {shown(error)}"
    leaves_nothing(served(build)[0][1], model, given[2][0])
    return note


def trains_on(build: Build) -> Outcome:
    """Training on more positions than a chunk has, as on few ones."""
    said = _step_on(build, CHUNK)
    if said:  # once for each way that the model does not allow
        ways = {_way(sentence) for sentence in _step_on(build, TRAINED)}
        said = [sentence for sentence in said if _way(sentence) not in ways]
    return f"on {CHUNK} positions {'; '.join(said)}" if said else None


def _step_on(build: Build, length: int) -> list[str]:
    """Sentences about a training step on inputs of one length."""
    said: list[str] = []
    model, given = _stack(build, length, models=2, n=1)
    loss = _loss_of(model)
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of which the check of a stack tells
        gradients, losses = StackedGradients(loss, said.append)(*given)
        finite = bool(losses.isfinite().all()) and all(bool(each.isfinite().all()) for each in gradients.values())
        expect(finite, f"on {length} positions a training step gives a loss or a gradient that is not finite")
        if not said:
            _expect_same_alone(loss, given, length)
    return said


def _expect_same_alone(loss: Loss, given: Stack, length: int) -> None:
    """Raise CheckFailed unless the first model has the gradient that it has alone; in float64 where it takes that."""
    of_one = grad_and_value(loss)
    try:
        together, alone = vmap(of_one)(*_wide(given))[0], of_one(*_first(_wide(given)))[0]
    except RuntimeError:
        together, alone = vmap(of_one)(*given)[0], of_one(*_first(given))[0]
    for name, gradient in together.items():
        where = f"on {length} positions the gradient of {name} in a stack is not the one that it has alone"
        expect_close(gradient[0], alone[name], where, 1e-3)


def _first(stack: Stack) -> Stack:
    first: Stack = tree_map(lambda tensor: tensor[0], stack)
    return first


def _way(sentence: str) -> str:
    """A sentence without torch's reason, which follows a colon."""
    return sentence.partition(":")[0]
