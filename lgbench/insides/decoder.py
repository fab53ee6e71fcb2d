"""Decoders of `transformers`: the layers of any of its causal language models, and the attention function that they call."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from torch import nn

from lgbench.errors import UsageError
from lgbench.insides.attending import Attending


class Decoder(NamedTuple):
    """A causal language model of transformers into which one can look."""

    model: nn.Module
    layers: tuple[nn.Module, ...]
    attending: Attending | None
    """The function that its attentions call; None where the model does not ask transformers for its attention function."""

    @classmethod
    def of(cls, model: Any) -> Decoder:
        """From now on the model's attentions call a function of lgbench. UsageError for a model without a list of layers."""
        layers = _layers(model)
        attending = Attending.of(model)
        if attending is None:
            model.config.output_attentions = True  # or attentions with a function of their own keep their weights
        return cls(model, layers, attending)


def decoder_in(module: nn.Module) -> Decoder | None:
    """The decoder of transformers in a module; None where there is none, or several, or one without a list of layers."""
    transformers = sys.modules.get("transformers")
    found = [] if transformers is None else outermost(module, transformers.PreTrainedModel)
    try:
        return Decoder.of(found[0]) if len(found) == 1 else None
    except UsageError:
        return None


def outermost(module: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    """The modules of a kind in a module that are in no other such one."""
    if isinstance(module, kind):
        return [module]
    return [found for child in module.children() for found in outermost(child, kind)]


def _layers(model: Any) -> tuple[nn.Module, ...]:
    """The decoder layers: the first list of modules that has as many as the configuration says."""
    if model.config.is_encoder_decoder:
        raise UsageError(f"{type(model).__name__} has an encoder beside its decoder, so no probe applies")
    count = model.config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return tuple(module)
    raise UsageError(f"{type(model).__name__} has no list of {count} decoder layers, so no probe applies")
