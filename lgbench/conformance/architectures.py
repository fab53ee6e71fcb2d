"""Rules of options, and of architectures: the inputs of a model's parts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import Mock

import torch
from torch import Tensor, nn

import lgbench.contracts as contracts
from lgbench.attending import masked_logits
from lgbench.conformance.check import (
    CheckFailed,
    NotChecked,
    Outcome,
    Rules,
    accepted,
    built,
    expect,
    expect_close,
    expect_kind,
    stirred,
)
from lgbench.conformance.models import SIGNATURES, TRAINED, inputs_of, served
from lgbench.conformance.parts import MATRICES
from lgbench.errors import Unsupported, message_of
from lgbench.experiment.experiment import recorded, with_methods
from lgbench.experiment.settings import options_of

OptionValue = bool | int | float | str
DefaultParts = Callable[[], contracts.Parts]
"""Returns an architecture's default parts. Raises NotChecked for a part that is not installed."""

ARCHITECTURES = Rules[[contracts.Architecture, DefaultParts]]()
OPTIONS = Rules[[contracts.Configurable]]()


def _reachable(function: Callable[..., Any], owner: str, given: int) -> dict[str, Any]:
    """Options of a method, with their defaults. Raises CheckFailed or UsageError for an option out of reach of `--set`.

    given: number of parameters that the harness fills by position.
    """
    parameters = inspect.signature(function).parameters.values()
    names = ", ".join([p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][given:])
    method = function.__name__
    expect(not names, f"`--set` cannot reach {names} of {method}: put a star before, as in {method}(..., *, {names})")
    return options_of(function, owner)


def _others(value: OptionValue, stated: tuple[float, float] | None) -> list[OptionValue]:
    """Other values of an option within its range, possibly refused. None for a text, whose meaning only the object knows."""
    low, high = stated or (-math.inf, math.inf)
    found: tuple[int | float, ...] = ()
    match value:
        case bool():
            return [not value]
        case int():
            found = (value + 1, 2 * value + 2, max(1, value // 2), 0)
        case float():
            found = (value / 2, 2 * value + 0.1, (value + 1) / 2, 0.0, 1.0)
    return [other for other in found if other != value and low <= other <= high]


def _accepted(
    make: Callable[..., Any], option: str, default: OptionValue, thing: contracts.Configurable | contracts.Architecture
) -> Iterator[tuple[OptionValue, Any]]:
    """Other values of an option that are not refused, each with what `make` gives for it."""
    for value in _others(default, thing.ranges.get(option)):
        try:
            yield value, make(**{option: value})
        except NotChecked:
            pass
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), f"it refuses {option}={value!r} without a reason: say what would work")
        except Exception as error:  # a plugin's code may raise anything
            remedy = f"state the range of {option} in `ranges`, or raise lgbench.Unsupported with the reason"
            raise CheckFailed(f"with {option}={value!r} it raised {message_of(error)}: {remedy}") from error


@OPTIONS.rule("its options can be set")
def _can_be_set(thing: contracts.Configurable) -> Outcome:
    defaults = _reachable(thing.configured, thing.name, 0)
    before = _content(thing)
    expect(
        _same(thing.configured(**defaults), thing), "`configured` with the defaults gives another thing than the plugin does"
    )
    refused = []
    for option, default in defaults.items():
        found = next(_accepted(thing.configured, option, default, thing), None)
        expect(_content(thing) == before, f"`configured` changes the thing itself for {option}: return a new one")
        if found is None:
            refused.append(option)
            continue
        value, other = found
        where = f"`configured` with {option}={value!r} gives"
        expect(isinstance(other, type(thing)), f"{where} {other!r}")
        expect(other.name == thing.name, f"{where} the name {other.name!r}, expected {thing.name!r}")
        expect(not _same(other, thing), f"the option {option} changes nothing: {value!r} gives the same as {default!r}")
    return f"no other value of {', '.join(refused)} was accepted" if refused else None


@OPTIONS.rule("its keywords are options")
def _keywords_are_options(thing: contracts.Configurable) -> Outcome:
    """Note on parameters with defaults, of the constructor and of methods, which `--set` does not reach."""
    known = {*inspect.signature(thing.configured).parameters, "name", "about"}
    methods: list[Callable[..., Any]] = [type(thing)]
    methods += [method for name, method in inspect.getmembers(thing, inspect.ismethod) if not name.startswith("_")]
    out_of_reach = [
        f"{parameter.name}={parameter.default!r} of {method.__name__}"
        for method in methods
        for parameter in inspect.signature(method).parameters.values()
        if isinstance(parameter.default, OptionValue) and parameter.name not in known
    ]
    found = ", ".join(out_of_reach)
    return f"`--set` does not reach {found}: options are the keyword-only parameters of `configured`" if found else None


