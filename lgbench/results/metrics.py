"""Descriptions of metrics in run files, for boards, plots and submissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import msgspec

from lgbench.contracts import Measurement


@dataclass(frozen=True)
class Metric:
    """A measurement without its code. Fields as in :class:`lgbench.Measurement`."""

    name: str
    version: int
    label: str
    title: str
    lower_is_better: bool | None
    """None for a metric without ranks: no value is better."""
    low: float | None
    """Least possible value; None without a lower bound."""
    high: float | None
    """Greatest possible value; None without an upper bound."""
    worst: float | None
    threshold: float | None
    landmark: float | None
    """Reference value, drawn by plots as a dashed line."""
    landmark_name: str | None

    @classmethod
    def of(cls, measurement: Measurement) -> Metric:
        """The description of a measurement."""
        value, name = measurement.landmark or (None, None)
        return cls(
            name=measurement.name,
            version=measurement.version,
            label=measurement.label,
            title=measurement.title,
            lower_is_better=measurement.lower_is_better,
            low=None if measurement.range[0] is None else float(measurement.range[0]),
            high=None if measurement.range[1] is None else float(measurement.range[1]),
            worst=None if measurement.worst is None else float(measurement.worst),
            threshold=None if measurement.threshold is None else float(measurement.threshold),
            landmark=None if value is None else float(value),
            landmark_name=name,
        )

    @property
    def key(self) -> str:
        """The name of this version of the metric."""
        return f"{self.name}/{self.version}"

    @property
    def ranks(self) -> bool:
        """Whether boards can rank entries by the metric: lower or higher values are better."""
        return self.lower_is_better is not None

    @property
    def headline(self) -> str:
        """The label and the direction, such as "TVD, lower is better"."""
        return f"{self.label}, {self.direction}" if self.ranks else self.label

    @property
    def direction(self) -> str:
        """ "lower is better", "higher is better" or "nothing is better"."""
        side = {None: "nothing", True: "lower", False: "higher"}[self.lower_is_better]
        return f"{side} is better"

    @property
    def sign(self) -> int:
        """Factor for "lower is better": -1 if higher values are better, else 1."""
        return -1 if self.lower_is_better is False else 1

    @property
    def perfect(self) -> float | None:
        """Best possible value, None without one."""
        return {None: None, True: self.low, False: self.high}[self.lower_is_better]

    @property
    def lowest(self) -> float:
        """Least possible value, -inf without a lower bound."""
        return -inf if self.low is None else self.low

    @property
    def highest(self) -> float:
        """Greatest possible value, inf without an upper bound."""
        return inf if self.high is None else self.high

    def reaches(self, value: float) -> bool:
        """Whether a value is better than the threshold."""
        if self.threshold is None:
            return False
        return value < self.threshold if self.lower_is_better else value > self.threshold

    def limit(self, context_free: float | None = None) -> float | None:
        """Limit of a mean that counts as right; None for no limit. A better ID mean is part of a fit (`boards.not_fitted`).

        The limit is the threshold or, if stricter, the value halfway between the context-free baseline and a perfect answer. On
        some tasks the context-free baseline passes the threshold: on tomita-4 the baseline has TVD 0.05, and the threshold is
        0.1. A perfect baseline is ignored: the length alone decides the answer, as on Tomita 1 and 2.
        """
        if context_free is None or self.perfect is None or context_free == self.perfect:
            return self.threshold
        halfway = (self.perfect + context_free) / 2
        if self.threshold is None:
            return halfway
        return min(self.threshold, halfway) if self.lower_is_better else max(self.threshold, halfway)


def descriptions(measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """JSON for the metadata of a run."""
    return [asdict(Metric.of(measurement)) for measurement in measurements]


def described(about: Mapping[str, Any]) -> list[Metric]:
    """Metrics in the metadata of a run. Incomplete descriptions, and descriptions with wrong types, are left out."""
    found = about.get("measurements")
    metrics = [_metric(each) for each in found] if isinstance(found, list) else []
    return [metric for metric in metrics if metric]


def _metric(description: Any) -> Metric | None:
    try:
        return msgspec.convert(description, Metric)
    except msgspec.ValidationError:
        return None
