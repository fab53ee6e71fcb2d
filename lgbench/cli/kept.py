"""The argument and the options that commands on kept weights share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import Folder
from lgbench.cli.output import installed

if TYPE_CHECKING:
    from lgbench.kept.loading import LoadedModel

run_argument = click.argument("run", type=Folder(files=True))

weights_option = click.option("--weights", default="raw", show_default=True, help="Weights: raw, or the name of an averager.")

device_of_models = click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda or mps.")


def loaded(run: Path, weights: str, results: Path, plugins: Sequence[Path], device: str) -> LoadedModel:
    """The model that a user names."""
    from lgbench.execution.device import choose_device
    from lgbench.kept import loading

    own = loading.find(run, results)
    own.require_variant(weights)
    return loading.loaded(loading.restore(own, installed(plugins), choose_device(device)), weights)
