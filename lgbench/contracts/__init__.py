"""The contracts between the core and its plugins: tasks, architectures and their parts, training, measurements and services."""

from __future__ import annotations

from lgbench.contracts.measurements import (
    AttentionInside,
    Insides,
    Measurement,
    Predictions,
    Reading,
    Source,
    StringScores,
    SublayerInside,
)
from lgbench.contracts.models import (
    Architecture,
    Attention,
    AttentionModule,
    AttentionSpec,
    BiasModule,
    EmbeddingModule,
    Matrix,
    Model,
    Need,
    NormScheme,
    Parts,
    Position,
    RotationModule,
    SublayerSpec,
    TensorModule,
)
from lgbench.contracts.names import *  # noqa: F403  # for the core, and except Role no part of __all__
from lgbench.contracts.names import Configurable as Configurable
from lgbench.contracts.names import JsonFile, Role
from lgbench.contracts.services import Demand, Executor, OpenRun, Pool, RunEnd, Submitted, TrackedRun, Tracker
from lgbench.contracts.tasks import Answers, Batch, Budget, Facts, Language, Signature, Strings, Task, Tokens, Vectors
from lgbench.contracts.training import Averager, Optimizer, Schedule, State, Weights

__all__ = [
    "Answers",
    "Architecture",
    "Attention",
    "AttentionInside",
    "AttentionModule",
    "AttentionSpec",
    "Averager",
    "Batch",
    "BiasModule",
    "Budget",
    "Demand",
    "EmbeddingModule",
    "Executor",
    "Facts",
    "Insides",
    "JsonFile",
    "Language",
    "Matrix",
    "Measurement",
    "Model",
    "Need",
    "NormScheme",
    "OpenRun",
    "Optimizer",
    "Parts",
    "Pool",
    "Position",
    "Predictions",
    "Reading",
    "Role",
    "RotationModule",
    "RunEnd",
    "Schedule",
    "Signature",
    "Source",
    "State",
    "StringScores",
    "Strings",
    "SublayerInside",
    "SublayerSpec",
    "Submitted",
    "Task",
    "TensorModule",
    "Tokens",
    "TrackedRun",
    "Tracker",
    "Vectors",
    "Weights",
]
