"""`lgbench run`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import run_options
from lgbench.cli.run_request import run_request
from lgbench.cli.setup import installed
from lgbench.options import RunOptions


@click.command()
@run_options
@click.option("--dry-run", is_flag=True, help="Say what would run and what that would take, and run nothing.")
def run(options: RunOptions, dry_run: bool) -> None:
    """Train entries on tasks and test them at every length.

    One entry on one task with one seed is a run, and has a Parquet file. --task, --arch, --average, --probe and --track can be
    repeated, or take several names joined by commas. Every combination of tasks, entries, seeds and values of --set is run.
    --optimizer and --protocol take one name; repeated, the last one counts. A run that is in the results folder already is not
    run again. Several commands at the same time share the work. Under a protocol that tries learning rates, tuning runs come
    first, which choose one for each entry on each task.
    """
    from lgbench.functions import with_functions

    options = with_functions(options)
    run_request(options, installed([*map(Path, options.plugins)]), dry_run)
