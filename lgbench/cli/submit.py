"""`lgbench submit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.output import echo
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
    every reason and files nothing.
    """
    from lgbench.submissions import submission

    try:
        filed = submission.submit(runs, folder, installed())
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed") from None
    count = "1 run" if len(filed) == 1 else f"{len(filed)} runs"
    echo(f"{count} filed in {folder / submission.RUNS}/; next: run `make boards`, read the changes, open a pull request")
