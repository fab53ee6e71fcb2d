"""`lgbench submit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.output import complain, echo
from lgbench.cli.setup import installed
from lgbench.errors import Interrupted


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the leaderboards. Runs are filed in its folder runs/.",
)
def submit(runs: Sequence[Path], folder: Path) -> None:
    """File runs among the published ones.

    RUNS are run files, or folders of them. lgbench checks all of them first: each must be a whole run under a published
    protocol, with installed plugins, and each task of a family needs the same seeds. If anything is wrong, lgbench prints
    every reason and files nothing. If lgbench is killed while it files them, the next `lgbench submit` files the rest.
    """
    from lgbench.submissions import submission

    try:
        registry = installed()
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed") from None
    done = submission.submit(runs, folder, registry, complain)
    if done.finished:
        echo(f"a submission was killed before; its {_runs(done.finished)} are among these")
    if done.before:
        echo(f"{_runs(len(done.before))} filed before, with the same content")
    place = folder / submission.RUNS
    echo(f"{_runs(len(done.filed))} filed in {place}/; next: run `make boards`, read the changes, open a pull request")


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"
