"""Progress on a console: live bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from lgbench.execution.progress import Phase, ProgressDisplay, ReportProgress, TimeLeft, duration
from lgbench.experiment.experiment import Experiment
from lgbench.terminal import printable

REFRESH_SECONDS = 0.25
FIRST_LINE_SECONDS = 3.0
LINE_SECONDS = 10.0

WIDE, MIDDLE = 110, 72
"""Least widths of a terminal, in columns, for bar, pace and loss, and for the pace alone, beside steps and time left."""


class ConsoleProgress(ProgressDisplay):
    """Progress display on a rich console: bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._time: TimeLeft | None = None
        self._past: TimeLeft | None = None
        self._bars: Progress | None = None

    def say(self, sentence: str) -> None:
        self.console.print(
            printable(sentence, lines=True), highlight=False, markup=False, soft_wrap=not self.console.is_terminal
        )

    @contextmanager
    def all(self, experiments: Sequence[Experiment], workers: int) -> Iterator[None]:
        """Context that shows the time left for all experiments after each bar, or at the end of each line."""
        self._time = TimeLeft.of(experiments, workers)
        with self._bars_on_terminal():
            yield
        self._past, self._time = self._time, None

    def would_take(self, experiments: Sequence[Experiment]) -> float | None:
        """Estimated seconds for experiments at the pace of the finished experiments; None without a known pace."""
        return self._past.of_others(experiments) if self._past else None

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[ReportProgress]:
        """Context that shows steps done, steps per second and training loss. Refreshed by time, so a step costs nothing."""
        started = time.monotonic()
        watched = self._time.phase(phase) if self._time else nullcontext(lambda done: None)
        with self._bar(phase) if self.console.is_terminal else self._lines(phase) as show, watched as watch:
            due = started + (REFRESH_SECONDS if self.console.is_terminal else FIRST_LINE_SECONDS)
            before: int | None = None  # steps of an earlier process, of unknown duration

            def report(done: int, loss: Callable[[], float] | None) -> None:
                nonlocal due, before, started
                now = time.monotonic()
                if before is None:
                    before, started = done, now  # the first step may include compilation
                if done == phase.total or now >= due:
                    due = now + (REFRESH_SECONDS if self.console.is_terminal else LINE_SECONDS)
                    watch(done)
                    rate = (done - before) / max(now - started, 1e-9)
                    show(done, rate, f"loss {loss():.4f}" if loss else "")

            yield report

    @contextmanager
    def _bars_on_terminal(self) -> Iterator[None]:
        """Context with an area for the bars of all open phases."""
        if not self.console.is_terminal:
            yield
            return
        with Progress(
            *_columns(self.console.width, lambda: self._time), console=self.console, expand=True, transient=True
        ) as self._bars:
            yield
        self._bars = None

    @contextmanager
    def _bar(self, phase: Phase) -> Iterator[Callable[[int, float, str], None]]:
        with nullcontext() if self._bars else self._bars_on_terminal():
            bars = self._bars
            assert bars
            bar = bars.add_task(printable(f"{phase.kind} {phase.title}"), total=phase.total, rate="", note="")
            try:
                yield lambda done, rate, note: bars.update(bar, completed=done, rate=f"{rate:.1f}/s" if rate else "", note=note)
            finally:
                bars.remove_task(bar)

    @contextmanager
    def _lines(self, phase: Phase) -> Iterator[Callable[[int, float, str], None]]:
        title = f"{phase.kind} {phase.title}"
        self.say(f"{title}: started")

        def line(done: int, rate: float, note: str) -> None:
            left = self._time.remaining() if self._time else None
            pace, end = f"{rate:.1f}/s" if rate else "", "" if left is None else in_all(left)
            words = (f"{done} of {phase.total} done", pace, note, end)
            self.say(f"{title}: {', '.join(filter(None, words))}")

        yield line


def _columns(width: int, known: Callable[[], TimeLeft | None]) -> list[ProgressColumn]:
    """Columns of a bar on one line. In narrow terminals the title is cut, and numbers never are."""
    title = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    bar, steps = BarColumn(bar_width=20), MofNCompleteColumn(table_column=Column(no_wrap=True))
    rate, note = (TextColumn(f"{{task.fields[{name}]}}", table_column=Column(no_wrap=True)) for name in ("rate", "note"))
    left = _Left(known)
    alive = SpinnerColumn("line")  # moves while a step compiles
    if width >= WIDE:
        return [alive, title, bar, steps, rate, note, left]
    return [alive, title, steps, rate, left] if width >= MIDDLE else [alive, title, steps, left]


class _Left(ProgressColumn):
    """Column with the time left for all runs."""

    def __init__(self, known: Callable[[], TimeLeft | None]) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._known = known

    def render(self, task: Task) -> Text:
        known = self._known()
        left = known.remaining() if known else None
        return Text("" if left is None else in_all(left), style="progress.remaining")


def in_all(seconds: float) -> str:
    """Text about the time left for all runs."""
    return f"{duration(seconds)} left in all"
