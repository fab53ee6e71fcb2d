"""Models that can be watched: built once more, from parts that tell which modules they made.

Nothing here touches the model that is trained. The modules are those of the architecture, with the same names of their
weights, so the weights of any trained model fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import nn

from lgbench import seeds
from lgbench.contracts import AttentionSpec, Need, SublayerSpec
from lgbench.experiment.experiment import Experiment


class WatchedAttention(NamedTuple):
    """An attention module."""

    module: nn.Module
    spec: AttentionSpec
    needs: frozenset[Need]


class WatchedSublayer(NamedTuple):
    """A sublayer with its norms."""

    module: nn.Module
    spec: SublayerSpec
    is_residual: bool
    """Whether the module adds the sublayer to the residual stream."""
    norms: tuple[nn.Module, ...]


@dataclass(frozen=True)
class Watched:
    """A model, and the modules in it that the harness knows."""

    model: nn.Module
    attentions: list[WatchedAttention] = field(default_factory=list)
    sublayers: list[WatchedSublayer] = field(default_factory=list)
    finals: list[nn.Module] = field(default_factory=list)
    """The norms before the logits: one at most."""


def watched(experiment: Experiment) -> Watched:
    """The model of an experiment with fresh weights. Raises whatever building it from copies of its parts raises."""
    attentions: list[WatchedAttention] = []
    sublayers: list[WatchedSublayer] = []
    finals: list[nn.Module] = []
    parts = dict(experiment.parts)

    def residual(module: nn.Module, spec: SublayerSpec, sublayer: nn.Module) -> None:
        sublayers.append(WatchedSublayer(module, spec, True, tuple(_norms(module, sublayer))))

    def output(module: nn.Module, spec: SublayerSpec) -> None:
        sublayers.append(WatchedSublayer(module, spec, False, tuple(_norms(module, None))))

    if (norm := parts.get("norm")) is not None:
        parts["norm"] = _telling(
            norm, {"residual": residual, "output": output, "final": lambda module, width: finals.append(module)}
        )
    if (attention := parts.get("attention")) is not None:
        needs = attention.needs
        parts["attention"] = _telling(
            attention, {"build": lambda module, spec: attentions.append(WatchedAttention(module, spec, needs))}
        )
    with seeds.initial(experiment.seed, "weights"):
        model = replace(experiment, parts=parts).build()
    inside = set(model.modules())
    return Watched(
        model,
        [each for each in attentions if each.module in inside],
        [each for each in sublayers if each.module in inside],
        [each for each in finals if each in inside],
    )


def _telling(part: Any, tell: dict[str, Callable[..., None]]) -> Any:
    """A copy of a part that tells which modules these of its methods make, with the arguments that they were made with."""
    own = copy.copy(part)

    def replaced(name: str, told: Callable[..., None]) -> Callable[..., Any]:
        make = getattr(part, name)

        def made(*arguments: Any, **named: Any) -> Any:
            module = make(*arguments, **named)
            told(module, *arguments, **named)
            return module

        return made

    vars(own).update({name: replaced(name, told) for name, told in tell.items()})  # frozen dataclasses too
    return own


def _norms(module: nn.Module, sublayer: nn.Module | None) -> Iterator[nn.Module]:
    """The modules around a sublayer that do something."""
    if module is sublayer or type(module).forward is nn.Identity.forward:
        return
    children = list(module.children())
    holds = sublayer is not None and any(each is sublayer for each in module.modules())
    if holds or type(module).forward is nn.Sequential.forward:
        for child in children:
            yield from _norms(child, sublayer)
    else:
        yield module