def _content(thing: Any) -> str:
    return repr(thing if is_dataclass(thing) else vars(thing))


def _same(first: Any, second: Any) -> bool:
    """Whether two objects are equal: by their own comparison, or by type and attributes."""
    return bool(first == second) or (type(first) is type(second) and _content(first) == _content(second))


def _takes(kind: str) -> Callable[[contracts.Architecture, DefaultParts], bool]:
    """Whether an architecture takes a part of this kind."""
    return lambda architecture, parts: kind in architecture.defaults


@ARCHITECTURES.rule("its parts are of known kinds, and installed")
def _names_its_parts(architecture: contracts.Architecture, parts: DefaultParts) -> None:
    known = contracts.PART_KINDS
    for kind in architecture.defaults:
        expect(kind in known, f"its defaults name a {kind!r}, which is no kind of part; known: {', '.join(known)}")
    try:
        parts()
    except NotChecked as missing:
        raise CheckFailed(f"its defaults name a part that is not installed: {missing}") from None


@ARCHITECTURES.rule("its options can be set")
def _has_options(architecture: contracts.Architecture, parts: DefaultParts) -> Outcome:
    defaults = _reachable(architecture.build, architecture.name, 2)
    if not defaults:
        return None
    signature = served(lambda signature: architecture.build(signature, parts()))[0][0]

    def answer(**options: OptionValue) -> Tensor:
        """Logits, with every parameter moved a little."""
        model = built(partial(architecture.build, signature, parts(), **options))
        with torch.no_grad():
            logits: Tensor = stirred(model).eval()(inputs_of(signature, TRAINED))
        return logits

    plain, idle = answer(), []
    for option, default in defaults.items():
        if all(torch.equal(other, plain) for _, other in _accepted(answer, option, default, architecture)):
            idle.append(option)
    return f"no other value that was tried of {', '.join(idle)} makes another model" if idle else None


@ARCHITECTURES.rule("a norm scheme is asked for every norm that it has", when=_takes("norm"))
def _asks_norms(architecture: contracts.Architecture, parts: DefaultParts) -> Outcome:
    """Calls of the methods of a norm scheme. A method left out would silently leave out norms of some schemes."""
    given, left_out = parts(), set[str]()
    for signature, _ in served(lambda signature: architecture.build(signature, given)):
        norm = Mock(spec=contracts.NormScheme, wraps=given.norm)  # records calls; the scheme itself answers
        built(partial(architecture.build, signature, replace(given, norm=norm)))
        asked = {(call[0], spec) for call in norm.method_calls for spec in (*call.args, *call.kwargs.values())}
        called = {method for method, _ in asked}
        expect("embed" in called, "it does not ask the norm scheme for `embed`, the module after the embedding")
        left_out |= {"final"} - called
        specs = {spec for _, spec in asked if isinstance(spec, contracts.SublayerSpec)}
        placing = "call `residual`, or `output` without a residual connection"
        expect(bool(specs), f"it asks the norm scheme for no sublayer: {placing}")
        for spec in sorted(specs, key=lambda spec: (spec.layer, spec.role)):
            where = f"{spec.role} of layer {spec.layer}"
            placed = not asked.isdisjoint({("residual", spec), ("output", spec)})
            expect(placed, f"it asks the norm scheme for neither `residual` nor `output`, {where}: {placing}")
            methods = (*_OF_HEADS, "gain") if spec.role == "attention" else ("gain",)
            missing = [method for method in methods if (method, spec) not in asked]
            if "attention" in architecture.defaults and spec.role == "attention":
                names = "` and `".join(missing)
                lost = "these norms, or factors of initial weights, would be left out"
                expect(not missing, f"it does not ask the norm scheme for `{names}`, {where}: {lost}")
            left_out |= {*missing} - {"head"}
    names = "`, `".join(sorted(left_out, reverse=True))
    acts = "so these norms, or factors of initial weights, of some schemes do not act"
    return f"it does not ask the norm scheme for `{names}`, {acts}" if names else None


_OF_HEADS = ("query", "key", "head")
"""Methods of a norm scheme for the inside of an attention."""


