"""Position codes: three are added to the embedding, two rotate queries and keys, two add a bias to the logits."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Position, hookimpl
from lgbench_positions.absolute import Coupled, RandomisedLearned, Sinusoidal
from lgbench_positions.relative import Alibi, Fire
from lgbench_positions.rotary import Rope, XPos

LGBENCH_CONTRACT = "3.5"


@hookimpl
def lgbench_positions() -> Iterable[Position]:
    return Sinusoidal(), RandomisedLearned(), Coupled(), Rope(), XPos(), Alibi(), Fire()
