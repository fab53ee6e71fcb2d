"""The options of `lgbench run` that choose an executor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from lgbench.cli.option_types import Change

_OPTIONS = (
    click.option(
        "--executor",
        default="local",
        show_default=True,
        help="Where populations are trained: local, for worker processes on this machine, ray, or slurm.",
    ),
    click.option("--ray-address", help="Ray cluster to use, or auto for the one of this machine.  [default: a new one]"),
    click.option("--slurm-partition", help="SLURM partition of the jobs.  [default: the cluster's]"),
    click.option("--jobs", type=int, help="SLURM jobs at the same time, at most.  [default: 1]"),
    click.option("--time", type=int, help="Minutes of a SLURM job, which goes on in another one after that.  [default: 60]"),
    click.option(
        "--slurm-option",
        "slurm_options",
        type=Change("mem=8GB"),
        multiple=True,
        help="Option of sbatch for the jobs, as in --slurm-option mem=8G or gres=gpu:1. Can be repeated.",
    ),
)


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--executor and the options of each; the command gets an Engine."""

    @wraps(command)
    def collected(
        *,
        executor: str,
        ray_address: str | None,
        slurm_partition: str | None,
        jobs: int | None,
        time: int | None,
        slurm_options: tuple[tuple[str, str], ...],
        **others: Any,
    ) -> Any:
        from lgbench.execution.manner import Engine

        engine = Engine(executor, ray_address, slurm_partition, jobs, time, slurm_options)
        return command(engine=engine, **others)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected
