"""The options of `lgbench run` that say where and how, as they were given: each machine makes of them what it has."""

from __future__ import annotations

from dataclasses import dataclass

from lgbench.execution.device import Execution


@dataclass(frozen=True)
class Manner:
    """Plain values, for this machine or for another one."""

    device: str = "auto"
    compile: bool | None = None
    population: int | None = None
    checkpoint: float = 60.0
    workers: int | None = None

    def here(self) -> Execution:
        """On this machine. Raises UsageError where a number is out of range, or where the device is not here."""
        return Execution.on(self.device, self.compile, self.population, self.checkpoint, self.workers)
