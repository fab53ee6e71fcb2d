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
    """What its attentions call; None where the model does not ask transformers for its attention function."""

    @classmethod
    def of(cls, model: Any) -> Decoder:
        """From now on the model's attentions call a function of lgbench. UsageError for a model without a list of layers."""
        layers = _layers(model)
        attending = Attending.of(model)
        if attending is None:
            model.config.output_attentions = True  # or attentions with a function of their own keep their weights
        return cls(model, layers, attending)


def decoder_in(module: nn.Module) -> Decoder | None:
    """The model of transformers that a module wraps, where it wraps one with a list of layers."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return None
    found = next((each for each in module.modules() if isinstance(each, transformers.PreTrainedModel)), None)
    try:
        return None if found is None else Decoder.of(found)
    except UsageError:
        return None


def _layers(model: Any) -> tuple[nn.Module, ...]:
    """The decoder layers: the first list of modules that has as many as the configuration says."""
    count = model.config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return tuple(module)
    raise UsageError(f"{type(model).__name__} has no list of {count} decoder layers, so no probe applies")
