"""Plans of small commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lgbench.experiment.plan import Plan, plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions


def plan_of(registry: Registry, task: str | Sequence[str], arch: str | Sequence[str], **options: Any) -> Plan:
    """Plan under the protocol quick, unless said otherwise with one seed and without averages."""
    return plan(RunOptions(task, arch, **{"average": (), "seeds": (0,), "protocol": "quick"} | options), registry)
