"""Submission of runs: complete series of runs, filed in one submission file or refused with every reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from lgbench.atomic_files import created
from lgbench.contracts import DEFAULT_OPTIMIZER, Task
from lgbench.errors import Interrupted, Refused, RunFileError, UsageError
from lgbench.experiment.plan import arch_of
from lgbench.experiment.protocols import BOARDS_PROTOCOL, PROTOCOLS
from lgbench.experiment.record import ExperimentRecord, LoadedPlugin, ProtocolUse
from lgbench.experiment.settings import MAX_SEEDS
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.results import file_format, run_files
from lgbench.results.entries import Use, suffixes
from lgbench.results.stored_runs import RunMetadata, StoredRun, stored_in
from lgbench.submissions.inspection import found_in, inspected
from lgbench.terminal import counted, named_seeds


class Series(NamedTuple):
    """Runs that must be complete together."""

    entry: str
    """Name with a suffix for the versions of packages, if the entry has several."""
    protocol: ProtocolUse
    family: str


def duplicates(new: Iterable[StoredRun], filed: Iterable[StoredRun]) -> Iterator[str]:
    """A sentence for each new run of a seed that has a filed run or an earlier new run, with the same averages or others."""
    seen = {_place(run): run.where for run in filed}
    for run in new:
        if (place := _place(run)) in seen:
            what = f"{run.record.title} under {run.record.protocol}"
            yield f"{run.where}: {what} is a run already, in {seen[place]}; leave one of them out"
        seen.setdefault(place, run.where)


def _place(run: StoredRun) -> tuple[Use[str], int, str, int]:
    """Identity of a run in the leaderboards: a seed of an entry on a version of a task, under a protocol."""
    record = run.record
    return _use(record), record.task_version, str(record.protocol), record.seed


def incomplete(found: Iterable[StoredRun], tasks: Iterable[Task], touched: Iterable[StoredRun]) -> Iterator[str]:
    """A sentence for each missing seed, and for several learning rates of a task, in the series of the touched runs."""
    found, listed = list(found), list(tasks)
    suffix = suffixes(_use(run.record) for run in found)

    def series_of(run: StoredRun) -> Series:
        record, use = run.record, _use(run.record)
        return Series(record.entry + suffix[use.entry, use.protocol, use.plugins], record.protocol, record.family)

    members: dict[Series, list[StoredRun]] = defaultdict(list)
    for run in found:
        members[series_of(run)].append(run)
    for series in sorted({series_of(run) for run in touched}, key=str):
        family = {task.name: task.version for task in listed if task.family == series.family}
        # Of the installed version of its task; a task that is not installed has one.
        runs = [
            run for run in members[series] if run.record.task_version == family.get(run.record.task, run.record.task_version)
        ]
        records = [run.record for run in runs]
        for task in sorted({record.task for record in records}):
            yield from _several_rates(series, task, [record for record in records if record.task == task])
        missing = [*_missing_seeds(series, records, family)]
        averages = {average for record in records for average in record.averagers}
        for average in () if missing else sorted(averages):  # else each average would lack the same seeds again
            averaged = [record for record in records if average in record.averagers]
            missing += _missing_seeds(series._replace(entry=f"{series.entry}@{average}"), averaged, family)
        yield from missing


def _use(record: ExperimentRecord) -> Use[str]:
    plugins = sorted((used.name, f"{used.version} {used.source}") for used in record.plugins)
    return Use(record.entry, record.task, (record.protocol.name, record.protocol.version), tuple(plugins))


def _several_rates(series: Series, task: str, records: Sequence[ExperimentRecord]) -> Iterator[str]:
    """A sentence for seeds with several tuned learning rates: a choice seed by seed would bias means."""
    seeds: dict[str, set[int]] = defaultdict(set)
    for record in records:
        seeds[f"{record.train.lr:g}" if record.tuning else ""].add(record.seed)
    if len(seeds) > 1:
        each = ", and ".join(f"{rate or 'none'} with {named_seeds(sorted(own))}" for rate, own in sorted(seeds.items()))
        remedy = "make them in one results folder, whose tuning runs choose one"
        yield f"{series.entry} on {task} under {series.protocol} has several learning rates: {each}; {remedy}"


def _missing_seeds(series: Series, runs: Sequence[ExperimentRecord], family: Iterable[str]) -> Iterator[str]:
    """A sentence for each task without all seeds from 0 to the highest seed of the family.

    Seeds from 0 without a gap leave no choice of the published seeds.
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
                f"{series.entry} on {task} under {series.protocol} lacks {named_seeds(missing)}: every task of a family needs "
                f"all seeds from 0, at least {least}; `{_command(task, runs[0], count)}` makes them"
            )


