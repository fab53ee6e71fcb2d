"""Components of an experiment: the objects behind the names of a user or a record, and the plugins that provide them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lgbench.contracts import BASELINE, NO_NORM, PART_KINDS, Answers, Measurement, Task
from lgbench.errors import LgbenchError, PluginError, Unsupported, UsageError, located, message_of, unknown
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.protocols import protocol_named
from lgbench.experiment.record import ExperimentRecord, PluginUse
from lgbench.extensions.loading import BUILT_IN, Distribution
from lgbench.extensions.registry import Found, Registry, not_installed


def families_of(registry: Registry) -> dict[str, list[str]]:
    """Names of the tasks of each family, as in results: those of a plugin file end with its hash."""
    found: dict[str, list[str]] = {}
    for task in map(registry.tasks.found, registry.tasks.names()):
        found.setdefault(family_of(task), []).append(task.label)
    return found


def find_tasks(names: Iterable[str], registry: Registry) -> list[Found[Task]]:
    """Tasks by name. A family's name stands for all its tasks, `all` for every task.

    The hash of a plugin file after a name, as in results, selects the tasks of that file.
    """
    found: dict[str, Found[Task]] = {}
    every = [registry.tasks.found(name) for name in registry.tasks.names()]
    for name in names:
        members = [each for each in every if name in ("all", each.thing.family, family_of(each))]
        if not members:
            if registry.tasks.get(name) is None:
                raise not_installed(
                    "task", name, {"all", *(own for task in registry.tasks for own in (task.name, task.family))}
                )
            members = [registry.tasks.found(name)]
        found |= {each.label: each for each in members}
    return list(found.values())


Components = Mapping[str, Found[Any]]
"""Objects of an experiment by kind: task, architecture, each kind of part, optimizer; and averagers, as in averager:ema."""


def find_entries(names: Iterable[str], registry: Registry) -> dict[str, Components]:
    """Architectures and parts by their names on boards. A given name is an architecture and parts in any order, joined by +.

    The default architecture is the baseline, and each default part is the architecture's own. Raises UsageError for unknown
    names, two parts of one kind, and parts of a kind unknown to the architecture.
    """
    return {_label(entry): entry for entry in (_entry(name, registry) for name in names)}


def _label(entry: Components) -> str:
    """Name on boards: the architecture, its norm, and each part other than the architecture's default.

    The default norm `no-norm`, as of a recurrent network, is not named.
    """
    architecture, parts = entry["architecture"], {kind: entry[kind].label for kind in PART_KINDS if kind in entry}
    own = architecture.thing.defaults
    named = [part for kind, part in parts.items() if part != own[kind] or (kind == "norm" and part != NO_NORM)]
    return "+".join([architecture.label, *named])


def _entry(name: str, registry: Registry) -> Components:
    first, *others = name.split("+")
    if not all((first, *others)):
        raise UsageError(f"{name!r} lacks a name beside a +; parts are joined as in transformer+peri-norm")
    if registry.architectures.get(first) is None:
        _kind_of(first, registry, "architecture")  # raises for an unknown name
        first, others = BASELINE, [first, *others]
    architecture = registry.architectures.found(first)
    parts = dict(architecture.thing.defaults)
    named: dict[str, str] = {}
    for part in others:
        kind = _kind_of(part, registry)
        if kind in named:
            raise UsageError(f"{name!r} names two {kind}s, {named[kind]} and {part}; a model has one")
        if kind not in parts:
            takes = ", ".join(kind for kind in PART_KINDS if kind in parts) or "none"
            raise UsageError(f"{name!r} is impossible: {first} takes no {kind}; parts that it takes: {takes}")
        named[kind] = parts[kind] = part
    catalogs = registry.catalogs()
    return {"architecture": architecture, **{kind: catalogs[kind].found(parts[kind]) for kind in PART_KINDS if kind in parts}}


def _kind_of(part: str, registry: Registry, *others: str) -> str:
    """Kind of the part with this name. Raises UsageError for none or several; `others` are further kinds to suggest."""
    catalogs = registry.catalogs()
    kinds = [kind for kind in PART_KINDS if catalogs[kind].get(part) is not None]
    if len(kinds) > 1:
        several = " and of ".join(f"an {kind}" if kind == "attention" else f"a {kind}" for kind in kinds)
        raise UsageError(f"{part!r} is the name of {several}; rename one of them or leave its plugin out")
    if not kinds and registry.architectures.get(part) is not None:
        raise UsageError(f"{part!r} is an architecture, and only the first name of an entry may be one")
    if not kinds:
        expected = (*others, *PART_KINDS)
        known = [name for kind in expected for name in catalogs[kind].names()]
        raise not_installed(f"{', '.join(expected[:-1])} or {expected[-1]}", part, known)
    return kinds[0]


ALL, NONE = "all", "none"
"""Choices of probes besides names."""


def is_probe(measurement: Measurement) -> bool:
    """Whether a measurement is computed from the internals of a model."""
    return type(measurement).of_internals is not Measurement.of_internals


def is_defined(probe: Measurement, task: Task) -> bool:
    """Whether a probe is defined for a task. A probe with an error in `source` counts as undefined."""
    try:
        return probe.source(task) is not None
    except Exception:  # the code of a measurement may raise anything; `lgbench check` reports it
        return False


def chosen_probes(asked: Sequence[str], measurements: Iterable[Measurement]) -> frozenset[str]:
    """Names of the requested probes. Raises UsageError for any other name."""
    names, known = list(dict.fromkeys(asked)), {measurement.name: is_probe(measurement) for measurement in measurements}
    probes = frozenset(name for name, probe in known.items() if probe)
    if {ALL, NONE} & {*names} and len(names) > 1:
        raise UsageError(f"--probe names {', '.join(names)}: use {ALL} or {NONE} alone, or names of probes")
    if not names or names == [NONE]:
        return frozenset()
    if names == [ALL]:
        return probes
    for name in names:
        if name in known and name not in probes:
            others = ", ".join(sorted(probes))
            raise UsageError(f"{name} is no probe, and every run has it: leave it out of --probe; probes: {others}")
        if name not in probes:
            raise unknown("probe", name, {*probes, ALL, NONE})
    return frozenset(names)


def takes_part(measurement: Measurement, task: Task, chosen: frozenset[str]) -> bool:
    """Whether a run on a task has a measurement: always, except for probes, which must be chosen and defined for the task.

    Raises PluginError for sequences of a task with an answer at every prefix, or an error in `source`.
    """
    if is_probe(measurement):
        return measurement.name in chosen and is_defined(measurement, task)
    try:
        source = measurement.source(task)
    except Exception as error:  # the code of a measurement may raise anything
        raise PluginError(f"the source of {measurement.name} failed on {task.name}: {located(error)}") from error
    if source == "sequences" and task.signature.answers is Answers.EVERY_PREFIX:
        raise PluginError(
            f"the source of {measurement.name} on {task.name} is sequences, and each of its answers has a length of its own: "
            "give None there"
        )
    return True


def undefined(chosen: frozenset[str], measurements: Iterable[Measurement], tasks: Sequence[Task]) -> list[str]:
    """Sentence for each chosen probe without a task in `tasks`."""
    probes = [each for each in measurements if each.name in chosen and not any(is_defined(each, task) for task in tasks)]
    names = ", ".join(task.name for task in tasks)
    return [f"the probe {name} is not defined for {names}" for name in sorted(probe.name for probe in probes)]


def components_of(record: ExperimentRecord, registry: Registry) -> Components:
    """Components with the names in a record. Raises UsageError for a name without a loaded plugin."""
    names = {kind: getattr(record, kind) for kind in ("task", "architecture", *PART_KINDS, "optimizer")}
    catalogs = registry.catalogs()
    found = {kind: catalogs[kind].found(name) for kind, name in names.items() if name is not None}
    return found | {f"averager:{name}": registry.averagers.found(name) for name in record.averagers}


def family_of(task: Found[Task]) -> str:
    """Label of a task's family in results. An unlisted task is a family of its own."""
    if not task.listed:  # as one of its family, the task would be asked of every entry on the family's board
        return task.label
    return task.label.replace(task.thing.name, task.thing.family, 1)  # the label of a task from a file ends with a hash


