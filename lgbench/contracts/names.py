"""Names: which ones a plugin may give, which ones stand for something in the core, and the version of the contracts."""

from __future__ import annotations

import re

CONTRACT = (3, 4)
"""The version of everything in :mod:`lgbench.contracts` and :mod:`lgbench.hookspecs`."""

NAME = re.compile(r"(?![a-z0-9-]{101})[a-z0-9]+(-[a-z0-9]+)*")
"""A valid name: lower-case letters, digits and hyphens, at most 100 characters, so that it can be part of any file's name."""

METRIC_NAME = re.compile(r"(?!\w{101})[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A valid name of a measurement: lower-case letters, digits and underscores, at most 100 characters, as SQL has names."""

RESERVED_NAMES = ("all", "none", "raw", "chance")
"""Words of the command line and of results. No plugin may use them as names."""

CURVE_METRICS = ("train_loss", "gradient_norm")
"""The names of the training curve's two values in run files. No measurement may use them as names."""

LOOKS_AHEAD = "looks_ahead"
"""In run files, the share of cuts before which an answer changed with what comes after the cut. 0 is right."""
NOT_FINITE = "not_finite"
"""In run files, the share of answers with a logit that is not finite. 0 is right."""
SOUNDNESS = (LOOKS_AHEAD, NOT_FINITE)
"""The metrics by which every run says whether its model can be ranked. No measurement may use these names."""

LEARNING_RATE = "learning_rate"
"""In run files, the learning rate that tuning runs chose."""

LOSS_VARIANCE, DIVERGED = "loss_variance", "diverged"
TRAINING_METRICS = ("gradient_norm", LOSS_VARIANCE, DIVERGED)
"""The metrics of training that a plot against a setting can draw. No measurement may use these names."""

HARNESS_METRICS = (*CURVE_METRICS, *SOUNDNESS, LEARNING_RATE, LOSS_VARIANCE, DIVERGED)
"""Everything that run files and plots name beside measurements. No measurement may use these names."""

PART_KINDS = ("norm", "attention", "position")
"""The kinds of parts of a model, in the order in which an entry names them."""

BASELINE = "transformer"
"""The architecture of an entry that names only parts."""

NO_NORM = "no-norm"
"""The norm scheme that places no norm anywhere. An entry that has it by default does not name it."""

DEFAULT_OPTIMIZER = "adamw"
"""The optimizer of an entry that names none."""

PRIMARY_METRIC = "tvd"
"""The metric that boards show unless another is asked for, and by which a seed counts as fitted or not."""
