"""The parts of the reference that are made from what is installed, so that they are never out of date.

Each function in `SECTIONS` returns Markdown. It uses the contracts, the protocols and the columns of run files, and no name of
any plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import groupby
from typing import Any, get_type_hints

from command_line import commands
from mkdocs.exceptions import PluginError
from tables import prose, table

from lgbench import Task
from lgbench.checkout import ROOT
from lgbench.claims.claim import Claim, ClaimTest, Runs, Source, read_claims
from lgbench.experiment.protocols import PROTOCOLS, Protocol
from lgbench.extensions import describe
from lgbench.extensions.registry import Registry
from lgbench.results.file_format import SCHEMA

MANY_TASKS = 3
"""A family with more tasks shows one context of each."""

REGISTRY = Registry.load()
if problems := REGISTRY.problems():
    raise PluginError("\n".join(problems))


def tasks() -> str:
    """A heading for every family: its rule, its sizes, what each protocol spends on it, and drawn contexts with p*."""
    ordered = sorted(REGISTRY.tasks, key=lambda task: (task.family, task.name))
    return "\n".join(_family(name, list(own)) for name, own in groupby(ordered, key=lambda task: task.family))


def things(kind: str) -> str:
    """A heading for everything of one kind: what it says of itself, and its options."""
    origins = {name: plugin.distribution.name for plugin in REGISTRY.plugins for name in plugin.provides.get(kind, ())}
    return "\n".join(_thing(kind, thing, origins[thing.name]) for thing in _sorted(REGISTRY.catalogs()[kind]))


def measurements() -> str:
    """A heading for every measurement: its definition, its range and its threshold."""
    return "\n".join(_measurement(each) for each in _sorted(REGISTRY.catalogs()["measurement"]))


def _measurement(each: Any) -> str:
    better = describe.direction(each)
    kept = "has none" if each.threshold is None else f"ends where the mean is no longer {better} than {each.threshold:g}"
    facts = f"Version {each.version}. Values: {describe.value_range(each)}; {better} is better. The effective length {kept}."
    return f"### {each.name}\n\n{prose(describe.about(each))}\n\n{facts}\n"


def protocols() -> str:
    """A table of the protocols: a line for every setting."""
    own = list(PROTOCOLS.values())
    about = "\n".join(f"- `{protocol.name}`: {prose(protocol.about)}." for protocol in own)
    settings = [describe.protocol_settings(protocol) for protocol in own]
    rows = [[f"`{name}`", *(_value(each[name]) for each in settings)] for name in settings[0]]
    return f"{about}\n\n{table(['setting', *(protocol.name for protocol in own)], rows)}"


def columns(described: str) -> str:
    """A table of the columns of run files. `described` says what each means, as `name = meaning; name = meaning`."""
    meanings = dict(each.strip().split(" = ", 1) for each in described.split(";"))
    if list(meanings) != SCHEMA.names:
        raise PluginError(f"the page describes the columns {', '.join(meanings)}; run files have {', '.join(SCHEMA.names)}")
    return table(["column", "type", "meaning"], [[f"`{c.name}`", f"`{c.type}`", meanings[c.name]] for c in SCHEMA])


def _family(name: str, own: list[Task]) -> str:
    first = own[0]
    parts = [f"## {name}\n", prose(describe.docstring(first)), "", _sizes(own), ""]
    if any(task.about for task in own):
        parts += [table(["task", "rule"], [[f"`{task.name}`", prose(task.about)] for task in own]), ""]
    parts += ["What each protocol spends on it, and the longest context that it tests:\n", _budgets(own), ""]
    parts += [f"Contexts drawn with seed 0, and p\\* after them{'' if len(own) == 1 else ', one or more of each task'}:\n"]
    parts += [_samples(own), ""]
    return "\n".join(parts)


def _sizes(own: list[Task]) -> str:
    rows = []
    for task in own:
        reads, trained, signature = describe.reads(task), describe.trained_lengths(task), task.signature
        model = ", ".join(f"{key}={describe.setting(value)}" for key, value in task.model.items()) or "the architecture's own"
        rows.append([f"`{task.name}`", task.version, reads, signature.classes, signature.answers.value, trained, model])
    return table(["task", "version", "reads", "classes", "answers", "trained on lengths", "model sizes"], rows)


def _budgets(own: list[Task]) -> str:
    rows = []
    for protocol in PROTOCOLS.values():
        for key, same in groupby(own, key=lambda task: _budget(protocol, task)):
            names = [task.name for task in same]
            whom = "all" if len(names) == len(own) else ", ".join(f"`{name}`" for name in names)
            rows.append([protocol.name, whom, *key])
    return table(["protocol", "tasks", "steps", "contexts per step", "learning rate", "tested to length"], rows)


def _budget(protocol: Protocol, task: Task) -> tuple[str, ...]:
    train, evaluate = protocol.settings(task)
    return f"{train.steps:,}", str(train.batch), describe.learning_rate(protocol, train), f"{evaluate.max_length:,}"


def _samples(own: list[Task]) -> str:
    rows = []
    for task in own:
        for sample in describe.samples(task)[: 1 if len(own) > MANY_TASKS else None]:
            rows.append([f"`{task.name}`", f"`{sample.context}`", _answers(sample)])
    return table(["task", "context", "p\\* of what follows"], rows)


def _answers(sample: describe.Sample) -> str:
    more = [f"and {sample.left_out} more"] if sample.left_out else []
    return ", ".join([*(f"`{name}` {p:.3g}" for name, p in sample.answers), *more])


def _thing(kind: str, thing: Any, origin: str) -> str:
    lines = [f"### {thing.name}\n", prose(describe.about(thing)), ""]
    lines.append(f"Comes with `{origin}`.")
    if kind == "architecture":
        if thing.about:
            lines.insert(2, f"\n{prose(describe.docstring(thing))}\n")
        parts = [f"{name} `{part}`" for name, part in thing.defaults.items()]
        lines.append(f"Parts where an entry names none: {', '.join(parts)}." if parts else "It takes no parts.")
    if options := describe.options(kind, thing):
        lines.append("Options: " + ", ".join(f"`{name}={value}`" for name, value in options.items()) + ".")
    return "\n".join([*lines, ""])


def _sorted(catalog: Iterable[Any]) -> list[Any]:
    return sorted(catalog, key=lambda thing: str(thing.name))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(_value, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def claims() -> str:
    """The keys of a claim's file, a table for each of its tables."""
    parts = []
    for title, kind in {"At the top": Claim, "`[source]`": Source, "`[runs]`": Runs, "`[[tests]]`": ClaimTest}.items():
        hints, rows = get_type_hints(kind, include_extras=True), []
        for key in fields(kind):
            meaning = [meta.description for meta in getattr(hints[key.name], "__metadata__", ()) if meta.description]
            rows += [[f"`{key.name}`", "yes" if key.default is MISSING else "", meaning[-1]]] if meaning else []
        parts.append(f"### {title}\n\n{table(['key', 'required', 'meaning'], rows)}\n")
    return "\n".join(parts)


def published() -> str:
    """The claims of the repository."""
    found = read_claims(ROOT / "leaderboards" / "claims")
    return table(
        ["name", "claim", "source"], [[f"`{each.name}`", prose(each.claim), prose(str(each.source))] for each in found]
    )


SECTIONS: Mapping[str, Callable[..., str]] = {
    "tasks": tasks,
    "things": things,
    "measurements": measurements,
    "protocols": protocols,
    "columns": columns,
    "claims": claims,
    "published": published,
    "commands": commands,
}
