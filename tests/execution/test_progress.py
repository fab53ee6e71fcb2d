"""Progress of runs: the time that is left."""

from __future__ import annotations

import pytest

from lgbench.execution.progress import UNCOMPILED, Phase, TimeLeft
from lgbench.experiment.plan import Request, plan


def planned(registry, steps: str):
    settings = {"train.steps": steps, "train.batch": "4", "evaluate.contexts": "4", "evaluate.strings": "8"}
    changes = settings | {"evaluate.max_length": "48"}
    return plan(Request(["tomita-1", "tomita-2"], ["pre-norm"], ["ema"], (0, 1), "quick", changes), registry)


def test_the_time_left_is_what_the_pace_so_far_makes_of_all_that_is_left(registry, monkeypatch):
    """Two workers, each with a population of one of four runs; a clock that runs by hand."""
    now = 0.0
    monkeypatch.setattr("lgbench.execution.progress.time.monotonic", lambda: now)
    experiments = planned(registry, "100").experiments
    left = TimeLeft.of(experiments, 2)
    assert left.remaining() is None
    first, second = (Phase.train("", [experiment]) for experiment in experiments[:2])
    with left.phase(first) as report, left.phase(second) as other:
        report(1), other(1)
        assert left.remaining() is None  # the first step says nothing: a program may have been compiled in it
        now = 10.0
        report(26), other(26)
        pace = 10 / (25 / 100 * first.tokens)  # seconds of one worker for a token
        training = 4 * first.tokens - 2 * 26 / 100 * first.tokens
        testing = sum(Phase.evaluate("", [experiment]).tokens for experiment in experiments)
        assert left.remaining() == pytest.approx((training + UNCOMPILED * testing) * pace / 2)
        now = 1010.0
        report(27)  # it was compiled for another length
        assert left.remaining() == pytest.approx((training - first.tokens / 100 + UNCOMPILED * testing) * pace / 2)
    again = TimeLeft.of(experiments, 1)
    with again.phase(first) as report:
        report(1)
        now = 1025.0
        report(2)  # it was compiled, too
        now = 1025.4
        report(3)
        pace_now = 0.4 / (first.tokens / 100)
        assert again.remaining() == pytest.approx((3.97 * first.tokens + UNCOMPILED * testing) * pace_now)
        now = 1025.401
        report(99)  # a worker told this long ago, and nobody had time to listen
        assert again.remaining() == pytest.approx((3.01 * first.tokens + UNCOMPILED * testing) * pace_now)
    longer = planned(registry, "700").experiments  # seven times the training, the same tests, at the same pace
    assert left.of_others(longer) == pytest.approx((7 * 4 * first.tokens + UNCOMPILED * testing) * pace / 2)
