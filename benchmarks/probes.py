"""The cost of probes, as a share of the cost of testing a model at its end.

    python benchmarks/probes.py [--protocol standard] [--max-length 1024]

For one task of each family: seconds of the whole test of one model with all variants of its weights, and of all probes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from lgbench.execution.device import full_float32, keep_freed_memory, threads
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.probing import probe
from lgbench.options import RunOptions
from lgbench.training.train import train

CASES = {
    "tomita-4": "pre-norm",
    "dyck-2-3": "peri-norm+alibi",
    "set-complement": "pre-norm",
    "max-retrieval": "set-attention",
    "dictionary-lookup": "pre-norm",
}
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--task", action="append", choices=CASES)
    asked = parser.parse_args()
    registry = Registry.load()
    keep_freed_memory()
    changes = {} if asked.max_length is None else {"evaluate.max_length": str(asked.max_length)}
    for task in asked.task or CASES:
        own = {} if task == "set-complement" else changes  # whose contexts are short
        request = RunOptions(task, CASES[task], seeds=(0,), protocol=asked.protocol, set=own, probe=("all",))
        with full_float32(), threads(1):
            print(_line(plan(request, registry).experiments[0]), flush=True)


def _line(experiment: Experiment) -> str:
    short = replace(experiment, record=replace(experiment.record, train=replace(experiment.train, steps=2)))
    trained = train([short], CPU)
    tested = _seconds(lambda: evaluate(short, trained.models(0), CPU))
    probed = _seconds(lambda: probe(short, lambda model: trained.on(model).models(0), CPU))
    longest = experiment.evaluate.max_length
    return f"{experiment.record.title}, to {longest}: test {tested:.2f} s, probes {probed:.2f} s, {100 * probed / tested:.1f} %"


def _seconds(act: Callable[[], object]) -> float:
    """The shortest of several times: at least two, and as many as fit into two seconds."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < 2:
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
