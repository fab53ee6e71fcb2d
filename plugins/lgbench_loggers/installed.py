"""Whether a library is installed, without importing it."""

from __future__ import annotations

from importlib.util import find_spec

PROJECT = "lgbench"
"""The name of the project or experiment, where the user's environment names none."""


def lacking(extra: str, *modules: str) -> str | None:
    """A sentence where one of the modules is not installed that an extra of lgbench brings; None where all are."""
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return None
    return f"{missing[0]} is not installed, which --logger {extra} needs: pip install 'lgbench[{extra}]'"
