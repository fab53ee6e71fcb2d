"""Missing runs of a claim: commands for them, and obstacles on the local installation."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from lgbench.claims.claim import Claim, ClaimTest
from lgbench.errors import LgbenchError, UsageError, unknown
from lgbench.results.entries import without_hashes

if TYPE_CHECKING:
    from lgbench.claims.verdicts import Verdict
    from lgbench.extensions.registry import Registry


@dataclass(frozen=True)
class Wanted:
    """Missing runs of one architecture on one task, one for each seed."""

    task: str
    arch: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class RunCommand:
    """Runs of one command: every combination of tasks, architectures and seeds."""

    tasks: tuple[str, ...]
    archs: tuple[str, ...]
    seeds: tuple[int, ...]
    average: tuple[str, ...]
    probes: tuple[str, ...] = ()


def wanted(claim: Claim, task: str, test: ClaimTest, present: Mapping[str, Collection[int]]) -> tuple[Wanted, ...]:
    """Missing runs of one test on a task, from the present seeds by entry."""
    found: dict[str, set[int]] = defaultdict(set)
    for entry in test.entries:
        found[entry.partition("@")[0]] |= {seed for seed in claim.runs.seeds if seed not in present.get(entry, ())}
    return tuple(Wanted(task, arch, tuple(sorted(seeds))) for arch, seeds in found.items() if seeds)


def orders(claim: Claim, lacking: Iterable[Wanted]) -> list[RunCommand]:
    """Few commands for exactly the missing runs, each run once."""
    seeds: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in lacking:
        seeds[each.task, each.arch] |= set(each.seeds)
    by_arch: dict[str, dict[tuple[int, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for (task, arch), own in seeds.items():
        by_arch[arch][tuple(sorted(own))].append(task)
    alike: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for arch, by_seeds in by_arch.items():
        for own_seeds, tasks in by_seeds.items():
            alike[own_seeds, tuple(tasks)].append(arch)
    runs = claim.runs
    return [RunCommand(tasks, tuple(archs), own, runs.average, runs.probes) for (own, tasks), archs in alike.items()]


def command(order: RunCommand, protocol: str, options: Sequence[str] = ()) -> str:
    """Shell command for the runs, with further options at its end."""
    words = ["lgbench", "run", "--task", ",".join(order.tasks), "--arch", ",".join(order.archs)]
    words += ["--seeds", _ranges(order.seeds), "--protocol", protocol]
    words += ["--average", ",".join(order.average)] if order.average else []
    words += ["--probe", ",".join(order.probes)] if order.probes else []
    return shlex.join([*words, *options])


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds in the format of `--seeds`: ranges and numbers, separated by commas.

    >>> _ranges([0, 1, 2]), _ranges([3, 5]), _ranges([4])
    ('0:3', '3,5', '4')
    """
    runs = [list(own) for _, own in groupby(seeds, key=lambda seed: seed - seeds.index(seed))]
    return ",".join(f"{own[0]}:{own[-1] + 1}" if len(own) > 2 else ",".join(map(str, own)) for own in runs)


def as_in_results(claim: Claim, registry: Registry) -> Claim:
    """Claim with its tasks and entries named as in results: names from a plugin file end with the file's hash."""

    def tasks(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(_task_in_results(name, registry) for name in names)

    def entry(name: str) -> str:
        return _entry_in_results(name, registry)

    tests = (
        replace(test, entry=entry(test.entry), against=test.against and entry(test.against), tasks=tasks(test.tasks))
        for test in claim.tests
    )
    return replace(claim, runs=replace(claim.runs, tasks=tasks(claim.runs.tasks)), tests=tuple(tests))


def _task_in_results(name: str, registry: Registry) -> str:
    """Name of a task or family in results; unchanged for an unknown name, whose obstacle is told by :func:`obstacle`."""
    from lgbench.experiment.components import family_of, find_tasks

    with suppress(LgbenchError):
        found = {label for task in find_tasks([name], registry) for label in (task.label, family_of(task))}
        own = [label for label in found if without_hashes(label) == name]
        return own[0] if len(own) == 1 else name  # an installed family keeps its name beside one of a file
    return name


def _entry_in_results(name: str, registry: Registry) -> str:
    """Name of an entry in results; unchanged for an unknown name and for a name without all parts."""
    from lgbench.experiment.components import find_entries

    arch, at, weights = name.partition("@")
    with suppress(LgbenchError):
        (shown,) = find_entries([arch], registry)
        label = f"{shown}@{registry.averagers.found(weights).label}" if at else shown
        return label if without_hashes(label) == name else name
    return name


def obstacle(claim: Claim, task: str, test: ClaimTest, registry: Registry) -> str | None:
    """Reason why a test cannot be run here, such as a missing package; None without an obstacle."""
    from lgbench.experiment.components import find_tasks  # imports torch
    from lgbench.extensions.loading import installed_version

    try:
        find_tasks([task], registry)
        for entry in test.entries:
            _require_entry(entry, registry)
        if test.metric not in registry.measurements:
            return f"nothing that is installed measures it: {unknown('metric', test.metric, registry.measurements.names())}"
    except LgbenchError as error:
        lacking = [name for name in claim.runs.plugins if not installed_version(name)]
        verb = "is" if len(lacking) == 1 else "are"
        return f"it needs {' and '.join(lacking)}, which {verb} not installed" if lacking else str(error)
    return None


def _require_entry(name: str, registry: Registry) -> None:
    """Raise LgbenchError for an entry without an installed plugin, or with another name on boards."""
    from lgbench.experiment.components import find_entries

    arch, _, weights = name.partition("@")
    (shown,) = find_entries([arch], registry)
    if shown != arch:
        full = shown if "~" in arch else without_hashes(shown)
        raise LgbenchError(f"the entry {arch!r} is {full!r} on boards; write that in the claim")
    if weights and weights not in registry.averagers:
        raise unknown("averager", weights, registry.averagers.names())


def with_obstacles(claim: Claim, verdicts: Sequence[Verdict], registry: Registry) -> list[Verdict]:
    """Verdicts with obstacles: a verdict on an impossible run has the obstacle as reason, and no missing runs."""
    found = {(v.task, v.test): obstacle(claim, v.task, v.test, registry) for v in verdicts if v.state == "not run"}
    return [
        replace(verdict, reason=reason, wanted=())
        if verdict.state == "not run" and (reason := found[verdict.task, verdict.test])
        else verdict
        for verdict in verdicts
    ]


def require_possible(claim: Claim, registry: Registry) -> None:
    """Raise UsageError for the first test with an obstacle."""
    for task, test in claim.parts:
        if reason := obstacle(claim, task, test, registry):
            raise UsageError(f"the claim {claim.name} cannot be run: {reason}")
