"""`lgbench merge`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.option_types import Folder
from lgbench.cli.output import complain, echo
from lgbench.cli.setup import warn
from lgbench.errors import Interrupted, RunFileError


@click.command()
@click.argument("folders", type=Folder(), nargs=-1, required=True)
@click.option("--to", type=Folder(), required=True, help="Folder that gets the runs. It may have some already.")
def merge(folders: Sequence[Path], to: Path) -> None:
    """Bring the runs of several folders into one.

    FOLDERS are folders of runs, such as those of several machines. The same run in two of them becomes one. If a
    run has different numbers in two files, lgbench names both files and writes nothing. Tuning runs and kept weights come
    along. Runs that are there already stay as they are, and nothing is removed.
    """
    from lgbench.results import merging

    try:
        done = merging.merge(folders, to, complain)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; every file that was written is whole. The same command merges the others") from None
    runs = "1 run" if done.written == 1 else f"{done.written} runs"
    weights = f", weights of {done.weights} of them" if done.weights else ""
    echo(f"{runs} written to {to}/{weights}; {done.there} there before")
    if done.left_out:
        warn(done.left_out)
        count = "1 file is" if len(done.left_out) == 1 else f"{len(done.left_out)} files are"
        raise RunFileError(f"{count} left out; all else is merged")
