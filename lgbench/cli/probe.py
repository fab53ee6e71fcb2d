"""`lgbench probe`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import click
from click.core import ParameterSource

from lgbench.cli.kept import weights_option
from lgbench.cli.options import Doublings, Folder, Names, plugin_option, results_option
from lgbench.cli.probe_model import LONGEST, SHORTEST, ModelOptions, probe_model
from lgbench.cli.probe_run import probe_run
from lgbench.errors import UsageError

DTYPES = ("float32", "bfloat16")
OF_RUNS = {"weights": "--weights", "results": "--results"}
OF_MODELS = {option.name: f"--{option.name}" for option in fields(ModelOptions)} | {"picture": "--plot"}
"""The options that a RUN has alone, and those that a --model has alone."""


@click.command()
@click.argument("run", required=False, type=Folder(files=True))
@click.option(
    "--model",
    help="Language model, instead of a RUN: hf: and a folder that save_pretrained wrote, or a name on the Hugging Face hub, "
    "as in hf:./my-model.",
)
@click.option(
    "--probe",
    "probes",
    type=Names("probes"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all that apply]",
)
@weights_option
@click.option("--text", type=click.Path(path_type=Path), help="File of text, which the model's own tokenizer reads.")
@click.option("--tokens", type=click.Path(path_type=Path), help="File of token numbers with white space between them.")
@click.option(
    "--lengths",
    type=Doublings(),
    help="Lengths in tokens: the first and the last of lengths that double, as in 16:4096, or all of them, as in 16,100,500.  "
    f"[default: {SHORTEST}:{LONGEST}, or as far as the model's limit]",
)
@click.option(
    "--contexts", type=click.IntRange(1), default=16, show_default=True, help="Contexts of each length, over which means are."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides random tokens and pieces of text.")
@click.option("--dtype", type=click.Choice(DTYPES), default=DTYPES[0], show_default=True, help="Type of the model's numbers.")
@click.option("--out", type=click.Path(path_type=Path), help="File of all rows to write. Its name ends with .parquet or .csv.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path),
    help="Figure of all layers to write, at most 8. Its name ends with .png, .svg, .pdf or .json.",
)
@click.option(
    "--device", help="Device: cpu, cuda, mps, or auto for a CUDA GPU if there is one.  [default: cpu for a RUN, else auto]"
)
@plugin_option
@results_option
@click.pass_context
def probe(
    ctx: click.Context,
    run: Path | None,
    model: str | None,
    probes: Sequence[str],
    weights: str,
    text: Path | None,
    tokens: Path | None,
    lengths: tuple[int, ...] | None,
    contexts: int,
    seed: int,
    dtype: str,
    out: Path | None,
    picture: Path | None,
    device: str | None,
    plugins: Sequence[Path],
    results: Path,
) -> None:
    """Look inside a trained model, of a run or pretrained.

    RUN is a run file that `lgbench run --keep-weights` wrote, or the id of a run in the results folder. The numbers
    are those that `lgbench run --probe` reads at the end of the training.

    With --model, probes read the last position of contexts of each length. The contexts are random tokens, or pieces of --text
    or --tokens that do not overlap. There is a table for each length, with the mean over the heads of each layer. This needs
    `pip install 'lgbench[huggingface]'`. A folder is read without the network.

    lgbench probe --model hf:./my-model --lengths 16:4096 --probe output_std --plot output-std.pdf
    """
    if (run is None) == (model is None):
        raise UsageError("name a RUN or a --model, and not both: lgbench probe RUN, or lgbench probe --model hf:./my-model")
    _refuse(ctx, OF_MODELS if model is None else OF_RUNS, "a --model" if model is None else "a RUN")
    if run is not None:
        probe_run(run, probes, weights, out, device or "cpu", plugins, results)
    if model is not None:
        own = ModelOptions(text, tokens, lengths, contexts, seed, dtype, picture)
        probe_model(model, probes, out, device or "auto", plugins, own)


def _refuse(ctx: click.Context, options: dict[str, str], whose: str) -> None:
    """Raise UsageError for the first of these options that was given."""
    for name, option in options.items():
        if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
            raise UsageError(f"{option} is for {whose}: leave it out")
