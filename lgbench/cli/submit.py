"""Commands on submissions: `lgbench submit` and `lgbench verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from lgbench.cli import options
from lgbench.cli.output import console, echo, installed
from lgbench.errors import Interrupted, Unverified, UsageError
from lgbench.terminal import counted

if TYPE_CHECKING:
    from lgbench.results.stored_runs import StoredRun
    from lgbench.submissions.verdict import Failure, RerunVerdict, Tolerance


@click.command()
@click.argument("runs", type=options.Folder(files=True), nargs=-1, required=True)
@click.option(
    "--out",
    "folder",
    type=options.Folder(),
    required=True,
    help="Folder of the leaderboards. The submission file is made in its folder runs/.",
)
def submit(runs: Sequence[Path], folder: Path) -> None:
    """File runs among the published runs.

    RUNS are run files or submission files, or folders of them. lgbench checks all runs first: each must be a whole run under a
    published protocol, with installed plugins, and each task of a family needs the same seeds. If anything is wrong, lgbench
    prints every reason and files nothing. Otherwise lgbench writes one submission file with all runs.
    """
    from lgbench.submissions import submission

    try:
        registry = installed()
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed") from None
    done = submission.submit(runs, folder, registry)
    if done.before:
        echo(f"{counted(done.before, 'run')} filed before, with the same content")
    if done.file:
        filed = counted(done.filed, "run")
        echo(f"{filed} filed in {done.file}; next: run `make boards`, read the changes, open a pull request")


@dataclass(frozen=True)
class RerunRequest:
    """Options of `lgbench verify`."""

    sample: int | None
    patterns: Sequence[str]
    tolerance: float | None
    tuning: bool
    evaluate_only: bool
    device: str
    plugins: Sequence[Path]


@click.command()
@click.argument("runs", type=options.Folder(files=True), nargs=-1, required=True)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Number of runs to repeat, drawn at random before the rows of any are read.  [default: all]",
)
@click.option(
    "--run",
    "patterns",
    multiple=True,
    help="Only runs with this id, or with a name that fits, such as 'tomita-4.*.seed-0.*'. Repeatable.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest allowed difference of a number; a third of it for means over lengths. 0.3 allows for all that is known of "
    "rounding on another machine.  [default: 0.0001]",
)
@click.option(
    "--tuning/--no-tuning",
    default=True,
    show_default=True,
    help="Make the tuning runs again, too, that chose a learning rate: once for each entry and task, in a quarter of the steps "
    "for each rate and tuning seed.",
)
@click.option(
    "--evaluate-only",
    is_flag=True,
    help="Test saved weights again instead of training: seconds instead of minutes. Compares what was measured of the trained "
    "models, and nothing of the training.",
)
@options.device_option
@options.plugin_option
@options.gathered(RerunRequest, "asked")
def verify(runs: Sequence[Path], asked: RerunRequest) -> None:
    """Run files again and compare every number.

    RUNS are run files or submission files, or folders of them. lgbench repeats each run with the settings in its file, and
    writes nothing. Numbers must be equal, even for runs by another torch, device or number of threads. Rounding may then
    differ, and training amplifies the difference: allow for rounding by --tolerance.
    """
    named_tuning = click.get_current_context().get_parameter_source("tuning") is ParameterSource.COMMANDLINE
    if asked.evaluate_only and named_tuning and asked.tuning:
        raise UsageError("--tuning makes tuning runs again, and --evaluate-only trains nothing: leave one of them out")
    if asked.tolerance is not None and not isfinite(asked.tolerance):  # NaN would agree with everything
        raise UsageError(f"--tolerance {asked.tolerance} is no finite number; 0.3 allows for rounding on another machine")
    from lgbench.submissions.verdict import Tolerance

    allowed = Tolerance() if asked.tolerance is None else Tolerance(asked.tolerance)
    outcomes: list[RerunVerdict | Failure] = []
    wrong: list[str] = []
    try:
        for outcome in _outcomes(runs, asked, allowed, wrong):
            outcomes.append(outcome)
            echo("\n".join(outcome.lines()))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the outcomes above are complete, and nothing was written") from None
    agreed = sum(outcome.agrees for outcome in outcomes)
    if wrong or agreed < len(outcomes):
        refused = "; see above for what was refused" if wrong else ""
        raise Unverified(f"{agreed} of {len(outcomes)} runs verified{refused}")
    wide = f", {allowed} instead of {Tolerance()}" if allowed.is_wide else ""
    echo(f"{agreed} of {len(outcomes)} runs verified{wide}")


def _outcomes(
    runs: Sequence[Path], asked: RerunRequest, allowed: Tolerance, wrong: list[str]
) -> Iterator[RerunVerdict | Failure]:
    """Outcomes of repeated runs, one by one. Sentences about refused files are printed and added to `wrong`."""
    from lgbench.execution.device import choose_device
    from lgbench.execution.progress import ConsoleProgress
    from lgbench.submissions import inspection, verification

    where = choose_device(asked.device)
    found, unreadable = inspection.found_in(runs)
    drawn = _drawn(found, asked)
    wrong += unreadable
    # Other plugins could change the numbers.
    registry = installed(asked.plugins, only={name for run in drawn for name in run.metadata.took_part})
    inspected = list(inspection.inspected(drawn, registry, wrong))
    for sentence in wrong:
        echo(f"refused: {sentence}")
    shown = ConsoleProgress(console(stderr=True))
    if asked.evaluate_only:
        yield from verification.evaluate_again(inspected, where, shown, allowed)
    else:
        yield from verification.verify(inspected, where, shown, allowed, asked.tuning)


def _drawn(found: Sequence[StoredRun], asked: RerunRequest) -> list[StoredRun]:
    """Runs to repeat, which are printed. Raises UsageError if no run has a name that was asked for."""
    from lgbench.submissions.verification import drawn

    named = [run for run in found if run.is_named(asked.patterns)]
    if found and not named:
        patterns = ", ".join(map(repr, asked.patterns))
        raise UsageError(f"--run {patterns} names none of the {len(found)} runs; the first is {found[0].where}")
    runs = drawn(named, asked.sample)
    doing = "testing the weights again of" if asked.evaluate_only else "running again"
    how = ", drawn at random" if len(runs) < len(named) else ""
    echo(f"{doing} {len(runs)} of {len(named)} runs{how}:" if named else "there is no run to repeat")
    for run in runs:
        echo(f"  {run.where}")
    return runs
