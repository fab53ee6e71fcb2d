"""Attentions from the literature on length generalization, as a plugin: softmax scaled, made sparse, or replaced."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Attention, hookimpl
from lgbench_attention.differential import Differential
from lgbench_attention.normalized import NormalizedPooling
from lgbench_attention.scaled import AdaptiveTemperature, LogLength, ScalableSoftmax
from lgbench_attention.selective import Selective
from lgbench_attention.sigmoid import Sigmoid
from lgbench_attention.sparse import AdaptiveScalableEntmax, Entmax15, Sparsemax
from lgbench_attention.stick_breaking import StickBreaking

LGBENCH_CONTRACT = "3.0"

ATTENTIONS = (
    AdaptiveTemperature(),
    ScalableSoftmax(),
    LogLength(),
    Entmax15(),
    Sparsemax(),
    AdaptiveScalableEntmax(),
    Differential(),
    Sigmoid(),
    Selective(),
    StickBreaking(),
    NormalizedPooling(),
)


@hookimpl
def lgbench_attentions() -> Iterable[Attention]:
    return ATTENTIONS
