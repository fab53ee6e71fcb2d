"""State tracking: the product of group elements, the last bit written, what is in a box."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_state_tracking.boxes import Boxes
from lgbench_state_tracking.flip_flop import FlipFlop
from lgbench_state_tracking.word_problem import WordProblem

LGBENCH_CONTRACT = "3.6"


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    yield Boxes()
    yield from (FlipFlop(percent) for percent in (10, 80, 98))
    yield from (WordProblem(group) for group in ("z2", "s3", "a5"))
