"""Rules of models: stored tensors, training steps in a population, answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from lgbench.conformance.check import (
    CheckFailed,
    Outcome,
    Rules,
    accepted,
    built,
    expect,
    expect_close,
    expect_gradients,
    integers,
    kind_of,
    no_global_randomness,
    numbers,
    stirred,
)
from lgbench.contracts import Answers, Model, Signature, Tokens, Vectors, Weights
from lgbench.errors import message_of
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.measurement import causality
from lgbench.noise import Noise
from lgbench.randomness import Random
from lgbench.training.population import stacked
from lgbench.training.program import traced
from lgbench.training.step import Gradients, Loss, one_by_one

TRAINED = 9
"""Positions of the longest input in training."""
TESTED = PROTOCOLS["standard"].longest_prefix + 1
"""Positions of the longest input in testing: of a context with a begin token under the protocol of the leaderboards."""
CHUNK = 2**8 + 1
"""Positions of an input longer than a chunk of most models that compute in chunks: 64, 128 or 256 positions."""
MODELS = 2
"""Models of a population."""

SIGNATURES = (
    Signature(Tokens(5), 4, Answers.EVERY_PREFIX),
    Signature(Vectors(3), 4, Answers.EVERY_PREFIX),
    Signature(Tokens(5), 4, Answers.LAST),
    Signature(Vectors(3), 4, Answers.LAST),
    Signature(Tokens(5), 4, Answers.MARKED),
)

Build = Callable[[Signature], Model]

Stack = tuple[Weights, Weights, Tensor]
"""Weights, buffers and inputs of several models, each with a leading dimension for the model."""


MODEL = Rules[[Build]]()


def served(build: Build) -> list[tuple[Signature, nn.Module]]:
    """Accepted signatures, with a model for each. Raises NotChecked if all signatures are refused."""
    return accepted(SIGNATURES, lambda signature: built(partial(build, signature)), "it is built for no signature")


def inputs_of(signature: Signature, length: int, n: int = 2, seed: int = 0) -> Tensor:
    """n inputs of a signature, always the same."""
    if isinstance(signature.inputs, Vectors):
        return numbers(n, length, signature.inputs.width, seed=seed)
    return integers(signature.inputs.size, n, length, seed=seed)


def _named(signature: Signature) -> str:
    return f"{'tokens' if isinstance(signature.inputs, Tokens) else 'vectors'} answered {signature.answers.value}"


@MODEL.rule("logits have the right shape and dtype")
def _gives_logits(build: Build) -> Outcome:
    models = served(build)
    for signature, model in models:
        shortest = 2 if signature.answers is Answers.LAST else 1  # a set has a query too
        for length in range(TRAINED, shortest - 1, -1):
            where = f"at length {length}, on {_named(signature)}"
            try:
                logits = model(inputs_of(signature, length))
            except Exception as error:  # a plugin's model may raise anything; the error goes on, with the place
                error.add_note(where)
                raise
            shape = (2, 1 if signature.answers is Answers.LAST else length, signature.classes)
            fits = logits.shape == shape and logits.is_floating_point()
            expect(fits, f"{where}, its logits are {kind_of(logits)}, expected {shape} of a floating type")
            expect(logits.isfinite().all(), f"{where}, some logits are not finite")
    refused = [_named(s) for s in SIGNATURES if s not in [known for known, _ in models]]
    return f"refuses {'; '.join(refused)}" if refused else None


@MODEL.rule("its weights and buffers are there before it is used, and stay")
def _keeps_tensors(build: Build) -> Outcome:
    """Note about buffers changed by a forward pass. Raises CheckFailed for other changes."""
    changed = set[str]()
    for signature, model in served(build):
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            before = {name: tensor.detach().clone() for name, tensor in _tensors(model).items()}
            with torch.no_grad():
                for length in (TRAINED, 2 * TRAINED):
                    model(inputs_of(signature, length))
            for name, tensor in _tensors(model).items():
                there = name in before and tensor.shape == before[name].shape
                remedy = "make it in __init__, as large as it will be"
                expect(there, f"in {mode} a forward pass makes the parameter or buffer {name}: {remedy}")
                if not torch.equal(tensor.nan_to_num(), before[name].nan_to_num()):  # a NaN is not equal to itself
                    only = "which an optimizer alone may change"
                    expect(not tensor.requires_grad, f"in {mode} a forward pass changes the parameter {name}, {only}")
                    changed.add(name)
    names = ", ".join(sorted(changed))
    return f"a forward pass changes {names}; averages are tested with those of the raw weights" if changed else None


def _tensors(model: nn.Module) -> Weights:
    return dict(model.named_parameters()) | dict(model.named_buffers())


@MODEL.rule("nothing but the seed decides a model's weights and answers")
def _is_determined(build: Build) -> Outcome:
    seeded = False
    for signature, model in served(build):
        again, other = (built(partial(build, signature), seed) for seed in (0, 1))
        for (name, first), second in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
            expect(torch.equal(first, second), f"the same seed gave other weights the second time, in {name}")
        inputs = inputs_of(signature, TRAINED)
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            with no_global_randomness(), torch.no_grad():
                first, second, alone = model(inputs), model(inputs), model(inputs[:1])
            expect(torch.equal(first, second), f"in {mode} the same input gave other logits the second time")
            expect_close(alone, first[:1], f"in {mode} an answer depends on what else is in the batch")
        seeded |= any(not torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    return None if seeded else "all seeds start with the same weights: right only for a model that draws none"


@MODEL.rule("answers are causal")
def _is_causal(build: Build) -> None:
    causal = [(signature, model) for signature, model in served(build) if signature.answers is not Answers.LAST]
    for index, (signature, model) in enumerate(causal):
        stirred(model)
        # Long inputs are slow, and signatures differ only at a model's two ends.
        for mode, length in (("training", TRAINED), ("evaluation", TRAINED), ("evaluation", TESTED))[: 2 if index else 3]:
            # In training, random position codes of the literature draw positions for inputs of this length.
            removed = mode == "evaluation"
            moved = causality.moved(model.train(mode == "training"), _question(signature, length), removed=removed).cuts
            where = f"in {mode}, after {min(moved, default=0)} of {length} positions"
            reason = "what comes after them" + (", or with how much comes" if removed else "")
            expect(not moved, f"{where}, its logits change with {reason}")


def _question(signature: Signature, length: int) -> causality.Question:
    """Causality test as in a run."""
    inputs = inputs_of(signature, length, causality.CONTEXTS)
    return causality.Question.of(length, inputs, TRAINED, signature, Random(causality.PLACES))


@MODEL.rule("gradients reach every parameter")
def _learns(build: Build) -> None:
    models = served(build)
    expect_gradients((model, stirred(model).train()(inputs_of(signature, TRAINED, n=8))) for signature, model in models)


@MODEL.rule("inputs longer than in training work")
def _reads_on(build: Build) -> None:
    for signature, model in served(build):
        with torch.no_grad():
            logits = model.eval()(inputs_of(signature, TESTED, n=1))
        expect(logits.isfinite().all(), f"on {TESTED} positions, trained on {TRAINED}, some logits are not finite")


@MODEL.rule("a seed does not depend on who is trained beside it")
def _is_alone(build: Build) -> Outcome:
    """Gradients of stacked models equal the gradients of each model alone, also on inputs longer than a chunk."""
    short, long = (_stacked(build, length) for length in (TRAINED, CHUNK))
    return short or (long and f"on {CHUNK} positions {long}")


def _stacked(build: Build, length: int) -> Outcome:
    model, given = _stack(build, length)
    loss, said = _loss_of(model), list[str]()
    where = f"on {length} positions"
    # As in training: vmap has no rule for the fused kernels.
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradients, losses = Gradients(loss, said.append, MODELS)(*given)  # a model that fails in any case raises here
        finite = all(bool(each.isfinite().all()) for each in (losses, *gradients.values()))
        expect(finite, f"{where} a training step gives a loss or a gradient that is not finite")
        if said:
            return "; ".join(said)
        of_one = grad_and_value(loss)
        try:
            # In float64, since rounding in float32 moves a steep gradient. Some models accept float32 only.
            together, alone = vmap(of_one)(*_wide(given))[0], one_by_one(of_one)(*_wide(given))[0]
        except RuntimeError:
            together, alone = vmap(of_one)(*given)[0], one_by_one(of_one)(*given)[0]
    for name, gradient in together.items():
        expect_close(gradient, alone[name], f"{where} the gradient of {name} in a stack is not the one that it has alone", 1e-3)
    slow = [str(warning.message) for warning in caught if "performance drop" in str(warning.message)]
    return f"vmap takes some of it one model at a time, which is slower: {slow[0]}" if slow else None


def _stack(build: Build, length: int = TRAINED) -> tuple[nn.Module, Stack]:
    """A model to call, and weights, buffers and inputs of a population."""
    signature, model = served(build)[0]
    population = [stirred(built(partial(build, signature), seed)).train() for seed in range(MODELS)]
    for seed, each in enumerate(population):
        for module in each.modules():
            if isinstance(module, Noise):
                module.value.copy_(numbers(*module.value.shape, seed=seed).sigmoid())
    weights, buffers = stacked(population)
    inputs = torch.stack([inputs_of(signature, length, 1, seed) for seed in range(MODELS)])
    return model.train(), (weights, buffers, inputs)


def _loss_of(model: nn.Module) -> Loss:
    def loss(weights: Weights, buffers: Weights, inputs: Tensor) -> Tensor:
        logits = functional_call(model, {**weights, **buffers}, (inputs,))
        return F.cross_entropy(logits.flatten(0, 1), logits.new_zeros(logits.shape[:2], dtype=torch.int64).flatten())

    return loss


def _wide(stack: Stack) -> Stack:
    wide: Stack = tree_map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, stack)
    return wide


@MODEL.rule("its training step is one graph")
def _compiles(build: Build) -> Outcome:
    """Note about a training step that is not one graph. Raises CheckFailed for a step that leaves a tensor in the module."""
    model, given = _stack(build)
    step = Gradients(_loss_of(model), lambda sentence: None, MODELS)
    tensors, form = tree_flatten(given)
    note = None
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        step(*given)
        try:
            traced(lambda *flat: step(*tree_unflatten(flat, form)), tensors)
        except Exception as error:  # tracing runs the model, which may raise anything there
            note = f"its training step cannot be traced as one graph, so the step is not compiled: {message_of(error)}"
    _expect_nothing_left(served(build)[0][1], model, given[2][0])
    return note


def _expect_nothing_left(new: nn.Module, trained: nn.Module, inputs: Tensor) -> None:
    """Raise CheckFailed unless a model answers after training steps as a new model does, with the new model's tensors.

    The tensors are given as in a run: torch does not put back those of a module with two names.
    """
    kept = "is the tensor that it keeps made in training? Make it in __init__, or anew in each forward pass"
    with torch.no_grad():
        expected = new.eval()(inputs)
        try:
            found = functional_call(trained.eval(), _tensors(new), (inputs,))
            same = bool(torch.allclose(found, expected, atol=1e-5, equal_nan=True))
        except Exception as error:  # whatever torch says of tensors that it made for a transformation
            raise CheckFailed(f"after a training step it raised {message_of(error)}; {kept}") from error
    expect(same, f"after a training step that changed no weight its logits are other ones; {kept}")
