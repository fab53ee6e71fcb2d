"""Recurrent models as a plugin: LSTM and GRU, and T2R's attention, whose state does not grow with the input."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Architecture, Attention, hookimpl
from lgbench_recurrent.linear_attention import T2R
from lgbench_recurrent.recurrent import ARCHITECTURES

LGBENCH_CONTRACT = "3.0"


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return ARCHITECTURES


@hookimpl
def lgbench_attentions() -> Iterable[Attention]:
    return (T2R(),)
