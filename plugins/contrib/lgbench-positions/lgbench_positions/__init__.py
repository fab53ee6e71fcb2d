"""Position codes, added to the embedding, as rotations or as biases, and a transformer that predicts position ids."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Architecture, Position, hookimpl
from lgbench_positions.absolute import Coupled, RandomisedLearned, Sinusoidal
from lgbench_positions.calibrated import Calibrated
from lgbench_positions.predicted import PredictedCoupling
from lgbench_positions.relative import Alibi, Fire
from lgbench_positions.rotary import Rope, XPos

LGBENCH_CONTRACT = "3.6"


@hookimpl
def lgbench_positions() -> Iterable[Position]:
    return Sinusoidal(), RandomisedLearned(), Coupled(), Rope(), XPos(), Alibi(), Fire(), Calibrated()


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return [PredictedCoupling()]
