"""The recurrent networks of the Chomsky benchmark as a plugin: a controller alone, with a stack, and with a tape."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Architecture, hookimpl
from lgbench_memory.simple import SimpleRnn
from lgbench_memory.stack import StackRnn
from lgbench_memory.tape import TapeRnn

LGBENCH_CONTRACT = "3.0"


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return SimpleRnn(), StackRnn(), TapeRnn()
