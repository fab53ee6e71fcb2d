"""Which sight a model has, and what becomes of one whose layers cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lgbench.errors import lacks_memory
from lgbench.insides.attention_layers import AttentionLayersSight, attention_layers_in
from lgbench.insides.decoder import decoder_in
from lgbench.insides.decoder_sight import DecoderSight
from lgbench.insides.parts_sight import PartsSight
from lgbench.insides.sight import Sight
from lgbench.insides.watching import Watched


def sight_of(model: Watched, where: torch.device, tolerance: float, libraries: bool) -> Sight:
    """The sight for a model, by how it is built: from parts, or, with `libraries`, from the layers of one."""
    if libraries and not (model.attentions or model.sublayers):
        with reading_layers():
            if decoder := decoder_in(model.model):
                return DecoderSight(decoder, where, tolerance)
            if layers := attention_layers_in(model.model):
                return AttentionLayersSight(layers, where, tolerance)
    return PartsSight(model, where, tolerance)


class Unreadable(Exception):
    """The layers of a library cannot be read, which must cost nobody a training."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def reading_layers(sight: Sight | None = None) -> Iterator[None]:
    """Inside, lgbench relies on the code of a library, unless `sight` is of parts. Any error but of memory is Unreadable."""
    try:
        yield
    except Exception as error:  # a library may have changed, or a stranger's model may use it in another way
        if isinstance(sight, PartsSight) or lacks_memory(error):
            raise
        raise Unreadable(error) from error
