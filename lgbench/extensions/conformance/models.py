"""Checks of models, however they are put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from lgbench.contracts import Answers, Model, Signature, Tokens, Vectors, Weights
from lgbench.errors import first_line
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.conformance.check import Checks, NotChecked, Outcome, expect, expect_close
from lgbench.extensions.conformance.probes import (
    Gradients,
    built,
    integers,
    kind_of,
    no_global_randomness,
    numbers,
    stirred,
)
from lgbench.measurement import causality
from lgbench.noise import Noise
from lgbench.randomness import Random
from lgbench.training.gradients import Gradients as StackedGradients
from lgbench.training.gradients import Loss, one_by_one
from lgbench.training.tracing import traced

TRAINED = 9
"""Positions of the longest input in training."""
TESTED = PROTOCOLS["standard"].longest_prefix + 1
"""Positions of the longest input in testing: of a context with a begin token under the protocol of the leaderboards."""
MODELS = 3

TOKENS, VECTORS = Tokens(5), Vectors(3)
SIGNATURES = (
    Signature(TOKENS, 4, Answers.EVERY_PREFIX),
    Signature(VECTORS, 4, Answers.EVERY_PREFIX),
    Signature(TOKENS, 4, Answers.LAST),
    Signature(VECTORS, 4, Answers.LAST),
    Signature(TOKENS, 4, Answers.MARKED),
)

Build = Callable[[Signature], Model]
Stack = tuple[Weights, Weights, Tensor]
"""Weights, buffers and inputs of several models, each with a leading dimension for the model."""


def checks(build: Build) -> Checks:
    return {
        "logits have the right shape and dtype": lambda: _gives_logits(build),
        "nothing but the seed decides a model's weights and answers": lambda: _is_determined(build),
        "causal answers do not look ahead": lambda: _does_not_look_ahead(build),
        "gradients reach every parameter": lambda: _learns(build),
        "inputs longer than in training work": lambda: _reads_on(build),
        "a seed does not depend on who is trained beside it": lambda: _is_alone(build),
        "its training step is one graph": lambda: _compiles(build),
    }


def served(build: Build) -> list[tuple[Signature, nn.Module]]:
    """The signatures that it serves, with a model for each. Raises NotChecked if there is none."""
    found, reasons = [], []
    for signature in SIGNATURES:
        try:
            found.append((signature, built(lambda signature=signature: build(signature))))  # type: ignore[misc]
        except NotChecked as refusal:
            reasons.append(str(refusal))
    if not found:
        raise NotChecked(f"it is built for no signature: {reasons[0]}")
    return found


def inputs_of(signature: Signature, length: int, n: int = 2, seed: int = 0) -> Tensor:
    """n inputs that a task of that signature could give."""
    if isinstance(signature.inputs, Vectors):
        return numbers(n, length, signature.inputs.width, seed=seed)
    return integers(signature.inputs.size, n, length, seed=seed)


def _gives_logits(build: Build) -> Outcome:
    models = served(build)
    for signature, model in models:
        for length in (1, TRAINED):
            if length == 1 and signature.answers is Answers.LAST:
                continue  # a set has a query too
            logits = model(inputs_of(signature, length))
            where = f"at length {length}, on {_named(signature)},"
            shape = (2, 1 if signature.answers is Answers.LAST else length, signature.classes)
            fits = logits.shape == shape and logits.is_floating_point()
            expect(fits, f"{where} its logits are {kind_of(logits)}, expected {shape} of a floating type")
            expect(bool(logits.isfinite().all()), f"{where} some logits are not finite")
    refused = [_named(s) for s in SIGNATURES if s not in [known for known, _ in models]]
    return f"refuses {'; '.join(refused)}" if refused else None


def _is_determined(build: Build) -> Outcome:
    seeded = False
    for signature, model in served(build):
        again = built(lambda signature=signature: build(signature))  # type: ignore[misc]
        other = built(lambda signature=signature: build(signature), seed=1)  # type: ignore[misc]
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


def _does_not_look_ahead(build: Build) -> Outcome:
    causal = [(signature, model) for signature, model in served(build) if signature.answers is not Answers.LAST]
    for signature, model in causal:
        past, future = inputs_of(signature, TRAINED), inputs_of(signature, TRAINED, seed=1)
        stirred(model)
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            for now in (1, TRAINED // 2, TRAINED - 1):
                other = torch.cat([past[:, :now], future[:, now:]], 1)
                with torch.no_grad():
                    sentence = f"in {mode}, after {now} of {TRAINED} positions, its logits change with what comes after them"
                    expect_close(model(past)[:, :now], model(other)[:, :now], sentence, 1e-5)
    for signature, model in causal[:1]:  # so long an input takes its time, and signatures differ at the model's two ends alone
        moved = causality.moved(model.eval(), _question(signature)).cuts
        where = f"in evaluation, after {moved[0] if moved else 0} of {TESTED} positions"
        expect(not moved, f"{where}, its logits change with what comes after them, or with how much comes")
    return None


def _question(signature: Signature) -> causality.Question:
    """What a run asks of its model where it is tested."""
    random = Random(causality.PLACES)
    inputs = inputs_of(signature, TESTED, causality.CONTEXTS)
    cuts = causality.cut_positions(TRAINED, TESTED, random)
    return causality.Question(TESTED, inputs, causality.cut(inputs, cuts, signature, random), tuple(cuts))


def _learns(build: Build) -> Outcome:
    gradients = Gradients()
    for signature, model in served(build):
        gradients.add(model, stirred(model).train()(inputs_of(signature, TRAINED, n=8)))
    gradients.expect_all()
    return None


def _reads_on(build: Build) -> Outcome:
    for signature, model in served(build):
        with torch.no_grad():
            logits = model.eval()(inputs_of(signature, TESTED, n=1))
        expect(bool(logits.isfinite().all()), f"on {TESTED} positions, trained on {TRAINED}, some logits are not finite")
    return None


def _loss_of(model: nn.Module) -> Loss:
    def loss(weights: Weights, buffers: Weights, inputs: Tensor) -> Tensor:
        logits = functional_call(model, {**weights, **buffers}, (inputs,))
        return F.cross_entropy(logits.flatten(0, 1), logits.new_zeros(logits.shape[:2], dtype=torch.int64).flatten())

    return loss


def _stack(build: Build) -> tuple[nn.Module, Stack]:
    """A model to call, and weights, buffers and inputs of several."""
    signature, model = served(build)[0]
    models = [stirred(built(lambda: build(signature), seed)).train() for seed in range(MODELS)]
    for each, seeded in enumerate(models):
        for module in seeded.modules():
            if isinstance(module, Noise):
                module.value.copy_(numbers(*module.value.shape, seed=each).sigmoid())
    weights, buffers = stack_module_state(models)
    detached = {name: w.detach() for name, w in weights.items()}
    inputs = torch.stack([inputs_of(signature, TRAINED, seed=seed) for seed in range(MODELS)])
    return model.train(), (detached, buffers, inputs)


def _is_alone(build: Build) -> Outcome:
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


def _compiles(build: Build) -> Outcome:
    model, given = _stack(build)
    step = StackedGradients(_loss_of(model), lambda sentence: None)
    tensors, form = tree_flatten(given)
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        step(*given)
        try:
            traced(lambda *flat: step(*tree_unflatten(flat, form)), tensors)
        except Exception as error:  # tracing runs the model, which may raise anything there
            return f"its training step cannot be traced as one graph, so the step is not compiled: {_shown(error)}"
    return None


def _named(signature: Signature) -> str:
    return f"{'tokens' if isinstance(signature.inputs, Tokens) else 'vectors'} answered {signature.answers.value}"


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
