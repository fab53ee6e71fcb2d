"""`lgbench submit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.options import Folder
from lgbench.cli.output import echo, installed
from lgbench.errors import Interrupted


@click.command()
@click.argument("runs", type=Folder(files=True), nargs=-1, required=True)
@click.option(
    "--to",
    "folder",
    type=Folder(),
    required=True,
    help="Folder of the leaderboards. The submission file is made in its folder runs/.",
)
@click.option(
    "--weights",
    is_flag=True,
    help="File kept weights too, those of each run in a file beside the submission file, for `lgbench verify --evaluate-only`.",
)
def submit(runs: Sequence[Path], folder: Path, weights: bool) -> None:
    """File runs among the published ones.

    RUNS are run files or submission files, or folders of them. lgbench checks all runs first: each must be a whole run under a
    published protocol, with installed plugins, and each task of a family needs the same seeds. If anything is wrong, lgbench
    prints every reason and files nothing. Otherwise it writes one submission file with all of them.
    """
    from lgbench.submissions import submission

    try:
        registry = installed()
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was filed") from None
    done = submission.submit(runs, folder, registry, weights)
    if done.before:
        echo(f"{_runs(done.before)} filed before, with the same content")
    if weights:
        none = "no run has kept weights; make runs with --keep-weights"
        echo(f"weights of {_runs(done.weights)} are filed" if done.weights else none)
    if done.file:
        echo(f"{_runs(done.filed)} filed in {done.file}; next: run `make boards`, read the changes, open a pull request")


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"
