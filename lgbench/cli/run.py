"""`lgbench run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.executors import executor_options
from lgbench.cli.option_types import Change, Names, Seeds
from lgbench.cli.options import device_option, joined, plugin_option, results_option, split
from lgbench.cli.run_request import run_request
from lgbench.cli.setup import installed
from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.errors import UsageError
from lgbench.experiment.protocols import DEFAULT_PROTOCOL, PRECISIONS
from lgbench.results.addresses import Place

if TYPE_CHECKING:
    from lgbench.execution.manner import Engine


@click.command()
@click.option("--task", "tasks", type=Names("tasks"), multiple=True, required=True, help="Task, family of tasks, or all.")
@click.option(
    "--arch",
    "archs",
    type=Names("archs", "norms", "attentions", "positions"),
    multiple=True,
    required=True,
    help="Architecture, parts of one (norm, attention, position code), or both joined by +, as in transformer+peri-norm; or a "
    "function in a file that builds a model, as in ./my_model.py:build.",
)
@click.option(
    "--optimizer",
    type=Names("optimizers"),
    default=DEFAULT_OPTIMIZER,
    show_default=True,
    help="Optimizer that trains the models.",
)
@click.option(
    "--average",
    type=Names("averagers"),
    multiple=True,
    help="Averages of the weights to test beside the raw weights, or none.  [default: those that come with lgbench]",
)
@click.option(
    "--seeds", type=Seeds(), default="0:3", show_default=True, help="Seeds: a range such as 0:3, or numbers such as 0,5."
)
@click.option(
    "--protocol",
    type=Names("protocols"),
    default=DEFAULT_PROTOCOL,
    show_default=True,
    help="Protocol: the settings that must be equal for entries to be compared.",
)
@click.option(
    "--set",
    "changes",
    type=Change(),
    multiple=True,
    help="Change a setting of the protocol, or an option of the model, a part or the optimizer, as in train.steps=500, "
    "model.layers=4 or attention.window=64. Several values, as in train.lr=1e-3,3e-3, are all run.",
)
@device_option
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=PRECISIONS[0],
    show_default=True,
    help="Precision in which models compute. Boards keep the runs of each apart.",
)
@click.option(
    "--probe",
    "probes",
    type=Names("probes"),
    multiple=True,
    help="Probes to read, of what is inside the models: all, none, or names joined by commas. They change no other number.  "
    "[default: none]",
)
@click.option(
    "--keep-weights",
    is_flag=True,
    help="Keep the raw and the averaged weights of each run, in a file beside its run file. They change no number.",
)
@click.option(
    "--track",
    type=Names("trackers"),
    multiple=True,
    help="Trackers that follow the runs while they train. They change no number.  [default: none]",
)
@click.option(
    "--compile/--no-compile", default=None, help="Compile the training step, or never do.  [default: if that saves time]"
)
@click.option(
    "--population", type=int, help="Models to train together, at most.  [default: what is fastest and fits in memory]"
)
@click.option("--workers", type=int, help="Processes that train at the same time.  [default: one for each core, one on a GPU]")
@click.option("--checkpoint", type=float, default=60.0, show_default=True, help="Seconds of training between two checkpoints.")
@executor_options
@click.option("--dry-run", is_flag=True, help="Say what would run and what that would take, and run nothing.")
@plugin_option
@results_option
def run(
    tasks: Sequence[str],
    archs: Sequence[str],
    optimizer: str,
    average: Sequence[str],
    seeds: tuple[int, ...],
    protocol: str,
    changes: Sequence[tuple[str, str]],
    device: str,
    precision: str,
    probes: Sequence[str],
    keep_weights: bool,
    track: Sequence[str],
    compile: bool | None,
    population: int | None,
    workers: int | None,
    checkpoint: float,
    engine: Engine,
    dry_run: bool,
    plugins: Sequence[Path],
    results: Place,
) -> None:
    """Train entries on tasks and test them at every length.

    One entry on one task with one seed is a run, and has a Parquet file. --task, --arch, --average, --probe and --track can be
    repeated, or take several names joined by commas. Every combination of tasks, entries, seeds and values of --set is run.
    --optimizer and --protocol take one name; repeated, the last one counts. A run that is in the results folder already is not
    run again. Several commands at the same time share the work. Under a protocol that tries learning rates, tuning runs come
    first, which choose one for each entry on each task. Runs for an address are made in the cache folder of this machine and
    published as they are done; an object that is there already is never replaced.
    """
    from lgbench.execution.manner import Manner
    from lgbench.experiment.plan import Request
    from lgbench.extensions.function_files import take_functions
    from lgbench.extensions.tracking import usable

    averagers, settings = _averagers(average), joined(changes)
    names, functions = take_functions(split(archs))
    files = [*plugins, *functions]
    named = Request(split(tasks), names, averagers, seeds, protocol, settings, optimizer, precision, split(probes))
    registry = installed(files)
    manner = Manner(device, compile, population, checkpoint, workers, keep_weights, usable(split(track), registry))
    run_request(named, registry, manner, engine, files, results, dry_run)


def _averagers(average: Sequence[str]) -> list[str] | None:
    """The averagers that `--average` names; None, for the default, if it is not given."""
    names = split(average)
    others = [name for name in names if name != "none"]
    if others and "none" in names:
        raise UsageError(f"--average names none and {', '.join(others)}: use none alone, or leave it out")
    return others if average else None
