"""The contracts as pinned in `contract.txt`. A change changes the version, by the rule in the docs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, get_args, get_origin

import lgbench
from lgbench import attending, chain, contracts, hookspecs, noise, testing

PINNED = Path(__file__).with_name("contract.txt")
HELPERS = [
    attending.logits,
    attending.masked_logits,
    attending.needed_inputs,
    attending.visible,
    attending.visible_counts,
    chain.Chain,
    noise.Noise,
    testing.checks,
]


def parameters(function: object) -> str:
    return ", ".join(str(each).split(":")[0].split("=")[0].strip() for each in inspect.signature(function).parameters.values())


def members(kind: type) -> Iterator[str]:
    """Fields, attributes, properties and methods of a contract itself, without those of its bases."""
    if issubclass(kind, Enum):
        yield from kind.__members__
        return
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        yield from [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    else:
        yield from sorted(inspect.get_annotations(kind))
    for name, value in sorted(vars(kind).items()):
        if inspect.isfunction(value) and (name == "__call__" or name[0] != "_"):
            yield f"{name}({parameters(value)})"
        elif isinstance(value, property) or type(value).__name__ == "cached_property":
            yield f"{name}, computed"


def written() -> Iterator[str]:
    yield f"version {contracts.CONTRACT[0]}.{contracts.CONTRACT[1]}"
    yield "lgbench: " + ", ".join(sorted(lgbench.__all__))
    yield "hooks: " + ", ".join(sorted(name for name in vars(hookspecs) if name.startswith("lgbench_")))
    for helper in HELPERS:
        yield f"{helper.__module__}.{helper.__name__}({parameters(helper)})"
    for name in sorted({*contracts.__all__, "Configurable", "Named"}):  # the last two are not public, and bases of what is
        kind = getattr(contracts, name)
        if isinstance(kind, type) and get_origin(kind) is None:
            bases = [base.__name__ for base in kind.__bases__ if base.__module__.startswith("lgbench")]
            yield f"{name}({', '.join(bases)})"
            yield from (f"    {member}" for member in members(kind))
        else:
            yield f"{name}: {', '.join(get_args(kind)) if get_origin(kind) is Literal else 'type of mappings'}"


def test_this_is_the_contract_of_that_version():
    """After a deliberate change: raise CONTRACT and write `"\\n".join(written())` into contract.txt."""
    assert list(written()) == PINNED.read_text(encoding="utf-8").splitlines()
