"""Extension points: eleven hooks. Each returns objects of one type from :mod:`lgbench.contracts`.

A plugin is a module under the ``lgbench`` entry-point group. Functions with these names are marked with ``@lgbench.hookimpl``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    import lgbench.contracts as c

hookspec = pluggy.HookspecMarker("lgbench")
hookimpl = pluggy.HookimplMarker("lgbench")


@hookspec
def lgbench_tasks() -> Iterable[c.Task]:  # type: ignore[empty-body]
    """Tasks: distributions over contexts with their exact next-token distributions."""


@hookspec
def lgbench_architectures() -> Iterable[c.Architecture]:  # type: ignore[empty-body]
    """Architectures: builders of models that turn contexts into logits."""


@hookspec
def lgbench_norms() -> Iterable[c.NormScheme]:  # type: ignore[empty-body]
    """Norm schemes: which norm stands where in a model."""


@hookspec
def lgbench_attentions() -> Iterable[c.Attention]:  # type: ignore[empty-body]
    """Attentions: how queries find keys, and what they read of the values."""


@hookspec
def lgbench_positions() -> Iterable[c.Position]:  # type: ignore[empty-body]
    """Position codes: how a model knows where a token stands."""


@hookspec
def lgbench_optimizers() -> Iterable[c.Optimizer]:  # type: ignore[empty-body]
    """Optimizers: rules that turn gradients into new weights."""


@hookspec
def lgbench_averagers() -> Iterable[c.Averager]:  # type: ignore[empty-body]
    """Averagers: running averages of the weights, tested beside the raw weights."""


@hookspec
def lgbench_measurements() -> Iterable[c.Measurement]:  # type: ignore[empty-body]
    """Measurements: what is computed at every tested length, such as TVD or accuracy."""


@hookspec
def lgbench_loggers() -> Iterable[c.Logger]:  # type: ignore[empty-body]
    """Loggers: places where people follow and keep their trainings."""


@hookspec
def lgbench_executors() -> Iterable[c.Executor]:  # type: ignore[empty-body]
    """Executors: engines that train populations elsewhere, such as the jobs of a cluster."""


@hookspec
def lgbench_commands() -> Iterable[click.Command]:  # type: ignore[empty-body]
    """Commands of `lgbench`. The entry-point group ``lgbench.commands`` gives the name of each and the module of this hook."""
