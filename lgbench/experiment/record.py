"""The record of an experiment: names and numbers alone, as a run file's footer holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from lgbench.experiment.protocols import EXTERNAL, PRECISIONS, Evaluation, Training
from lgbench.experiment.tuning import Tuning


@dataclass(frozen=True)
class ProtocolUse:
    """A protocol, and what `--set` changed of it."""

    name: str
    version: int
    changes: tuple[tuple[str, str], ...] = ()
    """By setting, such as ("train.lr", "0.001"), in the order of the settings' names; and ("precision", "bfloat16")."""

    @property
    def precision(self) -> str:
        """In which models compute: one of :data:`lgbench.experiment.protocols.PRECISIONS`. All but the first is a change."""
        return dict(self.changes).get("precision", PRECISIONS[0])

    @property
    def is_external(self) -> bool:
        """Whether lgbench did not train the model. Then `changes` say what was tested."""
        return self.name == EXTERNAL

    def __str__(self) -> str:
        """For titles, such as "standard/3 train.lr=0.001"."""
        return " ".join([f"{self.name}/{self.version}", *(f"{key}={value}" for key, value in self.changes)])


@dataclass(frozen=True)
class PluginUse:
    """A distribution whose plugins decide the numbers of an experiment. Two of its versions are two experiments."""

    name: str
    version: str
    source: str
    """16 hexadecimal digits of its sources, or "unknown"."""
    provides: tuple[str, ...]
    """The kinds of its things that take part, sorted; an averager with its name, such as "averager:ema"."""

    def decides(self, weights: str) -> bool:
        """Whether it decides the numbers of these weights: an averager decides those of its own averages alone."""
        return any(kind.partition(":")[0] != "averager" or kind == f"averager:{weights}" for kind in self.provides)


@dataclass(frozen=True)
class LoadedPlugin:
    """A distribution whose plugins were loaded in the process of a run, whether they take part in it or not."""

    name: str
    version: str
    source: str
    """As in :class:`PluginUse`; empty for an lgbench without changes."""
    installed: str
    """How it was installed, as in :data:`lgbench.extensions.loading.How`."""
    origin: str | None
    """The place that it was installed from, where others may know it."""
    takes_part: bool
    """Whether it decides or measures a number."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that it stands on, other than lgbench and torch. Without any, footers have no such field."""

    @property
    def content(self) -> dict[str, Any]:
        """As a footer has it."""
        return {name: value for name, value in asdict(self).items() if name != "libraries" or value}


@dataclass(frozen=True)
class ExperimentRecord:
    """One model on one task with one seed, and everything that decides its numbers. Names are those that results show."""

    task: str
    family: str
    task_version: int
    entry: str
    """The architecture and its parts, as boards name them."""
    architecture: str
    norm: str | None
    """None where the architecture takes no such part. So too for attention and position."""
    attention: str | None
    position: str | None
    optimizer: str
    options: tuple[tuple[str, Any], ...]
    """Every option of the architecture, its parts and the optimizer, such as ("model.layers", 2)."""
    averagers: tuple[str, ...]
    protocol: ProtocolUse
    train: Training
    evaluate: Evaluation
    plugins: tuple[PluginUse, ...]
    """The distributions that decide the numbers, by name. lgbench is one of them only in a checkout with changes."""
    seed: int
    tuning: Tuning | None = None
    """Where the protocol tries several learning rates: which, and their losses. `train.lr` is the chosen one."""

    @cached_property
    def run_id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of :attr:`identity` as JSON with sorted keys."""
        before, after = self._around_seed
        return hashlib.sha256(f"{before}{self.seed}{after}".encode()).hexdigest()[:16]

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the run id is a hash of: the record without the outcome of its tuning.

        The losses of the tuning runs and the chosen learning rate are results, as scores are.
        """
        about = asdict(self)
        if (tuning := about.pop("tuning")) is not None:
            about["tuning"] = {name: tuning[name] for name in ("grid", "seeds", "steps")}
            del about["train"]["lr"]
        if not self.evaluate.points:  # without points, their settings mean nothing; published runs of before have none
            about["evaluate"] = {name: value for name, value in about["evaluate"].items() if not name.startswith("point")}
        return about

    @cached_property
    def _around_seed(self) -> tuple[str, str]:
        """The identity as JSON up to the seed, and after it. Most runs of a large grid differ in the seed alone."""
        about = self.identity
        first = {key: value for key, value in about.items() if key < "seed"}
        last = {key: value for key, value in about.items() if key > "seed"}
        before, after = (json.dumps(part, sort_keys=True) for part in (first, last))
        return f'{before[:-1]}, "seed": ', f", {after[1:]}"

    def with_seed(self, seed: int) -> ExperimentRecord:
        """The same experiment with another seed."""
        other = replace(self, seed=seed)
        vars(other)["_around_seed"] = self._around_seed
        return other

    def tuned(self, outcome: Tuning) -> ExperimentRecord:
        """The same experiment with the learning rate that its tuning chose."""
        lr = self.train.lr if outcome.chosen is None else outcome.chosen
        other = replace(self, tuning=outcome, train=replace(self.train, lr=lr))
        vars(other)["_around_seed"] = self._around_seed
        return other

    @property
    def is_untuned(self) -> bool:
        """Whether its learning rate is still to be chosen."""
        return self.tuning is not None and self.tuning.chosen is None

    def plugins_of(self, weights: str) -> list[tuple[str, str]]:
        """Name, and version with source, of each distribution that decides the numbers of these weights."""
        return [(used.name, f"{used.version} {used.source}") for used in self.plugins if used.decides(weights)]

    @property
    def precision(self) -> str:
        """The precision in which models compute."""
        return self.protocol.precision

    @property
    def title(self) -> str:
        """For messages: entry, task and seed."""
        return f"{self.entry} on {self.task} seed {self.seed}"
