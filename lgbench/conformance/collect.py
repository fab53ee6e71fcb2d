"""All checks of a thing, or of everything that a plugin provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lgbench import describe
from lgbench.conformance import architectures, averagers, norms, parts, tasks
from lgbench.conformance.architectures import TESTED, TRAINED, Build
from lgbench.conformance.check import Check, NotHere, Outcome, expect
from lgbench.contracts import BASELINE, PART_KINDS, Architecture, Attention, Averager, NormScheme, Parts, Position, Task
from lgbench.declared import require_declared
from lgbench.errors import LgbenchError, PluginError
from lgbench.registry import Plugin, Registry

Promises = Mapping[str, Callable[[], Outcome]]


def checks_of_plugin(plugin: Plugin, registry: Registry) -> list[Check]:
    """Whether it can be used at all, and what everything that it provides promises."""
    own = [Check(f"plugin {plugin.name}", "loads, quickly and in silence", lambda: _loads(plugin))]
    catalogs = registry.catalogs()
    for kind, names in plugin.provides.items():
        label = f"~{plugin.distribution.stamp}" if plugin.distribution.stamp else ""
        for name in names:
            try:
                own += checks_of(catalogs[kind][name + label], registry)
            except LgbenchError as clash:
                own.append(Check(f"{kind} {name}", "has a name of its own", partial(expect, False, str(clash))))
    return own


def checks_of(thing: Any, registry: Registry) -> list[Check]:
    """What one task, architecture, part or averager promises; what goes with it is taken from the registry."""
    kinds = [catalog.kind for catalog in registry.catalogs().values() if isinstance(thing, catalog.contract)]
    if not kinds:
        raise TypeError(f"{thing!r} is nothing that a plugin provides: give an object of lgbench.Task, lgbench.NormScheme, ...")
    contract = registry.catalogs()[kinds[0]].contract
    promised: dict[str, Callable[[], Outcome]] = {"has what its contract declares": lambda: require_declared(thing, contract)}
    try:
        require_declared(thing, contract)
    except PluginError:
        pass  # one check says so, and the others would stumble over it
    else:
        promised |= {"says in a sentence what it is": lambda: _is_documented(thing), **_promises(thing, registry)}
    name = getattr(thing, "name", type(thing).__name__)
    return [Check(f"{kinds[0]} {name}", promise, examine) for promise, examine in promised.items()]


def _promises(thing: Any, registry: Registry) -> Promises:
    match thing:
        case Task():
            return tasks.promises(thing)
        case Architecture():
            return architectures.promises(thing, lambda: _own_parts(thing, registry))
        case NormScheme():
            return {**norms.promises(thing), **_in_models("norm", thing, registry)}
        case Attention():
            return {**parts.attention_promises(thing), **_in_models("attention", thing, registry)}
        case Position():
            return {**parts.position_promises(thing), **_in_models("position", thing, registry)}
        case Averager():
            return averagers.promises(thing)
    raise NotImplementedError(type(thing))


def _in_models(kind: str, part: Any, registry: Registry) -> Promises:
    """What a model promises, for a model that has this part."""
    takers = [each for each in registry.architectures if kind in each.defaults]
    takers.sort(key=lambda architecture: architecture.name != BASELINE)

    def build(signature: Any) -> Any:
        if not takers:
            raise NotHere(f"no architecture is installed that takes {kind}s")
        return takers[0].build(signature, _own_parts(takers[0], registry, **{kind: part}))

    model: Build = build
    title = takers[0].name if takers else "a model"
    return {f"in {title}: {promise}": examine for promise, examine in architectures.model_promises(model).items()}


def _own_parts(architecture: Architecture, registry: Registry, **named: Any) -> Parts:
    """The parts of its defaults, but for those that are named. Raises NotHere where one is not installed."""
    catalogs, own = registry.catalogs(), architecture.defaults
    parts: dict[str, Any] = dict.fromkeys(PART_KINDS)
    try:
        parts |= {kind: catalogs[kind][own[kind]] for kind in PART_KINDS if kind in own and kind not in named}
    except LgbenchError as missing:
        raise NotHere(str(missing)) from missing
    return Parts(**(parts | named), train_positions=TRAINED, test_positions=TESTED)


def _loads(plugin: Plugin) -> Outcome:
    expect(plugin.error is None, str(plugin.error))
    expect(not plugin.notes, "; ".join(plugin.notes))
    version = plugin.distribution.version
    expect(version not in ("", "0", "0.0.0"), f"its package has the version {version!r}, and results name plugins by version")
    return None


def _is_documented(thing: Any) -> Outcome:
    said = describe.about(thing).strip()
    generated = said.startswith(f"{type(thing).__name__}(")  # by dataclass
    expect(bool(said) and not generated, "it has no docstring: say what it is, with the equation and its source")
    return None
