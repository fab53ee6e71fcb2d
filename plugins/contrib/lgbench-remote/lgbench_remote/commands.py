"""`lgbench push` and `lgbench pull`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.errors import Interrupted, Refused
from lgbench_remote.copying import WEIGHTS, Copied, copied
from lgbench_remote.folders import Folder

_folder = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("results", type=_folder)
@click.argument("address")
def push(results: Path, address: str) -> None:
    """Copy the runs of a results folder to an address.

    ADDRESS is that of any file system of fsspec, such as s3://my-bucket/results or ssh://machine/results. What is there already
    stays. Tuning runs and saved weights come along.
    """
    _copy(Folder.here(results), Folder.at(address))


@click.command()
@click.argument("address")
@click.argument("results", type=_folder)
def pull(address: str, results: Path) -> None:
    """Copy the runs at an address to a results folder.

    The folder is made if it is not there. What is there already stays. Every file is checked before it gets its name. Tuning
    runs and saved weights come along.
    """
    _copy(Folder.at(address), Folder.here(results))


def _copy(source: Folder, target: Folder) -> None:
    try:
        done = copied(source, target)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; every file that was copied is whole, and the same command copies the others") from None
    click.echo(f"{_counted(done)} copied to {target}; {done.there} files there before")
    if done.left_out:
        files = "1 file is" if len(done.left_out) == 1 else f"{len(done.left_out)} files are"
        raise Refused(done.left_out, f"{files} left out, and all others are at {target}:")


def _counted(done: Copied) -> str:
    weights = sum(name.endswith(WEIGHTS) for name in done.made)
    runs = len(done.made) - weights
    return f"{runs} {'file' if runs == 1 else 'files'} of runs" + (f" and {weights} of weights" if weights else "")
