"""Registries of the built-in plugins and of the toys, with one plugin more."""

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


def with_model(model) -> Registry:
    """The toys and an architecture `toy-own` that builds this model."""

    class Own(toys.FragileArchitecture):
        name = "toy-own"

        def build(self, signature, parts):
            return model()

    module = ModuleType("own")
    module.lgbench_architectures = hookimpl(specname="lgbench_architectures")(lambda: [Own()])
    registry = with_essentials()
    for plugin in (toys, module):
        registry.add(plugin, plugin.__name__, Distribution(plugin.__name__, "1"))
    assert not registry.problems()
    return registry