def _command(task: str, record: ExperimentRecord, seeds: int) -> str:
    """Command for the runs of a task with `seeds` seeds."""
    optimizer = "" if record.optimizer == DEFAULT_OPTIMIZER else f" --optimizer {record.optimizer}"
    average = ",".join(record.averagers) or "none"
    return (
        f"lgbench run --task {task} --arch {arch_of(record)}{optimizer} --protocol {record.protocol.name} --seeds 0:{seeds} "
        f"--average {average}"
    )


RUNS = "runs"
"""Folder of submission files in the folder of the leaderboards."""


@dataclass(frozen=True)
class Submission:
    """Outcome of a submission."""

    file: Path | None
    """Submission file; None if all runs were filed before."""
    filed: int
    """Number of runs in the submission file."""
    before: int
    """Number of runs filed earlier with the same content."""


def submit(given: Iterable[Path], folder: Path, registry: Registry) -> Submission:
    """File the runs of files and folders in one submission file in `folder`/runs: all runs, or none.

    A run filed earlier with the same content is not filed again.

    Raises Refused with every reason, after filing nothing; UsageError for a missing folder.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r} to file runs in; name that of the leaderboards, as in --out leaderboards/")
    if folder.name == RUNS and any(folder.glob("*.parquet")):
        raise UsageError(f"{str(folder)!r} is the folder of runs itself; name the folder above, as in --out leaderboards/")
    try:
        return _submitted(given, folder / RUNS, registry)
    except OSError as error:
        raise RunFileError(f"nothing was filed: cannot write to {str(folder)!r}: {error.strerror}") from error
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed, or all runs were; submit the same again") from None


def _submitted(given: Iterable[Path], folder: Path, registry: Registry) -> Submission:
    stored, wrong = found_in(given)
    runs = list(inspected(stored, registry, wrong))
    faults: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for sentence in unpublishable(run.metadata):
            faults[sentence].append(run.where)
    for sentence, (where, *others) in faults.items():
        more = f" and {counted(len(others), 'other run')}" if others else ""
        wrong.append(f"{where}{more}: {sentence}")
    filed, unreadable = stored_in(run_files.find(folder))
    there = {run.run_id: run.packed.content for run in filed}
    new = [run for run in runs if there.get(run.run_id) != run.content]
    if not wrong:  # runs of a refused file would be reported as missing, too
        wrong += incomplete([*filed, *new], registry.tasks, new)
    wrong += [f"{sentence}; it is filed already, so put it right first" for sentence in unreadable]
    wrong += duplicates(new, filed)
    if wrong:
        count = "1 reason" if len(wrong) == 1 else f"{len(wrong)} reasons"
        raise Refused(wrong, f"nothing was filed, for {count}:")
    file = None
    if new:
        name, content = file_format.submission((run.packed.metadata, run.rows) for run in new)
        file = folder / name
        folder.mkdir(exist_ok=True)
        with created(file) as partial:
            partial.write_bytes(content)
    return Submission(file, len(new), len(runs) - len(new))


def unpublishable(metadata: RunMetadata) -> Iterator[str]:
    """A sentence for each broken rule for published runs."""
    record, published = metadata.experiment, [protocol for protocol in PROTOCOLS.values() if protocol.published]
    if record.protocol.name not in {protocol.name for protocol in published}:
        names = " or ".join(f"{protocol.name}/{protocol.version}" for protocol in published)
        yield f"only runs under {names} are published; run it with --protocol {BOARDS_PROTOCOL}"
    elif record.protocol.changes:
        yield f"it changes its protocol ({record.protocol}), and a published run does not; run it without --set"
    if not 0 <= record.seed < MAX_SEEDS:
        yield f"its seed is {record.seed}, and published seeds count from 0 without a gap; use --seeds 0:5 or more"
    changed = any(plugin.name == BUILT_IN for plugin in record.plugins)
    if changed or (metadata.environment.git_commit or "").endswith("+dirty"):
        yield "it was made by a changed checkout of lgbench, which nobody else has; commit the changes, and run it again"
    for plugin in metadata.took_part.values():
        if why := _unreleased(plugin):
            remedy = "make it a package" if plugin.installed == "file" else "install its release, or a wheel of its release"
            what = f"the plugin {plugin.name} {plugin.version:.20} took part in it and {why}"
            yield f"{what}, so others may not have the same; {remedy}, and run it again"


_INSTALLED = {
    "editable": "was installed editable, from a folder that may change",
    "folder": "was installed from a folder",
    "version control": "was installed from version control",
    "archive": "was installed from an archive of sources",
    "file": "is a file",
}
"""Faults of ways to install a plugin. A release comes from a package index or a wheel, whose content never changes."""


def _unreleased(plugin: LoadedPlugin) -> str | None:
    """Reason why other users cannot install a plugin; None for a release, and for lgbench, with a recorded commit."""
    if plugin.name == BUILT_IN:
        return None
    if plugin.installed not in ("index", "wheel"):
        return _INSTALLED.get(plugin.installed, "was installed in a way that the run does not say")
    version = Version(plugin.version)
    return "has a version that is not released" if version.is_devrelease or version.local else None
