"""Attention bias calibration, as a plugin for lgbench: the command `lgbench calibrate-bias`.

A package beside lgbench_positions: the identity of runs of its position codes follows from the sources of that package alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from lgbench import hookimpl
from lgbench_calibration.command import calibrate_bias


@hookimpl
def lgbench_commands() -> Iterable[click.Command]:
    return [calibrate_bias]
