"""Filing runs among the published ones: all that were submitted, in one form, or none and every reason why not."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench.errors import Interrupted, Refused, RunFileError, UsageError
from lgbench.execution.lease import LEASE_SECONDS, LeaseLost
from lgbench.experiment.protocols import MAX_SEEDS, PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.addresses import Address, Place
from lgbench.submissions.completeness import MIN_SUBMITTED_SEEDS, FoundRun, duplicates, incomplete
from lgbench.submissions.filing import FOLDER, Turn, turn
from lgbench.submissions.filing_at_address import Filing, filing
from lgbench.submissions.footer import Footer, shown
from lgbench.submissions.inspection import Inspector, Run, footer_of, gather, inspect_all
from lgbench.submissions.reader import Contents, Reader
from lgbench.submissions.releases import unreleased_plugins, unreleased_plugins_since_recorded
from lgbench.submissions.rows import is_checked
from lgbench.submissions.strays import sorted_out

RUNS = "runs"
"""The folder of run files in the folder of the leaderboards."""


@dataclass(frozen=True)
class Submitted:
    """The outcome of a submission: where its runs are."""

    filed: Sequence[Path]
    """Those that this submission filed."""
    before: Sequence[Path]
    """Those that were filed already, with the same content."""
    finished: int
    """How many of all these are runs of submissions that were killed."""


def submit(
    given: Iterable[Path], folder: Place, registry: Registry, say: Callable[[str], None] = lambda sentence: None
) -> Submitted:
    """File the runs of files and folders under `folder`/runs: all of them, or none.

    With them come the runs of a submission that was killed while it filed them. A run that is filed already with the same
    content stays as it is. Calls `say` with a sentence if this process has to wait for another one.

    Raises Refused, with every reason, and then nothing was filed; UsageError where the folder does not exist. At an address
    objects are made one by one, so what ends the process or the network there leaves a part, which the same submission
    completes: RunFileError says so.
    """
    if isinstance(folder, Address):
        return _submitted_to(given, folder / RUNS, registry)
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r} to file runs in; name that of the leaderboards, as in --to leaderboards/")
    done = None
    try:
        paths, wrong = gather(given)
        runs, unfit = inspect_all(paths, Inspector(registry, RULES))
        with turn(folder, say) as own:
            done = _submitted(runs, [*wrong, *unfit], folder / RUNS, registry, own)
            own.finished()
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {'all runs were filed before' if done else 'nothing was filed'}") from None
    except LeaseLost as error:
        why = f"this one stood still for {LEASE_SECONDS:.0f} s or longer; submit the same again, so that all of it is filed"
        raise LeaseLost(f"another process has the turn to file runs in {folder}: {why}") from error
    except OSError as error:
        if done is None:  # otherwise a hidden folder stays, which the next submission removes
            raise RunFileError(f"nothing was filed: cannot write to {str(folder)!r}: {error.strerror}") from error
    assert done
    return done


def _submitted_to(given: Iterable[Path], address: Address, registry: Registry) -> Submitted:
    """File runs at an address, where nobody has to wait for a turn: an object is made by one process, and never replaced."""
    own = filing(address)
    try:
        paths, wrong = gather(given)
        runs, unfit = inspect_all(paths, Inspector(registry, RULES))
        return _submitted(runs, [*wrong, *unfit, *own.left_out], own.folder, registry, own)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed") from None


def check_filed(folder: Path, registry: Registry) -> list[str]:
    """A sentence for each thing in `folder`/runs that could not be filed today, or is in another place than its own.

    Files that no run has, links, and folders are named too, hidden ones with them. Runs under an earlier version of a published
    protocol were checked when they were filed, and nobody can make them with this lgbench. So of them the footer and the place
    are looked at, and that none comes twice.
    """
    paths, wrong = sorted_out(folder / RUNS)
    earlier = [run for run in _filed(folder / RUNS)[0] if _is_earlier(run.record.protocol)]
    left = sorted(set(paths) - {run.path for run in earlier})
    runs, unfit = inspect_all(left, Inspector(registry, FILED_RULES))
    found = [FoundRun.of(run) for run in runs]
    for run in (*earlier, *found):
        own_place = run_files.path_for(folder / RUNS, run.record)
        if run.path != own_place:
            unfit.append(f"{run.path}: a filed run is a file at {own_place}")
    if os.path.lexists(folder / FOLDER):
        wrong.append(f"{folder / FOLDER}: a submission is under way, or was killed; `lgbench submit` finishes it")
    return [*wrong, *unfit, *duplicates([*earlier, *found], []), *incomplete(found, registry.tasks, found)]


def _submitted(runs: Sequence[Run], wrong: Sequence[str], folder: Path, registry: Registry, own: Turn | Filing) -> Submitted:
    """File these runs and those of killed submissions, where they are not filed yet. Raises Refused."""
    killed, unfit = inspect_all(own.killed, Inspector(registry, RULES))
    remedy = f"it is of a submission that was killed; to give that up, remove {folder.parent / FOLDER}"
    filed, unreadable = _filed(folder)
    before, new = _apart(_without_copies(runs, killed), filed, folder)
    found = [FoundRun.of(run) for run in new]
    reasons = [
        *wrong,
        *(f"{sentence}; {remedy}" for sentence in unfit),
        *unreadable,
        *_unchecked(new),
        *duplicates(found, filed),
    ]
    if not wrong and not unfit:  # with a file left out, its run would be reported as missing too
        reasons += incomplete([*filed, *found], registry.tasks, found)
    if reasons:
        count = "1 reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
        raise Refused(reasons, f"nothing was filed, for {count}:")
    places = own.file(new, folder) if new else []
    return Submitted(places, [_place(folder, run) for run in before], len({run.path.name for run in killed}))


def _apart(runs: Sequence[Run], filed: Sequence[FoundRun], folder: Path) -> tuple[list[Run], list[Run]]:
    """The runs that are filed already with the same content, and the others."""
    before: list[Run] = []
    new: list[Run] = []
    there = {run.path for run in filed}
    with Reader() as reader:
        for run in runs:
            place = _place(folder, run)
            same = place in there and _content_of(place, reader.read(place)) == _content(run)
            (before if same else new).append(run)
    return before, new


def _without_copies(runs: Sequence[Run], killed: Sequence[Run]) -> list[Run]:
    """All runs, but of those of killed submissions that are among the others, or there twice, only one."""
    kept: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        kept[run.footer.experiment.run_id].append(run)
    for run in killed:
        same = kept[run.footer.experiment.run_id]
        if not any(_content(run) == _content(other) for other in same):
            same.append(run)
    return [run for same in kept.values() for run in same]


def _place(folder: Path, run: Run) -> Path:
    return run_files.path_for(folder, run.footer.experiment)


def _content(run: Run) -> tuple[Footer, str]:
    """Everything in a file; not the bytes, which depend on the release of pyarrow. A float's repr tells all its bits."""
    return run.footer, repr(run.rows.to_pylist())


def _content_of(path: Path, contents: Contents) -> tuple[Footer, str]:
    assert contents.rows is not None
    return footer_of(path, contents), repr(contents.rows.to_pylist())


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
    changed = any(plugin.name == BUILT_IN for plugin in footer.experiment.plugins)
    if changed or (footer.environment.git_commit or "").endswith("+dirty"):
        yield "it was made by a changed checkout of lgbench, which nobody else has; commit the changes, and run it again"


def _something_is_measured(footer: Footer) -> Iterator[str]:
    if not footer.measurements:
        yield "it has no measurement, so no board can show it; run it with a plugin that has one"


def _unchecked(runs: Iterable[Run]) -> Iterator[str]:
    """A new run must say whether its model looks ahead. Runs that were filed before lgbench asked stay."""
    for run in runs:
        if not is_checked(run.rows):
            yield f"{run.path}: its rows do not say whether the model looks ahead, which this lgbench asks; run it again"


_RULES = (_protocol_is_published, _seed_is_small, _code_is_committed, _something_is_measured)

RULES = (unreleased_plugins, *_RULES)
"""The rules for runs that are to be published, in addition to those for every run."""

FILED_RULES = (unreleased_plugins_since_recorded, *_RULES)
"""The rules for those that are published."""


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
