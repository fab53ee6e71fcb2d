"""Options of x-transformers as a plugin: each is an architecture, the library's decoder with this option alone."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Architecture, hookimpl
from lgbench_x_transformers.entries import ARCHITECTURES

LGBENCH_CONTRACT = "3.0"


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return ARCHITECTURES
