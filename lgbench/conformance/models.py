"""Checks of models: stored tensors, training steps in a population, answers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from lgbench.conformance.check import CheckFailed, Checks, Outcome, expect, expect_close
from lgbench.conformance.material import (
    SIGNATURES,
    TESTED,
    TRAINED,
    Build,
    Gradients,
    built,
    inputs_of,
    kind_of,
    named,
    no_global_randomness,
    numbers,
    served,
    shown,
    stirred,
)
from lgbench.contracts import Answers, Signature, Weights
from lgbench.measurement import causality
from lgbench.noise import Noise
from lgbench.randomness import Random
from lgbench.training.program import traced
from lgbench.training.step import Gradients as StackedGradients
from lgbench.training.step import Loss, one_by_one


def keeps_tensors(models: Iterable[tuple[nn.Module, Sequence[Tensor]]]) -> Outcome:
    """Note about buffers changed by a forward pass. Raises CheckFailed for other changes. `models` come with inputs."""
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
    """Raise CheckFailed unless a model answers after training steps as a new model does."""
    kept = "is the tensor that it keeps made in training? Make it in __init__, or anew in each forward pass"
    with torch.no_grad():
        expected = new.eval()(inputs)
        try:
            found = trained.eval()(inputs)
            same = bool(torch.allclose(found, expected, atol=1e-5, equal_nan=True))
        except Exception as error:  # whatever torch says of tensors that it made for a transformation
            raise CheckFailed(f"after a training step it raised {shown(error)}; {kept}") from error
    expect(same, f"after a training step that changed no weight its logits are other ones; {kept}")


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
    """Raise CheckFailed unless the gradients of stacked models equal the gradients of each model alone."""
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
    """Sentence up to a colon, without torch's reason."""
    return sentence.partition(":")[0]


def checks_of_model(build: Build) -> Checks:
    return {
        "logits have the right shape and dtype": lambda: _gives_logits(build),
        "its weights and buffers are there before it is used, and stay": lambda: keeps_tensors(_called(build)),
        "nothing but the seed decides a model's weights and answers": lambda: _is_determined(build),
        "causal answers do not look ahead": lambda: _does_not_look_ahead(build),
        "gradients reach every parameter": lambda: _learns(build),
        "inputs longer than in training work": lambda: _reads_on(build),
        "a seed does not depend on who is trained beside it": lambda: is_alone(build),
        "its training step is one graph": lambda: compiles(build),
    }


def _gives_logits(build: Build) -> Outcome:
    models = served(build)
    for signature, model in models:
        shortest = 2 if signature.answers is Answers.LAST else 1  # a set has a query too
        for length in range(shortest, TRAINED + 1):
            where = f"at length {length}, on {named(signature)},"
            logits = _logits(model, signature, length, where)
            shape = (2, 1 if signature.answers is Answers.LAST else length, signature.classes)
            fits = logits.shape == shape and logits.is_floating_point()
            expect(fits, f"{where} its logits are {kind_of(logits)}, expected {shape} of a floating type")
            expect(bool(logits.isfinite().all()), f"{where} some logits are not finite")
    refused = [named(s) for s in SIGNATURES if s not in [known for known, _ in models]]
    return f"refuses {'; '.join(refused)}" if refused else None


def _logits(model: nn.Module, signature: Signature, length: int, where: str) -> Tensor:
    """The logits of a model. Raises CheckFailed where it can read inputs of the training length, and these are too short."""
    try:
        logits: Tensor = model(inputs_of(signature, length))
    except Exception as error:  # a model may raise anything
        if length < TRAINED:
            model(inputs_of(signature, TRAINED))  # or no length works, which is said otherwise
            raise CheckFailed(f"{where} it raised {shown(error)}; at length {TRAINED} it did not") from error
        raise
    return logits


def _called(build: Build) -> Iterator[tuple[nn.Module, Sequence[Tensor]]]:
    """Models, each with inputs of growing lengths."""
    for signature, model in served(build):
        yield model, [inputs_of(signature, length) for length in (TRAINED, 2 * TRAINED)]


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
    """Causality test as in a run."""
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
    return trains_on(build)
