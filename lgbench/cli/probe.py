"""`lgbench probe`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.kept import device_of_models, run_argument, weights_option
from lgbench.cli.options import Names, plugin_option, results_option, split
from lgbench.cli.output import complain, console, echo, installed


@click.command()
@run_argument
@click.option(
    "--probe",
    "probes",
    type=Names("probes"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all that apply]",
)
@weights_option
@click.option("--out", type=click.Path(path_type=Path), help="File of all rows to write. Its name ends with .parquet or .csv.")
@device_of_models
@plugin_option
@results_option
def probe(
    run: Path,
    probes: Sequence[str],
    weights: str,
    out: Path | None,
    device: str,
    plugins: Sequence[Path],
    results: Path,
) -> None:
    """Look inside the trained model of a run.

    RUN is a run file that `lgbench run --keep-weights` wrote, or the id of a run in the results folder. The numbers are those
    that `lgbench run --probe` reads at the end of the training. `lgbench probe-model` of the pack lgbench-huggingface reads the
    same inside pretrained language models.
    """
    from lgbench.execution.device import choose_device
    from lgbench.kept import loading, probing
    from lgbench.reports import files
    from lgbench.reports.analyses import PROBE_COLUMNS, probe_table
    from lgbench.reports.tables import show

    if out:
        files.known_format(out)
    own = loading.find(run, results)
    own.require_variant(weights)
    rows = probing.probe_run(own, split(probes) or ["all"], installed(plugins), choose_device(device), complain)
    echo(f"{own.record.title}, {weights} weights; by length, the mean over heads")
    show(probe_table(rows, weights), console())
    if out:
        files.replace(out, files.content(rows.select(PROBE_COLUMNS), out))
        echo(out)
