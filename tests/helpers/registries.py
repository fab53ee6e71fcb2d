"""Registries of the built-in plugins and of the toys, with things that a test makes."""

from __future__ import annotations

from types import ModuleType

import toys

import lgbench
import lgbench_measurements
import lgbench_optimizers
from lgbench import Parts, hookimpl
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry

BUILT_IN = (
    "lgbench_averaging",
    "lgbench_loggers",
    "lgbench_measurements",
    "lgbench_norms",
    "lgbench_optimizers",
    "lgbench_tasks",
    "lgbench_transformer",
)
HERE = Distribution("own", "1")
BUILT_IN_METRICS = {"tvd", "accuracy", "exact_match", "roc_auc", "illegal_mass", "illegal_top"}


def parts_of(registry: Registry, norm: str = "pre-norm", attention: str = "softmax", position: str = "nope") -> Parts:
    """The parts that an architecture is given to build with."""
    return Parts(registry.norms[norm], registry.attentions[attention], registry.positions[position], 17, 65)


def with_essentials() -> Registry:
    """A registry that has what every run needs: an optimizer and the metrics."""
    registry = Registry()
    for module in (lgbench_optimizers, lgbench_measurements):
        registry.add(module, module.__name__, Distribution("lgbench", lgbench.__version__))
    return registry


def with_things(registry: Registry, origin: Distribution = HERE, **things: object) -> Registry:
    """The registry, and things by kind from one plugin: `norm=MyNorm()`, or a list."""
    module = ModuleType("own")
    for kind, thing in things.items():
        provided = thing if isinstance(thing, list) else [thing]
        setattr(module, f"lgbench_{kind}s", hookimpl(specname=f"lgbench_{kind}s")(lambda provided=provided: provided))
    error = registry.add(module, "own", origin).error if things else None
    assert not error, error
    return registry


def toys_and(origin: Distribution = HERE, **things: object) -> Registry:
    """A registry of the essentials, the toys, and these things from `origin`."""
    registry = with_essentials()
    registry.add(toys, "toys", Distribution("lgbench-toys", "1.2.3"))
    return with_things(registry, origin, **things)


def with_model(model) -> Registry:
    """The toys and an architecture `toy-own` that builds this model."""

    class Own(toys.FragileArchitecture):
        name = "toy-own"

        def build(self, signature, parts):
            return model()

    return toys_and(architecture=Own())
