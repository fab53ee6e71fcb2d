"""Progress of runs, estimated time left, and both on a console: live bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.table import Column

from lgbench.experiment.contexts import eval_steps
from lgbench.experiment.experiment import Experiment
from lgbench.measurement.evaluate import Extent
from lgbench.terminal import duration, printable

UNCOMPILED = 2.0
"""Time of a token in evaluation, which is not compiled, relative to training, until both are timed. On Tomita it is 2 to 3."""

MIN_TOKENS = 200.0
"""Fewest tokens per model for timing an evaluation. In shorter evaluations, as of tuning runs, operator overhead dominates."""

COMPILED = 30.0
"""Ratio of times per token above which the slower step counts as compilation and is not timed. Compilation is not limited to
the first step: a model with code for the input length is compiled anew for each length."""

MIN_SECONDS = 0.2
"""Shortest interval for timing. Reports of a worker may arrive all at once when this process was busy."""

Kind = Literal["train", "evaluate"]
ReportProgress = Callable[[int, Callable[[], float] | None], None]
"""Function of the number of steps done and, in training, of a function for the mean loss of the latest step."""


@dataclass(frozen=True)
class Phase:
    """The training or the evaluation of a population."""

    kind: Kind
    title: str
    total: int
    """Steps, or models to test."""
    tokens: float
    """Tokens of all models. Tokens of evaluation are weighted by cost relative to training, see :func:`evaluation_tokens`."""

    @classmethod
    def train(cls, title: str, population: Sequence[Experiment]) -> Phase:
        return cls("train", title, population[0].train.steps, sum(map(training_tokens, population)))

    @classmethod
    def evaluate(cls, title: str, population: Sequence[Experiment]) -> Phase:
        return cls("evaluate", title, len(population), sum(map(evaluation_tokens, population)))


class ProgressDisplay:
    """Display of the progress of runs. The base class, for library calls, shows nothing."""

    def say(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def phase(self, phase: Phase) -> AbstractContextManager[ReportProgress]:
        """Context of a phase with a function to call after each step. Several phases may be open."""
        return nullcontext(lambda done, loss: None)

    def all(self, experiments: Sequence[Experiment], workers: int) -> AbstractContextManager[object]:
        """Context that shows the time left for all experiments, shared by a number of workers."""
        return nullcontext()


def training_tokens(experiment: Experiment) -> float:
    """Tokens of the training of one model."""
    train = experiment.train
    return float(train.steps * train.batch * (train.max_length + 1))


def eval_step_tokens(experiment: Experiment) -> float:
    """Tokens of all tests of one model at eval steps, divided by three as in :func:`evaluation_tokens`."""
    task, train, evaluate = experiment.task, experiment.train, experiment.evaluate
    steps, extent = eval_steps(train, evaluate), Extent.of_eval_step(task, train, evaluate)
    return len(steps) * _tokens(extent) * (1 + len(experiment.averagers)) / 3


def evaluation_tokens(experiment: Experiment) -> float:
    """Tokens of the evaluation of one model, divided by three: a training step costs about three forward passes."""
    extent = Extent.of_end(experiment.task, experiment.train, experiment.evaluate)
    return _tokens(extent) * (1 + len(experiment.averagers)) / 3


def _tokens(extent: Extent) -> float:
    return extent.contexts * sum(n + 1 for n in extent.drawn) + extent.strings * sum(n + 1 for n in extent.of_strings)


@dataclass
class Pace:
    """Timed steps of one kind of phases, without steps that include compilation, such as the first of each phase."""

    seconds: float = 0.0
    """Summed over workers."""
    tokens: float = 0.0
    fastest: float = math.inf
    """Least seconds per token seen."""

    def timed(self, seconds: float, tokens: float) -> None:
        pace = seconds / tokens if tokens > 0 else math.inf
        if pace > COMPILED * self.fastest:
            return
        if self.fastest > COMPILED * pace:  # all earlier steps included compilation
            self.seconds = self.tokens = 0.0
        self.fastest = min(self.fastest, pace)
        self.seconds += seconds
        self.tokens += tokens


@dataclass
class TimeLeft:
    """Estimate of the time left for all phases, from the pace of earlier steps."""

    left: dict[Kind, float]
    """Tokens of the steps to come."""
    workers: int
    paces: dict[Kind, Pace] = field(default_factory=lambda: {"train": Pace(), "evaluate": Pace()})

    @classmethod
    def of(cls, experiments: Sequence[Experiment], workers: int) -> TimeLeft:
        training, testing = (float(sum(map(tokens, experiments))) for tokens in (training_tokens, evaluation_tokens))
        return cls({"train": training, "evaluate": testing}, workers)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[Callable[[int], None]]:
        """Context of a phase with a function to call with the number of steps done."""
        each, ahead = phase.tokens / phase.total, phase.tokens
        latest: tuple[float, int] | None = None
        says_pace = phase.kind == "train" or phase.tokens >= MIN_TOKENS * phase.total

        def report(done: int) -> None:
            nonlocal ahead, latest
            now = time.monotonic()
            if latest is None or now - latest[0] >= MIN_SECONDS:
                if latest and says_pace:
                    self.paces[phase.kind].timed(now - latest[0], (done - latest[1]) * each)
                latest = now, done
            self.left[phase.kind] -= ahead - (phase.total - done) * each
            ahead = (phase.total - done) * each

        try:
            yield report
        finally:
            self.left[phase.kind] -= ahead

    def remaining(self) -> float | None:
        """Estimated seconds until the end of all phases; None before the first timed step."""
        pace = {kind: found.seconds / found.tokens for kind, found in self.paces.items() if found.tokens}
        if not pace:
            return None
        if "evaluate" not in pace:
            pace["evaluate"] = pace["train"] * UNCOMPILED
        elif "train" not in pace:
            pace["train"] = pace["evaluate"] / UNCOMPILED
        return sum(max(0.0, tokens) * pace[kind] for kind, tokens in self.left.items()) / self.workers


REFRESH_SECONDS = 0.25
FIRST_LINE_SECONDS = 3.0
LINE_SECONDS = 10.0

WIDE, MIDDLE = 110, 72
"""Least widths of a terminal, in columns, for bar, pace and loss, and for the pace alone, beside steps and time left."""


class ConsoleProgress(ProgressDisplay):
    """Progress display on a rich console: bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._said: set[str] = set()
        self._time: TimeLeft | None = None
        self._bars: Progress | None = None

    def say(self, sentence: str) -> None:
        """Show a sentence once: seeds and workers may have the same to say."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._print(sentence)

    def _print(self, text: str) -> None:
        # No markup: a stranger's name may look like it.
        self.console.print(printable(text, lines=True), highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    @contextmanager
    def all(self, experiments: Sequence[Experiment], workers: int) -> Iterator[None]:
        """Context that shows the time left for all experiments after each bar, or at the end of each line."""
        self._time = TimeLeft.of(experiments, workers)
        with self._bars_on_terminal():
            yield
        self._time = None

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
                    rate = (done - before) / max(now - started, 1e-9)  # no time has passed at the first report
                    left = self._time.remaining() if self._time else None
                    end = "" if left is None else f"{duration(left)} left in all"
                    show(done, f"{rate:.1f}/s" if rate else "", f"loss {loss():.4f}" if loss else "", end)

            yield report

    @contextmanager
    def _bars_on_terminal(self) -> Iterator[None]:
        """Context with an area for the bars of all open phases."""
        if not self.console.is_terminal:
            yield
            return
        with Progress(*_columns(self.console.width), console=self.console, expand=True, transient=True) as self._bars:
            yield
        self._bars = None

    @contextmanager
    def _bar(self, phase: Phase) -> Iterator[Callable[[int, str, str, str], None]]:
        with nullcontext() if self._bars else self._bars_on_terminal():
            bars = self._bars
            assert bars
            bar = bars.add_task(printable(f"{phase.kind} {phase.title}"), total=phase.total, rate="", note="", left="")
            try:
                yield lambda done, rate, note, left: bars.update(bar, completed=done, rate=rate, note=note, left=left)
            finally:
                bars.remove_task(bar)

    @contextmanager
    def _lines(self, phase: Phase) -> Iterator[Callable[[int, str, str, str], None]]:
        title = f"{phase.kind} {phase.title}"
        self._print(f"{title}: started")
        yield lambda done, *words: self._print(f"{title}: {', '.join([f'{done} of {phase.total} done', *filter(None, words)])}")


def _columns(width: int) -> list[ProgressColumn]:
    """Columns of a bar on one line. In narrow terminals the title is cut, and numbers never are."""
    title = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    bar, steps = BarColumn(bar_width=20), MofNCompleteColumn(table_column=Column(no_wrap=True))
    rate, note, left = (
        TextColumn(f"{{task.fields[{name}]}}", table_column=Column(no_wrap=True)) for name in ("rate", "note", "left")
    )
    # Moves while a step compiles. Without no_wrap it would be the only column that may wrap, and be shrunk to nothing.
    alive = SpinnerColumn("line", table_column=Column(no_wrap=True))
    if width >= WIDE:
        return [alive, title, bar, steps, rate, note, left]
    return [alive, title, steps, rate, left] if width >= MIDDLE else [alive, title, steps, left]
