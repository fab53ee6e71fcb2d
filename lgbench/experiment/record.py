"""Record of an experiment, with its settings: only names and numbers, as in the metadata of a run file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from lgbench.experiment.tuning import Tuning

TARGETS = ("sampled", "exact")

PRECISIONS = ("float32", "bfloat16")
"""Floating-point precisions of models. Each protocol has the first."""

MULTIPLES = (1, 2, 4, 8)
"""Multiples of the training length, tested at eval steps if a task answers at every prefix: they cost no extra context."""

EXTERNAL, EXTERNAL_VERSION = "external", 1
"""Protocol of models trained elsewhere and measured by :func:`lgbench.evaluate_model`. The test settings are those of
the boards' protocol. Raise the version whenever a number changes."""


@dataclass(frozen=True)
class Training:
    """Training settings of one model. Lengths are those of :class:`lgbench.Task`; a batch counts contexts."""

    steps: int
    batch: int
    lr: float
    """Peak learning rate, reached after the warmup and then decayed linearly to 0."""
    weight_decay: float
    """Decoupled weight decay, on matrices only."""
    warmup: float
    """Share of the steps in which the learning rate rises linearly from 0."""
    average_every: int
    """Steps between two updates of the averagers (phi in BEMA)."""
    min_length: int = 0
    max_length: int = 0
    targets: str = "sampled"
    """The training targets at every position: one token "sampled" from p*, or p* itself, "exact"."""
    dropout: float = 0.0
    """Share of zeros in the output of each sublayer; see :mod:`lgbench.experiment.experiment`."""


@dataclass(frozen=True)
class Evaluation:
    """Test settings of one model."""

    contexts: int
    """Contexts per length, for TVD, accuracy and the ROC AUC of tasks that are not languages."""
    strings: int
    """Strings per length, half of them members, for the ROC AUC of languages."""
    max_length: int = 0
    # The names of these four are part of published run ids, hence "point" for an eval step.
    points: int = 0
    """Largest number of eval steps; see :func:`lgbench.experiment.contexts.eval_steps`."""
    point_contexts: int = 1
    """Contexts per length in a test at an eval step."""
    point_strings: int = 0
    """Strings per length in a test at an eval step; 0 for none."""
    point_max_length: int = 1
    """Longest length in a test at an eval step."""


@dataclass(frozen=True)
class ProtocolUse:
    """Protocol with its changes from `--set`."""

    name: str
    version: int
    changes: tuple[tuple[str, str], ...] = ()
    """Setting and value, such as ("train.lr", "0.001"), sorted by setting; and ("precision", "bfloat16")."""

    @property
    def precision(self) -> str:
        """Precision of the models, from :data:`PRECISIONS`. Each except the first is a change."""
        return dict(self.changes).get("precision", PRECISIONS[0])

    @property
    def is_external(self) -> bool:
        """Whether the model was trained outside lgbench. Then `changes` are the settings of its test."""
        return self.name == EXTERNAL

    def is_named(self, protocol: str | None) -> bool:
        """Whether a name, for versions without changes and for external models, or a full label means it. None means all."""
        return protocol in (None, str(self)) or (protocol == self.name and (self.is_external or not self.changes))

    def without(self, setting: str) -> ProtocolUse:
        """The protocol without the changes of one setting."""
        return replace(self, changes=tuple(change for change in self.changes if change[0] != setting))

    def __str__(self) -> str:
        """Title, such as "standard/3 train.lr=0.001"."""
        return " ".join([f"{self.name}/{self.version}", *(f"{key}={value}" for key, value in self.changes)])


@dataclass(frozen=True)
class PluginUse:
    """Distribution with an effect on the numbers of an experiment. Another version is another experiment."""

    name: str
    version: str
    source: str
    """First 16 hexadecimal digits of the hash of its sources, or "unknown"."""
    provides: tuple[str, ...]
    """Kinds of its objects in the experiment, sorted; an averager with its name, such as "averager:ema"."""

    def decides(self, weights: str) -> bool:
        """Whether the plugin has an effect on the numbers of these weights. An averager affects only its own averages."""
        return any(kind.partition(":")[0] != "averager" or kind == f"averager:{weights}" for kind in self.provides)


def deciding(plugins: Iterable[PluginUse], weights: str) -> list[tuple[str, str]]:
    """Name, and version with source, of each distribution with an effect on the numbers of these weights."""
    return [(used.name, f"{used.version} {used.source}") for used in plugins if used.decides(weights)]


