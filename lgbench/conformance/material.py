"""Modules from known weights, fixed numbers, signatures, contexts, and a watch over global random generators, for checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lgbench.conformance.check import NotChecked, expect
from lgbench.contracts import Answers, Batch, Model, Signature, Task, Tokens, Vectors
from lgbench.errors import Unsupported, first_line
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.randomness import Random

UNUSUAL_SEED = 2_718_281_828
"""A seed that no plugin sets, so that a plugin that sets one is found."""


@contextmanager
def no_global_randomness() -> Iterator[None]:
    """Inside, nothing may draw from a global random generator, or set one. Their states are restored in any case."""
    outside = _global_states()
    torch.default_generator.manual_seed(UNUSUAL_SEED)
    random.seed(UNUSUAL_SEED)
    np.random.seed(UNUSUAL_SEED)
    before = _global_states()
    try:
        yield
        after = _global_states()
        use = "use the random numbers that it is given"
        expect(
            torch.equal(after[0], before[0]),
            f"it draws from torch's global generator, or sets it: {use} (in a model's training: lgbench.noise)",
        )
        expect(after[1] == before[1], f"it draws from Python's global `random`, or sets it: {use}")
        expect(repr(after[2]) == repr(before[2]), f"it draws from numpy's global generator, or sets it: {use}")
    finally:
        torch.set_rng_state(outside[0])
        random.setstate(outside[1])
        np.random.set_state(outside[2])


def _global_states() -> tuple[Tensor, tuple[Any, ...], Any]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)


def built(build: Callable[[], object], seed: int = 0) -> nn.Module:
    """A module whose initial weights depend on `seed` alone. Raises NotChecked with the reason if it is refused."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return cast(nn.Module, build())  # as every protocol of a module is
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), "it raises Unsupported without a reason: say what it cannot do")
            raise NotChecked(str(refusal)) from refusal


def built_or_none(build: Callable[[], object]) -> nn.Module | None:
    """As :func:`built`, for a module that a part may leave out."""

    def built_or_identity() -> object:
        module = build()
        return nn.Identity() if module is None else module

    module = built(built_or_identity)
    return None if type(module) is nn.Identity else module


def stirred(module: nn.Module) -> nn.Module:
    """The module with a little noise on every parameter, so that an initial value of 0 or 1 hides nothing."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return module


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    """Whole numbers from 0 to below `high`, always the same."""
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def kind_of(tensor: Tensor) -> str:
    """Shape and type, such as "(2, 9) float32"."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


class Gradients:
    """The parameters that a loss on a module's outputs reaches, over several uses of the module."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.reached: dict[str, bool] = {}

    def add(self, module: nn.Module, outputs: Tensor) -> None:
        """Follow a loss back. Raises CheckFailed for a gradient that is not finite."""
        weights = numbers(*outputs.shape, seed=5).to(outputs.dtype)
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            return
        expect(outputs.requires_grad, f"{self.where}its output does not depend on its parameters: nothing would train them")
        found = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, found, strict=True):
            finite = gradient is None or bool(gradient.isfinite().all())
            expect(finite, f"{self.where}the gradient of its parameter {name} is not finite")
            moved = gradient is not None and bool(gradient.any())
            self.reached[name] = self.reached.get(name, False) or moved

    def expect_all(self) -> None:
        """Raise CheckFailed unless a gradient reaches every parameter somewhere."""
        missed = [name for name, moved in self.reached.items() if not moved]
        expect(not missed, f"{self.where}no gradient reaches {', '.join(missed)}: not used in forward, or multiplied by zero")


TRAINED = 9
"""Positions of the longest input in training."""
TESTED = PROTOCOLS["standard"].longest_prefix + 1
"""Positions of the longest input in testing: of a context with a begin token under the protocol of the leaderboards."""

TOKENS, VECTORS = Tokens(5), Vectors(3)
SIGNATURES = (
    Signature(TOKENS, 4, Answers.EVERY_PREFIX),
    Signature(VECTORS, 4, Answers.EVERY_PREFIX),
    Signature(TOKENS, 4, Answers.LAST),
    Signature(VECTORS, 4, Answers.LAST),
    Signature(TOKENS, 4, Answers.MARKED),
)

Build = Callable[[Signature], Model]


def served(build: Build) -> list[tuple[Signature, nn.Module]]:
    """The signatures that it serves, with a model for each. Raises NotChecked if there is none."""
    found, reasons = [], []
    for signature in SIGNATURES:
        try:
            found.append((signature, built(lambda signature=signature: build(signature))))  # type: ignore[misc]
        except NotChecked as refusal:
            reasons.append(str(refusal))
    if not found:
        raise NotChecked(f"it is built for no signature: {reasons[0]}")
    return found


def inputs_of(signature: Signature, length: int, n: int = 2, seed: int = 0) -> Tensor:
    """n inputs that a task of that signature could give."""
    if isinstance(signature.inputs, Vectors):
        return numbers(n, length, signature.inputs.width, seed=seed)
    return integers(signature.inputs.size, n, length, seed=seed)


def named(signature: Signature) -> str:
    return f"{'tokens' if isinstance(signature.inputs, Tokens) else 'vectors'} answered {signature.answers.value}"


def shown(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


CONTEXTS = 32
"""Drawn at each length that is tried."""


def drawn(task: Task, n: int, length: int, seed: int = 0) -> Batch:
    return task.sample(length, Random(n, seed))


def lengths(task: Task, longest: int | None = None) -> list[int]:
    """The shortest, the longest in training, its own, and one far beyond, as far as there are contexts."""
    low, high = task.train_lengths
    bound = min(x for x in (longest, task.max_length, 4 * high + 1) if x is not None)
    own = [length for length in task.lengths or () if 1 <= length <= bound]
    return sorted({min(x, bound) for x in (max(low, 1), max(low, 1) + 1, high, bound, *own)})
