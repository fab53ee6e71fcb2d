"""Architectures of the package transformers as a plugin, randomly initialised at the sizes of the tasks."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Architecture, hookimpl
from lgbench_huggingface.configured import Configured
from lgbench_huggingface.entries import ARCHITECTURES

LGBENCH_CONTRACT = "3.3"


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return (*ARCHITECTURES, Configured())
