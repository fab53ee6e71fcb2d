"""What the footer of a run file says, rebuilt from its JSON strictly: every field, of its type, and no other."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lgbench.contracts import NAME
from lgbench.experiment import Experiment

LONGEST_TEXT = 1000
_LABEL = re.compile(rf"{NAME.pattern}(~[0-9a-f]{{8}})?")
"""A name as results have it: after a tilde, the content of a plugin file."""

_COMMIT = re.compile(r"[0-9a-f]{7,64}(\+dirty)?")
_SCALARS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
    str: ((str,), "a text"),
    Any: ((bool, int, float, str), "a number, a text, true or false"),
}


@dataclass(frozen=True)
class Execution:
    """How the run was made."""

    population: int
    compiled: bool
    resumed: bool


@dataclass(frozen=True)
class Seconds:
    train: float
    total: float


@dataclass(frozen=True)
class Environment:
    """Where the run was made, as :func:`lgbench.running.provenance.environment` says it."""

    lgbench: str
    torch: str
    python: str
    git_commit: str | None
    device: str
    threads: int
    date: str


@dataclass(frozen=True)
class Footer:
    """All that a run file says beside its rows; `dataclasses.asdict` gives back what was written."""

    experiment: Experiment
    plugins: Mapping[str, str]
    """Versions of the distributions that took part."""
    execution: Execution
    seconds: Seconds
    environment: Environment


def parse(text: bytes) -> Footer:
    """The footer that a file's metadata are. Raises ValueError that names the first field that is not as it must be."""
    footer: Footer = _built(Footer, _loaded(text), "")
    experiment, environment = footer.experiment, footer.environment
    entry = (experiment.architecture, experiment.norm, experiment.attention, experiment.position)
    for name in (experiment.task, experiment.family, *entry, *experiment.averagers):
        if name is not None and not _LABEL.fullmatch(name):
            raise ValueError(f"{shown(name)} cannot be a name: names are lower-case letters, digits and hyphens")
    if not 0 <= experiment.seed < 2**63:
        raise ValueError(f"experiment.seed is {experiment.seed}, expected a whole number from 0 to 2**63 - 1")
    for where, count in (("execution.population", footer.execution.population), ("environment.threads", environment.threads)):
        if count < 1:
            raise ValueError(f"{where} is {count}, expected at least 1")
    if min(footer.seconds.train, footer.seconds.total) < 0:
        raise ValueError("seconds are negative, expected how long the run took")
    if environment.git_commit is not None and not _COMMIT.fullmatch(environment.git_commit):
        raise ValueError(f"environment.git_commit is {shown(environment.git_commit)}, expected a commit's digits or null")
    _check_date(environment.date)
    return footer


def shown(value: object) -> str:
    """A stranger's value in a sentence: on one line, in letters that a terminal prints, and not too long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def _check_date(date: str) -> None:
    try:
        datetime.fromisoformat(date)
    except ValueError:
        raise ValueError(f"environment.date is {shown(date)}, expected one such as 2026-11-21T09:14:23+00:00") from None


def _loaded(text: bytes) -> Any:
    """JSON whose numbers are finite and fit into 64 bits."""
    try:
        return json.loads(text.decode("utf-8"), parse_float=_finite, parse_int=_whole, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON ({error})") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {shown(text)}, which is no finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"it holds {shown(text)}, which is no number of 64 bits")
    return int(text)


def _built(kind: Any, value: Any, where: str) -> Any:
    """`value`, from JSON, as a thing of the type `kind`. Raises ValueError that names `where` it is not."""
    if is_dataclass(kind):
        return _record(kind, value, where)
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        return _sequence(parts, value, where)
    if get_origin(kind) is UnionType:
        return None if value is None else _built(parts[0], value, where)
    if get_origin(kind) is Mapping:
        return {_built(parts[0], key, where): _built(parts[1], item, where) for key, item in _object(value, where).items()}
    types, expected = _SCALARS[kind]
    if type(value) not in types:
        raise ValueError(f"{where} is {shown(value)}, expected {expected}")
    if isinstance(value, str) and not (value.isprintable() and len(value) <= LONGEST_TEXT):
        raise ValueError(f"{where} is {shown(value)}, expected at most {LONGEST_TEXT} letters that can be printed")
    return value


def _record(kind: Any, value: Any, where: str) -> Any:
    known, found = [f.name for f in fields(kind)], _object(value, where)
    prefix = f"{where}." if where else ""
    for field in fields(kind):
        if field.name not in found and field.default is MISSING:
            raise ValueError(f"{prefix}{field.name} is missing")
    for name in found:
        if name not in known:
            raise ValueError(f"{prefix}{shown(name)[1:-1]} is no field of a run's footer; known: {', '.join(known)}")
    types = get_type_hints(kind)
    return kind(**{name: _built(types[name], value, f"{prefix}{name}") for name, value in found.items()})


def _sequence(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """A tuple, which is a list in JSON: of any length where its type ends with an ellipsis."""
    size = None if parts[-1] is ... else len(parts)
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise ValueError(f"{where} is {shown(value)}, expected a list{'' if size is None else f' of {size}'}")
    types = parts if size else [parts[0]] * len(value)
    return tuple(_built(kind, item, f"{where}[{index}]") for index, (kind, item) in enumerate(zip(types, value, strict=True)))


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'it'} is {shown(value)}, expected an object")
    return value
