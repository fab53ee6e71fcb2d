"""Toy plugins through the public contracts alone. This module is a plugin itself: see `install` in helpers/processes.py."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lgbench import (
    Answers,
    Architecture,
    Averager,
    Batch,
    Language,
    NormScheme,
    Parts,
    Random,
    Schedule,
    Signature,
    State,
    Strings,
    SublayerSpec,
    Task,
    Tokens,
    Unsupported,
    Vectors,
    Weights,
    hookimpl,
)

WALK = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
"""p* of `toy-walk` after each token; after token 2 every answer is legal."""


class Walk(Task):
    """Independent uniform tokens; what may follow depends on the latest one alone."""

    name = "toy-walk"
    family = "toy-walk"
    version = 3
    signature = Signature(Tokens(3), 3, Answers.EVERY_PREFIX)
    train_lengths = (1, 6)
    max_length = 64

    def sample(self, length: int, random: Random) -> Batch:
        inputs = random.integers(3, length)
        return Batch(inputs, WALK.to(random.device)[inputs])


class Largest(Task):
    """Vectors of three features; the answer is the feature with the largest sum."""

    name = "toy-largest"
    family = "toy-largest"
    version = 1
    signature = Signature(Vectors(3), 3, Answers.LAST)
    train_lengths = (2, 5)

    def sample(self, length: int, random: Random) -> Batch:
        inputs = random.normal(length, 3).to(torch.get_default_dtype())  # some tests are in float64
        return Batch(inputs, torch.eye(3, device=random.device)[inputs.sum(1).argmax(-1)][:, None])


class Even(Language):
    """Strings over 0 and 1 with an even number of 1s: 0, 1 or, where it is even, the end may come next."""

    name = "toy-even"
    family = "toy-even"
    version = 1
    signature = Signature(Tokens(3), 3, Answers.EVERY_PREFIX)
    train_lengths = (0, 5)

    def sample(self, length: int, random: Random) -> Batch:
        symbols = random.integers(2, length)
        odd = nn.functional.pad(symbols.cumsum(-1) % 2, (1, 0))
        answers = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]], device=random.device)
        return Batch(nn.functional.pad(symbols, (1, 0), value=2), answers[odd])

    def strings(self, length: int, random: Random) -> Strings:
        is_member = torch.arange(random.n, device=random.device) < random.n // 2
        free = random.integers(2, length - 1)
        last = (free.sum(-1) + ~is_member) % 2
        symbols = torch.cat([free, last[:, None]], -1)
        return Strings(nn.functional.pad(symbols, (1, 0), value=2), is_member)

    def testable_length(self, length: int) -> int:
        return max(1, length)


class Table(nn.Module):
    """Logits from the latest token, or from the sum of the vectors."""

    def __init__(self, signature: Signature, norm: NormScheme, scale: float) -> None:
        super().__init__()
        inputs = signature.inputs
        tokens = isinstance(inputs, Tokens)
        self.table = nn.Embedding(inputs.size, 4) if tokens else nn.Linear(inputs.width, 4)
        self.norm = norm.final(4)
        self.out = nn.Linear(4, signature.classes)
        self.register_buffer("scale", torch.tensor(scale))
        self.last = signature.answers is Answers.LAST

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.table(inputs.sum(1, keepdim=True) if self.last else inputs)
        return self.out(self.norm(x)) * self.scale


class TableArchitecture(Architecture):
    """An embedding and a linear map. It has no sequence mixing at all."""

    name = "toy-table"
    defaults = {"norm": "toy-nothing"}

    def build(self, signature: Signature, parts: Parts, *, scale: float = 1.0, wide: bool = False) -> nn.Module:
        if wide:
            raise Unsupported("toy-table is never wide")
        return Table(signature, parts.norm, scale)


class Fragile(nn.Module):
    """A table that answers NaN once its weights moved further than a limit, which some initial draws set low."""

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        self.table = nn.Embedding(signature.inputs.size, signature.classes)
        self.register_buffer("origin", self.table.weight.detach().clone())
        self.register_buffer("limit", torch.where(torch.rand(()) < 0.5, 0.05, torch.inf))

    def forward(self, inputs: Tensor) -> Tensor:
        moved = (self.table.weight - self.origin).abs().max()
        return self.table(inputs) + torch.where(moved > self.limit, torch.nan, 0.0)


class FragileArchitecture(Architecture):
    """Diverges for about half of the seeds; reads tokens only."""

    name = "toy-fragile"
    defaults = {"norm": "toy-nothing"}

    def build(self, signature: Signature, parts: Parts) -> nn.Module:
        if not isinstance(signature.inputs, Tokens):
            raise Unsupported("toy-fragile reads tokens, and the task has vectors")
        return Fragile(signature)


class Broken(nn.Module):
    """Fails once it has learned for two steps."""

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        self.table = nn.Embedding(signature.inputs.size, signature.classes)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 2:
            raise RuntimeError("the toy is broken")
        return self.table(inputs)


class BrokenArchitecture(Architecture):
    """Builds, and then fails in training."""

    name = "toy-broken"
    defaults = {"norm": "toy-nothing"}

    def build(self, signature: Signature, parts: Parts) -> nn.Module:
        if not isinstance(signature.inputs, Tokens):
            raise Unsupported("toy-broken reads tokens, and the task has vectors")
        return Broken(signature)


class Nothing(NormScheme):
    """No normalization anywhere."""

    name = "toy-nothing"

    def embed(self, width: int) -> nn.Module:
        return nn.Identity()

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        raise NotImplementedError

    def output(self, spec: SublayerSpec) -> nn.Module:
        return nn.Identity()

    def final(self, width: int) -> nn.Module:
        return nn.Identity()


class Mean(Averager):
    """The plain mean of the weights at each update. TOYS_SLEEP, in seconds an update, makes runs long enough to interrupt."""

    name = "toy-mean"

    def start(self, weights: Weights, schedule: Schedule) -> State:
        return {"mean": {name: w.clone() for name, w in weights.items()}, "seen": {"": torch.zeros(())}}

    def update(self, state: State, weights: Weights, step: Tensor) -> State:
        time.sleep(float(os.environ.get("TOYS_SLEEP", "0")))
        seen = state["seen"][""] + 1
        mean = {name: m + (weights[name] - m) / seen for name, m in state["mean"].items()}
        return {"mean": mean, "seen": {"": seen}}

    def weights(self, state: State) -> Weights:
        return state["mean"]


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    return Walk(), Largest(), Even()


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return TableArchitecture(), FragileArchitecture(), BrokenArchitecture()


@hookimpl
def lgbench_norms() -> Iterable[NormScheme]:
    return [Nothing()]


@hookimpl
def lgbench_averagers() -> Iterable[Averager]:
    return [Mean()]