@dataclass(frozen=True)
class LoadedPlugin:
    """Distribution with loaded plugins in the process of a run, with or without a part in the run."""

    name: str
    version: str
    source: str
    """As in :class:`PluginUse`; empty for an lgbench without changes."""
    installed: str
    """Kind of installation, from :data:`lgbench.extensions.loading.How`."""
    origin: str | None
    """Public origin of the installed package, such as a URL with a commit; None for a package index or a local folder."""
    takes_part: bool
    """Whether the plugin decides or measures a number of the run."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of its dependencies, except lgbench and torch. An empty mapping is left out of the metadata."""

    @property
    def content(self) -> dict[str, Any]:
        """Fields in the metadata of a run."""
        return {name: value for name, value in asdict(self).items() if name != "libraries" or value}


@dataclass(frozen=True)
class ExperimentRecord:
    """One model on one task with one seed, and all settings behind its numbers. Names are as in results."""

    task: str
    family: str
    task_version: int
    entry: str
    """Architecture and parts, as named on boards."""
    architecture: str
    norm: str | None
    """None for an architecture without norms. The same holds for attention and position."""
    attention: str | None
    position: str | None
    optimizer: str
    options: tuple[tuple[str, Any], ...]
    """Options of the architecture, its parts and the optimizer, such as ("model.layers", 2)."""
    averagers: tuple[str, ...]
    protocol: ProtocolUse
    train: Training
    evaluate: Evaluation
    plugins: tuple[PluginUse, ...]
    """Distributions behind the numbers, sorted by name. lgbench is included only in a checkout with changes."""
    seed: int
    tuning: Tuning | None = None
    """Tuning of the learning rate, for protocols with a grid. After the tuning, `train.lr` is the chosen rate."""

    @cached_property
    def run_id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of :attr:`identity` as JSON with sorted keys."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def identity(self) -> dict[str, Any]:
        """Content of the run id's hash: the record without the outcome of its tuning.

        The losses of the tuning runs and the chosen learning rate are results, like scores.
        """
        about = asdict(self)
        if (tuning := about.pop("tuning")) is not None:
            about["tuning"] = {name: tuning[name] for name in ("grid", "seeds", "steps")}
            if tuning["open"]:  # published runs from before open grids lack the key
                about["tuning"]["open"] = True
            del about["train"]["lr"]
        if not self.train.dropout:  # published runs from before dropout lack the setting
            del about["train"]["dropout"]
        if not self.evaluate.points:  # published runs from before eval steps lack these settings
            about["evaluate"] = {name: value for name, value in about["evaluate"].items() if not name.startswith("point")}
        return about

    def with_seed(self, seed: int) -> ExperimentRecord:
        """Copy with another seed."""
        return replace(self, seed=seed)

    def tuned(self, outcome: Tuning) -> ExperimentRecord:
        """Copy with the learning rate of a finished tuning."""
        lr = self.train.lr if outcome.chosen is None else outcome.chosen
        return replace(self, tuning=outcome, train=replace(self.train, lr=lr))

    @property
    def precision(self) -> str:
        """Floating-point precision of the models."""
        return self.protocol.precision

    @property
    def title(self) -> str:
        """Entry, task and seed, for messages."""
        return f"{self.entry} on {self.task} seed {self.seed}"


def flat(about: object, name: str = "") -> dict[str, object]:
    """Nested settings under dotted names, such as train.steps; packages of a list under their own names.

    >>> flat({"train": {"steps": 5}, "options": [("model.width", 8)], "plugins": [{"name": "mine", "version": "1.0"}]})
    {'train.steps': 5, 'options.model.width': 8, 'plugins.mine.name': 'mine', 'plugins.mine.version': '1.0'}
    """
    if isinstance(about, list | tuple):
        if all(isinstance(each, Mapping) and "name" in each for each in about):
            about = {each["name"]: each for each in about}
        elif all(isinstance(each, list | tuple) and len(each) == 2 for each in about):
            about = dict(about)
    if not isinstance(about, Mapping):
        return {name: list(about) if isinstance(about, tuple) else about}  # JSON has lists alone
    start = f"{name}." if name else ""
    return {path: value for key, inner in about.items() for path, value in flat(inner, f"{start}{key}").items()}


def differences(here: Mapping[str, object], there: Mapping[str, object]) -> Iterator[str]:
    """A sentence for each name with different values in two dictionaries, under its dotted name; `there` is from a file."""
    here, there = flat(here), flat(there)
    for name in {**here, **there}:
        if name not in here or name not in there or here[name] != there[name]:
            own, filed = (ascii(each[name]) if name in each else "not set" for each in (here, there))
            yield f"{name} is {filed:.200} in the file and {own:.200} here"
