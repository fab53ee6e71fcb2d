"""Commands on models and runs of run files: `lgbench predict`, `lgbench probe`, `lgbench verify` and `lgbench submit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli import options
from lgbench.cli.output import complain, console, echo, echo_data, installed
from lgbench.errors import Interrupted, LgbenchError, UsageError
from lgbench.terminal import counted

if TYPE_CHECKING:
    from lgbench.results.stored_runs import StoredRun
    from lgbench.submissions.verdict import Failure, RerunVerdict


@dataclass(frozen=True)
class ModelQuery:
    """Choice of a trained model by path or name, and of its device."""

    run: Path
    weights: str
    device: str
    plugins: Sequence[Path]
    results: Path


run_argument = click.argument("run", type=options.FILE)

weights_option = click.option("--weights", default="raw", show_default=True, help="Weights: raw, or the name of an averager.")

device_of_models = click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda or mps.")


@click.command()
@run_argument
@click.option(
    "--context",
    "contexts",
    multiple=True,
    required=True,
    help="What the model reads, in the task's own symbols, as `lgbench show TASK` writes contexts. Can be repeated.",
)
@weights_option
@options.json_option
@device_of_models
@options.plugin_option
@options.results_option
@options.gathered(ModelQuery, "query")
def predict(query: ModelQuery, contexts: Sequence[str], as_json: bool) -> None:
    """Ask a trained model what comes after a context.

    The model's distribution p stands beside the right one, p*. RUN is a run file that `lgbench run --save-weights` wrote, a
    folder with one, or the id of a run in the results folder.
    """
    from lgbench import saved
    from lgbench.reports.curves import bars
    from lgbench.reports.tables import as_json as json_text

    own = saved.find(query.run, query.results, query.weights)
    registry = installed(query.plugins, only=own.metadata.took_part)  # others could change the answers
    model = saved.loaded(own, registry, query.device, query.weights)
    found = [saved.predicted(model, text) for text in contexts]
    if as_json:
        names = {"context": "context", "answers": "answers", "p": "p", "p_star": "right", "tvd": "tvd"}
        echo_data(json_text([{name: getattr(each, field) for name, field in names.items()} for each in found]))
        return
    for each in found:
        echo(f"{model.record.title}, {model.weights} weights, after {each.context}")
        bars(each.answers, each.p, each.right, console())
        if each.tvd is None:
            echo("the task says no p* after this context")
        else:
            echo(f"TVD {each.tvd:.4f}" if isfinite(each.tvd) else "the model's answer is not finite")


@click.command()
@run_argument
@click.option(
    "--probe",
    "probes",
    type=options.Names("probe"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all of lgbench and of the plugins of the run]",
)
@weights_option
@click.option("--out", type=options.FILE, help="File of all rows to write. Its name ends with .parquet or .csv.")
@device_of_models
@options.plugin_option
@options.results_option
@options.gathered(ModelQuery, "query")
def probe(query: ModelQuery, probes: Sequence[str], out: Path | None) -> None:
    """Look inside the trained model of a run.

    RUN is a run file that `lgbench run --save-weights` wrote, a folder with one, or the id of a run in the results folder. The
    numbers are those that `lgbench run --probe` reads at the end of the training. `lgbench probe-model` of the pack
    lgbench-huggingface reads the same inside pretrained language models.
    """
    from lgbench import saved
    from lgbench.reports import files
    from lgbench.reports.analyses import PROBE_COLUMNS, probe_table
    from lgbench.reports.tables import show

    if out:
        files.known_format(out)  # before the work, not after it
    own = saved.find(query.run, query.results, query.weights)
    rows = saved.probe_run(own, options.split(probes) or ["all"], partial(installed, query.plugins), query.device, complain)
    echo(f"{own.record.title}, {query.weights} weights; by length, the mean over heads")
    show(probe_table(rows, query.weights), console())
    if out:
        files.replace(out, files.content(rows.select(PROBE_COLUMNS), out))
        echo(out)


@click.command()
@click.argument("runs", type=options.EXISTING, nargs=-1, required=True)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Number of runs to repeat, drawn at random.  [default: all]",
)
@click.option(
    "--run",
    "patterns",
    multiple=True,
    help="Only runs with this id, or with a name that fits, such as 'tomita-4.*.seed-0.*'. Repeatable.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest allowed difference of a number; a third of it for means over lengths. 0.3 covers most of the known "
    "differences between machines.  [default: 0.0001]",
)
@click.option(
    "--tuning/--no-tuning",
    default=True,
    show_default=True,
    help="Make the tuning runs again, too, that chose a learning rate: once for each entry and task, in a quarter of the steps "
    "for each rate and tuning seed.",
)
@options.device_option
@options.plugin_option
def verify(
    runs: Sequence[Path],
    sample: int | None,
    patterns: Sequence[str],
    tolerance: float | None,
    tuning: bool,
    device: str,
    plugins: Sequence[Path],
) -> None:
    """Run files again and compare every number.

    RUNS are run files or submission files, or folders of them. lgbench repeats each run with the settings in its file, and
    writes nothing. Numbers must agree within --tolerance. With another torch, device or number of threads rounding differs, and
    training amplifies the difference: allow for it by a wide one.
    """
    if tolerance is not None and not isfinite(tolerance):  # NaN would agree with everything
        raise UsageError(f"--tolerance {tolerance} is no finite number; 0.3 allows for rounding on another machine")
    from lgbench.execution.device import choose_device
    from lgbench.execution.progress import ConsoleProgress
    from lgbench.submissions import inspection, verification
    from lgbench.submissions.verdict import Tolerance

    allowed = Tolerance() if tolerance is None else Tolerance(tolerance)
    outcomes: list[RerunVerdict | Failure] = []
    try:
        where = choose_device(device)
        found, wrong = inspection.found_in(runs)
        chosen = _drawn(found, patterns, sample)
        # Other plugins could change the numbers.
        registry = installed(plugins, only={name for run in chosen for name in run.metadata.took_part})
        inspected = list(inspection.inspected(chosen, registry, wrong))
        for sentence in wrong:
            echo(f"refused: {sentence}")
        for outcome in verification.verify(inspected, where, ConsoleProgress(console(stderr=True)), allowed, tuning):
            outcomes.append(outcome)
            echo("\n".join(outcome.lines()))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the outcomes above are complete, and nothing was written") from None
    agreed = sum(outcome.agrees for outcome in outcomes)
    if wrong or agreed < len(outcomes):
        refused = "; the files above were refused" if wrong else ""
        raise LgbenchError(f"{agreed} of {len(outcomes)} runs verified{refused}")
    wide = f", {allowed} instead of {Tolerance()}" if allowed.is_wide else ""
    echo(f"{agreed} of {len(outcomes)} runs verified{wide}")


def _drawn(found: Sequence[StoredRun], patterns: Sequence[str], sample: int | None) -> list[StoredRun]:
    """Runs to repeat, which are printed. Raises UsageError if no run has a name that was asked for."""
    from lgbench.submissions.verification import drawn

    named = [run for run in found if run.is_named(patterns)]
    if found and not named:
        asked = ", ".join(map(repr, patterns))
        raise UsageError(f"--run {asked} names none of the {len(found)} runs; the first is {found[0].where}")
    runs = drawn(named, sample)
    how = ", drawn at random" if len(runs) < len(named) else ""
    echo(f"running again {len(runs)} of {len(named)} runs{how}:" if named else "there is no run to repeat")
    for run in runs:
        echo(f"  {run.where}")
    return runs


@click.command()
@click.argument("runs", type=options.EXISTING, nargs=-1, required=True)
@click.option(
    "--out",
    "folder",
    type=options.FOLDER,
    required=True,
    help="Folder of the leaderboards. The submission file is made in its folder runs/.",
)
def submit(runs: Sequence[Path], folder: Path) -> None:
    """File runs among the published runs.

    RUNS are run files or submission files, or folders of them. lgbench checks all runs first: each must be a whole run under a
    published protocol, with installed plugins, and each task of a family needs the same seeds. If anything is wrong, lgbench
    prints every reason and files nothing. Otherwise lgbench writes one submission file with all runs.
    """
    from lgbench.submissions import submission

    done = submission.submit(runs, folder, installed())
    if done.before:
        echo(f"{counted(done.before, 'run')} filed before, with the same content")
    if done.file:
        filed = counted(done.filed, "run")
        echo(f"{filed} filed in {done.file}; next: run `make boards`, read the changes, open a pull request")