@ARCHITECTURES.rule("modules of a norm scheme are used, and nothing goes around them", when=_takes("norm"))
def _uses_norms(architecture: contracts.Architecture, parts: DefaultParts) -> None:
    given = parts()
    everywhere = with_methods(given.norm, **dict.fromkeys(_OF_HEADS, lambda spec: nn.Identity()))
    for signature, _ in served(lambda signature: architecture.build(signature, given)):
        hooks = {method: list[Mock]() for method in ("embed", "residual", "output", "final", *_OF_HEADS)}

        def watch(own: list[Mock], module: nn.Module, *place: object, **named: object) -> None:
            own.append(Mock(return_value=None))  # records calls
            module.register_forward_hook(own[-1])

        norm = recorded(everywhere, **{method: partial(watch, own) for method, own in hooks.items()})
        model = stirred(built(partial(architecture.build, signature, replace(given, norm=norm)))).eval()
        inputs = inputs_of(signature, TRAINED)
        model(inputs)
        for method, own in hooks.items():
            expect(all(hook.called for hook in own), f"it does not call a module of the norm scheme's `{method}`")
        if hooks["residual"]:
            continue
        for hook in hooks["output"]:
            hook.side_effect = lambda module, given, answer: torch.zeros_like(answer)
        first, second = model(inputs)
        depends = "with zeros for the modules of `output`, its logits depend on the input"
        expect_close(second, first, f"{depends}: for a residual connection, call `residual`")


@ARCHITECTURES.rule("initial weights follow the gains of a norm scheme", when=_takes("norm"))
def _follows_gains(architecture: contracts.Architecture, parts: DefaultParts) -> Outcome:
    """Initial weights with a gain of 2 for one matrix, against those with gains of 1. Note on matrices without a gain."""
    given, asked = parts(), set[tuple[contracts.SublayerSpec, contracts.Matrix]]()
    signature = served(lambda signature: architecture.build(signature, given))[0][0]

    def weights(doubled: tuple[contracts.SublayerSpec, contracts.Matrix] | None = None) -> list[Tensor]:
        def gain(spec: contracts.SublayerSpec, matrix: contracts.Matrix) -> float:
            asked.add((spec, matrix))
            return 2.0 if (spec, matrix) == doubled else 1.0

        norm = with_methods(given.norm, gain=gain)
        return list(built(partial(architecture.build, signature, replace(given, norm=norm))).parameters())

    plain = weights()
    zeros = any(weight.ndim > 1 and not weight.any() for weight in plain)  # they follow any gain
    for spec, matrix in sorted(asked, key=lambda each: (each[0].layer, each[0].role, each[1])):
        follows = zeros or not all(map(torch.equal, weights((spec, matrix)), plain))
        where = f"{matrix}, {spec.role} of layer {spec.layer}"
        remedy = "multiply the initial weights of the matrix by its gain"
        expect(follows, f"no initial weight follows the norm scheme's `gain` for {where}: {remedy}")
    known = {(spec.role, matrix) for spec, matrix in asked}
    unasked = [
        matrix for role in sorted({role for role, _ in known}) for matrix in MATRICES[role] if (role, matrix) not in known
    ]
    names = ", ".join(unasked)
    return f"it does not ask the norm scheme for the `gain` of {names}: right only without such a matrix" if names else None


class ProbingAttention(contracts.Attention):
    """Softmax attention with all needs. Its modules check their inputs."""

    name = "probing-attention"
    needs = frozenset(contracts.Need)

    def build(self, spec: contracts.AttentionSpec) -> _ProbingModule:
        return _ProbingModule(spec)


class _ProbingModule(nn.Module):
    def __init__(self, spec: contracts.AttentionSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, **needed: Tensor) -> Tensor:
        """(B, H, Q, D) for the Q positions of `query_input`."""
        lacking = " and ".join(name for name in ("query_input", "key_input") if name not in needed)
        expect(not lacking, f"it does not give an attention the {lacking} that it needs")
        queries = needed["query_input"].shape[1]
        for name, positions in (("query_input", queries), ("key_input", k.shape[2])):
            expect_kind(f"it gives an attention a {name} of", needed[name], (len(k), positions, self.spec.width))
        rows = queries if self.spec.cross_attention else k.shape[2]
        expect(q.shape[2] == rows, f"an attention that needs all queries gets {q.shape[2]} of {rows}")
        return (masked_logits(q, k, bias, self.spec.scale).softmax(-1) @ v)[:, :, -queries:]


