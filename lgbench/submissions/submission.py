"""Filing runs among the published ones: all that were submitted, in one submission file, or none with every reason."""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from lgbench.atomic_files import created
from lgbench.errors import Interrupted, Refused, RunFileError, UsageError
from lgbench.experiment.limits import MAX_SEEDS
from lgbench.experiment.protocols import BOARDS_PROTOCOL, PROTOCOLS
from lgbench.experiment.record import LoadedPlugin, ProtocolUse
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.results import run_files, submission_files, weights_files
from lgbench.results.stored_runs import RunMetadata, StoredRun, stored_in
from lgbench.submissions.completeness import duplicates, incomplete
from lgbench.submissions.inspection import gather, inspected

RUNS = "runs"
"""Folder of submission files in the folder of the leaderboards."""


@dataclass(frozen=True)
class Submitted:
    """Outcome of a submission."""

    file: Path | None
    """Submission file; None if all runs were filed before."""
    filed: int
    """Number of runs in it."""
    before: int
    """Number of runs that were filed already, with the same content."""
    weights: int = 0
    """Number of runs with weights beside the submission file, as the submitter asked."""


def submit(given: Iterable[Path], folder: Path, registry: Registry, weights: bool = False) -> Submitted:
    """File the runs of files and folders in one submission file in `folder`/runs: all of them, or none.

    With `weights`, the kept weights of all runs are filed first, each in a file of its own; also those of runs that were filed
    before. A run that is filed already with the same content is not filed again.

    Raises Refused with every reason, and then nothing was filed; UsageError for a missing folder.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r} to file runs in; name that of the leaderboards, as in --to leaderboards/")
    try:
        return _submitted(given, folder / RUNS, registry, weights)
    except OSError as error:
        raise RunFileError(f"nothing was filed: cannot write to {str(folder)!r}: {error.strerror}") from error
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed, or all runs were; submit the same again") from None


def _submitted(given: Iterable[Path], folder: Path, registry: Registry, weights: bool) -> Submitted:
    paths, wrong = gather(given)
    runs = list(inspected(dict.fromkeys(paths), registry, wrong, whole=True))
    keeping = [run for run in runs if weights and run.metadata.kept_weights]
    wrong += [f"{run.where}: {sentence}" for run in runs for sentence in unpublishable(run.metadata)]
    wrong += [f"{run.where}: {sentence}" for run in keeping for sentence in _wrong_weights(run.stored)]
    filed, unreadable = stored_in(run_files.find(folder))
    there = {run.run_id: run.content for run in filed}
    new = [run for run in runs if run.run_id not in there or run.content != there[run.run_id]]
    found = [run.stored for run in new]
    if not wrong:  # the runs of a file that is refused would be reported as missing, too
        wrong += incomplete([*filed, *found], registry.tasks, found)
    wrong += [f"{sentence}; it is filed already, so put it right first" for sentence in unreadable]
    wrong += duplicates(found, filed)
    if wrong:
        count = "1 reason" if len(wrong) == 1 else f"{len(wrong)} reasons"
        raise Refused(wrong, f"nothing was filed, for {count}:")
    file = None
    if new:
        name, content = submission_files.written(
            [submission_files.SubmittedRun(run.stored.record, run.metadata.content, run.rows) for run in new]
        )
        file = folder / name
        if file.exists():
            raise RunFileError(f"nothing was filed: another file is at {file} already; move it away")
    folder.mkdir(exist_ok=True)
    for run in keeping:  # weights come first, so that the weights of a filed run are there
        assert run.metadata.kept_weights
        name = weights_files.name_for(run.stored.record, run.metadata.kept_weights)
        weights_files.write(folder / name, run.stored.weights())
    if file:
        with created(file) as partial:
            partial.write_bytes(content)
    return Submitted(file, len(new), len(runs) - len(new), len(keeping))


def _wrong_weights(run: StoredRun) -> Iterator[str]:
    """A sentence for weights that are missing or damaged."""
    try:
        run.weights()
    except RunFileError as error:
        yield str(error)


def unpublishable(metadata: RunMetadata) -> Iterator[str]:
    """A sentence for each rule for published runs that a run breaks."""
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
    "index": "",
    "wheel": "",
    "editable": "was installed editable, from a folder that may change",
    "folder": "was installed from a folder",
    "version control": "was installed from version control",
    "archive": "was installed from an archive of sources",
    "file": "is a file",
}
"""Faults of the ways to install a plugin. A release comes from a package index or a wheel, whose content never changes."""


def _unreleased(plugin: LoadedPlugin) -> str | None:
    """Why others cannot install a plugin; None for a release, and for lgbench itself, whose commit is recorded."""
    if plugin.name == BUILT_IN:
        return None
    if how := _INSTALLED.get(plugin.installed, "was installed in a way that the run does not say"):
        return how
    try:
        version = Version(plugin.version)
    except InvalidVersion:
        return "has no version of a release"
    return "has a version that is not released" if version.is_devrelease or version.local else None


def check_filed(folder: Path, registry: Registry) -> list[str]:
    """A sentence for each thing in `folder`/runs that could not be filed today, or that no submission has made.

    Runs under an earlier version of a published protocol were inspected when they were filed, and this lgbench cannot make
    them. Only their metadata and their place are checked, and that none is there twice.
    """
    paths, weights, wrong = _sorted_out(folder / RUNS)
    every, unreadable = stored_in(paths)
    today: dict[Path, list[str]] = defaultdict(list)
    for run in every:
        if not _is_earlier(run.record.protocol):
            today[run.path].append(run.run_id)
            wrong += [f"{run.where}: {sentence}" for sentence in unpublishable(run.metadata)]
    found = [run.stored for run in inspected(today, registry, wrong, whole=True)]
    wrong += [*unreadable, *_misplaced(every), *_other_weights(weights, every)]
    return [*wrong, *duplicates(every, []), *incomplete(found, registry.tasks, found)]


def _is_earlier(used: ProtocolUse) -> bool:
    """Whether this is an earlier version of a published protocol, without changes."""
    today = PROTOCOLS.get(used.name)
    return today is not None and today.published and used.version < today.version and not used.changes


def _sorted_out(folder: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Files of runs and files of weights in the folder of filed runs, and a sentence for each other thing.

    Other things may lie hidden, where nobody would look, and links may lead to files that change.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return [], [], [f"{folder} is no folder of filed runs; put a folder of that name there"]
    runs: list[Path] = []
    weights: list[Path] = []
    strays: list[str] = []
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        usual = stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith(".")
        if usual and path.suffix in (".parquet", weights_files.SUFFIX):
            (runs if path.suffix == ".parquet" else weights).append(path)
        else:
            strays.append(f"{path} is no submission file, and no file of weights: remove it")
    return runs, weights, strays


def _misplaced(runs: Sequence[StoredRun]) -> Iterator[str]:
    """A sentence for each file that no submission has made, or that has another name than its runs give it."""
    files: dict[Path, list[StoredRun]] = defaultdict(list)
    for run in runs:
        files[run.path].append(run)
    for path, own in files.items():
        contents = [run.content for run in own if run.content is not None]
        if len(contents) < len(own):
            yield f"{path} is a run file, and filed runs are in submission files; file it with `lgbench submit`"
        elif path.name != (name := submission_files.name_for([run.record for run in own], contents)):
            yield f"{path}: a file with these runs alone is at {path.with_name(name)}"


def _other_weights(paths: Iterable[Path], runs: Iterable[StoredRun]) -> Iterator[str]:
    """A sentence for each file of weights that is damaged, or belongs to no filed run."""
    kept = {weights_files.name_for(run.record, own): own for run in runs if (own := run.metadata.kept_weights)}
    for path in paths:
        if path.name not in kept:
            yield f"{path} has weights of no filed run, as after a submission that was killed; submit that again, or remove it"
            continue
        try:
            weights_files.read(path, kept[path.name])
        except RunFileError as error:
            yield str(error)