def experiment_of(
    record: ExperimentRecord,
    components: Components,
    measurements: Iterable[Found[Measurement]],
    probes: frozenset[str],
    positions: dict[int, int],
) -> Experiment:
    """Experiment of a record, with these measurements, probes only if named in `probes` and defined for the task.

    Raises Unsupported if a part or the optimizer rejects its options, and PluginError as :func:`takes_part`.
    """
    task = components["task"].thing
    measured = [each for each in measurements if takes_part(each.thing, task, probes)]
    origins = {each.origin for each in components.values()}
    return Experiment(
        record=record,
        task=task,
        architecture=components["architecture"].thing,
        parts={kind: _configured(kind, part, record) for kind, part in components.items() if kind in PART_KINDS},
        optimizer=_configured("optimizer", components["optimizer"], record),
        averagers={each.label: each.thing for kind, each in components.items() if kind.startswith("averager:")},
        measurements=tuple(measurement.thing for measurement in measured),
        plugins=versions_of(*components.values()),
        measured_by=versions_of(*measured),
        libraries={f"{name} of {each.name}": version for each in origins for name, version in each.libraries.items()},
        positions=positions,
    )


def experiments_of(
    records: Iterable[ExperimentRecord], measurements: Sequence[str], registry: Registry
) -> Iterator[Experiment]:
    """Experiments of records from another process. `measurements` are names.

    Raises UsageError if a record has a different run id with the plugins of this process.
    """
    known: dict[ExperimentRecord, Experiment] = {}
    positions: dict[str, dict[int, int]] = defaultdict(dict)
    for record in records:
        kind = record.with_seed(0)  # objects are made once for all seeds
        if kind not in known:
            found = components_of(record, registry)
            here = replace(
                record,
                family=family_of(found["task"]),
                task_version=found["task"].thing.version,
                protocol=replace(record.protocol, version=protocol_named(record.protocol.name).version),
                plugins=plugins_used(found, registry.loaded()),
            )
            if here.run_id != record.run_id:
                raise UsageError(
                    f"{record.title} would be another run here than where it was planned: install the same lgbench and plugins"
                )
            measured = map(registry.measurements.found, measurements)
            known[kind] = experiment_of(record, found, measured, frozenset(measurements), positions[record.task])
        yield known[kind].with_seed(record.seed)


