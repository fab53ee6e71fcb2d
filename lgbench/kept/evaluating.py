"""Testing kept weights again: what a run file says of the trained model, without training it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from lgbench.execution.device import full_float32, keep_freed_memory, threads
from lgbench.execution.progress import Phase, ProgressDisplay
from lgbench.kept.finding import FoundRun
from lgbench.kept.loading import models_of
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.probing import probe
from lgbench.results.rows import Measured, rows_of
from lgbench.submissions.agreement import Tolerance
from lgbench.submissions.deadline import Deadline
from lgbench.submissions.inspection import Run
from lgbench.submissions.verdict import SAME_BITS, Failure, Verdict
from lgbench.submissions.verification import DEFAULT_SECONDS, other_machine
from lgbench.training.curve import NO_CURVE


def evaluate_again(
    runs: Sequence[Run],
    device: torch.device,
    display: ProgressDisplay,
    tolerance: Tolerance = SAME_BITS,
    seconds: float = DEFAULT_SECONDS,
) -> Iterator[Verdict | Failure]:
    """Test the kept weights of runs again, write nothing, and say of each run whether its numbers are those of its weights.

    A run takes not much longer than `seconds`. What was measured while it trained, and its training curve, are not compared.
    """
    keep_freed_memory()
    for run in runs:
        try:
            yield _tested(run, device, display, tolerance, Deadline(seconds))
        except Exception as error:  # the weights are not there, or a plugin's model raises anything
            yield Failure(run, error)


def _tested(
    run: Run,
    device: torch.device,
    display: ProgressDisplay,
    tolerance: Tolerance,
    deadline: Deadline,
) -> Verdict:
    experiment, footer = run.experiment, run.footer
    found = FoundRun.of(run)
    content, number = found.content(), min(footer.environment.threads, os.cpu_count() or 1)
    with threads(number), full_float32():
        models = partial(deadline.models, models_of(found, experiment, content, device), 0)
        deadline.start()
        with display.phase(Phase.evaluate(f"{run.title} again", [experiment])) as report:
            scores = evaluate(experiment, models(), device)
            scores += probe(experiment, models, device).scores
            report(1, None)
    diverged = run.rows["diverged_step"][0].as_py()
    again = rows_of(experiment, Measured(scores, {}, (), NO_CURVE, 0, diverged))
    return Verdict.of_weights(run, again, list(other_machine(run, number, device)), tolerance)
