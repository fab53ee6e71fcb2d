"""Evaluating one model far beyond its training length on a CPU: lgbench against attention that builds the whole L x L matrix.

Both sides are `lgbench.measurement.evaluate.evaluate` at one length, with the same weights (fresh ones) and the same
contexts, and differ in the model alone. lgbench's own computes only the query that answers, or fuses the softmax where all
prefixes answer. The naive one is the textbook's: softmax(Q K' + mask) V for the query at every position, one context at a
time, of which a task that answers once then takes the last. Each side of each round runs in a process of its own, which
shows its peak memory: how far the process grew over what it had when evaluation began (sampling and scores included). The
rate is that of the model's calls alone, the last column the time of the whole evaluation.

    python benchmarks/evaluation.py [--rounds 3] [--contexts 4] [--sets 16384] [--prefixes 4096] [--cases dyck-2-3 ...]
"""

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import torch
from sides import compare
from torch import Tensor, nn

from lgbench import Random
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.options import RunOptions
from lgbench.randomness import seeded
from lgbench_transformer.set_attention import QueryOverSet
from lgbench_transformer.transformer import SelfAttention

ENTRIES = {"max-retrieval": "transformer+peri-norm", "dictionary-lookup": "set-attention", "dyck-2-3": "transformer+peri-norm"}
MAX_MEMORY = 8 * 2**30
"""Bytes that the naive side may need."""
MATRICES = 3
"""L x L matrices of float32 that the naive side holds at once, at most: scores, masked scores and their softmax."""
WARM_UP = 256
"""Length of a first context, which loads libraries and starts threads in a fresh process."""
MIB = 2**20


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Tensor:
    """softmax(Q K' + mask) V for every query, with the whole matrix: (..., L, D) -> (..., L, D)."""
    scores = query @ key.mT * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ value


class EveryQuery(nn.Module):
    """The transformer's attention, at every position."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        a = self.attention
        q, k, v = (y.unflatten(-1, (a.heads, -1)).transpose(1, 2) for y in (a.query(x), a.key(x), a.value(x)))
        mixed: Tensor = a.out(attend(q, k, v, q.shape[-1] ** -0.5, causal=True).transpose(1, 2).flatten(2))
        return mixed


class EveryQueryOverSet(nn.Module):
    """The retrieval model with a query at every position, each over the whole set."""

    def __init__(self, model: QueryOverSet) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        m = self.model
        items, queries = m.embed_item(inputs[:, :-1]), m.embed_query(inputs)
        mixed = attend(m.query(queries), m.key(items), m.value(items), 1.0, causal=False)
        logits: Tensor = m.logits(m.norm(mixed))[:, -1:]
        return logits


def naive(model: nn.Module) -> nn.Module:
    """The same weights in a model that has a query at every position and builds whole matrices."""
    if isinstance(model, QueryOverSet):
        return EveryQueryOverSet(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, SelfAttention):
                setattr(module, name, EveryQuery(child))
    return model


@dataclass
class Watched:
    """A model that keeps its logits and how long it took."""

    model: nn.Module
    at_once: int | None
    seconds: float = 0.0
    logits: list[Tensor] = field(default_factory=list)

    def __call__(self, inputs: Tensor) -> Tensor:
        started = time.perf_counter()
        logits = torch.cat([self.model(part) for part in inputs.split(self.at_once or len(inputs))])
        self.seconds += time.perf_counter() - started
        self.logits.append(logits)
        return logits


@dataclass(frozen=True)
class Measured:
    """The numbers of one process."""

    contexts: int
    model_seconds: float
    seconds: float
    bytes: int
    logits: list[Tensor]


def planned(task: str, length: int, contexts: int) -> Experiment:
    """The standard model of a case, to be tested at one length alone."""
    lengths = dict.fromkeys(["train.min_length", "train.max_length", "evaluate.max_length"], str(length))
    counts = dict.fromkeys(["evaluate.contexts", "evaluate.strings"], str(contexts))
    return plan(
        RunOptions(task, ENTRIES[task], average=[], seeds=[0], protocol="short", set=lengths | counts), Registry.load()
    ).experiments[0]


def measure(task: str, length: int, contexts: int, side: str) -> Measured:
    """Evaluate one side once. For a fresh process: the peak of its memory never falls."""
    experiment = planned(task, length, contexts)
    with seeded(experiment.seed, "weights"):
        model = experiment.build()
    watched = Watched(naive(model), at_once=1) if side == "naive" else Watched(model, at_once=None)
    with torch.inference_mode():
        watched.model(experiment.task.sample(WARM_UP, Random(1)).inputs)
    before, started = peak_memory(), time.perf_counter()
    evaluate(experiment, {"raw": watched}, torch.device("cpu"))
    seconds, grown = time.perf_counter() - started, peak_memory() - before
    return Measured(sum(map(len, watched.logits)), watched.seconds, seconds, grown, watched.logits)


def peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_apart(task: str, length: int, contexts: int, side: str) -> Measured:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, task, length, contexts, side).result()


def compare_sides(task: str, length: int, contexts: int, rounds: int) -> None:
    """Print the table of one case and how far the logits of the two sides are apart."""
    found: dict[str, list[Measured]] = defaultdict(list)

    def side(name: str) -> float:
        found[name].append(measure_apart(task, length, contexts, name))
        return found[name][-1].contexts / found[name][-1].model_seconds

    def memory(name: str, rate: float) -> str:
        return f"{max(measured.bytes for measured in found[name][1:]) / MIB:.0f}"

    def whole(name: str, rate: float) -> str:
        return f"{statistics.median(measured.seconds for measured in found[name][1:]):.2f}"

    print(f"{task}, {ENTRIES[task]}, length {length}, {contexts} contexts")
    sides = {name: partial(side, name) for name in ("naive", "lgbench")}
    compare(sides, rounds, "contexts/s", "naive", {"peak memory, MiB": memory, "evaluation, s": whole})
    theirs, ours = (torch.cat([part.flatten() for part in found[name][-1].logits]) for name in ("naive", "lgbench"))
    apart, largest = (theirs - ours).abs().max().item(), theirs.abs().max().item()
    print(f"logits differ by {apart:.1e} at most, the largest is {largest:.2f}\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--contexts", type=int, default=4, help="contexts, and for languages as many strings; at least 4")
    options.add_argument("--sets", type=int, default=2**14, help="length for tasks that answer once")
    options.add_argument("--prefixes", type=int, default=2**12, help="length for tasks that answer at every prefix")
    options.add_argument("--cases", nargs="+", choices=ENTRIES, default=list(ENTRIES), metavar="TASK")
    chosen = options.parse_args()
    for task in chosen.cases:
        length = chosen.prefixes if task.startswith("dyck") else chosen.sets
        heads = dict(planned(task, length, chosen.contexts).record.options).get("model.heads", 1)
        needed = MATRICES * 4 * heads * (length + 1) ** 2
        if needed > MAX_MEMORY:
            options.error(f"at length {length} the naive side of {task} needs {needed / 2**30:.0f} GiB; 8 is the most")
        compare_sides(task, length, chosen.contexts, chosen.rounds)


if __name__ == "__main__":
    main()
