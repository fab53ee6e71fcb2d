"""Formal languages as tasks: regular ones of your own, and the suites of the literature on length generalization."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_languages.regular import language, regular
from lgbench_languages.suite import suite

LGBENCH_CONTRACT = "3.5"

__all__ = ["language", "lgbench_tasks", "regular"]


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    yield from suite()
