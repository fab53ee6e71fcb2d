"""Completeness of submissions: every task of a family, every seed from 0, the same averagers, measurements and rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lgbench.contracts import DEFAULT_OPTIMIZER, Task
from lgbench.experiment.limits import MAX_SEEDS
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ExperimentRecord, ProtocolUse
from lgbench.experiment.replan import arch_of
from lgbench.results.entries import Use, suffixes
from lgbench.results.stored_runs import StoredRun


class Series(NamedTuple):
    """Runs that must be complete together."""

    entry: str
    """With the versions of a package, where the entry has several of them."""
    protocol: ProtocolUse
    family: str


def duplicates(new: Iterable[StoredRun], filed: Iterable[StoredRun]) -> Iterator[str]:
    """A sentence for each new run that is filed already or is given twice."""
    seen = {run.run_id: run.where for run in filed}
    for run in new:
        if run.run_id in seen:
            what = f"{run.record.title} under {run.record.protocol}"
            yield f"{run.where}: {what} is a run already, in {seen[run.run_id]}; leave one of them out"
        seen.setdefault(run.run_id, run.where)


def incomplete(found: Iterable[StoredRun], tasks: Iterable[Task], touched: Iterable[StoredRun]) -> Iterator[str]:
    """A sentence for each seed that a series of the touched runs lacks among all runs, and for settings that differ by seed."""
    found = list(found)
    suffix = suffixes(_use(run.record) for run in found)

    def series_of(run: StoredRun) -> Series:
        record = run.record
        use = _use(record)
        return Series(record.entry + suffix[use.entry, use.protocol, use.plugins], record.protocol, record.family)

    members: dict[Series, list[StoredRun]] = defaultdict(list)
    for run in found:
        members[series_of(run)].append(run)
    listed = list(tasks)
    for series in sorted({series_of(run) for run in touched}, key=str):
        family = {task.name: task.version for task in listed if task.family == series.family}
        runs = [run for run in members[series] if _is_of_today(run.record, family)]
        yield from _several(series, runs, "averagers", lambda run: run.record.averagers, "--average")
        yield from _several(series, runs, "measurements", _measured, "the same plugins")
        yield from _several_rates(series, [run.record for run in runs])
        yield from _missing_seeds(series, [run.record for run in runs], family)


def _use(record: ExperimentRecord) -> Use[str]:
    plugins = sorted((used.name, f"{used.version} {used.source}") for used in record.plugins)
    return Use(record.entry, record.task, (record.protocol.name, record.protocol.version), tuple(plugins))


def _is_of_today(record: ExperimentRecord, versions: Mapping[str, int]) -> bool:
    """Whether a run is of the installed version of its task; True for a task that is not installed."""
    return record.task_version == versions.get(record.task, record.task_version)


def _measured(run: StoredRun) -> tuple[str, ...]:
    return tuple(sorted(metric.name for metric in run.metadata.measurements))


def _several(
    series: Series, runs: Sequence[StoredRun], name: str, of: Callable[[StoredRun], tuple[str, ...]], remedy: str
) -> Iterator[str]:
    """A sentence for a series with several sets of averagers or measurements, which could have been chosen seed by seed."""
    kinds = sorted({of(run) for run in runs})
    if len(kinds) > 1:
        several = " and others ".join(", ".join(kind) or "none" for kind in kinds)
        yield f"{series.entry} on {series.family}: some runs have the {name} {several}; all must have the same ({remedy})"


def _several_rates(series: Series, runs: Sequence[ExperimentRecord]) -> Iterator[str]:
    """A sentence for each task whose seeds have several tuned learning rates, which could have been chosen seed by seed."""
    seeds: dict[str, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.tuning:
            seeds[run.task][run.train.lr].append(run.seed)
    for task, rates in sorted(seeds.items()):
        if len(rates) > 1:
            each = ", ".join(f"{lr:g} with {_ranges(sorted({*own}))}" for lr, own in sorted(rates.items()))
            yield (
                f"{series.entry} on {task} under {series.protocol} has several learning rates, {each}: all seeds need the "
                "same; make them in one results folder, whose tuning runs choose one"
            )


def _missing_seeds(series: Series, runs: Sequence[ExperimentRecord], family: Iterable[str]) -> Iterator[str]:
    """A sentence for each task that lacks a seed from 0 to the highest that any task of the family has.

    With seeds from 0 without a gap, nobody chooses which seeds to show.
    """
    least = PROTOCOLS[series.protocol.name].submitted_seeds
    seeds: dict[str, set[int]] = {task: set() for task in sorted({*family, *(run.task for run in runs)})}
    for run in runs:
        seeds[run.task].add(run.seed)
    count = max([least, *(run.seed + 1 for run in runs if run.seed < MAX_SEEDS)])
    for task, there in seeds.items():
        missing = sorted(set(range(count)) - there)
        if missing:
            yield (
                f"{series.entry} on {task} under {series.protocol} lacks {_ranges(missing)}: every task of a family needs "
                f"all seeds from 0, at least {least}; `{_command(task, runs[0], count)}` makes them"
            )


def _command(task: str, record: ExperimentRecord, seeds: int) -> str:
    """The command that makes the runs of a task with this many seeds."""
    optimizer = "" if record.optimizer == DEFAULT_OPTIMIZER else f" --optimizer {record.optimizer}"
    protocol = record.protocol.name
    return f"lgbench run --task {task} --arch {arch_of(record)}{optimizer} --protocol {protocol} --seeds 0:{seeds}"


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers for a reader.

    >>> _ranges([1, 3, 4, 5]), _ranges([0])
    ('seeds 1 and 3 to 5', 'seed 0')
    """
    known = set(numbers)
    starts, ends = [n for n in numbers if n - 1 not in known], [n for n in numbers if n + 1 not in known]
    parts = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return ("seed " if len(numbers) == 1 else "seeds ") + " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
