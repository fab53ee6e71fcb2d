"""Training steps of an encoder-size model: 5 layers, width 64, 8 heads, MLP of 4 x width, batch 128, length 40.

The task is parity: at every prefix of a binary string, is the number of ones even? Causal attention, no position code,
AdamW, float32. Sides take turns: x-transformers (pre-norm, RMSNorm), eagerly as its users run it and through torch.compile;
the transformer of google-deepmind/neural_networks_chomsky_hierarchy (post-norm, LayerNorm, ReLU), written anew with haiku,
optax's AdamW and jax.jit, without its dropout, to its favour; and lgbench's `transformer` (pre-norm), a population of 1 and
of 4.

Both torch sides draw their data from `lgbench.training.data.stream` as they go; JAX gets NumPy arrays drawn outside the
timing. The first steps of every side, in which it compiles (lgbench too), are not timed. JAX is no dependency: `--jax`
names a Python that has jax, dm-haiku and optax; it runs in a process of its own, which steps when it is asked to. The last
column is the share of the float32 peak: the floating-point operations of a step of the plain model, times the rate, over
the speed of a 2048 x 2048 product in the same run.

    python benchmarks/encoder.py [--jax PYTHON] [--rounds 5] [--steps 64] [--warmup 8] [--threads 2]
"""

import argparse
import inspect
import itertools
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from sides import registry_with, show, take_turns
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from x_transformers import Decoder, TransformerWrapper

from lgbench import Random
from lgbench.contracts import Answers, Batch, Signature, Task, Tokens
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.options import RunOptions
from lgbench.randomness import seeded
from lgbench.training.data import stream
from lgbench.training.train import train

LAYERS, WIDTH, HEADS, BATCH, LENGTH = 5, 64, 8, 128, 40
MATRIX = 2048
CPU = torch.device("cpu")


class Parity(Task):
    """A context is a binary string; the answer says whether its ones are even (0) or odd (1) in number so far."""

    name = family = "parity"
    version = 1
    signature = Signature(Tokens(2), 2, Answers.EVERY_PREFIX)
    train_lengths = (1, LENGTH)
    model = {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "mlp": True}

    def sample(self, length: int, random: Random) -> Batch:
        """Uniform strings, (n, length), with p* (n, length, 2)."""
        bits = random.integers(2, length)
        return Batch(bits, F.one_hot(bits.cumsum(1) % 2, 2).float())


class Clock:
    """Steps a second, once `warmup` steps are done; called after every step."""

    def __init__(self, warmup: int) -> None:
        self.warmup = warmup

    def __call__(self, step: int, loss: Callable[[], float] | None = None) -> None:
        now = time.perf_counter()
        if step <= self.warmup:
            self.first, self.started = step, now
        self.last, self.ended = step, now

    def rate(self) -> float:
        return (self.last - self.first) / (self.ended - self.started)


def planned(population: int, steps: int) -> tuple[Experiment, ...]:
    """The experiments of a population on parity."""
    changes = {"train.steps": str(steps), "train.batch": str(BATCH)}
    request = RunOptions("parity", "pre-norm", average=[], seeds=range(population), protocol="short", set=changes)
    return plan(request, registry_with(Parity())).experiments


def lgbench(population: int, steps: int, warmup: int) -> float:
    """Model-steps a second of lgbench."""
    clock = Clock(warmup)
    train(planned(population, warmup + steps), CPU, clock, compile=True)
    return population * clock.rate()


class XTransformers:
    """One model of x-transformers and the usual loop."""

    def __init__(self, compiled: bool) -> None:
        layers = Decoder(dim=WIDTH, depth=LAYERS, heads=HEADS, attn_dim_head=WIDTH // HEADS, ff_mult=4, use_rmsnorm=True)
        model = TransformerWrapper(num_tokens=2, max_seq_len=0, use_abs_pos_emb=False, attn_layers=layers)
        self.model = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def __call__(self, steps: int, warmup: int) -> float:
        """Model-steps a second."""
        (experiment,) = planned(1, warmup + steps)
        clock = Clock(warmup)
        for step, batch in enumerate(stream([(experiment.task, 0)], experiment.train, CPU), start=1):
            loss = F.cross_entropy(self.model(batch.inputs[0]).transpose(1, 2), batch.targets[0])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            clock(step)
        return clock.rate()


def serve_jax(layers: int, width: int, heads: int, batch: int, length: int) -> None:
    """Runs in a Python that has JAX: does as many steps as each line "steps N" says, and prints how many seconds they took."""
    import time

    import haiku as hk
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    def norm(x: jax.Array) -> jax.Array:
        return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)(x)

    def attention(x: jax.Array) -> jax.Array:
        parts = [hk.Linear(width, with_bias=False)(x).reshape(*x.shape[:2], heads, -1) for _ in range(3)]
        scores = jnp.einsum("bqhd,bkhd->bhqk", *parts[:2]) / (width // heads) ** 0.5
        seen = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), dtype=bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(scores.dtype).min))
        return hk.Linear(width, with_bias=False)(jnp.einsum("bhqk,bkhd->bqhd", weights, parts[2]).reshape(x.shape))

    @hk.without_apply_rng
    @hk.transform
    def model(bits: jax.Array) -> jax.Array:
        x = hk.Linear(width, with_bias=False)(jax.nn.one_hot(bits, 2)) * width**0.5
        for _ in range(layers):
            x = norm(x + attention(x))
            x = norm(x + hk.Linear(width)(jax.nn.relu(hk.Linear(4 * width)(x))))
        return hk.Linear(2)(x)

    def loss(params: hk.Params, bits: jax.Array, targets: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, bits), targets).mean()

    @jax.jit
    def step(
        params: hk.Params, state: optax.OptState, bits: jax.Array, targets: jax.Array
    ) -> tuple[hk.Params, optax.OptState, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, bits, targets)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    optimizer, random = optax.adamw(1e-3), np.random.default_rng(0)
    params = model.init(jax.random.PRNGKey(0), jnp.zeros((batch, length), jnp.int32))
    state = optimizer.init(params)
    while True:
        try:
            _, steps = input().split()
        except EOFError:
            return
        drawn = random.integers(2, size=(int(steps), batch, length), dtype=np.int32)
        answers = drawn.cumsum(-1, dtype=np.int32) % 2
        started = time.perf_counter()
        for bits, targets in zip(drawn, answers, strict=True):
            params, state, value = step(params, state, bits, targets)
        jax.block_until_ready((params, value))
        print(time.perf_counter() - started, flush=True)


