"""lgbench: train sequence models on short inputs, test them on long ones, and measure what survives.

The contracts of plugins are importable from here, and so are :func:`run`, :func:`read_results`, :func:`evaluate_model`,
:func:`load` and :func:`probe`. Plugins may use four modules more:
:mod:`lgbench.attending` has what attentions share, :mod:`lgbench.chain` modules one after the other, :mod:`lgbench.noise`
randomness in training, and :mod:`lgbench.testing` the checks for their tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lgbench import contracts
from lgbench.checkout import VERSION
from lgbench.contracts import *  # noqa: F403  # their names are listed there
from lgbench.errors import LgbenchError, Unsupported, UsageError
from lgbench.hookspecs import hookimpl

if TYPE_CHECKING:
    from lgbench.execution.command import run
    from lgbench.external import evaluate_model
    from lgbench.options import RunOptions
    from lgbench.randomness import Random
    from lgbench.results.leaderboard import read_results
    from lgbench.saved import LoadedModel, load, probe

__version__ = VERSION

__all__ = [
    "LgbenchError",
    "LoadedModel",
    "Random",
    "RunOptions",
    "Unsupported",
    "UsageError",
    "evaluate_model",
    "hookimpl",
    "load",
    "probe",
    "read_results",
    "run",
]
__all__ += contracts.__all__

_LAZY = {
    "LoadedModel": "lgbench.saved",
    "Random": "lgbench.randomness",
    "RunOptions": "lgbench.options",
    "evaluate_model": "lgbench.external",
    "load": "lgbench.saved",
    "probe": "lgbench.saved",
    "read_results": "lgbench.results.leaderboard",
    "run": "lgbench.execution.command",
}


def __getattr__(name: str) -> Any:
    """Lazy import of public names, so that `import lgbench` loads neither torch nor DuckDB."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
