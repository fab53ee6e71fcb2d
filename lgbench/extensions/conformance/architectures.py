"""Checks of architectures: their options, and what they give to the parts that a model is put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import PART_KINDS, Architecture, Parts, Signature, Tokens
from lgbench.extensions.conformance import models
from lgbench.extensions.conformance.check import CheckFailed, Checks, NotChecked, Outcome, expect
from lgbench.extensions.conformance.options import others, require_reachable
from lgbench.extensions.conformance.probes import built, stirred
from lgbench.extensions.conformance.probing_parts import Call, ProbingAttention, ProbingNorm, ProbingPosition
from lgbench.extensions.conformance.signatures import TRAINED, inputs_of, served


def checks(architecture: Architecture, parts: Callable[[], Parts]) -> Checks:
    """The checks of an architecture with its own parts. `parts` raises NotChecked if they are not installed."""
    found = {
        "its parts are of known kinds, and installed": lambda: _names_its_parts(architecture, parts),
        "its options can be set": lambda: _has_options(architecture, parts),
    }
    if "norm" in architecture.defaults:
        found["a norm scheme is asked for every norm that it has"] = lambda: _asks_norms(architecture, parts)
    if "attention" in architecture.defaults:
        found["an attention gets what it needs"] = lambda: _feeds_attention(architecture, parts)
    if "position" in architecture.defaults:
        found["a position code gets the tokens that it reads"] = lambda: _feeds_position(architecture, parts)
    return {**found, **models.checks(lambda signature: architecture.build(signature, parts()))}


def _names_its_parts(architecture: Architecture, parts: Callable[[], Parts]) -> Outcome:
    for kind in architecture.defaults:
        expect(kind in PART_KINDS, f"its defaults name a {kind!r}, which is no kind of part; known: {', '.join(PART_KINDS)}")
    try:
        parts()
    except NotChecked as missing:
        raise CheckFailed(f"its defaults name a part that is not installed: {missing}") from None
    return None


def _has_options(architecture: Architecture, parts: Callable[[], Parts]) -> Outcome:
    defaults = require_reachable(architecture.build, architecture.name, "build", 2)
    if not defaults:
        return None
    signature, model = served(lambda signature: architecture.build(signature, parts()))[0]
    plain = _answer(model, signature)
    idle = []
    for option, default in defaults.items():
        changed = _models_with(architecture, signature, parts(), option, default)
        if not any(_differs(plain, _answer(other, signature)) for other in changed):
            idle.append(option)
    return f"no other value that was tried of {', '.join(idle)} makes another model" if idle else None


def _models_with(architecture: Architecture, signature: Signature, parts: Parts, option: str, default: Any) -> list[nn.Module]:
    """Models with other values of an option, as far as they are accepted."""
    found = []
    for value in others(default):
        try:
            found.append(built(lambda value=value: architecture.build(signature, parts, **{option: value})))  # type: ignore[misc]
        except NotChecked:
            continue
    return found


def _answer(model: nn.Module, signature: Signature) -> Tensor:
    """Logits, with every parameter moved a little."""
    with torch.no_grad():
        logits: Tensor = stirred(model).eval()(inputs_of(signature, TRAINED))
    return logits


def _differs(first: Tensor, second: Tensor) -> bool:
    return first.shape != second.shape or not torch.equal(first, second)


def _asks_norms(architecture: Architecture, parts: Callable[[], Parts]) -> Outcome:
    norm = ProbingNorm()
    given = replace(parts(), norm=norm)
    for signature in [signature for signature, _ in served(lambda signature: architecture.build(signature, given))]:
        norm.calls.clear()
        built(lambda signature=signature: architecture.build(signature, given))  # type: ignore[misc]
        _require_calls(norm.calls, takes_attention="attention" in architecture.defaults)
    return None


def _require_calls(calls: Sequence[Call], takes_attention: bool) -> None:
    """Raise CheckFailed unless the methods were called as :class:`lgbench.NormScheme` says."""
    methods = [call.method for call in calls]
    expect("embed" in methods, "it does not ask the norm scheme for `embed`, the module after the embedding")
    specs = dict.fromkeys(call.spec for call in calls if call.spec)
    expect(bool(specs), "it asks the norm scheme for no sublayer: call `residual`, or `output` without a residual connection")
    for spec in specs:
        where = f"{spec.role} of layer {spec.layer}"
        sound = 1 <= spec.layer <= spec.layers and spec.width >= 1 and spec.heads >= 1 and spec.width % spec.heads == 0
        expect(sound, f"it asks for a norm with {spec}, which stands nowhere in a model")
        alone = spec.role == "attention" or spec.heads == 1
        expect(alone, f"it asks for a norm with {spec}: a sublayer without attention has no heads, so heads=1 is expected")
        own = [call.method for call in calls if call.spec == spec]
        missing = [method for method in ("query", "key", "head", "gain") if method not in own]
        asked = not missing or not takes_attention or spec.role != "attention"
        expect(
            asked, f"it does not ask the norm scheme for `{'` and `'.join(missing)}`, {where}: their norms would be left out"
        )
        placed = [index for index, method in enumerate(own) if method in ("residual", "output")]
        expect(bool(placed), f"it asks the norm scheme for neither `residual` nor `output`, {where}")
        expect(placed[0] == len(own) - 1, f"it asks the norm scheme for `{own[placed[0]]}` before `{own[-1]}`, {where}")
    first, last = methods.index(next(m for m in methods if m != "embed")), len(methods) - 1
    expect("embed" not in methods[first:], "it asks the norm scheme for `embed` after other norms")
    expect("final" not in methods[:last], "it asks the norm scheme for `final` before other norms")


def _feeds_attention(architecture: Architecture, parts: Callable[[], Parts]) -> Outcome:
    given = replace(parts(), attention=ProbingAttention())
    for signature, model in served(lambda signature: architecture.build(signature, given)):
        model(inputs_of(signature, TRAINED))
    return None


def _feeds_position(architecture: Architecture, parts: Callable[[], Parts]) -> Outcome:
    position = ProbingPosition()
    given = replace(parts(), position=position)
    for signature, model in served(lambda signature: architecture.build(signature, given)):
        if not isinstance(signature.inputs, Tokens):
            continue
        for calls in position.calls.values():
            calls.clear()
        inputs = inputs_of(signature, TRAINED)
        model(inputs)
        for method, calls in position.calls.items():
            expect(bool(calls), f"it does not call the module of a position code's `{method}`")
            right = all(tokens is not None and torch.equal(tokens, inputs) for tokens in calls)
            expect(right, f"it calls the module of a position code's `{method}` without the tokens of all positions")
    return None
