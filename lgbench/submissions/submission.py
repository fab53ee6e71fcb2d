"""Filing runs among the published ones: all that were submitted, in one form, or none and every reason why not."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench.errors import Interrupted, Refused, RunFileError, UsageError
from lgbench.execution.lease import LEASE_SECONDS, LeaseLost
from lgbench.experiment.limits import MAX_SEEDS
from lgbench.experiment.protocols import BOARDS_PROTOCOL, PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.results import run_files, submission_files
from lgbench.results.footers import digest
from lgbench.submissions.carried import WeightsOf, files_of_weights, keeping, other_weights, wrong_weights
from lgbench.submissions.completeness import duplicates, incomplete
from lgbench.submissions.filing import FOLDER, Turn, turn
from lgbench.submissions.footer import Footer, shown
from lgbench.submissions.inspection import (
    FoundRun,
    Inspector,
    Run,
    by_file,
    footer_of,
    found_in,
    gather,
    inspect_all,
    inspect_some,
)
from lgbench.submissions.reader import Reader
from lgbench.submissions.releases import unreleased_plugins, unreleased_plugins_since_recorded
from lgbench.submissions.rows import is_checked
from lgbench.submissions.strays import sorted_out

RUNS = "runs"
"""The folder of submission files in the folder of the leaderboards."""


@dataclass(frozen=True)
class Submitted:
    """The outcome of a submission."""

    file: Path | None
    """The submission file; None if all runs were filed before."""
    filed: int
    """How many runs it has."""
    before: int
    """How many runs were filed already, with the same content."""
    weights: int = 0
    """How many runs have their weights beside the submission file, since somebody asked for it."""


def submit(
    given: Iterable[Path],
    folder: Path,
    registry: Registry,
    say: Callable[[str], None] = lambda sentence: None,
    weights_of: WeightsOf | None = None,
) -> Submitted:
    """File the runs of files and folders in one submission file in `folder`/runs: all of them, or none.

    With `weights_of`, the weights of all runs that kept them are filed too, each in a file of its own, before the submission
    file; also those of runs that were filed before.

    A run that is filed already with the same content stays where it is, and is not filed again. Calls `say` with a sentence if
    this process has to wait for another one.

    Raises Refused, with every reason, and then nothing was filed; UsageError where the folder does not exist.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r} to file runs in; name that of the leaderboards, as in --to leaderboards/")
    own: Turn | None = None
    try:
        runs, wrong = _inspected(given, registry, weights_of)
        try:
            with turn(folder, say) as own:
                return _submitted(runs, wrong, folder / RUNS, registry, own, weights_of)
        except OSError as error:
            state = _filed(own, "all runs were filed, and the turn could not be ended")
            raise RunFileError(f"{state}: cannot write to {str(folder)!r}: {error.strerror}") from error
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {_filed(own, 'all runs were filed before')}") from None
    except LeaseLost as error:
        why = f"this one stood still for {LEASE_SECONDS:.0f} s or longer; submit the same again, so that all of it is filed"
        raise LeaseLost(f"another process has the turn to file runs in {folder}: {why}") from error


def _filed(own: Turn | None, every: str) -> str:
    """What a submission that was cut short has filed; `every` is for all runs."""
    if own and own.place and os.path.lexists(own.place):
        return every
    if own and own.added:
        return f"no run was filed, and {len(own.added)} of the files of weights were; submit the same again"
    return "nothing was filed"


def _inspected(given: Iterable[Path], registry: Registry, weights_of: WeightsOf | None) -> tuple[list[Run], list[str]]:
    """The runs that are to be filed, each once, and everything that is wrong with them and with weights that are asked for."""
    paths, wrong = gather(given)
    runs, unfit = inspect_all(paths, Inspector(registry, RULES))
    return runs, [*wrong, *unfit, *wrong_weights(runs, weights_of)]


def check_filed(folder: Path, registry: Registry) -> list[str]:
    """A sentence for each thing in `folder`/runs that could not be filed today, or is in another place than its own.

    Files that no submission has made, links, and folders are named too, hidden ones with them. Runs under an earlier version of
    a published protocol were checked when they were filed, and nobody can make them with this lgbench. So of them the footer
    and the place are looked at, and that none comes twice.
    """
    paths, weights, wrong = sorted_out(folder / RUNS)
    every, unreadable = found_in(paths)
    earlier = [run for run in every if _is_earlier(run.record.protocol)]
    today = by_file(run for run in every if not _is_earlier(run.record.protocol))
    runs, unfit = inspect_some(today, Inspector(registry, FILED_RULES))
    found = [FoundRun.of(run) for run in runs]
    if os.path.lexists(folder / FOLDER):
        wrong.append(f"{folder / FOLDER}: a submission is under way, or was killed; the next `lgbench submit` removes it")
    places = _misplaced(every)
    return [
        *wrong,
        *unreadable,
        *unfit,
        *places,
        *other_weights(weights, every),
        *duplicates([*earlier, *found], []),
        *incomplete(found, registry.tasks, found),
    ]


