"""Progress on a console: live bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lgbench.execution.progress import ReportProgress
from lgbench.terminal import printable

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0


class ConsoleProgress:
    """Shows progress on a console, which knows whether it is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, sentence: str) -> None:
        self.console.print(printable(sentence, lines=True), highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def phase(self, title: str, total: int) -> Iterator[ReportProgress]:
        """Steps done, steps a second, loss in training, time left. Refreshed by time, so that a step costs nothing."""
        started = time.monotonic()
        with self._bar(title, total) if self.console.is_terminal else self._lines(title) as show:
            shown = started
            before: int | None = None  # steps of an earlier process, whose time is unknown

            def report(done: int, loss: Callable[[], float] | None) -> None:
                nonlocal shown, before
                before = done - 1 if before is None else before
                now = time.monotonic()
                if done == total or now - shown >= (REFRESH_SECONDS if self.console.is_terminal else LINE_SECONDS):
                    shown = now
                    rate = (done - before) / max(now - started, 1e-9)
                    show(done, rate, (total - done) / rate, f"loss {loss():.4f}" if loss else "")

            yield report

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Callable[[int, float, float, str], None]]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.1f}/s"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bars:
            bar = bars.add_task(printable(title), total=total, rate=0.0, note="")
            yield lambda done, rate, left, note: bars.update(bar, completed=done, rate=rate, note=note)

    @contextmanager
    def _lines(self, title: str) -> Iterator[Callable[[int, float, float, str], None]]:
        self.say(f"{title}: started")

        def line(done: int, rate: float, left: float, note: str) -> None:
            self.say(f"{title}: {done} done, {rate:.1f}/s, {left:.0f} s left {note}".rstrip())

        yield line
