"""Recall: find something earlier in the context, once or over several steps."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_recall.induction_heads import InductionHeads
from lgbench_recall.k_hop import KHop
from lgbench_recall.multi_query import MultiQueryRecall
from lgbench_recall.selective_copying import SelectiveCopying
from lgbench_recall.variable_tracking import VariableTracking

LGBENCH_CONTRACT = "3.6"


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    return InductionHeads(), KHop(), MultiQueryRecall(), SelectiveCopying(), VariableTracking()
