"""What lgbench asks of every plugin."""

from __future__ import annotations

import pytest

import lgbench_recurrent
from lgbench.conformance.check import Check
from lgbench.testing import checks

CHECKS = checks(lgbench_recurrent)
GRAPHS = [check for check in CHECKS if check.promise.endswith("its training step is one graph")]


@pytest.mark.parametrize("check", [check for check in CHECKS if check not in GRAPHS])
def test_it_keeps_the_contract(check: Check) -> None:
    check()


@pytest.mark.slow  # a graph takes seconds
@pytest.mark.parametrize("check", GRAPHS)
def test_it_trains_as_one_graph_or_says_why_not(check: Check) -> None:
    check()
