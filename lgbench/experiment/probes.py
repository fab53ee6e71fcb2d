"""Which probes a run has: those that `--probe` names, out of the measurements that are computed from a model's insides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lgbench.contracts import Measurement, Task
from lgbench.errors import UsageError, unknown

ALL, NONE = "all", "none"


def is_probe(measurement: Measurement, task: Task) -> bool:
    """Whether a measurement is computed from what is inside a model on a task. One that cannot say is none."""
    try:
        return measurement.source(task) == "insides"
    except Exception:  # the code of a measurement may raise anything; testing reports it
        return False


def probe_names(measurements: Mapping[str, Measurement], tasks: Iterable[Task]) -> frozenset[str]:
    """The names of the measurements that are computed from insides on any of these tasks, which are all that are known."""
    known = list(tasks)
    return frozenset(name for name, each in measurements.items() if any(is_probe(each, task) for task in known))


def chosen_probes(asked: Sequence[str], measurements: Mapping[str, Measurement], probes: frozenset[str]) -> frozenset[str]:
    """The names of the probes that are asked for, out of all. Raises UsageError for a name that is no probe's."""
    names = list(dict.fromkeys(asked))
    if {ALL, NONE} & {*names} and len(names) > 1:
        raise UsageError(f"--probe names {', '.join(names)}: use {ALL} or {NONE} alone, or names of probes")
    if not names or names == [NONE]:
        return frozenset()
    if names == [ALL]:
        return probes
    for name in names:
        if name in measurements and name not in probes:
            others = ", ".join(sorted(probes))
            raise UsageError(f"{name} is no probe, and every run has it: leave it out of --probe; probes: {others}")
        if name not in probes:
            raise unknown("probe", name, sorted(probes))
    return frozenset(names)


def takes_part(measurement: Measurement, task: Task, chosen: frozenset[str], probes: frozenset[str]) -> bool:
    """Whether a run on a task has a measurement: all that are no probes, and the probes that are chosen and defined there."""
    if is_probe(measurement, task):
        return measurement.name in chosen
    return measurement.name not in probes or measurement.source(task) is not None


def undefined(probes: Iterable[str], measurements: Mapping[str, Measurement], tasks: Sequence[Task]) -> list[str]:
    """A sentence for each of these probes that none of these tasks has."""
    found = sorted(name for name in probes if not any(is_probe(measurements[name], task) for task in tasks))
    return [f"the probe {name} is not defined for {', '.join(task.name for task in tasks)}" for name in found]
