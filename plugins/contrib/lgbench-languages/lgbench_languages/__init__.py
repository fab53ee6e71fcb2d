"""Formal languages as tasks: regular ones of your own, and the suites of the literature on length generalization."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_languages.boolean import Boolean
from lgbench_languages.counter import Counter
from lgbench_languages.hidden import HiddenMarkov, ProbabilisticAutomaton
from lgbench_languages.regular import language, regular
from lgbench_languages.shuffle import Shuffle
from lgbench_languages.suite import suite

LGBENCH_CONTRACT = "3.5"

__all__ = ["language", "lgbench_tasks", "regular"]


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    yield from suite()
    yield from map(Counter, (2, 3))
    yield from map(Shuffle, (2, 4, 6))
    yield from map(Boolean, (2, 3))
    yield from (kind(8, 4, seed) for kind in (ProbabilisticAutomaton, HiddenMarkov) for seed in (1, 2, 3))