class Jax:
    """The JAX side, alive in a process of its own."""

    def __init__(self, python: str) -> None:
        code = f"{inspect.getsource(serve_jax)}\nserve_jax({LAYERS}, {WIDTH}, {HEADS}, {BATCH}, {LENGTH})"
        self.process = subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, steps: int) -> float:
        assert self.process.stdin and self.process.stdout
        print(f"steps {steps}", file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the JAX side ended with {self.process.wait()}; does its Python have jax, dm-haiku and optax?")
        return float(answer)

    def __call__(self, steps: int, warmup: int) -> float:
        """Model-steps a second."""
        self.seconds(warmup)
        return steps / self.seconds(steps)


def flops_of_a_step() -> int:
    """Floating-point operations of lgbench's plain model, forward and backward, on one batch."""
    (experiment,) = planned(1, 1)
    with seeded(0, "weights"):
        model = experiment.build()
    inputs, targets = (tensor[0] for tensor in next(stream([(experiment.task, 0)], experiment.train, CPU)).tensors)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the fused kernel is not counted
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    return int(counter.get_total_flops())


def matrix_peak(times: int = 10) -> float:
    """Floating-point operations a second of a large product, the best of several."""
    a, b = torch.rand(MATRIX, MATRIX), torch.rand(MATRIX, MATRIX)
    stamps = [time.perf_counter()]
    for _ in range(times):
        torch.mm(a, b)
        stamps.append(time.perf_counter())
    return 2 * MATRIX**3 / min(after - before for before, after in itertools.pairwise(stamps))


def compiled_x_transformers() -> XTransformers | None:
    """x-transformers through torch.compile, or None where that does not work."""
    side = XTransformers(compiled=True)
    try:
        side(1, 1)
    except Exception as error:  # a compiler may fail in any way
        print(f"torch.compile of x-transformers is left out: {type(error).__name__}: {str(error).splitlines()[0]}")
        return None
    return side


def limit_threads(threads: int) -> None:
    """As many threads for all sides; JAX takes a thread for each core that it may use."""
    torch.set_num_threads(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jax", metavar="PYTHON", help="an interpreter with jax, dm-haiku and optax")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=64, help="timed steps of a side in a round")
    options.add_argument("--warmup", type=int, default=8, help="steps before them that are not timed")
    options.add_argument("--threads", type=int, default=2)
    chosen = options.parse_args()
    if min(chosen.rounds, chosen.steps, chosen.warmup, chosen.threads) < 1:
        options.error("rounds, steps, warmup and threads must be at least 1")
    limit_threads(chosen.threads)
    sides: dict[str, Callable[[int, int], float]] = {"x-transformers": XTransformers(compiled=False)}
    if compiled := compiled_x_transformers():
        sides["x-transformers, torch.compile"] = compiled
    if chosen.jax:
        sides["chomsky_hierarchy (JAX)"] = Jax(chosen.jax)
    else:
        print("the JAX side is left out: name an interpreter that has it with --jax")
    sides |= {f"lgbench, population of {size}": partial(lgbench, size) for size in (1, 4)}
    before = matrix_peak()
    turns = {name: partial(side, chosen.steps, chosen.warmup) for name, side in sides.items()}
    results = take_turns(turns, chosen.rounds)
    peak, flops = max(before, matrix_peak()), flops_of_a_step()
    print(f"a step: {flops / 1e9:.2f} GFLOP; matrix peak: {peak / 1e9:.0f} GFLOP/s")
    share = {"of the peak": lambda name, rate: f"{rate * flops / peak:.0%}"}
    show(results, chosen.rounds, "model-steps/s", "x-transformers", share)


if __name__ == "__main__":
    main()
