"""The card of an exported model: what it is, its numbers, and how to load it, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lgbench.experiment.record import PluginUse
from lgbench.extensions.loading import BUILT_IN
from lgbench.measurement.chance import CHANCE
from lgbench.measurement.soundness import REASONS
from lgbench.results.metrics import Metric
from lgbench.submissions.footer import Footer

Row = Mapping[str, Any]


def card(footer: Footer, rows: pa.Table, weights: str, plugin_files: Sequence[str]) -> str:
    """The text of README.md. `weights` is the name of the file of the weights."""
    record = footer.experiment
    every: list[Row] = rows.to_pylist()
    end = [row for row in every if row["step"] == record.train.steps and row["length"] is not None and row["layer"] is None]
    lines = [
        *_front_matter(footer),
        f"# {record.entry} on {record.task}, seed {record.seed}",
        "",
        f"A model that lgbench {footer.environment.lgbench} trained on lengths up to {record.train.max_length} of the task "
        f"`{record.task}`, and tested on lengths up to {record.evaluate.max_length}.",
        "",
        *_warnings(end, every[0]["diverged_step"] if every else None),
        *_about(footer),
        "## Numbers",
        "",
        f"At the lengths that boards show. Models are trained on lengths up to {record.train.max_length}.",
        "",
    ]
    for metric in footer.measurements:
        lines += _table(metric, [row for row in end if row["metric"] == metric.name and row["on_boards"]])
    lines += _loading(footer, weights, plugin_files)
    return "\n".join(lines) + "\n"


def _front_matter(footer: Footer) -> Iterator[str]:
    """The front matter of the card, which hubs of models read."""
    yield from ("---", "library_name: lgbench", "tags:", "- length-generalization")
    for name in dict.fromkeys((footer.experiment.family, footer.experiment.task, footer.experiment.architecture)):
        yield f"- {name}"
    yield from ("---", "")


def _warnings(end: Sequence[Row], diverged: int | None) -> Iterator[str]:
    unsound = {row["metric"] for row in end if row["metric"] in REASONS and row["value"]}
    said = [] if diverged is None else [f"Its training diverged at step {diverged}."]
    said += [f"{reason.capitalize()}." for metric, reason in REASONS.items() if metric in unsound]
    if said:
        yield from (" ".join(["**Careful.**", *said]), "")


def _about(footer: Footer) -> Iterator[str]:
    record = footer.experiment
    chosen = ", chosen by tuning runs" if record.tuning else ""
    about = {
        "run": record.run_id,
        "protocol": str(record.protocol),
        "training": f"{record.train.steps} steps of {record.train.batch} contexts, learning rate {record.train.lr:g}{chosen}",
        "optimizer": record.optimizer,
        "options": ", ".join(f"{key}={value}" for key, value in record.options) or "none",
        "precision": record.precision,
        "plugins": ", ".join(map(_plugin, record.plugins)) or "those that come with lgbench",
        "made with": f"torch {footer.environment.torch}, {footer.environment.device}, {footer.environment.date}",
    }
    yield from ("| | |", "| :-- | :-- |")
    yield from (f"| {name} | {_cell(value)} |" for name, value in about.items())
    yield ""


def _plugin(plugin: PluginUse) -> str:
    changed = ", a checkout with changes" if plugin.name == BUILT_IN else ""
    return f"{plugin.name} {plugin.version[:15]}{changed}"


def _table(metric: Metric, rows: Sequence[Row]) -> Iterator[str]:
    """The values of a metric by weights and length; nothing where it has none. Probes of layers are left out."""
    lengths = sorted({row["length"] for row in rows})
    if not lengths:
        return
    values = {(row["weights"], row["length"]): row["value"] for row in rows}
    variants = sorted({weights for weights, _ in values}, key=lambda name: (name == CHANCE, name != "raw", name))
    yield from (f"### {_cell(metric.title)}", "", f"{_cell(metric.headline)}.", "")
    yield f"| weights | {' | '.join(map(str, lengths))} |"
    yield f"| :-- | {' | '.join('--:' for _ in lengths)} |"
    for weights in variants:
        cells = [_number(values.get((weights, length))) for length in lengths]
        yield f"| {'chance level' if weights == CHANCE else weights} | {' | '.join(cells)} |"
    yield ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _loading(footer: Footer, weights: str, plugin_files: Sequence[str]) -> Iterator[str]:
    variants = ", ".join(f'"{name}"' for name in ("raw", *footer.experiment.averagers))
    yield from ("## Load it", "", "```sh", "pip install -r requirements.txt", "```", "")
    yield from ("```python", "from load import load", "", "model = load()", "```", "")
    yield f"`model` is a `torch.nn.Module` from inputs to logits. `load` takes `weights`: {variants}. lgbench refuses to load"
    yield "the model where lgbench or a plugin has another version than the one that made it."
    if plugin_files:
        yield from (
            "",
            f"The plugin is in this folder: {', '.join(plugin_files)}. It is code; read it before you load the model.",
        )
    yield ""
    yield f"`{weights}` has the weights in the safetensors format. Tensors are named as in `raw/out.weight`: the weights,"
    yield "then the name in the model; buffers begin with `_shared`. The Parquet file has every number and setting of the run."
