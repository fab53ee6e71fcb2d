"""Training many small models: a population of 8 in one stack, against x-transformers one model at a time.

The minimal model of set complement (v = 32, length 12, batch 64, width 31, one attention layer, no position code, sandwich
norms), float32, AdamW, the same sampler for both sides, the sampling included. Sides take turns, so that a machine whose speed
drifts hurts both.

    python benchmarks/population.py [--rounds 5] [--steps 300]
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from lgbench_norms import lgbench_norms
from lgbench_tasks.set_complement import SetComplement
from lgbench_transformer.transformer import Transformer
from rich.console import Console
from rich.table import Table
from x_transformers import Decoder, TransformerWrapper

from lgbench.data import stream
from lgbench.experiment import Request, plan
from lgbench.protocols import Training
from lgbench.registry import Distribution, Registry
from lgbench.train import train

POPULATION, SIZE, LENGTH, BATCH = 8, 32, 12, 64
CPU = torch.device("cpu")


class Plugin:
    """The one task, norm scheme and architecture that are timed."""

    def __init__(self) -> None:
        self.task = SetComplement(SIZE)
        self.task.train_lengths = (1, LENGTH)

    def registry(self) -> Registry:
        registry = Registry()
        here = Distribution("benchmark", "0")
        registry.tasks.add(self.task, here)
        registry.architectures.add(Transformer(), here)
        for norm in lgbench_norms():
            registry.norms.add(norm, here)
        return registry


def population(steps: int, size: int) -> float:
    """Model-steps a second of lgbench with `size` models at once."""
    registry = Plugin().registry()
    changes = {"train.steps": str(steps), "train.batch": str(BATCH)}
    planned = plan(Request(["set-complement"], ["peri-norm"], [], range(size), "standard", changes), registry)
    started = time.perf_counter()
    train(planned.experiments, registry, CPU, lambda step, loss: None)
    return size * steps / (time.perf_counter() - started)


def one_at_a_time(steps: int) -> float:
    """Model-steps a second of x-transformers, the usual loop."""
    layers = Decoder(
        dim=SIZE - 1, depth=1, heads=1, custom_layers=("a",), sandwich_norm=True, use_rmsnorm=True, attn_dim_head=SIZE - 1
    )
    model = TransformerWrapper(num_tokens=SIZE, max_seq_len=0, use_abs_pos_emb=False, attn_layers=layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    task = Plugin().task
    training = Training(steps, BATCH, 1e-2, 0.01, 0.1, 10, 1, LENGTH)
    started = time.perf_counter()
    for inputs, targets in stream(task, training, 0, CPU):
        loss = F.cross_entropy(model(inputs).transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return steps / (time.perf_counter() - started)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=300)
    chosen = options.parse_args()
    sides = {
        "x-transformers, one model": lambda: one_at_a_time(chosen.steps),
        "lgbench, population of 1": lambda: population(chosen.steps, 1),
        f"lgbench, population of {POPULATION}": lambda: population(chosen.steps, POPULATION),
        "lgbench, population of 64": lambda: population(chosen.steps // 4, 64),
    }
    rounds = [{name: side() for name, side in sides.items()} for _ in range(chosen.rounds + 1)][1:]  # the first warms up
    table = Table(title=f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {chosen.rounds} rounds")
    for name in ("", "model-steps/s", "ratio to x-transformers", "min", "max"):
        table.add_column(name, justify="right" if name else "left")
    for name in sides:
        ratios = [r[name] / r["x-transformers, one model"] for r in rounds]
        speed = statistics.median(r[name] for r in rounds)
        table.add_row(name, f"{speed:.0f}", f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
