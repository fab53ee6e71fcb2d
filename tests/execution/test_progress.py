"""Progress of runs: the time that is left, and bars of one line."""

from __future__ import annotations

import io

import pytest
from helpers.plain_training import CHEAP
from helpers.planning import plan_of
from rich.console import Console

from lgbench.execution.progress import UNCOMPILED, ConsoleProgress, Phase, TimeLeft


def planned(registry, steps: str):
    changes = CHEAP | {"train.steps": steps}
    return plan_of(registry, ["tomita-1", "tomita-2"], "pre-norm", average="ema", seeds=(0, 1), set=changes)


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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_bar_is_one_line_of_the_terminal_and_no_number_is_cut(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    progress = ConsoleProgress(console)
    with progress.all([], workers=2):
        title = "set-complement transformer+input-output-post-norm (3 models)"
        with progress.phase(Phase("train", title, 6000, 1e6)), progress.phase(Phase("evaluate", title, 3, 1e3)):
            compiling = console.render_lines(progress._bars.get_renderable(), pad=False)
            for task in progress._bars.task_ids:
                progress._bars.update(task, completed=2, rate="131.5/s", note="loss 0.6938", left="12 h 34 min left in all")
            lines = console.render_lines(progress._bars.get_renderable(), pad=False)
    shown = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert len(shown) == 2 and all(len(line) <= width for line in shown)
    assert len(compiling) == 2 and all(line[0].text[0] in "-\\|/" for line in compiling)  # the spinner
    for line, steps in zip(shown, ("2/6000", "2/3"), strict=True):
        assert steps in line and line.endswith("left in all")
        assert ("131.5/s" in line) == (width >= 80) and ("loss 0.6938" in line) == (width >= 120)
