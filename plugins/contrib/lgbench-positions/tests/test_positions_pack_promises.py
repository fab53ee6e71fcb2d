"""What lgbench asks of every plugin."""

from __future__ import annotations

import pytest

import lgbench_positions
from lgbench.conformance.check import Check
from lgbench.testing import checks

GRAPH = "its training step is one graph"
"""Takes seconds to see."""


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, marks=pytest.mark.slow if GRAPH in check.promise else ()) for check in checks(lgbench_positions)],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()
