"""How runs report their progress. :mod:`lgbench.execution.console` shows it on a console."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, Protocol

from lgbench.experiment.contexts import point_steps
from lgbench.experiment.experiment import Experiment
from lgbench.measurement.extent import Extent

UNCOMPILED = 2.0
"""Until a phase of each kind was seen: a token of evaluation, which is not compiled, takes so many times as long as one of
training. Measured on Tomita: 2 to 3."""

MIN_TOKENS = 200.0
"""The evaluation of a model on fewer tokens, as in a tuning run, says nothing of the pace of others: operators only start."""

COMPILED = 30.0
"""A step that takes so many times as long as another, for each token, was compiled, and says nothing of the pace. A model that
asks for the length of its inputs is compiled for each length, so that is not always the first step."""

MIN_SECONDS = 0.2
"""Less time says nothing of the pace: what a worker told while this process had no time to listen comes all at once."""

Kind = Literal["train", "evaluate"]
ReportProgress = Callable[[int, Callable[[], float] | None], None]
"""Called with the steps done and, in training, a function that gives the mean loss of the latest step."""


@dataclass(frozen=True)
class Phase:
    """The training or the evaluation of a population."""

    kind: Kind
    title: str
    total: int
    """Steps, or models to test."""
    tokens: float
    """Tokens that models see in it, those of evaluation as what they cost beside those of training."""

    @classmethod
    def train(cls, title: str, population: Sequence[Experiment]) -> Phase:
        return cls("train", title, population[0].train.steps, sum(map(training_tokens, population)))

    @classmethod
    def evaluate(cls, title: str, population: Sequence[Experiment]) -> Phase:
        return cls("evaluate", title, len(population), sum(map(evaluation_tokens, population)))


class ProgressDisplay(Protocol):
    """Shows the progress of runs."""

    def say(self, sentence: str) -> None:
        """Show a sentence that the user should read."""

    def phase(self, phase: Phase) -> AbstractContextManager[ReportProgress]:
        """Show a phase. Inside it, the function that this returns is to be called after each step. Several may be open."""

    def all(self, experiments: Sequence[Experiment], workers: int) -> AbstractContextManager[object]:
        """Show how long all of these will take, which `workers` share."""


class SilentProgress:
    """The display of a library call, which shows nothing."""

    def say(self, sentence: str) -> None:
        pass

    def phase(self, phase: Phase) -> AbstractContextManager[ReportProgress]:
        return nullcontext(lambda done, loss: None)

    def all(self, experiments: Sequence[Experiment], workers: int) -> AbstractContextManager[object]:
        return nullcontext()


def duration(seconds: float) -> str:
    """In words, such as "37 s" or "1:02:03".

    >>> duration(37.2), duration(3723)
    ('37 s', '1:02:03')
    """
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


def training_tokens(experiment: Experiment) -> float:
    """Tokens of the training of a model."""
    train = experiment.train
    return float(train.steps * train.batch * (train.max_length + 1))


def point_tokens(experiment: Experiment) -> float:
    """A third of the tokens of the tests of a model while it trains, as :func:`evaluation_tokens` counts them."""
    task, train, evaluate = experiment.task, experiment.train, experiment.evaluate
    steps, extent = point_steps(train, evaluate), Extent.of_point(task, train, evaluate)
    return len(steps) * _tokens(extent) * (1 + len(experiment.averagers)) / 3


def evaluation_tokens(experiment: Experiment) -> float:
    """A third of the tokens of the evaluation of a model, since a step of training goes through a model three times."""
    extent = Extent.of_end(experiment.task, experiment.train, experiment.evaluate)
    return _tokens(extent) * (1 + len(experiment.averagers)) / 3


def _tokens(extent: Extent) -> float:
    return extent.contexts * sum(n + 1 for n in extent.drawn) + extent.strings * sum(n + 1 for n in extent.of_strings)


@dataclass
class TimeLeft:
    """How long all phases will take, from the pace of those that went before."""

    left: dict[Kind, float]
    """Tokens of phases that have not begun."""
    workers: int
    seconds: dict[Kind, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})
    """Seconds of all workers together, without those in which a step was compiled, such as the first one of each phase."""
    seen: dict[Kind, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})
    """Tokens in these seconds."""
    fastest: dict[Kind, float] = field(default_factory=dict)
    """Seconds for a token, the least that were seen."""
    open: dict[int, tuple[Kind, float]] = field(default_factory=dict)
    """Tokens left of each open phase."""

    @classmethod
    def of(cls, experiments: Sequence[Experiment], workers: int) -> TimeLeft:
        left: dict[Kind, float] = {
            "train": sum(map(training_tokens, experiments)),
            "evaluate": sum(map(evaluation_tokens, experiments)),
        }
        return cls(left, workers)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[Callable[[int], None]]:
        """Inside it, the function that this returns is to be called with the steps done."""
        key = len(self.open) + id(phase)
        self.open[key] = phase.kind, phase.tokens
        self.left[phase.kind] -= phase.tokens
        latest: tuple[float, int] | None = None
        says_pace = phase.kind == "train" or phase.tokens >= MIN_TOKENS * phase.total

        def report(done: int) -> None:
            nonlocal latest
            now = time.monotonic()
            if latest is None:
                latest = now, done
            elif now - latest[0] >= MIN_SECONDS:
                if says_pace:
                    self._timed(phase.kind, now - latest[0], (done - latest[1]) / phase.total * phase.tokens)
                latest = now, done
            self.open[key] = phase.kind, phase.tokens * (1 - done / phase.total)

        try:
            yield report
        finally:
            del self.open[key]

    def _timed(self, kind: Kind, seconds: float, tokens: float) -> None:
        pace = seconds / tokens if tokens > 0 else math.inf
        fastest = self.fastest.get(kind, pace)
        if pace > COMPILED * fastest:
            return
        if fastest > COMPILED * pace:  # so what was seen before was compiled
            self.seconds[kind] = self.seen[kind] = 0.0
        self.fastest[kind] = min(fastest, pace)
        self.seconds[kind] += seconds
        self.seen[kind] += tokens

    def of_others(self, experiments: Sequence[Experiment]) -> float | None:
        """Seconds that other experiments would take at the pace of these; None if there was none."""
        return replace(TimeLeft.of(experiments, self.workers), seconds=self.seconds, seen=self.seen).remaining()

    def remaining(self) -> float | None:
        """Seconds until all is done; None before the first step."""
        pace = {kind: self.seconds[kind] / seen for kind, seen in self.seen.items() if seen}
        if not pace:
            return None
        if "evaluate" not in pace:
            pace["evaluate"] = pace["train"] * UNCOMPILED
        elif "train" not in pace:
            pace["train"] = pace["evaluate"] / UNCOMPILED
        left = dict(self.left)
        for kind, tokens in self.open.values():
            left[kind] += tokens
        return sum(max(0.0, tokens) * pace[kind] for kind, tokens in left.items()) / self.workers
