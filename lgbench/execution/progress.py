"""How a run reports its progress. :mod:`lgbench.execution.console` shows it on a console."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

ReportProgress = Callable[[int, Callable[[], float] | None], None]
"""Called with the steps done and, in training, a function that gives the mean loss of the latest step."""


class ProgressDisplay(Protocol):
    """Shows the progress of a run."""

    def say(self, sentence: str) -> None:
        """Show a sentence that the user should read."""

    def phase(self, title: str, total: int) -> AbstractContextManager[ReportProgress]:
        """Show a phase of `total` steps. Inside it, the function that this returns is to be called after each step."""


class SilentProgress:
    """The display of a library call, which shows nothing."""

    def say(self, sentence: str) -> None:
        pass

    def phase(self, title: str, total: int) -> AbstractContextManager[ReportProgress]:
        return nullcontext(lambda done, loss: None)
