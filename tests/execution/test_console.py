from __future__ import annotations

import io

import pytest
from rich.console import Console

from lgbench.execution.progress import ConsoleProgress, Phase


@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_bar_is_one_line_of_the_terminal_and_no_number_is_cut(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    progress = ConsoleProgress(console)
    with progress.all([], workers=2):
        title = "set-complement transformer+input-output-post-norm (3 models)"
        with progress.phase(Phase("train", title, 6000, 1e6)), progress.phase(Phase("evaluate", title, 3, 1e3)):
            assert progress._time is not None and progress._bars is not None
            progress._time.seconds["train"], progress._time.seen["train"] = 10.0, 100.0  # hours are left
            for task in progress._bars.task_ids:
                progress._bars.update(task, completed=2, rate="131.5/s", note="loss 0.6938")
            lines = console.render_lines(progress._bars.get_renderable(), pad=False)
    shown = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert len(shown) == 2 and all(len(line) <= width for line in shown)
    for line, steps in zip(shown, ("2/6000", "2/3"), strict=True):
        assert steps in line and line.endswith("left in all")
        assert ("131.5/s" in line) == (width >= 80) and ("loss 0.6938" in line) == (width >= 120)
