"""Training many small models: a population in one stack, against x-transformers one model at a time.

The minimal model of set complement (v = 32, length 12, batch 64, width 31, one attention layer, no position code, sandwich
norms), float32, AdamW, the same sampler for all sides, the sampling included. The first fifth of the steps, in which whatever
is compiled is compiled, is not timed. Sides take turns, so that a machine whose speed drifts hurts all of them.

On a CPU two more sides use the cores as `lgbench run` does, with a process of one thread for each: eight models of lgbench in
stacks of four, and one model of x-transformers in each process.

On a GPU lgbench's steps are captured in CUDA graphs, and populations go to 1,024.

    python benchmarks/population.py [--rounds 5] [--steps 500] [--device cuda]
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from sides import compare, registry_with
from torch import nn

from lgbench.execution.device import keep_freed_memory
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.experiment.record import Training
from lgbench.options import RunOptions
from lgbench.training.data import stream
from lgbench.training.train import train
from lgbench_tasks.set_complement import SetComplement

SIZE, LENGTH, BATCH = 32, 12, 64
TOGETHER = 8
"""Models of lgbench that worker processes share."""
POPULATIONS = {"cpu": (1, 8, 64), "cuda": (1, 16, 256, 1024)}


class Clock:
    """Notes when the device had done each step, and gives the rate of all but the first fifth."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: list[float] = []
        self.events: list[torch.cuda.Event] = []

    def tick(self, step: int, loss: Callable[[], float] | None = None) -> None:
        if self.device.type == "cuda":  # the host is steps ahead
            self.events.append(torch.cuda.Event(enable_timing=True))
            self.events[-1].record()
        else:
            self.times.append(time.perf_counter())

    def rate(self, models: int) -> float:
        """Model-steps a second."""
        if self.events:
            torch.cuda.synchronize(self.device)
            self.times = [self.events[0].elapsed_time(event) / 1000 for event in self.events]
        first = len(self.times) // 5
        return models * (len(self.times) - 1 - first) / (self.times[-1] - self.times[first])


def task() -> SetComplement:
    """The one task that is timed."""
    made = SetComplement(SIZE)
    made.train_lengths = (1, LENGTH)
    return made


def experiments(models: int, steps: int) -> tuple[Experiment, ...]:
    changes = {"train.steps": str(steps), "train.batch": str(BATCH)}
    request = RunOptions("set-complement", "peri-norm", average=[], seeds=range(models), protocol="short", set=changes)
    return plan(request, registry_with(task())).experiments


def population(models: int, steps: int, device: torch.device, compile: bool) -> float:
    """Model-steps a second of lgbench."""
    clock = Clock(device)
    train(experiments(models, steps), device, clock.tick, compile=compile)
    return clock.rate(models)


def one_at_a_time(model: nn.Module, steps: int, device: torch.device, compile: bool = False) -> float:
    """Model-steps a second of the usual loop."""
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    forward = torch.compile(model) if compile else model
    clock = Clock(device)
    for batch in stream([(task(), 0)], Training(steps, BATCH, 1e-2, 0.01, 0.1, 10, 1, LENGTH), device):
        loss = F.cross_entropy(forward(batch.inputs[0]).transpose(1, 2), batch.targets[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick(0)
    return clock.rate(1)


def ours() -> nn.Module:
    return experiments(1, 1)[0].build()


def theirs() -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    width = SIZE - 1
    layers = Decoder(
        dim=width, depth=1, heads=1, custom_layers=("a",), sandwich_norm=True, use_rmsnorm=True, attn_dim_head=width
    )
    return TransformerWrapper(num_tokens=SIZE, max_seq_len=0, use_abs_pos_emb=False, attn_layers=layers)


def alone(side: str, steps: int, models: int) -> None:
    """In a worker process: print the rate of one side with one thread."""
    device = torch.device("cpu")
    torch.set_num_threads(1)
    keep_freed_memory()
    print(population(models, steps, device, True) if side == "lgbench" else one_at_a_time(theirs(), steps, device))


def in_workers(side: str, steps: int, models: int) -> float:
    """The sum of the rates of as many processes as there are cores, which run at the same time."""
    command = [sys.executable, __file__, "--alone", side, str(models), "--steps", str(steps)]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for _ in range(torch.get_num_threads())
    ]
    return sum(float(process.communicate()[0].split()[-1]) for process in started)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--device", default="cpu")
    options.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.alone:
        alone(chosen.alone[0], chosen.steps, int(chosen.alone[1]))
        return
    device, steps = torch.device(chosen.device), chosen.steps
    eager = {
        "x-transformers, one model": lambda: one_at_a_time(theirs(), steps, device),
        "x-transformers, one model, torch.compile": lambda: one_at_a_time(theirs(), steps, device, compile=True),
    }
    plain = {"plain PyTorch loop, one model of lgbench": lambda: one_at_a_time(ours(), steps, device)}
    sides = eager | plain if find_spec("x_transformers") else plain
    for compile in (False, True):
        for models in POPULATIONS[device.type]:
            name = f"lgbench, population of {models}{', compiled' if compile else ''}"
            few = max(20, min(steps, 8 * steps // models)) if device.type == "cpu" else steps
            sides[name] = lambda m=models, few=few, c=compile: population(m, few, device, c)  # type: ignore[misc]
    if device.type == "cpu":
        workers = torch.get_num_threads()
        if find_spec("x_transformers"):
            sides[f"x-transformers, one model in each of {workers} processes"] = lambda: in_workers("theirs", steps, 1)
        share = TOGETHER // workers
        sides[f"lgbench, {TOGETHER} models, {workers} workers"] = lambda: in_workers("lgbench", steps, share)
    compare(sides, chosen.rounds, "model-steps/s", "the first")


if __name__ == "__main__":
    main()
