"""All checks of an object, or of all objects from a plugin."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import UnionType
from typing import Any, Union, get_args, get_origin

import lgbench.contracts as contracts
from lgbench.conformance.architectures import ARCHITECTURES, OPTIONS
from lgbench.conformance.check import Check, Checks, NotChecked, Outcome, Rules, expect
from lgbench.conformance.measurements import MEASUREMENTS
from lgbench.conformance.models import MODEL, TESTED, TRAINED
from lgbench.conformance.parts import ATTENTIONS, NORMS, POSITION_CODES
from lgbench.conformance.tasks import TASKS
from lgbench.conformance.updates import AVERAGERS, OPTIMIZERS
from lgbench.contracts.training import option_types
from lgbench.errors import LgbenchError, PluginError
from lgbench.extensions import commands, describe
from lgbench.extensions.registry import Plugin, Registry, require_declared

LOGGERS = Rules[[contracts.Logger]]()
EXECUTORS = Rules[[contracts.Executor]]()


def _loads(plugin: Plugin) -> None:
    expect(plugin.error is None, str(plugin.error))
    expect(not plugin.notes, "; ".join(plugin.notes))
    version = plugin.distribution.version
    # Setuptools writes 0.0.0 where no version is stated.
    expect(version not in ("", "0", "0.0.0"), f"its package has the version {version!r}, and results name plugins by version")


def _is_documented(thing: Any) -> None:
    said = describe.about(thing).strip()
    generated = said.startswith(f"{type(thing).__name__}(")  # by dataclass
    expect(bool(said) and not generated, "it has no docstring: say what it is, with the equation and its source")


@LOGGERS.rule("it says in a sentence whether it can be used, and imports nothing for that")
def _says_whether(logger: contracts.Logger) -> Outcome:
    before = set(sys.modules)
    why = logger.missing()
    new = ", ".join(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
    one_line = why is None or isinstance(why, str) and bool(why.strip()) and "\n" not in why.strip()
    expect(one_line, f"`missing` returned {why!r}, expected one line or None")
    expect(not new, f"`missing` imports {new}, which `--logger` waits for: look for modules by importlib.util.find_spec")
    return f"it cannot be used here: {why}" if why else None


@EXECUTORS.rule("its options are fields with simple types")
def _has_simple_options(executor: contracts.Executor) -> None:
    for name, kind in option_types(executor).items():
        kinds = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
        simple = {str, int, float, bool, type(None)} >= kinds
        expect(simple, f"the option {name} has the type {kind}, expected str, int, float, bool or None")


RULES: Mapping[str, Rules[[Any]]] = {
    "task": TASKS,
    "norm": NORMS,
    "attention": ATTENTIONS,
    "position": POSITION_CODES,
    "optimizer": OPTIMIZERS,
    "averager": AVERAGERS,
    "logger": LOGGERS,
    "executor": EXECUTORS,
}
"""Rules of the kinds whose objects are checked alone."""


def checks_of_plugin(plugin: Plugin, registry: Registry) -> list[Check]:
    """Checks of a plugin: that it loads, and the checks of all its objects."""
    own = [Check(f"plugin {plugin.name}", "loads quickly and prints nothing", partial(_loads, plugin))]
    catalogs = registry.catalogs()
    label = f"~{plugin.distribution.stamp}" if plugin.distribution.stamp else ""
    for kind, name in ((kind, name) for kind, names in plugin.provides.items() for name in names):
        try:
            own += checks_of(catalogs[kind][name + label], registry)
            catalogs[kind].found(name)  # without the label of a file
        except LgbenchError as clash:
            own.append(Check(f"{kind} {name}", "no other plugin has its name", partial(expect, False, str(clash))))
    return own


def checks_of_commands(names: Iterable[str], built_in: Collection[str]) -> list[Check]:
    """Checks of commands from plugins. `built_in` are the names that they must not have."""
    rule = "it loads, has a help text, and no other command has its name"
    return [Check(f"command {name}", rule, partial(_can_be_used, name, built_in)) for name in names]


def _can_be_used(name: str, built_in: Collection[str]) -> None:
    command = commands.command(name, built_in)
    expect(bool(command and command.help), "it has no help text: write a docstring")


def checks_of(thing: Any, registry: Registry) -> list[Check]:
    """Checks of one object from a plugin, with further parts from the registry."""
    catalogs = [catalog for catalog in registry.catalogs().values() if isinstance(thing, catalog.contract)]
    if not catalogs:
        remedy = f"call the class, as in {thing.__name__}()" if isinstance(thing, type) else "give a task, a norm scheme, ..."
        raise TypeError(f"{thing!r} is nothing that a plugin provides: {remedy}")
    catalog = catalogs[0]
    declared = partial(require_declared, thing, catalog.contract)
    found: dict[str, Any] = {"it has what its contract declares": declared}
    try:
        declared()
    except PluginError:
        pass  # one check reports it; the others need what is missing
    else:
        found |= {"a docstring describes it": partial(_is_documented, thing), **_checks(catalog.kind, thing, registry)}
    name = getattr(thing, "name", type(thing).__name__)
    return [Check(f"{catalog.kind} {name}", rule, examine) for rule, examine in found.items()]


def _checks(kind: str, thing: Any, registry: Registry) -> Checks:
    if isinstance(thing, contracts.Measurement):
        return MEASUREMENTS.checks(thing, list(registry.tasks))
    if isinstance(thing, contracts.Architecture):
        parts = partial(_own_parts, thing, registry)
        return {**ARCHITECTURES.checks(thing, parts), **MODEL.checks(lambda signature: thing.build(signature, parts()))}
    own = OPTIONS.checks(thing) if isinstance(thing, contracts.Configurable) else {}
    within = _in_models(kind, thing, registry) if kind in contracts.PART_KINDS else {}
    return {**own, **RULES[kind].checks(thing), **within}


def _in_models(kind: str, part: Any, registry: Registry) -> Checks:
    """Checks of a model with this part."""
    takers = [each for each in registry.architectures if kind in each.defaults]
    takers.sort(key=lambda architecture: architecture.name != contracts.BASELINE)

    def build(signature: Any) -> Any:
        if not takers:
            raise NotChecked(f"no architecture is installed that takes a part of the kind {kind}")
        return takers[0].build(signature, _own_parts(takers[0], registry, **{kind: part}))

    title = takers[0].name if takers else "a model"
    return {f"in {title}: {rule}": examine for rule, examine in MODEL.checks(build).items()}


def _own_parts(architecture: contracts.Architecture, registry: Registry, **named: Any) -> contracts.Parts:
    """Default parts of an architecture, except the named parts. Raises NotChecked for a part that is not installed."""
    catalogs, own = registry.catalogs(), architecture.defaults
    parts: dict[str, Any] = dict.fromkeys(contracts.PART_KINDS)
    try:
        parts |= {kind: catalogs[kind][own[kind]] for kind in contracts.PART_KINDS if kind in own and kind not in named}
    except LgbenchError as missing:
        raise NotChecked(str(missing)) from missing
    return contracts.Parts(**(parts | named), train_positions=TRAINED, test_positions=TESTED)
