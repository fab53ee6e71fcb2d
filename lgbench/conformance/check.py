"""What a check is, and what every check may want to know."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lgbench.errors import LgbenchError, Unsupported

Outcome = str | None
"""A note, of what is allowed and had better be known; None where there is nothing to say."""


class Broken(AssertionError):
    """A promise of the contract that was not kept; the message says what was expected and what came."""


class NotHere(Exception):
    """The check has nothing to look at; the message says why."""


def not_checked(reason: NotHere) -> str:
    """The note that a check leaves which had nothing to look at."""
    return f"not checked: {reason}"


@dataclass(frozen=True)
class Check:
    """One promise of one thing. Calling it raises :class:`Broken` with a sentence, or returns a note or None."""

    thing: str
    """Kind and name: "norm my-norm"."""
    promise: str
    """What is checked: "keeps shape and dtype"."""
    examine: Callable[[], Outcome]

    @property
    def __name__(self) -> str:
        """By which pytest names a test that is parametrized with it."""
        return f"{self.thing}: {self.promise}"

    def __call__(self) -> Outcome:
        __tracebackhide__ = True  # whoever reads a failure wants the sentence
        try:
            return self.examine()
        except Broken as broken:
            raise Broken(f"{self.thing}: {broken}") from None
        except NotHere as reason:
            return not_checked(reason)
        except LgbenchError as error:  # a sentence already
            raise Broken(f"{self.thing}: {error}") from None
        except Exception as error:  # what is checked is a stranger's code
            places = _places(error)
            cause = error.with_traceback(places[0] if places else None)  # from where it is no line of ours
            raise Broken(f"{self.thing}: {_told(error, places)}") from cause


def _places(error: Exception) -> list[TracebackType]:
    """The lines of what is checked that led to an error, the outermost first: ours and torch's help nobody."""
    known, found, here = {"lgbench", "numpy", "torch", *sys.stdlib_module_names}, [], error.__traceback__
    while here:
        if str(here.tb_frame.f_globals.get("__name__")).partition(".")[0] not in known:
            found.append(here)
        here = here.tb_next
    return found


def _told(error: Exception, places: Sequence[TracebackType]) -> str:
    if not places:
        return f"what it gives cannot be used: {type(error).__name__}: {error}"
    where = f"{places[-1].tb_frame.f_code.co_filename}:{places[-1].tb_lineno}"
    return f"it raised {type(error).__name__}: {error} ({where})"


def expect(kept: bool, sentence: str) -> None:
    """Raise :class:`Broken` with the sentence unless the promise was kept."""
    if not kept:
        raise Broken(sentence)


def expect_close(found: Tensor, expected: Tensor, sentence: str, tolerance: float = 1e-4) -> None:
    """Raise :class:`Broken`, with how far apart they are, unless all numbers agree, as seen beside the largest of them."""
    expect(found.shape == expected.shape, f"{sentence}: the shapes are {tuple(found.shape)} and {tuple(expected.shape)}")
    largest = max(1.0, expected.nan_to_num(0, 0, 0).abs().max().item())
    if not torch.allclose(found, expected, rtol=0, atol=tolerance * largest, equal_nan=True):
        apart = (found.double() - expected.double()).abs().max().item()
        raise Broken(f"{sentence}: they are {apart:.2g} apart")


_NOBODYS = 2_718_281_828


@contextmanager
def no_global_randomness() -> Iterator[None]:
    """Inside, nothing may draw from or set a generator that everybody shares. They are put back in any case."""
    outside = _global_states()
    # Not the seeds that others take, so that who sets one every time is seen to.
    torch.default_generator.manual_seed(_NOBODYS)
    random.seed(_NOBODYS)
    np.random.seed(_NOBODYS)
    before = _global_states()
    try:
        yield
        after = _global_states()
        use = "use the generator that it is given"
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


def built(build: Callable[[], torch.nn.Module], seed: int = 0) -> torch.nn.Module:
    """A module whose initial weights depend on `seed` alone. Raises NotHere with the reason where it is refused."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return build()
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), "it raises Unsupported without a reason: say what it cannot do")
            raise NotHere(str(refusal)) from refusal


def stirred(module: torch.nn.Module) -> torch.nn.Module:
    """The module with every parameter moved a little, so that what begins at zero or one hides nothing."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return module


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kind_of(tensor: Tensor) -> str:
    """Shape and type, such as "(2, 9) float32"."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


class Gradients:
    """Which parameters a loss on some outputs moves, in one use of a module or another."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.reached: dict[str, bool] = {}

    def look(self, module: torch.nn.Module, outputs: Tensor) -> None:
        """Follow a loss back. Raises :class:`Broken` for a gradient that is not finite."""
        weights = numbers(*outputs.shape, seed=5).to(outputs.dtype)
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            return
        expect(outputs.requires_grad, f"{self.where}what it gives does not depend on its parameters: nothing would train them")
        found = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, found, strict=True):
            finite = gradient is None or bool(gradient.isfinite().all())
            expect(finite, f"{self.where}the gradient of its parameter {name} is not finite")
            moved = gradient is not None and bool(gradient.any())
            self.reached[name] = self.reached.get(name, False) or moved

    def expect_all(self) -> None:
        """Raise :class:`Broken` unless every parameter was moved somewhere."""
        missed = [name for name, moved in self.reached.items() if not moved]
        expect(not missed, f"{self.where}no gradient reaches {', '.join(missed)}: not used in forward, or multiplied by zero")
