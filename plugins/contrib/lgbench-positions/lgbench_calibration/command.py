"""`lgbench calibrate-bias`: the file of biases for the position code `abc`, from the saved weights of a run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lgbench.cli.options import gathered, plugin_option, results_option
from lgbench.cli.output import echo, installed
from lgbench.cli.saved import ModelQuery, device_of_models, run_argument, weights_option
from lgbench.errors import UsageError
from lgbench.experiment.settings import MAX_LETTERS, json_content

THRESHOLD = 0.87
"""Standard deviations above the mean, as for self-attention in the published code."""


@click.command()
@run_argument
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="File of biases to write. Its name ends with .json."
)
@click.option(
    "--threshold",
    type=float,
    default=THRESHOLD,
    show_default=True,
    help="Lines stay whose share of attention is so many standard deviations above the mean.",
)
@click.option("--contexts", type=click.IntRange(1), default=64, show_default=True, help="Contexts of the training length.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the contexts.")
@weights_option
@device_of_models
@plugin_option
@results_option
@gathered(ModelQuery, "query")
def calibrate_bias(query: ModelQuery, out: Path, threshold: float, contexts: int, seed: int) -> None:
    """Find biases for a new training in the attention of a trained model.

    RUN is a run file that `lgbench run --save-weights` wrote, or the id of a run in the results folder. Attention is added up
    along diagonals and columns, over contexts of the training length. Lines that stand out go on to any length in the position
    code abc, as in:

    lgbench run --task TASK --arch abc --set position.calibration=FILE.json
    """
    from lgbench import Random, saved
    from lgbench.atomic_files import replaced
    from lgbench.execution.device import choose_device, full_float32
    from lgbench_calibration.lines import attention, heads_of

    if out.suffix != ".json":
        raise UsageError(f"{str(out)!r} is no name of a file of biases: end it with .json")
    own, where = saved.find(query.run, query.results, query.weights), choose_device(query.device)
    experiment, models = saved.restore(own, installed(query.plugins, only=own.metadata.took_part), where)
    batch = experiment.task.sample(experiment.train.max_length, Random(contexts, seed))
    with full_float32():
        by_layer = attention(experiment, models, query.weights, batch.inputs.to(where))
    layers = [heads_of(weights, batch, threshold) for weights in by_layer]
    _require_room(content := json.dumps({"layers": layers}))
    with replaced(out) as partial:
        partial.write_text(content + "\n", encoding="utf-8")
    for number, heads in enumerate(layers, 1):
        for head, kinds in enumerate(heads, 1):
            lines = "; ".join(f"{kind} {', '.join(lines)}" for kind, lines in kinds.items())
            echo(f"layer {number}, head {head}: {lines or 'no line stands out, so no bias'}")
    echo(out)


def _require_room(content: str) -> None:
    """Raise UsageError for more biases than a run keeps."""
    try:
        json_content("position.calibration", content)
    except UsageError:
        raise UsageError(
            f"so many lines stand out that a run cannot keep them in {MAX_LETTERS} letters: raise --threshold"
        ) from None
