"""The checks of lgbench for every plugin."""

from __future__ import annotations

import pytest

import lgbench_positions
from lgbench.conformance.check import Check
from lgbench.testing import checks

GRAPH = "its training step is one graph"
"""This check takes seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [pytest.param(check, marks=pytest.mark.slow if GRAPH in check.__name__ else ()) for check in checks(lgbench_positions)],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()
