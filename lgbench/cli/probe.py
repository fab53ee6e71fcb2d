"""`lgbench probe`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.kept import device_of_models, run_argument, weights_option
from lgbench.cli.options import Names, plugin_option, results_option
from lgbench.cli.probe_run import probe_run
from lgbench.results.addresses import Place


@click.command()
@run_argument
@click.option(
    "--probe",
    "probes",
    type=Names("probes"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all that the task has]",
)
@weights_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File of all rows to write, of all weights. Its name ends with .parquet or .csv.",
)
@device_of_models
@plugin_option
@results_option
def probe(
    run: Place,
    probes: Sequence[str],
    weights: str,
    out: Path | None,
    device: str,
    plugins: Sequence[Path],
    results: Place,
) -> None:
    """Look inside a trained model.

    RUN is a run file that `lgbench run --keep-weights` wrote, its address, or the id of a run in the results folder. The
    numbers are those that `lgbench run --probe` reads at the end of the training.
    """
    probe_run(run, probes, weights, out, device, plugins, results)
