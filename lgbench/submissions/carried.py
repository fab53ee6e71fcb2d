"""The weights that a submission carries: which runs have them, and whether those that are filed are theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lgbench.errors import RunFileError
from lgbench.results import weights_files
from lgbench.submissions.footer import shown
from lgbench.submissions.inspection import FoundRun, Run

WeightsOf = Callable[[Run], bytes]
"""The weights that a run kept. Raises RunFileError where they are not there, or not those."""


def keeping(runs: Iterable[Run]) -> list[Run]:
    """The runs that kept their weights."""
    return [run for run in runs if run.footer.kept_weights]


def wrong_weights(runs: Iterable[Run], weights_of: WeightsOf | None) -> Iterator[str]:
    """A sentence for each run whose weights are asked for, and are not there or damaged."""
    if weights_of is None:
        return
    for run in keeping(runs):
        try:
            weights_of(run)
        except RunFileError as error:
            yield f"{run.where}: {error}"


def files_of_weights(runs: Iterable[Run], weights_of: WeightsOf | None) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of weights, one after the other, if anybody asks for them."""
    if weights_of is None:
        return
    for run in keeping(runs):
        assert run.footer.kept_weights
        yield weights_files.name_for(run.footer.experiment, run.footer.kept_weights), weights_of(run)


def other_weights(paths: Iterable[Path], runs: Iterable[FoundRun]) -> Iterator[str]:
    """A sentence for each file of weights among the filed runs that is of no filed run, or damaged."""
    kept = {weights_files.name_for(run.record, run.kept): run.kept for run in runs if run.kept}
    for path in paths:
        if path.name not in kept:
            name = path.parent / shown(path.name)[1:-1]
            yield f"{name} has weights of no filed run, as after a submission that was killed; submit that again, or remove it"
            continue
        try:
            weights_files.read(path, kept[path.name])
        except RunFileError as error:
            yield str(error)
