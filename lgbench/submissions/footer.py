"""The footer of a run file, rebuilt from its JSON strictly: every field has its type, and there is no other field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta
from packaging.version import InvalidVersion, Version

from lgbench.contracts import METRIC_NAME, NAME
from lgbench.experiment import tuning
from lgbench.experiment.protocols import EXTERNAL
from lgbench.experiment.record import ExperimentRecord, LoadedPlugin
from lgbench.extensions.loading import How
from lgbench.results.external_models import KEY as EXTERNAL_KEY
from lgbench.results.external_models import ExternalModel
from lgbench.results.metrics import Metric
from lgbench.results.weights_files import KEY as WEIGHTS_KEY
from lgbench.results.weights_files import KeptWeights

OPTIONAL = (WEIGHTS_KEY, EXTERNAL_KEY)
"""The fields that a footer may lack."""

MAX_TEXT = 1000
_LABEL = re.compile(rf"{NAME.pattern}(~[0-9a-f]{{8}})?")
"""A name in results. After a tilde it has the hash of a plugin file."""

MAX_THREADS, MAX_POPULATION = 2**14, tuning.MAX_POPULATION
"""More threads than any machine has, and more models than any memory holds. Both are a stranger's numbers."""

Threads = Annotated[int, Meta(ge=1, le=MAX_THREADS)]
Models = Annotated[int, Meta(ge=1, le=MAX_POPULATION)]
PythonVersion = Annotated[str, Meta(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}((a|b|rc)[0-9]{1,3})?\+?\Z")]
"""As `platform.python_version` gives it, such as 3.11.7 or 3.14.0rc1."""
Duration = Annotated[float, Meta(ge=0)]
"""In seconds."""
Commit = Annotated[str, Meta(pattern=r"^[0-9a-f]{7,64}(\+dirty)?\Z")]

Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


@dataclass(frozen=True)
class ExecutionRecord:
    """How the run was made."""

    population: Models
    """Models that were trained together."""
    compiled: bool
    resumed: bool


@dataclass(frozen=True)
class EnvironmentRecord:
    """Where the run was made, as :func:`lgbench.execution.provenance.environment` gives it."""

    lgbench: str
    torch: str
    python: PythonVersion
    git_commit: Commit | None
    device: str
    threads: Threads
    date: str


@dataclass(frozen=True)
class Seconds:
    """How long the run took."""

    train: Duration
    total: Duration


@dataclass(frozen=True)
class Footer:
    """Everything in a run file beside its rows."""

    experiment: ExperimentRecord
    plugins: tuple[LoadedPlugin, ...]
    """Every distribution of plugins that was loaded, and every plugin file."""
    measurements: tuple[Metric, ...]
    execution: ExecutionRecord
    environment: EnvironmentRecord
    seconds: Seconds
    checksum: Checksum
    """Of the file; see :mod:`lgbench.results.run_files`."""
    kept_weights: KeptWeights | None = None
    """None, and no field of the JSON, where the run kept none."""
    external: ExternalModel | None = None
    """The model, where lgbench did not train it; otherwise None, and no field of the JSON."""

    @property
    def content(self) -> dict[str, Any]:
        """The JSON that it was rebuilt from."""
        found = {name: value for name, value in asdict(self).items() if name not in OPTIONAL or value is not None}
        return found | {"plugins": [plugin.content for plugin in self.plugins]}

    @property
    def took_part(self) -> Mapping[str, LoadedPlugin]:
        """The plugins that decide or measure a number, by name."""
        return {plugin.name: plugin for plugin in self.plugins if plugin.takes_part}


def parse(text: bytes) -> Footer:
    """The footer in a file's metadata. Raises ValueError that names the first wrong field."""
    try:
        found = json.loads(text.decode("utf-8"), parse_float=_finite, parse_int=_whole, parse_constant=_finite)
        footer = msgspec.convert(found, Footer)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the text is no JSON ({error})") from None
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    _check_values(footer)
    _check_fields(found, msgspec.to_builtins(footer), "")
    return footer


def shown(value: object) -> str:
    """A stranger's value in a sentence: on one line, in printable letters, not too long."""
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is no finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{shown(text)} is no number of 64 bits")
    return int(text)


def _check_fields(found: Any, taken: Any, where: str) -> None:
    """Raise ValueError for a field that msgspec did not take from the JSON, and for a text that cannot be shown."""
    if isinstance(found, dict):
        for name, value in found.items():
            _check_text(name, f"a name in {where[:-1] or 'the footer'}")
            if name not in taken:
                raise ValueError(f"{where}{name} is no field of a run's footer; known: {', '.join(taken)}")
            _check_fields(value, taken[name], f"{where}{name}.")
    elif isinstance(found, list):
        for index, (item, same) in enumerate(zip(found, taken, strict=True)):
            _check_fields(item, same, f"{where}{index}.")
    else:
        _check_text(found, where[:-1])


def _check_text(value: Any, where: str) -> None:
    if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_TEXT):
        raise ValueError(f"{where} is {shown(value)}, expected at most {MAX_TEXT} printable letters")


def _check_values(footer: Footer) -> None:
    """Check the rules that types cannot express. Raises ValueError."""
    experiment = footer.experiment
    if (footer.external is None) is experiment.protocol.is_external:
        raise ValueError(
            f"the protocol {EXTERNAL} and the field {EXTERNAL_KEY} belong together, and it has one without the other"
        )
    for name in _names(experiment):
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{shown(name)} is no valid name: names have lower-case letters, digits and hyphens")
    for metric in footer.measurements:
        if not METRIC_NAME.fullmatch(metric.name):
            raise ValueError(f"{shown(metric.name)} is no valid name of a measurement")
    for key, value in experiment.options:
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"the option {shown(key)} is {shown(value)}, expected a number, a text, true or false")
    for key, value in experiment.protocol.changes:
        if "," in value:
            raise ValueError(f"the change {shown(key)} has several values, {shown(value)}, expected one")
    for plugin in footer.plugins:
        if plugin.installed not in get_args(How):
            raise ValueError(
                f"{shown(plugin.name)} is installed {shown(plugin.installed)}, expected {', '.join(get_args(How))}"
            )
    if not 0 <= experiment.seed < 2**63:
        raise ValueError(f"experiment.seed is {experiment.seed}, expected a whole number from 0 to 2**63 - 1")
    if experiment.tuning and (why := tuning.wrong(experiment.tuning, experiment.train.lr, experiment.seed)):
        raise ValueError(why)
    _check_version("environment.torch", footer.environment.torch)
    try:
        datetime.fromisoformat(footer.environment.date)
    except ValueError:
        date = shown(footer.environment.date)
        raise ValueError(f"environment.date is {date}, expected one such as 2026-11-21T09:14:23+00:00") from None


def _check_version(where: str, text: str) -> None:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(f"{where} is {shown(text)}, expected a version such as 2.7.0+cpu") from None


def _names(experiment: ExperimentRecord) -> Iterator[str]:
    """Every name in a record. Plus signs join those of an entry."""
    yield from (experiment.task, experiment.family, experiment.architecture, experiment.optimizer, *experiment.averagers)
    yield from (name for name in (experiment.norm, experiment.attention, experiment.position) if name is not None)
    yield from experiment.entry.split("+")
