"""Names and options of objects from plugins, reserved names of the core, and the version of the contracts."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Self

CONTRACT = (3, 8)
"""Version of :mod:`lgbench.contracts` and :mod:`lgbench.hookspecs`."""

NAME = re.compile(r"(?![a-z0-9-]{101})[a-z0-9]+(-[a-z0-9]+)*")
"""A valid name: lower-case letters, digits and hyphens, at most 100 characters, so that it can be part of any file's name."""

METRIC_NAME = re.compile(r"(?!\w{101})[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A valid name of a measurement: lower-case letters, digits and underscores, at most 100 characters, as SQL has names."""

CONTEXT_FREE = "chance"
"""Weights of the context-free baseline in published run files. It has no entry and no seed."""

RESERVED_NAMES = ("all", "none", "raw", CONTEXT_FREE)
"""Words of the command line and of results. No plugin may use them as names."""

CURVE_METRICS = ("train_loss", "gradient_norm")
"""The names of the training curve's two values in run files. No measurement may use them as names."""

NOT_CAUSAL = "looks_ahead"  # the name in published run files, which are never rewritten
"""Causality test in run files: share of cuts with an earlier answer changed by later tokens. 0 for a causal model."""
NOT_FINITE = "not_finite"
"""Share of answers in run files with a logit that is not finite. 0 for a sound model."""
SOUNDNESS = MappingProxyType(
    {NOT_CAUSAL: "its answers change with what comes after them", NOT_FINITE: "some of its answers are not finite"}
)
"""Metrics of every run that decide whether boards rank its model, with the reason against it. No measurement may use them."""

LEARNING_RATE = "learning_rate"
"""In run files, the learning rate that tuning runs chose."""

LOSS_VARIANCE, DIVERGED = "loss_variance", "diverged"
TRAINING_METRICS = ("gradient_norm", LOSS_VARIANCE, DIVERGED)
"""The metrics of training that a plot against a setting can draw. No measurement may use these names."""

HARNESS_METRICS = (*CURVE_METRICS, *SOUNDNESS, LEARNING_RATE, LOSS_VARIANCE, DIVERGED)
"""Metrics in run files and plots besides measurements. No measurement may use these names."""

PART_KINDS = ("norm", "attention", "position")
"""The kinds of parts of a model, in the order in which an entry names them."""

FAMILIES = ("dictionary-lookup", "dyck", "max-retrieval", "set-complement", "tomita")
"""The families of tasks that come with lgbench."""

Role = Literal["attention", "mlp"]
"""Role of a sublayer: "attention" for any sublayer that mixes positions, also a recurrent one or a state-space model; "mlp" for
a sublayer that treats every position alone."""

BASELINE = "transformer"
"""The architecture of an entry that names only parts."""

NO_NORM = "no-norm"
"""Norm scheme without norms. An entry with this default does not name it."""

DEFAULT_OPTIMIZER = "adamw"
"""The optimizer of an entry that names none."""

PRIMARY_METRIC = "tvd"
"""Default metric of boards, and the metric that decides whether a seed counts as fitted."""


class JsonFile(str):
    """Type of an option with a JSON object as its value: `config: JsonFile = JsonFile()`, empty by default.

    `--set KIND.OPTION=FILE.json` names a file. The built object and the records of runs get the file's content, as JSON with
    sorted keys and without spaces.
    """


class Named(ABC):
    """Object with a name."""

    name: str
    """Lower-case letters, digits and hyphens; see :data:`NAME`."""
    about: str = ""
    """One sentence, if the class's docstring does not describe this object."""


class Configurable(Named):
    """Object with a name and with options for `--set KIND.OPTION=VALUE`, such as `attention.window=16`."""

    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Least and greatest value by option; `math.inf` for no greatest value. A value out of range is refused before a model is
    built. An integer without a range is at most 16384 away from 0."""

    def configured(self) -> Self:
        """Copy with other options.

        A class with options overrides this method with keyword-only parameters. Their defaults have the type int, float, bool
        or str. The method returns a new object, with the defaults an object equal to this one. Raises
        :class:`lgbench.Unsupported`, with the reason, for an unusable value.
        """
        return self
