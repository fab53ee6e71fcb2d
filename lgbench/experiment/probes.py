"""Choice of probes, the measurements computed from a model's internals, with `--probe`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lgbench.contracts import Measurement, Task
from lgbench.errors import UsageError, unknown

ALL, NONE = "all", "none"


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
            raise unknown("probe", name, sorted(probes))
    return frozenset(names)


def takes_part(measurement: Measurement, task: Task, chosen: frozenset[str]) -> bool:
    """Whether a run on a task has a measurement: always, except for probes, which must be chosen and defined for the task."""
    return not is_probe(measurement) or (measurement.name in chosen and is_defined(measurement, task))


def undefined(chosen: frozenset[str], measurements: Iterable[Measurement], tasks: Sequence[Task]) -> list[str]:
    """Sentence for each chosen probe without a task in `tasks`."""
    probes = [each for each in measurements if each.name in chosen and not any(is_defined(each, task) for task in tasks)]
    names = ", ".join(task.name for task in tasks)
    return [f"the probe {name} is not defined for {names}" for name in sorted(probe.name for probe in probes)]
