"""Commands on saved weights: `lgbench predict` and `lgbench probe`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli import options
from lgbench.cli.output import complain, console, echo, echo_data, installed

if TYPE_CHECKING:
    from lgbench.saved import Prediction


@dataclass(frozen=True)
class ModelQuery:
    """Choice of a trained model by path or name, and of its device."""

    run: Path
    weights: str
    device: str
    plugins: Sequence[Path]
    results: Path


run_argument = click.argument("run", type=options.Folder(files=True))

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

    The model's distribution p stands beside the right one, p*. RUN is a run file that `lgbench run --save-weights` wrote, or
    the id of a run in the results folder.
    """
    from lgbench import saved
    from lgbench.reports.curves import bars

    own = saved.find(query.run, query.results, query.weights)
    registry = installed(query.plugins, only=own.metadata.took_part)  # others could change the answers
    model = saved.loaded(own, registry, query.device, query.weights)
    found = [saved.predicted(model, text) for text in contexts]
    if as_json:
        echo_data(json.dumps([_document(each) for each in found], indent=2, allow_nan=False) + "\n")
        return
    for each in found:
        echo(f"{model.record.title}, {model.weights} weights, after {each.context}")
        bars(each.answers, each.p, each.right, console())
        if each.tvd is None:
            echo("the task does not say p* of a context that it has not drawn itself")
        else:
            echo(f"TVD {each.tvd:.4f}" if isfinite(each.tvd) else "the model's answer is not finite")


def _document(found: Prediction) -> dict[str, object]:
    """As readers of JSON know the two distributions. JSON has no NaN."""
    p = [value if isfinite(value) else None for value in found.p]
    tvd = found.tvd if found.tvd is not None and isfinite(found.tvd) else None
    return {"context": found.context, "answers": found.answers, "p": p, "p_star": found.right, "tvd": tvd}


@click.command()
@run_argument
@click.option(
    "--probe",
    "probes",
    type=options.Names("probes"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all of lgbench and of the plugins of the run]",
)
@weights_option
@click.option("--out", type=click.Path(path_type=Path), help="File of all rows to write. Its name ends with .parquet or .csv.")
@device_of_models
@options.plugin_option
@options.results_option
@options.gathered(ModelQuery, "query")
def probe(query: ModelQuery, probes: Sequence[str], out: Path | None) -> None:
    """Look inside the trained model of a run.

    RUN is a run file that `lgbench run --save-weights` wrote, or the id of a run in the results folder. The numbers are those
    that `lgbench run --probe` reads at the end of the training. `lgbench probe-model` of the pack lgbench-huggingface reads the
    same inside pretrained language models.
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
