"""The contracts between the core and its plugins: tasks, architectures and their parts, training and measurements."""
# ruff: noqa: F403, F405

from __future__ import annotations

from lgbench.contracts.measurements import *  # none of them imports torch, which `lgbench --help` does without.
from lgbench.contracts.models import *
from lgbench.contracts.names import *
from lgbench.contracts.tasks import *
from lgbench.contracts.training import *

# Names for plugins; all others are for the core.
__all__ = ["JsonFile", "Role"]
__all__ += ["Answers", "Batch", "Budget", "Facts", "Language", "Signature", "Strings", "Task", "Tokens", "Vectors"]
__all__ += ["Architecture", "Model", "Parts", "NormScheme", "Matrix", "SublayerSpec", "TensorModule"]
__all__ += ["Attention", "AttentionModule", "AttentionSpec", "Need"]
__all__ += ["Position", "BiasModule", "EmbeddingModule", "RotationModule"]
__all__ += ["Averager", "Optimizer", "Schedule", "State", "Weights"]
__all__ += ["Measurement", "Predictions", "Source", "StringScores"]
__all__ += ["Internals", "AttentionInternals", "Reading", "SublayerInternals"]
__all__ += ["Demand", "Executor", "Pool", "Submitted", "LoggedRun", "Logger", "OpenRun", "RunEnd"]
