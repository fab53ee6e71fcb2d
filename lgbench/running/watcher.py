"""What a run tells whoever watches it; :mod:`lgbench.running.progress` shows it on a console."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Report = Callable[[int, Callable[[], float] | None], None]
"""Given the steps done and, in training, a function for the mean loss of the latest one."""


class Watcher(Protocol):
    """Whoever wants to see a run's progress."""

    def say(self, sentence: str) -> None:
        """Something that the user should know."""

    def phase(self, title: str, total: int) -> AbstractContextManager[Report]:
        """A phase of `total` steps, inside which the report is to be called after each."""


class Silent:
    """The watcher of a library call."""

    def say(self, sentence: str) -> None:
        pass

    def phase(self, title: str, total: int) -> AbstractContextManager[Report]:
        return nullcontext(lambda done, loss: None)