@ARCHITECTURES.rule("an attention gets what it needs", when=_takes("attention"))
def _feeds_attention(architecture: contracts.Architecture, parts: DefaultParts) -> None:
    given = replace(parts(), attention=ProbingAttention())
    for signature, model in served(lambda signature: architecture.build(signature, given)):
        model(inputs_of(signature, TRAINED))


@ARCHITECTURES.rule("position ids reach its models", when=lambda architecture, parts: architecture.reads_positions)
def _reads_ids(architecture: contracts.Architecture, parts: DefaultParts) -> None:
    """Answers to tokens with ids (B, T, 2): ids change those of their own context."""
    given, count = parts(), 2 * TRAINED
    with_ids = [
        replace(signature, inputs=contracts.Tokens(signature.inputs.size, count))
        for signature in SIGNATURES
        if isinstance(signature.inputs, contracts.Tokens)
    ]
    models = accepted(
        with_ids, lambda signature: built(partial(architecture.build, signature, given)), "it is built for no signature"
    )
    for signature, model in models:
        model = stirred(model).eval()
        words, ids = inputs_of(signature, TRAINED), torch.arange(TRAINED).repeat(2, 1)
        first = model(torch.stack((words, ids), -1))
        ids[1] *= 2
        second = model(torch.stack((words, ids), -1))
        expect_close(second[:1], first[:1], "the position ids of a context change the answers to another")
        expect(not torch.equal(second[1], first[1]), "it declares reads_positions, and other ids change nothing")


class ProbingPosition(contracts.Position):
    """Position code whose modules change nothing. Records the tokens of each call."""

    name = "probing-position"

    def __init__(self, methods: Sequence[str], reads_tokens: bool) -> None:
        self.calls: dict[str, list[Tensor | None]] = {method: [] for method in methods}
        self.reads_tokens = reads_tokens

    def embed(self, width: int, positions: int) -> _Probe | None:
        return self._probe("embed", lambda x: x)

    def rotate(self, spec: contracts.AttentionSpec) -> _Probe | None:
        return self._probe("rotate", lambda q, k: (q, k))

    def bias(self, spec: contracts.AttentionSpec) -> _Probe | None:
        return self._probe("bias", lambda q, k: q.new_zeros(*q.shape[:3], k.shape[2]))

    def _probe(self, method: str, answer: Callable[..., Any]) -> _Probe | None:
        return _Probe(self.calls[method], answer) if method in self.calls else None


class _Probe(nn.Module):
    def __init__(self, calls: list[Tensor | None], answer: Callable[..., Any]) -> None:
        super().__init__()
        self.calls, self.answer = calls, answer

    def forward(self, *given: Tensor, tokens: Tensor | None = None) -> Any:
        self.calls.append(tokens)
        return self.answer(*given)


@ARCHITECTURES.rule("each module of a position code is called, with the tokens that it reads", when=_takes("position"))
def _feeds_position(architecture: contracts.Architecture, parts: DefaultParts) -> None:
    position, models = _with_position(architecture, parts())
    for signature, model in models:
        if not isinstance(signature.inputs, contracts.Tokens):
            continue
        for calls in position.calls.values():
            calls.clear()
        inputs = inputs_of(signature, TRAINED)
        model(inputs)
        for method, calls in position.calls.items():
            remedy = f"call it, or raise lgbench.Unsupported if the code's `{method}` is not None"
            expect(bool(calls), f"it does not call the module of a position code's `{method}`: {remedy}")
            right = not position.reads_tokens or all(tokens is not None and torch.equal(tokens, inputs) for tokens in calls)
            expect(right, f"it calls the module of a position code's `{method}` without the tokens of all positions")


_Models = list[tuple[contracts.Signature, nn.Module]]


def _with_position(architecture: contracts.Architecture, parts: contracts.Parts) -> tuple[ProbingPosition, _Models]:
    """Models with a position code that the architecture takes: it may refuse codes that read tokens, and codes of attention."""

    def models(position: ProbingPosition) -> _Models:
        return served(lambda signature: architecture.build(signature, replace(parts, position=position)))

    for methods, reads_tokens in product((("embed", "rotate", "bias"), ("embed",)), (True, False)):
        position = ProbingPosition(methods, reads_tokens)
        try:
            return position, models(position)
        except NotChecked as reason:
            refusal = reason
    raise refusal
