"""The cost of testing models at eval steps, as a share of the cost of the training.

    python benchmarks/eval_steps.py [--compile] [--protocol standard]

For one task of each family: seconds of a training step of a small population, and of the test at one
eval step, with all variants of the weights. Both are scaled to the whole training of the protocol.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

from lgbench.execution.device import full_float32, keep_freed_memory, threads
from lgbench.execution.runner import eval_steps_of
from lgbench.experiment.contexts import eval_steps
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.train import EvalSteps, train

CASES = {
    "tomita-4": "pre-norm",
    "dyck-2-3": "pre-norm",
    "set-complement": "pre-norm",
    "max-retrieval": "set-attention",
    "dictionary-lookup": "set-attention",
}
STEPS, MEASURED = 60, (20, 30, 40)
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--models", type=int, default=4)
    asked = parser.parse_args()
    registry = Registry.load()
    keep_freed_memory()
    for task, entry in CASES.items():
        request = RunOptions(task, entry, seeds=range(asked.models), protocol=asked.protocol, set={})
        with full_float32(), threads(1):
            print(_line(plan(request, registry).experiments, asked.compile), flush=True)


def _line(experiments: tuple[Experiment, ...], compile: bool) -> str:
    own = experiments[0]
    short = [replace(e, record=replace(e.record, train=replace(e.train, steps=STEPS))) for e in experiments]
    seconds: list[float] = []
    latest: list[float] = []
    own_steps = eval_steps_of(short, CPU)

    def measure(models: object) -> object:
        started = time.perf_counter()
        found = own_steps.measure(models)
        seconds.append(time.perf_counter() - started)
        return found

    paces: list[float] = []

    def report(step: int, loss: object) -> None:
        now = time.perf_counter()
        if latest and step not in MEASURED:
            paces.append(now - latest[0])
        latest[:] = [now]

    trained = train(short, CPU, report, eval_steps=EvalSteps(MEASURED, measure), compile=compile)
    step, test = sorted(paces)[len(paces) // 2], min(seconds)
    count = len(eval_steps(own.train, own.evaluate))
    share = count * test / (own.train.steps * step)
    how = "compiled" if trained.compiled else "not compiled"
    return (
        f"{own.record.title}, {len(experiments)} models, {how}: {1000 * step:.1f} ms a step, {1000 * test:.0f} ms a test, "
        f"{own.train.steps} steps and {count} tests: {100 * share:.1f} %"
    )


if __name__ == "__main__":
    main()
