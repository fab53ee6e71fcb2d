"""Probes of pretrained language models, as a plugin for lgbench: the command `lgbench probe-model`.

A package beside lgbench_huggingface: the identity of runs of its architectures follows from the sources of that package alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from lgbench import hookimpl
from lgbench_pretrained.command import probe_model


@hookimpl
def lgbench_commands() -> Iterable[click.Command]:
    return [probe_model]
