"""Filing runs among the published ones: all that were submitted, in one form, or none and every reason why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from lgbench.errors import Refused, RunFileError, UsageError
from lgbench.experiment.protocols import MAX_SEEDS, PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.extensions.registry import Registry
from lgbench.results import cache, run_files
from lgbench.submissions.completeness import MIN_SUBMITTED_SEEDS, FoundRun, duplicates, incomplete, series_of
from lgbench.submissions.footer import Footer, shown
from lgbench.submissions.inspection import Inspector, Run, footer_of, gather, inspect_all
from lgbench.submissions.reader import Reader

RUNS = "runs"
"""The folder of run files in the folder of the leaderboards."""


def submit(given: Iterable[Path], folder: Path, registry: Registry) -> list[Path]:
    """File the runs of files and folders under `folder`/runs, and return where they are.

    Raises Refused, with every reason, and then nothing was written; UsageError where the folder does not exist.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r} to file runs in; name that of the leaderboards, as in --to leaderboards/")
    paths, wrong = gather(given)
    runs, unfit = inspect_all(paths, Inspector(registry, RULES))
    new = [FoundRun.of(run) for run in runs]
    filed, unreadable = _filed(folder / RUNS)
    wrong += [*unfit, *unreadable, *duplicates(new, filed)]
    if not unfit:  # with a file left out, its run would be reported as missing too
        wrong += incomplete([*filed, *new], registry.tasks, {series_of(run) for run in new})
    if wrong:
        count = "1 reason" if len(wrong) == 1 else f"{len(wrong)} reasons"
        raise Refused(wrong, f"nothing was filed, for {count}:")
    return _write(runs, folder / RUNS)


def check_filed(folder: Path, registry: Registry) -> list[str]:
    """A sentence for each thing in `folder`/runs that could not be filed today, or is in another place than its own.

    Runs under an earlier version of a published protocol were checked when they were filed, and nobody can make them with this
    lgbench. So of them the footer and the place are looked at, and that none comes twice.
    """
    paths = sorted(path for path in (folder / RUNS).rglob("*") if path.is_symlink() or not path.is_dir())
    paths = [path for path in paths if path.parent.name != cache.FOLDER]  # copies of rows, made by whoever read them
    earlier = [run for run in _filed(folder / RUNS)[0] if _is_earlier(run.record.protocol)]
    left = sorted(set(paths) - {run.path for run in earlier})
    runs, wrong = inspect_all(left, Inspector(registry, RULES))
    found = [FoundRun.of(run) for run in runs]
    for run in (*earlier, *found):
        own_place = run_files.path_for(folder / RUNS, run.record)
        if run.path != own_place or run.path.is_symlink():
            wrong.append(f"{run.path}: a filed run is a file at {own_place}")
    twice = duplicates([*earlier, *found], [])
    return [*wrong, *twice, *incomplete(found, registry.tasks, {series_of(run) for run in found})]


def _is_earlier(used: ProtocolUse) -> bool:
    """Whether it is an earlier version of a published protocol, without changes."""
    today = PROTOCOLS.get(used.name)
    return today is not None and today.published and used.version < today.version and not used.changes


def _protocol_is_published(footer: Footer) -> Iterator[str]:
    published = [f"{protocol.name}/{protocol.version}" for protocol in PROTOCOLS.values() if protocol.published]
    used = footer.experiment.protocol
    if not (used.name in PROTOCOLS and PROTOCOLS[used.name].published):
        yield f"only runs under {' or '.join(published)} are published; run it with --protocol standard"
    elif used.changes:
        yield f"it changes its protocol ({shown(str(used))[1:-1]}), and a published run does not; run it without --set"


def _seed_is_small(footer: Footer) -> Iterator[str]:
    seed = footer.experiment.seed
    if seed >= MAX_SEEDS:
        yield f"its seed is {seed}, and published seeds count from 0 without a gap; use --seeds 0:{MIN_SUBMITTED_SEEDS}"


def _code_is_committed(footer: Footer) -> Iterator[str]:
    if (footer.environment.git_commit or "").endswith("+dirty"):
        yield "it was made by a changed checkout of lgbench, which nobody else has; commit the changes, and run it again"


def _plugins_are_published(footer: Footer) -> Iterator[str]:
    for name, version in footer.plugins.items():
        if version.startswith("sha256:"):
            yield f"the plugin file {shown(name)} took part in it, which nobody else has; make it a package, and run it again"


def _something_is_measured(footer: Footer) -> Iterator[str]:
    if not footer.measurements:
        yield "it has no measurement, so no board can show it; run it with a plugin that has one"


RULES = (_plugins_are_published, _protocol_is_published, _seed_is_small, _code_is_committed, _something_is_measured)
"""The rules for published runs, in addition to those for every run."""


def _filed(folder: Path) -> tuple[list[FoundRun], list[str]]:
    """The runs in a folder by their footers, under any protocol, and a sentence for each file that is wrong."""
    found: list[FoundRun] = []
    wrong: list[str] = []
    with Reader() as reader:
        for path in run_files.find(folder):
            try:
                footer = footer_of(path, reader.read(path, rows=False))
                found.append(FoundRun(path, footer.experiment, footer.measurements))
            except RunFileError as error:
                wrong.append(f"{error}; it is filed already, so put it right first")
    return found, wrong


def _write(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write all runs anew from what was checked; none where one cannot be written."""
    made = not folder.exists()
    written: list[Path] = []
    try:
        for run in runs:
            path = run_files.path_for(folder, run.footer.experiment)
            run_files.write(path, run.rows, asdict(run.footer))
            written.append(path)
    except BaseException as error:  # Ctrl-C, too, leaves nothing filed
        _take_back(written, folder if made else None)
        if isinstance(error, OSError):
            raise RunFileError(f"nothing was filed: cannot write to {str(folder)!r}: {error.strerror}") from error
        raise
    return written


def _take_back(written: Iterable[Path], folder: Path | None) -> None:
    for path in written:
        path.unlink()
    if folder and folder.exists():
        folder.rmdir()