def _misplaced(runs: Sequence[FoundRun]) -> Iterator[str]:
    """A sentence for each file that no submission has made, or that has another name than its runs give it."""
    files: dict[Path, list[FoundRun]] = defaultdict(list)
    for run in runs:
        files[run.path].append(run)
    for path, own in files.items():
        contents = [run.content for run in own if run.content is not None]
        if len(contents) < len(own):
            yield f"{path} is a run file, and filed runs are in submission files; file it with `lgbench submit`"
        elif path.name != (name := submission_files.name_for([run.record for run in own], contents)):
            yield f"{path}: a file with these runs alone is at {path.with_name(name)}"


def _submitted(
    runs: Sequence[Run],
    wrong: Sequence[str],
    folder: Path,
    registry: Registry,
    own: Turn,
    weights_of: WeightsOf | None,
) -> Submitted:
    """File these runs where they are not filed yet. Raises Refused."""
    filed, unreadable = found_in(run_files.find(folder))
    before, new = _apart(runs, filed)
    found = [FoundRun.of(run) for run in new]
    reasons = [
        *wrong,
        *(f"{sentence}; it is filed already, so put it right first" for sentence in unreadable),
        *_unchecked(new),
        *duplicates(found, filed),
    ]
    if not wrong:  # with a file left out, its run would be reported as missing too
        reasons += incomplete([*filed, *found], registry.tasks, found)
    if reasons:
        count = "1 reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
        raise Refused(reasons, f"nothing was filed, for {count}:")
    weights = files_of_weights([*new, *before], weights_of)
    file = own.file(*_written(new), folder, weights) if new else None
    for each in weights:  # those that no submission file comes after
        own.add(*each, folder)
    return Submitted(file, len(new), len(before), len(keeping(runs)) if weights_of else 0)


def _written(runs: Sequence[Run]) -> tuple[str, bytes]:
    """The name and the content of the submission file of these runs, written anew from what was checked."""
    own = [submission_files.SubmittedRun(run.footer.experiment, run.footer.content, run.rows) for run in runs]
    try:
        return submission_files.written(own)
    except ValueError as error:
        raise RunFileError(f"nothing was filed: {error}; submit the runs of some entries first, then the others") from error


def _apart(runs: Sequence[Run], filed: Sequence[FoundRun]) -> tuple[list[Run], list[Run]]:
    """The runs that are filed already with the same content, and the others."""
    there = {run.record.run_id: run for run in filed}
    before: list[Run] = []
    new: list[Run] = []
    with Reader() as reader:
        for run in runs:
            same = there.get(run.footer.experiment.run_id)
            (before if same and _content_of(same, reader) == run.content else new).append(run)
    return before, new


def _content_of(filed: FoundRun, reader: Reader) -> str:
    if filed.content is not None:
        return filed.content
    contents = reader.read(filed.path)
    assert contents.rows is not None
    return digest(footer_of(filed.path, contents).content, contents.rows)


def _is_earlier(used: ProtocolUse) -> bool:
    """Whether it is an earlier version of a published protocol, without changes."""
    today = PROTOCOLS.get(used.name)
    return today is not None and today.published and used.version < today.version and not used.changes


def _protocol_is_published(footer: Footer) -> Iterator[str]:
    published = [f"{protocol.name}/{protocol.version}" for protocol in PROTOCOLS.values() if protocol.published]
    used = footer.experiment.protocol
    if not (used.name in PROTOCOLS and PROTOCOLS[used.name].published):
        yield f"only runs under {' or '.join(published)} are published; run it with --protocol {BOARDS_PROTOCOL}"
    elif used.changes:
        yield f"it changes its protocol ({shown(str(used))[1:-1]}), and a published run does not; run it without --set"


def _seed_is_small(footer: Footer) -> Iterator[str]:
    seed = footer.experiment.seed
    if seed >= MAX_SEEDS:
        yield f"its seed is {seed}, and published seeds count from 0 without a gap; use --seeds 0:5 or more"


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
            yield f"{run.where}: its rows do not say whether the model looks ahead, which this lgbench asks; run it again"


_RULES = (_protocol_is_published, _seed_is_small, _code_is_committed, _something_is_measured)

RULES = (unreleased_plugins, *_RULES)
"""The rules for runs that are to be published, in addition to those for every run."""

FILED_RULES = (unreleased_plugins_since_recorded, *_RULES)
"""The rules for those that are published."""
