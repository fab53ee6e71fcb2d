"""Published methods pass the checks of lgbench: what fits the contracts is not reported as a fault."""

from __future__ import annotations

import pytest
from test_contract_attentions import Forgetting, Window
from test_contract_norms import METHODS as NORMS
from test_contract_optimizers import Lion, Muon
from test_contract_positions import METHODS as POSITIONS
from test_contract_tasks import Copy, FlipFlop

from lgbench.testing import checks

THINGS = [*NORMS, Forgetting(), Window(), *POSITIONS, Lion(), Muon(), Copy(), FlipFlop()]
GRAPH = "its training step is one graph"


@pytest.mark.slow
@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.name)
def test_a_published_method_passes_all_checks(thing, recwarn) -> None:
    own = [check for check in checks(thing) if GRAPH not in check.__name__]
    assert len(own) > 3
    for check in own:
        check()
