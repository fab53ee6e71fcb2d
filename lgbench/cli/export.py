"""`lgbench export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.kept import found, run_argument
from lgbench.cli.options import plugin_option, results_option
from lgbench.cli.output import echo
from lgbench.cli.setup import installed
from lgbench.results.addresses import Place


@click.command()
@run_argument
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder to make. It may not be there yet, or be empty.",
)
@plugin_option
@results_option
def export(run: Place, folder: Path, plugins: Sequence[Path], results: Place) -> None:
    """Write a trained model as a folder that stands alone.

    RUN is a run file that `lgbench run --keep-weights` wrote, its address, or the id of a run in the results folder. The folder
    has the weights, the run file, a card with the numbers (README.md), the code to load the model (load.py), and the plugin
    files that it needs.
    """
    from lgbench.kept import exporting

    own = found(run, results)
    names = exporting.export(own, folder, installed(plugins), plugins)
    echo(f"{own.footer.experiment.title} exported to {folder}/: {', '.join(names)}")
