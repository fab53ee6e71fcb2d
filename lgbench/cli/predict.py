"""`lgbench predict`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import click

from lgbench.cli.kept import device_of_models, loaded, run_argument, weights_option
from lgbench.cli.options import json_option, plugin_option, results_option
from lgbench.cli.output import console, echo, echo_data


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
@json_option
@device_of_models
@plugin_option
@results_option
def predict(
    run: Path,
    contexts: Sequence[str],
    weights: str,
    as_json: bool,
    device: str,
    plugins: Sequence[Path],
    results: Path,
) -> None:
    """Ask a trained model what comes after a context.

    The model's distribution p stands beside the right one, p*. RUN is a run file that `lgbench run --keep-weights` wrote, or
    the id of a run in the results folder.
    """
    from lgbench.kept.loading import predicted
    from lgbench.reports.curves import bars

    model = loaded(run, weights, results, plugins, device)
    found = [predicted(model, text) for text in contexts]
    if as_json:
        rows = [asdict(each) | {"p": [p if isfinite(p) else None for p in each.p], "tvd": each.tvd} for each in found]
        echo_data(json.dumps([_named(row) for row in rows], indent=2, allow_nan=False) + "\n")
        return
    for each in found:
        echo(f"{model.record.title}, {model.weights} weights, after {each.context}")
        bars(each.answers, each.p, each.right, console())
        if each.tvd is None:
            echo("the task does not say p* of a context that it has not drawn itself")
        else:
            echo(f"TVD {each.tvd:.4f}" if isfinite(each.tvd) else "the model's answer is not finite")


def _named(row: dict[str, object]) -> dict[str, object]:
    """As readers of JSON know the two distributions."""
    tvd = row["tvd"]
    return {
        "context": row["context"],
        "answers": row["answers"],
        "p": row["p"],
        "p_star": row["right"],
        "tvd": tvd if isinstance(tvd, float) and isfinite(tvd) else None,
    }
