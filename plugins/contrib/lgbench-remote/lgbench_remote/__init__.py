"""Results at an address, as a plugin for lgbench: the commands `lgbench push` and `lgbench pull`."""

from __future__ import annotations

from collections.abc import Iterable

import click

from lgbench import hookimpl
from lgbench_remote.commands import pull, push


@hookimpl
def lgbench_commands() -> Iterable[click.Command]:
    return [push, pull]
