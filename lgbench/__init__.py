"""lgbench: train sequence models on short inputs, test them on long ones, and measure what survives.

The contracts of plugins are importable from here, and so are :func:`run` and :func:`results`. Plugins may use
three modules more: :mod:`lgbench.attending` has what attentions share, :mod:`lgbench.noise` randomness in training, and
:mod:`lgbench.testing` the checks for their tests.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from lgbench.contracts import (
    Answers,
    Architecture,
    Attention,
    Averager,
    AverageState,
    Batch,
    Budget,
    Language,
    NormScheme,
    Parts,
    Place,
    Position,
    Role,
    Signature,
    Strings,
    Task,
    Tokens,
    Vectors,
    Weights,
)
from lgbench.errors import LgbenchError, Unsupported, UsageError
from lgbench.hookspecs import hookimpl

if TYPE_CHECKING:
    from lgbench.ranking.leaderboard import results
    from lgbench.running.runner import run

__version__ = version("lgbench")

__all__ = [
    "Answers",
    "Architecture",
    "Attention",
    "AverageState",
    "Averager",
    "Batch",
    "Budget",
    "Language",
    "LgbenchError",
    "NormScheme",
    "Parts",
    "Place",
    "Position",
    "Role",
    "Signature",
    "Strings",
    "Task",
    "Tokens",
    "Unsupported",
    "UsageError",
    "Vectors",
    "Weights",
    "hookimpl",
    "results",
    "run",
]

_LAZY = {"run": "lgbench.running.runner", "results": "lgbench.ranking.leaderboard"}


def __getattr__(name: str) -> Any:
    """Torch and DuckDB are only imported by whoever runs or reads something."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
