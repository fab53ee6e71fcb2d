"""A limit to the time that a reviewer gives a population."""

from __future__ import annotations

import math
import time

from torch import Tensor, nn

from lgbench.errors import LgbenchError
from lgbench.measurement.causality import Predict
from lgbench.training.models import Models


class TooLong(LgbenchError):
    """A rerun that takes longer than the reviewer allows."""


class Deadline:
    """There is no limit before :meth:`start`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = math.inf

    def start(self) -> None:
        """From now on there is as much time as is allowed."""
        self._ends = time.monotonic() + self.seconds

    def require(self) -> None:
        """Raise TooLong where the time is over."""
        if time.monotonic() > self._ends:
            raise TooLong(f"it took longer than {self.seconds / 3600:.3g} hours, the limit; --hours allows more")

    def asking(self, predict: Predict) -> Predict:
        """The same model, which answers as long as there is time."""

        def predict_in_time(inputs: Tensor) -> Tensor:
            self.require()
            return predict(inputs)

        return predict_in_time

    def models(self, models: Models, index: int, skeleton: nn.Module | None = None) -> dict[str, Predict]:
        """The same of one model with each variant of its weights, which may compute by another module of its architecture."""
        own = models if skeleton is None else models.on(skeleton)
        return {name: self.asking(model) for name, model in own.models(index).items()}
