"""Components of an experiment: the objects that the names in its record mean, and the plugins that provide them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lgbench.contracts import PART_KINDS, Averager, Measurement, Optimizer, Task
from lgbench.errors import LgbenchError, Unsupported, UsageError, first_line
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.names import Entry
from lgbench.experiment.probes import takes_part
from lgbench.experiment.protocols import protocol_named
from lgbench.experiment.record import ExperimentRecord, PluginUse
from lgbench.extensions.catalog import Found
from lgbench.extensions.loading import BUILT_IN, Distribution
from lgbench.extensions.registry import Registry


@dataclass(frozen=True)
class Components:
    """Task, model, optimizer and averagers of an experiment, each with the plugin that provides it."""

    task: Found[Task]
    entry: Entry
    optimizer: Found[Optimizer]
    averagers: tuple[Found[Averager], ...]

    @classmethod
    def of(cls, record: ExperimentRecord, registry: Registry) -> Components:
        """Components with the names in a record. Raises UsageError for a name that no loaded plugin provides."""
        names = {kind: getattr(record, kind) for kind in PART_KINDS}
        catalogs = registry.catalogs()
        parts = {kind: catalogs[kind].found(name) for kind, name in names.items() if name is not None}
        return cls(
            registry.tasks.found(record.task),
            Entry(registry.architectures.found(record.architecture), parts),
            registry.optimizers.found(record.optimizer),
            tuple(map(registry.averagers.found, record.averagers)),
        )

    @property
    def family(self) -> str:
        """Label of the task's family."""
        return self.task.label.replace(self.task.thing.name, self.task.thing.family, 1)

    def plugins(self, loaded: Iterable[Distribution]) -> tuple[PluginUse, ...]:
        """Distributions that decide the numbers, for the record."""
        averagers = ((f"averager:{averager.label}", averager) for averager in self.averagers)
        own: list[tuple[str, Found[Any]]] = [("task", self.task), ("architecture", self.entry.architecture)]
        return plugins_used([*own, *self.entry.parts.items(), ("optimizer", self.optimizer), *averagers], loaded)

    def experiment(
        self, record: ExperimentRecord, measurements: Iterable[Found[Measurement]], positions: dict[int, int]
    ) -> Experiment:
        """Experiment of a record. Raises Unsupported for a part or an optimizer that rejects its options."""
        parts: Iterable[Found[Any]] = self.entry.parts.values()
        found: list[Found[Any]] = [self.task, self.entry.architecture, *parts, self.optimizer, *self.averagers]
        measured = list(measurements)
        libraries = {f"{name} of {e.origin.name}": version for e in found for name, version in e.origin.libraries.items()}
        return Experiment(
            record=record,
            task=self.task.thing,
            architecture=self.entry.architecture.thing,
            parts={kind: _configured(kind, part, record) for kind, part in self.entry.parts.items()},
            optimizer=_configured("optimizer", self.optimizer, record),
            averagers={averager.label: averager.thing for averager in self.averagers},
            measurements=tuple(measurement.thing for measurement in measured),
            plugins=versions_of(*found),
            measured_by=versions_of(*measured),
            libraries=libraries,
            positions=positions,
        )


def experiments_of(
    records: Iterable[ExperimentRecord], measurements: Sequence[str], registry: Registry
) -> Iterator[Experiment]:
    """Experiments of records that were planned in another process. `measurements` are names.

    Raises UsageError where the plugins of this process make another run of a record.
    """
    known: dict[ExperimentRecord, Experiment] = {}
    positions: dict[str, dict[int, int]] = defaultdict(dict)
    for record in records:
        kind = record.with_seed(0)  # objects are made once for all seeds
        if kind not in known:
            found = Components.of(record, registry)
            here = replace(
                record,
                family=found.family,
                task_version=found.task.thing.version,
                protocol=replace(record.protocol, version=protocol_named(record.protocol.name).version),
                plugins=found.plugins(registry.loaded()),
            )
            if here.run_id != record.run_id:
                raise UsageError(
                    f"{record.title} would be another run here than where it was planned: install the same lgbench and plugins"
                )
            named, task = map(registry.measurements.found, measurements), found.task.thing
            measured = [each for each in named if takes_part(each.thing, task, frozenset(measurements))]
            known[kind] = found.experiment(record, measured, positions[record.task])
        yield known[kind].with_seed(record.seed)


def versions_of(*found: Found[Any]) -> dict[str, str]:
    """Versions of the distributions that provide these objects, by name; of plugin files their hashes."""
    return {each.origin.name: each.origin.version for each in found}


def plugins_used(components: Iterable[tuple[str, Found[Any]]], loaded: Iterable[Distribution]) -> tuple[PluginUse, ...]:
    """Distributions that decide numbers: the providers of these objects, given with their kinds, and a changed lgbench.

    lgbench takes part only in a checkout with changes; otherwise the versions of tasks and protocols identify its numbers.
    """
    kinds: dict[Distribution, set[str]] = {each: {"lgbench"} for each in loaded if each.name == BUILT_IN}
    for kind, each in components:
        kinds.setdefault(each.origin, set()).add(kind)
    used = [PluginUse(each.name, each.version, each.source, tuple(sorted(own))) for each, own in kinds.items() if each.source]
    return tuple(sorted(used, key=lambda plugin: plugin.name))


def _configured(section: str, found: Found[Any], record: ExperimentRecord) -> Any:
    """Object with its options; unchanged where it has none. Raises Unsupported, naming the options."""
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
    """Reason that an error gives for an impossible pair of task and entry."""
    known = isinstance(error, LgbenchError)  # its message is a sentence already
    return str(error) if known else f"{doing} failed with {type(error).__name__}: {first_line(error)}"
