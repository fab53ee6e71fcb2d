"""All checks of an object, or of all objects from a plugin."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, get_args

import lgbench.contracts as contracts
from lgbench.conformance.architectures import checks_of_architecture, checks_of_options, keywords_without_option
from lgbench.conformance.check import Check, Checks, NotChecked, Outcome, expect
from lgbench.conformance.measurements import checks_of_measurement
from lgbench.conformance.models import TESTED, TRAINED, checks_of_model
from lgbench.conformance.parts import checks_of_attention, checks_of_norm, checks_of_position
from lgbench.conformance.tasks import checks_of_task
from lgbench.conformance.updates import checks_of_averager, checks_of_optimizer
from lgbench.contracts.services import option_types
from lgbench.errors import LgbenchError, PluginError
from lgbench.experiment.settings import OPTION_SECTIONS
from lgbench.extensions import describe
from lgbench.extensions.catalog import require_declared
from lgbench.extensions.registry import Plugin, Registry


def _says_whether(tracker: contracts.Tracker) -> Outcome:
    before = set(sys.modules)
    why = tracker.missing()
    new = ", ".join(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
    one_line = why is None or isinstance(why, str) and bool(why.strip()) and "\n" not in why.strip()
    expect(one_line, f"`missing` returned {why!r}, expected one line or None")
    expect(not new, f"`missing` imports {new}, which `--track` waits for: look for modules by importlib.util.find_spec")
    return f"it cannot be used here: {why}" if why else None


def _has_simple_options(executor: contracts.Executor) -> None:
    for name, kind in option_types(executor).items():
        simple = {str, int, float, bool, type(None)} >= set(get_args(kind) or (kind,))
        expect(simple, f"the option {name} has the type {kind}, expected str, int, float, bool or None")


def checks_of_plugin(plugin: Plugin, registry: Registry) -> list[Check]:
    """Checks of a plugin: that it loads, and the checks of all its objects."""
    own = [Check(f"plugin {plugin.name}", "loads quickly and prints nothing", lambda: _loads(plugin))]
    catalogs = registry.catalogs()
    for kind, names in plugin.provides.items():
        label = f"~{plugin.distribution.stamp}" if plugin.distribution.stamp else ""
        for name in names:
            try:
                own += checks_of(catalogs[kind][name + label], registry)
            except LgbenchError as clash:
                own.append(Check(f"{kind} {name}", "no other plugin has its name", partial(expect, False, str(clash))))
    return own


def checks_of(thing: Any, registry: Registry) -> list[Check]:
    """Checks of one object from a plugin, with further parts from the registry."""
    kinds = [catalog.kind for catalog in registry.catalogs().values() if isinstance(thing, catalog.contract)]
    if not kinds:
        raise TypeError(f"{thing!r} is nothing that a plugin provides: give an object of lgbench.Task, lgbench.NormScheme, ...")
    contract = registry.catalogs()[kinds[0]].contract
    found: dict[str, Any] = {"it has what its contract declares": lambda: require_declared(thing, contract)}
    try:
        require_declared(thing, contract)
    except PluginError:
        pass  # one check reports it; the others need what is missing
    else:
        found |= {"a docstring describes it": lambda: _is_documented(thing), **_checks(thing, registry)}
        if isinstance(thing, contracts.Architecture) or kinds[0] in OPTION_SECTIONS:
            found["its keywords are options"] = lambda: keywords_without_option(thing, registry.catalogs()[kinds[0]])
    name = getattr(thing, "name", type(thing).__name__)
    return [Check(f"{kinds[0]} {name}", rule, examine) for rule, examine in found.items()]


def _checks(thing: Any, registry: Registry) -> Checks:
    own = checks_of_options(thing) if isinstance(thing, contracts.Configurable) else {}
    match thing:
        case contracts.Task():
            return checks_of_task(thing)
        case contracts.Architecture():
            return checks_of_architecture(thing, lambda: _own_parts(thing, registry))
        case contracts.NormScheme():
            return {**own, **checks_of_norm(thing), **_in_models("norm", thing, registry)}
        case contracts.Attention():
            return {**own, **checks_of_attention(thing), **_in_models("attention", thing, registry)}
        case contracts.Position():
            return {**own, **checks_of_position(thing), **_in_models("position", thing, registry)}
        case contracts.Optimizer():
            return {**own, **checks_of_optimizer(thing)}
        case contracts.Averager():
            return {**own, **checks_of_averager(thing)}
        case contracts.Measurement():
            return checks_of_measurement(thing, list(registry.tasks))
        case contracts.Tracker():
            return {"it says in a sentence whether it can be used, and imports nothing for that": lambda: _says_whether(thing)}
        case contracts.Executor():
            return {"its options are fields with simple types": lambda: _has_simple_options(thing)}
    raise NotImplementedError(type(thing))


def _in_models(kind: str, part: Any, registry: Registry) -> Checks:
    """Checks of a model with this part."""
    takers = [each for each in registry.architectures if kind in each.defaults]
    takers.sort(key=lambda architecture: architecture.name != contracts.BASELINE)

    def build(signature: Any) -> Any:
        if not takers:
            raise NotChecked(f"no architecture is installed that takes a part of the kind {kind}")
        return takers[0].build(signature, _own_parts(takers[0], registry, **{kind: part}))

    title = takers[0].name if takers else "a model"
    return {f"in {title}: {rule}": examine for rule, examine in checks_of_model(build).items()}


def _own_parts(architecture: contracts.Architecture, registry: Registry, **named: Any) -> contracts.Parts:
    """Default parts of an architecture, except the named parts. Raises NotChecked for a part that is not installed."""
    catalogs, own = registry.catalogs(), architecture.defaults
    parts: dict[str, Any] = dict.fromkeys(contracts.PART_KINDS)
    try:
        parts |= {kind: catalogs[kind][own[kind]] for kind in contracts.PART_KINDS if kind in own and kind not in named}
    except LgbenchError as missing:
        raise NotChecked(str(missing)) from missing
    return contracts.Parts(**(parts | named), train_positions=TRAINED, test_positions=TESTED)


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
