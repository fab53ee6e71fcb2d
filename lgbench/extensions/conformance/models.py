"""Checks of models, however they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from lgbench.contracts import Answers, Signature
from lgbench.extensions.conformance.check import CheckFailed, Checks, Outcome, expect, expect_close
from lgbench.extensions.conformance.kept_tensors import keeps_tensors
from lgbench.extensions.conformance.probes import Gradients, built, kind_of, no_global_randomness, stirred
from lgbench.extensions.conformance.signatures import SIGNATURES, TESTED, TRAINED, Build, inputs_of, named, served, shown
from lgbench.extensions.conformance.steps import compiles, is_alone, trains_on
from lgbench.measurement import causality
from lgbench.randomness import Random


def checks(build: Build) -> Checks:
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
    """A causality question like the one with which a run tests its model."""
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
