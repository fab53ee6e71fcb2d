"""Checks of probes, on insides that no model has."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lgbench.contracts import AttentionInside, Insides, Measurement, Reading, Role, SublayerInside
from lgbench.extensions.conformance.check import NotChecked, Outcome, expect
from lgbench.extensions.conformance.probes import kind_of, no_global_randomness, numbers

CONTEXTS, KEYS, CLASSES = 12, 5, 4
ROLES: tuple[Role, ...] = ("attention", "mlp")


def insides() -> Insides:
    """Of a model of two layers with attention of two heads, and of contexts of a task that says what matters."""
    weights = numbers(CONTEXTS, 2, KEYS, seed=4).double().softmax(-1)
    stream = numbers(CONTEXTS, 6, seed=5).double()
    sublayers = [
        SublayerInside(role, layer, stream * layer, stream * layer + 0.5, stream) for layer in (1, 2) for role in ROLES
    ]
    exact = numbers(CONTEXTS, CLASSES, seed=6).double().relu() + torch.eye(CLASSES)[torch.arange(CONTEXTS) % CLASSES]
    exact = exact / exact.sum(-1, keepdim=True)
    return Insides(
        length=KEYS,
        inputs=torch.arange(CONTEXTS * KEYS).view(CONTEXTS, KEYS) % CLASSES,
        logits=3 * numbers(CONTEXTS, CLASSES, seed=7).double(),
        distribution=exact,
        sources=torch.arange(KEYS).expand(CONTEXTS, KEYS) == torch.arange(CONTEXTS)[:, None] % (KEYS + 1),
        attentions=[AttentionInside(layer, numbers(CONTEXTS, 2, 3, seed=layer).double(), weights) for layer in (1, 2)],
        sublayers=sublayers,
        final=stream,
    )


def reads_insides(measurement: Measurement) -> Outcome:
    given, again = insides(), insides()
    with no_global_randomness():
        found = list(measurement.of_insides(given))
    if not found:
        raise NotChecked("it reads nothing of a transformer")
    for reading in found:
        expect(isinstance(reading, Reading), f"of_insides gives {type(reading).__name__}, expected lgbench.Reading")
        value, layer, head = reading
        fits = isinstance(value, Tensor) and value.shape in ((), (CONTEXTS,))
        kind = kind_of(value) if isinstance(value, Tensor) else type(value).__name__
        expect(fits, f"the value of a reading is {kind}, expected ({CONTEXTS},), or no dimensions")
        counted = all(number is None or number >= 1 for number in (layer, head)) and not (head and not layer)
        expect(counted, f"a reading is of layer {layer} and head {head}; both count from 1, and a head is that of a layer")
        inside = within(value[value.isfinite()], measurement)
        expect(bool(inside.all()), f"a reading has a value beyond its range, {measurement.range}")
    same = all(
        torch.equal(now.output, then.output) and torch.equal(now.weights, then.weights)  # type: ignore[arg-type]
        for now, then in zip(given.attentions, again.attentions, strict=True)
    )
    expect(same and torch.equal(given.logits, again.logits), "it changes insides in place, which other probes read too")
    return None


def takes_bare_models(measurement: Measurement) -> Outcome:
    """A recurrent network has no attention and no residual stream; some attentions have no weights; a text has no p*."""
    whole = insides()
    bare = replace(whole, attentions=(), sublayers=(), sources=None, final=None)
    without = replace(whole, attentions=[replace(each, weights=None) for each in whole.attentions], sources=None)
    of_text = replace(whole, distribution=None, sources=None)
    for given in (bare, without, of_text):
        for reading in measurement.of_insides(given):
            expect(isinstance(reading, Reading), f"of_insides gives {type(reading).__name__}, expected lgbench.Reading")
    return None


def within(values: Tensor, measurement: Measurement) -> Tensor:
    """Which values are in the range, but for rounding. NaN is not."""
    low, high = measurement.range
    above = values >= (float("-inf") if low is None else low - 1e-9)
    return above & (values <= (float("inf") if high is None else high + 1e-9))
