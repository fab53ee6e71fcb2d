"""`lgbench probe --model`: probes of a language model that others trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.cli.options import doublings, split
from lgbench.cli.output import complain, console, echo, installed
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from lgbench.pretrained.loading import Pretrained
    from lgbench.pretrained.probing import Probing
    from lgbench.pretrained.tokens import Contexts
    from lgbench.results.probe_rows import ModelRows

SHORTEST, LONGEST = 16, 1024
FITTED = "output_std"
"""The probe of which the last line has the exponent (arXiv 2504.02827, figure 1)."""


@dataclass(frozen=True)
class ModelOptions:
    """The options that a --model has alone."""

    text: Path | None
    tokens: Path | None
    lengths: tuple[int, ...] | None
    contexts: int
    seed: int
    dtype: str
    picture: Path | None
    """The file of the figure."""


def probe_model(
    model: str, probes: Sequence[str], out: Path | None, device: str, plugins: Sequence[Path], own: ModelOptions
) -> None:
    """Print what probes read, a table for each length; write all rows to a file, and a figure, where they are named."""
    from lgbench.execution.device import choose_device, full_float32
    from lgbench.experiment.probes import ALL, NONE, chosen_probes
    from lgbench.pretrained.loading import Source, load, require
    from lgbench.pretrained.probing import Probing
    from lgbench.pretrained.tokens import text_of
    from lgbench.reports import files, model_probes, plots, row_files

    if own.text and own.tokens:
        raise UsageError("--text and --tokens both say what the model reads: use one of them")
    if out:
        row_files.known_format(out)
    if own.picture:
        plots.known_format(own.picture)
    source, where = Source.of(model), choose_device(device)
    require()
    registry = installed(plugins)
    names = chosen_probes(split(probes) or [ALL], registry.measurements)
    if not names:
        raise UsageError(f"--probe {NONE} reads nothing: name a probe, or leave it out")
    chosen = [each for each in registry.measurements if each.name in names]
    file = own.text or own.tokens
    said = None if file is None else text_of(file)
    with full_float32():
        pretrained = load(source, own.dtype, where)
        read = _contexts(pretrained, file, said, bool(own.tokens))
        lengths = _lengths(pretrained, own.lengths, own.contexts)
        found = _probed(Probing(pretrained, read, own.contexts, own.seed, chosen, where), lengths)
    if out:
        files.replace(out, row_files.content(model_probes.arrow(found), out))
        echo(out)
    if own.picture:
        plots.write(model_probes.figure(found), own.picture)
        echo(own.picture)


def _contexts(pretrained: Pretrained, file: Path | None, said: str | None, are_numbers: bool) -> Contexts:
    """The contexts that the model reads: the content of a file, or random tokens."""
    from lgbench.pretrained.loading import tokens_of
    from lgbench.pretrained.tokens import Pieces, RandomTokens, numbers_of

    if file is None or said is None:
        return RandomTokens(pretrained.vocabulary)
    if are_numbers:
        return Pieces(numbers_of(said, file, pretrained.vocabulary), file.name)
    return Pieces(tokens_of(said, pretrained), file.name)


def _lengths(pretrained: Pretrained, asked: tuple[int, ...] | None, contexts: int) -> tuple[int, ...]:
    """In order. Raises UsageError for lengths that the model cannot read, and for too many tokens."""
    from lgbench.pretrained.tokens import check_lengths

    limit = pretrained.limit
    if asked is None:
        longest = LONGEST if limit is None else min(limit, LONGEST)
        asked = doublings(min(SHORTEST, longest), longest)
    check_lengths(asked, limit, contexts)
    return tuple(sorted(asked))


def _probed(probing: Probing, lengths: Sequence[int]) -> ModelRows:
    """Everything that is read, which is printed on the way."""
    from lgbench.reports import model_probes
    from lgbench.results.metrics import Metric
    from lgbench.results.probe_rows import ModelRows, ProbeRow

    own = probing.pretrained
    rows: list[ProbeRow] = []
    for place, new in enumerate(probing.lengths(lengths)):
        if place == 0:
            layers = len(own.decoder.layers)
            echo(f"{own.kind} of {layers} layers; {probing.n} contexts of {probing.contexts.name} for each length")
            for sentence in probing.sentences:
                complain(sentence)
        metrics = tuple(Metric.of(each) for each in probing.probes)
        found = ModelRows(own.source.name, probing.contexts.name, probing.n, probing.seed, own.dtype, metrics, tuple(new))
        model_probes.table(found, console())
        rows += new
    found = replace(found, rows=tuple(rows))
    first = min((row.layer for row in rows if row.metric == FITTED and row.layer is not None), default=None)
    if fit := found.exponent(FITTED, first):
        heads = "" if fit.n == 1 else f", the mean of {fit.n} heads with its 95 % interval"
        echo(f"{FITTED} of layer {first} goes like {fit}{heads}; over independent tokens with equal weights it is N^-0.5")
    return found
