"""Which probes a run has: those that `--probe` names, out of the measurements that are computed from a model's insides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lgbench.contracts import Measurement, Task
from lgbench.errors import UsageError, unknown

ALL, NONE = "all", "none"


def is_probe(measurement: Measurement) -> bool:
    """Whether a measurement is computed from what is inside a model, where it is defined at all."""
    return type(measurement).of_insides is not Measurement.of_insides


def is_defined(probe: Measurement, task: Task) -> bool:
    """Whether a probe is defined for a task. One that cannot say is not."""
    try:
        return probe.source(task) is not None
    except Exception:  # the code of a measurement may raise anything; `lgbench check` reports it
        return False


def chosen_probes(asked: Sequence[str], measurements: Iterable[Measurement]) -> frozenset[str]:
    """The names of the probes that are asked for, out of all. Raises UsageError for a name that is no probe's."""
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
    """Whether a run on a task has a measurement: all that are no probes, and the probes that are chosen and defined there."""
    return not is_probe(measurement) or (measurement.name in chosen and is_defined(measurement, task))


def undefined(chosen: frozenset[str], measurements: Iterable[Measurement], tasks: Sequence[Task]) -> list[str]:
    """A sentence for each chosen probe that none of these tasks has."""
    probes = [each for each in measurements if each.name in chosen and not any(is_defined(each, task) for task in tasks)]
    names = ", ".join(task.name for task in tasks)
    return [f"the probe {name} is not defined for {names}" for name in sorted(probe.name for probe in probes)]
