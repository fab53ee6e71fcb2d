"""`lgbench probe-model`: probes of a language model that others trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import Names, device_option, plugin_option, split
from lgbench.cli.options import lengths as lengths_of
from lgbench.cli.output import complain, console, echo, installed
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from lgbench_pretrained.loading import Pretrained
    from lgbench_pretrained.probing import Probing
    from lgbench_pretrained.readings import ModelRows
    from lgbench_pretrained.tokens import Contexts

SHORTEST, LONGEST = 16, 1024
DTYPES = ("float32", "bfloat16")
FITTED = "output_std"
"""The probe of which the last line has the exponent (arXiv 2504.02827, figure 1)."""


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Lengths from `first` by doubling, up to at most `last`.

    >>> doublings(16, 100)
    (16, 32, 64)
    """
    return tuple(first << i for i in range((last // first).bit_length()))


def _parsed(text: str) -> tuple[int, ...]:
    """`16:128` is 16, 32, 64 and 128; `40,80` is 40 and 80."""
    if ":" not in text:
        return lengths_of(text)
    ends = [part.strip() for part in text.split(":")]
    if len(ends) == 2 and all(end.isascii() and end.isdigit() for end in ends):
        first, last = map(int, ends)
        if 1 <= first <= last:
            return doublings(first, last)
    raise click.BadParameter(f"{text!r} names no lengths; use the first and the last of lengths that double, as in 16:4096")


@click.command()
@click.argument("model")
@click.option(
    "--probe",
    "probes",
    type=Names("probe"),
    multiple=True,
    help="Probes, joined by commas, or all. Can be repeated.  [default: all that apply]",
)
@click.option("--text", type=click.Path(path_type=Path), help="File of text, which the model's own tokenizer reads.")
@click.option("--tokens", type=click.Path(path_type=Path), help="File of token numbers with white space between them.")
@click.option(
    "--lengths",
    type=_parsed,
    metavar="LENGTHS",
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
@device_option
@plugin_option
def probe_model(
    model: str,
    probes: Sequence[str],
    text: Path | None,
    tokens: Path | None,
    lengths: tuple[int, ...] | None,
    contexts: int,
    seed: int,
    dtype: str,
    out: Path | None,
    picture: Path | None,
    device: str,
    plugins: Sequence[Path],
) -> None:
    """Look inside a pretrained language model.

    MODEL is a folder that save_pretrained of transformers wrote, which is read without the network, or a name on the Hugging
    Face hub. Probes read the last position of contexts of each length: random tokens, or pieces of --text or --tokens that do
    not overlap. There is a table for each length, with the mean over the heads of each layer.

    lgbench probe-model ./my-model --lengths 16:4096 --probe output_std --plot output-std.pdf
    """
    from lgbench.execution.device import choose_device, full_float32
    from lgbench.experiment.components import ALL, NONE, chosen_probes
    from lgbench.reports import files, plots
    from lgbench_pretrained import readings
    from lgbench_pretrained.loading import Source, load
    from lgbench_pretrained.probing import Probing
    from lgbench_pretrained.tokens import text_of

    if text and tokens:
        raise UsageError("--text and --tokens both say what the model reads: use one of them")
    if out:
        files.known_format(out)
    if picture:
        files.known_format(picture, plots.FORMATS)
    source, where = Source.of(model), choose_device(device)
    registry = installed(plugins)
    names = chosen_probes(split(probes) or [ALL], registry.measurements)
    if not names:
        raise UsageError(f"--probe {NONE} reads nothing: name a probe, or leave it out")
    chosen = [each for each in registry.measurements if each.name in names]
    file = text or tokens
    said = None if file is None else text_of(file)
    with full_float32():
        pretrained = load(source, dtype, where)
        read = _contexts(pretrained, file, said, bool(tokens))
        found = _probed(Probing(pretrained, read, contexts, seed, chosen, where), _lengths(pretrained, lengths, contexts))
    if out:
        files.replace(out, files.content(readings.arrow(found), out))
        echo(out)
    if picture:
        plots.write(readings.figure(found), picture)
        echo(picture)


def _contexts(pretrained: Pretrained, file: Path | None, said: str | None, are_numbers: bool) -> Contexts:
    """The contexts that the model reads: the content of a file, or random tokens."""
    from lgbench_pretrained.loading import tokens_of
    from lgbench_pretrained.tokens import Pieces, RandomTokens, numbers_of

    if file is None or said is None:
        return RandomTokens(pretrained.vocabulary)
    if are_numbers:
        return Pieces(numbers_of(said, file, pretrained.vocabulary), file.name)
    return Pieces(tokens_of(said, pretrained), file.name)


def _lengths(pretrained: Pretrained, asked: tuple[int, ...] | None, contexts: int) -> tuple[int, ...]:
    """In order. Raises UsageError for lengths that the model cannot read, and for too many tokens."""
    from lgbench_pretrained.tokens import check_lengths

    limit = pretrained.limit
    if asked is None:
        longest = LONGEST if limit is None else min(limit, LONGEST)
        asked = doublings(min(SHORTEST, longest), longest)
    check_lengths(asked, limit, contexts)
    return tuple(sorted(asked))


def _probed(probing: Probing, lengths: Sequence[int]) -> ModelRows:
    """Everything that is read, which is printed on the way."""
    from lgbench.results.metrics import Metric
    from lgbench_pretrained.readings import ModelRows, ProbeRow, table

    own = probing.pretrained
    rows: list[ProbeRow] = []
    for place, new in enumerate(probing.lengths(lengths)):
        if place == 0:
            layers = len(own.sight.layers)
            echo(f"{own.kind} of {layers} layers; {probing.n} contexts of {probing.contexts.name} for each length")
            for sentence in probing.sentences:
                complain(sentence)
        metrics = tuple(Metric.of(each) for each in probing.probes)
        found = ModelRows(own.source.name, probing.contexts.name, probing.n, probing.seed, own.dtype, metrics, tuple(new))
        table(found, console())
        rows += new
    found = replace(found, rows=tuple(rows))
    first = min((row.layer for row in rows if row.metric == FITTED and row.layer is not None), default=None)
    if fit := found.exponent(FITTED, first):
        heads = "" if fit.n == 1 else f", the mean of {fit.n} heads with its 95 % interval"
        echo(f"{FITTED} of layer {first} goes like {fit}{heads}; over independent tokens with equal weights it is N^-0.5")
    return found