def versions_of(*found: Found[Any]) -> dict[str, str]:
    """Versions of the distributions behind these objects, by name; hashes for plugin files."""
    return {each.origin.name: each.origin.version for each in found}


def plugins_used(components: Components, loaded: Iterable[Distribution]) -> tuple[PluginUse, ...]:
    """Distributions whose code decides the numbers, for the record; with lgbench itself if its checkout has changes.

    Without changes, the versions of tasks and protocols identify the numbers of lgbench.
    """
    kinds: dict[Distribution, set[str]] = {each: {"lgbench"} for each in loaded if each.name == BUILT_IN}
    for kind, each in components.items():
        kinds.setdefault(each.origin, set()).add(kind)
    used = [PluginUse(each.name, each.version, each.source, tuple(sorted(own))) for each, own in kinds.items() if each.source]
    return tuple(sorted(used, key=lambda plugin: plugin.name))


def _configured(section: str, found: Found[Any], record: ExperimentRecord) -> Any:
    """Object with its options set, or unchanged without options. Raises Unsupported with the names of rejected options."""
    own = {key: value for key, value in record.options if key.startswith(f"{section}.")}
    if not own:
        return found.thing
    try:
        return found.thing.configured(**{key.removeprefix(f"{section}."): value for key, value in own.items()})
    except Exception as error:  # the code of a part or an optimizer may raise anything
        changed = dict(record.protocol.changes)
        asked = {key: value for key, value in own.items() if key in changed} or own
        named = " and ".join(f"{key}={value}" for key, value in asked.items())
        raise Unsupported(f"{found.label} cannot have {named}: {reason(error, '`configured`')}") from error


def reason(error: Exception, doing: str) -> str:
    """Reason, from an error, for an impossible pair of task and entry."""
    known = isinstance(error, LgbenchError)  # its message is a sentence already
    return str(error) if known else f"{doing} failed with {message_of(error)}"
