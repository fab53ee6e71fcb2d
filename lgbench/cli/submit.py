"""Commands that gather run files: `lgbench merge` in a results folder, `lgbench submit` among the published runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli import options
from lgbench.cli.output import complain, echo, installed, warn
from lgbench.errors import Interrupted, RunFileError
from lgbench.terminal import counted


@click.command()
@click.argument("folders", type=options.Folder(), nargs=-1, required=True)
@click.option("--out", type=options.Folder(), required=True, help="Folder that gets the runs. It may have some already.")
def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge the runs of several folders into one folder.

    FOLDERS are folders of runs, for example from several machines. A run in several folders is copied once. If two files of a
    run have different numbers, lgbench names both files. Tuning runs and saved weights are copied, too. Runs already in the
    target folder stay unchanged, and no file is removed.
    """
    from lgbench.results import merging

    try:
        done = merging.merge(folders, out)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; every file that was written is whole. The same command merges the others") from None
    weights = f", {done.weights} with weights" if done.weights else ""
    echo(f"{counted(done.written, 'run')} written to {out}/{weights}; {done.equal} were there already")
    if done.different:
        for sentence in done.different:
            complain(sentence)
        files = counted(len(done.different), "file", "has", "have")
        raise RunFileError(f"{files} other numbers than another file of the same run; keep one file of each")
    if done.left_out:
        warn(done.left_out)
        raise RunFileError(f"{counted(len(done.left_out), 'file', 'is', 'are')} left out; all else is merged")


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
