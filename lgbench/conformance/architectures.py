"""Checks of architectures: options, and the inputs of a model's parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.attending import masked_logits
from lgbench.conformance.check import CheckFailed, Checks, NotChecked, Outcome, expect
from lgbench.conformance.material import TRAINED, built, inputs_of, kind_of, served, stirred
from lgbench.conformance.models import checks_of_model
from lgbench.contracts import (
    PART_KINDS,
    Architecture,
    Attention,
    AttentionSpec,
    Configurable,
    Matrix,
    Need,
    NormScheme,
    Parts,
    Position,
    Signature,
    SublayerSpec,
    TensorModule,
    Tokens,
)
from lgbench.errors import Unsupported
from lgbench.experiment.settings import options_of


class ProbingAttention(Attention):
    """Softmax attention with all needs, and checks of its inputs."""

    name = "probing-attention"
    needs = frozenset(Need)

    def build(self, spec: AttentionSpec) -> _ProbingModule:
        return _ProbingModule(spec)


class _ProbingModule(nn.Module):
    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, **needed: Tensor) -> Tensor:
        """(B, H, Q, D) for the Q positions that `query_input` has."""
        batch, keys = k.shape[0], k.shape[2]
        lacking = [need.value for need in (Need.QUERY_INPUT, Need.KEY_INPUT) if need.value not in needed]
        expect(not lacking, f"it does not give an attention the {' and '.join(lacking)} that it needs")
        queries = needed["query_input"].shape[1]
        rows = queries if self.spec.cross_attention else keys
        shapes = {"query_input": (batch, queries, self.spec.width), "key_input": (batch, keys, self.spec.width)}
        for name, shape in shapes.items():
            expect(needed[name].shape == shape, f"it gives an attention a {name} of {kind_of(needed[name])}, expected {shape}")
        expect(q.shape[2] == rows, f"an attention that needs all queries gets {q.shape[2]} of {rows}")
        return (masked_logits(q, k, bias, self.spec.scale).softmax(-1) @ v)[:, :, -queries:]


class ProbingPosition(Position):
    """Position code with token inputs for all modules, and a bias per context."""

    name = "probing-position"
    reads_tokens = True

    def __init__(self) -> None:
        self.calls: dict[str, list[Tensor | None]] = {"embed": [], "rotate": [], "bias": []}

    def embed(self, width: int, positions: int) -> _Probe:
        return _Probe(self.calls["embed"], lambda x: x)

    def rotate(self, spec: AttentionSpec) -> _Probe:
        return _Probe(self.calls["rotate"], lambda q, k: (q, k))

    def bias(self, spec: AttentionSpec) -> _Probe:
        return _Probe(self.calls["bias"], lambda q, k: q.new_zeros(*q.shape[:3], k.shape[2]))


class _Probe(nn.Module):
    """Keeps the tokens of each call."""

    def __init__(self, calls: list[Tensor | None], answer: Callable[..., Any]) -> None:
        super().__init__()
        self.calls, self.answer = calls, answer

    def forward(self, *given: Tensor, tokens: Tensor | None = None) -> Any:
        self.calls.append(tokens)
        return self.answer(*given)


class Call(NamedTuple):
    """A call of a method of a norm scheme."""

    method: str
    spec: SublayerSpec | None = None


class _Sum(nn.Module):
    """x + sublayer(x), at the positions for which the sublayer answers."""

    def __init__(self, sublayer: TensorModule) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        change = self.sublayer(x)
        return x[..., -change.shape[-2] :, :] + change


class ProbingNorm(NormScheme):
    """Norm scheme without norms. Records the calls of its methods, in order."""

    name = "probing-norm"

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def embed(self, width: int) -> TensorModule:
        self.calls.append(Call("embed"))
        return nn.Identity()

    def residual(self, spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        self.calls.append(Call("residual", spec))
        return _Sum(sublayer)

    def output(self, spec: SublayerSpec) -> TensorModule:
        self.calls.append(Call("output", spec))
        return nn.Identity()

    def final(self, width: int) -> TensorModule:
        self.calls.append(Call("final"))
        return nn.Identity()

    def query(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("query", spec))

    def key(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("key", spec))

    def head(self, spec: SublayerSpec) -> None:
        self.calls.append(Call("head", spec))

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        self.calls.append(Call("gain", spec))
        return 1.0


OptionValue = bool | int | float | str


def checks_of_options(thing: Configurable) -> Checks:
    return {"its options can be set": lambda: _can_be_set(thing)}


def require_reachable(function: Callable[..., Any], owner: str, method: str, given: int) -> dict[str, Any]:
    """The options of a method, with their defaults. Raises CheckFailed or UsageError if `--set` cannot reach one of them.

    `given` is how many parameters the harness fills by position.
    """
    defaults = options_of(function, owner)
    parameters = inspect.signature(function).parameters.values()
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][given:]
    names = ", ".join(by_position)
    expect(not by_position, f"`--set` cannot reach {names} of {method}: put a star before, as in {method}(..., *, {names})")
    return defaults


def others(value: OptionValue) -> list[OptionValue]:
    """Other values of an option, one of which it may accept. There is none for a text, whose meaning only the thing knows."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, 2 * value + 2, max(1, value // 2), 0]
        case float():
            return [value / 2, 2 * value + 0.1, (value + 1) / 2, 0.0, 1.0]
    return []


def _can_be_set(thing: Configurable) -> Outcome:
    defaults = require_reachable(thing.configured, thing.name, "configured", 0)
    before = repr(_content(thing))
    plain = thing.configured(**defaults)
    expect(_same(plain, thing), "`configured` with the defaults gives another thing than the plugin does")
    refused = []
    for option, default in defaults.items():
        found = _with_other_value(thing, option, default)
        expect(repr(_content(thing)) == before, f"`configured` changes the thing itself for {option}: return a new one")
        if found is None:
            refused.append(option)
            continue
        value, other = found
        expect(isinstance(other, type(thing)), f"`configured` with {option}={value!r} gives {other!r}")
        same_name = other.name == thing.name
        expect(same_name, f"`configured` with {option}={value!r} gives the name {other.name!r}, expected {thing.name!r}")
        expect(not _same(other, thing), f"the option {option} changes nothing: {value!r} gives the same as {default!r}")
    return f"no other value of {', '.join(refused)} was accepted" if refused else None


def _with_other_value(thing: Configurable, option: str, default: OptionValue) -> tuple[OptionValue, Any] | None:
    """First accepted other value, and the result; None if all are refused."""
    for value in others(default):
        if value == default:
            continue
        try:
            return value, thing.configured(**{option: value})
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), f"it refuses {option}={value!r} without a reason: say what would work")
    return None


def _content(thing: Any) -> Any:
    return thing if is_dataclass(thing) else vars(thing)


def _same(first: Any, second: Any) -> bool:
    """Whether two things are equal: by their own comparison, or by type and attributes."""
    return bool(first == second) or (type(first) is type(second) and repr(_content(first)) == repr(_content(second)))


def checks_of_architecture(architecture: Architecture, parts: Callable[[], Parts]) -> Checks:
    """The checks_of_architecture of an architecture with its own parts. `parts` raises NotChecked if they are not installed."""
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
    return {**found, **checks_of_model(lambda signature: architecture.build(signature, parts()))}


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
    """Models with other accepted values of an option."""
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
