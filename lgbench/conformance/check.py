"""Rules of the contracts, their checks, expectations, and material for checks: numbers, modules, a watch over randomness."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lgbench.errors import LgbenchError, Unsupported, message_of

Outcome = str | None
"""Note about an allowed but noteworthy behaviour; None without a note."""

Checks = Mapping[str, Callable[[], Outcome]]
"""Functions that check an object, by the checked rule."""

Given = ParamSpec("Given")
Examine = Callable[Given, Outcome]
Applies = Callable[Given, bool]
Place = TypeVar("Place")
Built = TypeVar("Built")


class CheckFailed(AssertionError):
    """Breach of a contract. The message has the expected and the actual behaviour."""


class NotChecked(Exception):
    """Reason why a check does not apply."""


class Rules(Generic[Given]):
    """Rules of one contract in their order, each with the function that examines an object."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, Examine[Given], Applies[Given] | None]] = []

    def rule(self, words: str, when: Applies[Given] | None = None) -> Callable[[Examine[Given]], Examine[Given]]:
        """Decorator of the function for a rule. `when` says for which objects the rule holds, by default for all."""

        def add(examine: Examine[Given]) -> Examine[Given]:
            self._rules.append((words, examine, when))
            return examine

        return add

    def checks(self, *given: Given.args, **named: Given.kwargs) -> Checks:
        """Checks of one object."""
        own = [(words, examine) for words, examine, when in self._rules if when is None or when(*given, **named)]
        return {words: partial(examine, *given, **named) for words, examine in own}


@dataclass(frozen=True)
class Check:
    """Check of one rule for one object. A call raises :class:`CheckFailed`, or returns a note or None."""

    thing: str
    """Kind and name: "norm my-norm"."""
    name: str
    """Rule: "shape and dtype stay"."""
    examine: Callable[[], Outcome]

    @property
    def __name__(self) -> str:
        """Name of a parametrized test in pytest."""
        return f"{self.thing}: {self.name}"

    def __call__(self) -> Outcome:
        __tracebackhide__ = True  # readers of a failure want its sentence
        try:
            return self.examine()
        except CheckFailed as failed:
            raise CheckFailed(f"{self.thing}: {failed}") from None
        except NotChecked as reason:
            return f"not checked: {reason}"
        except LgbenchError as error:  # its message is a sentence already
            raise CheckFailed(f"{self.thing}: {error}") from None
        except Exception as error:  # a plugin's code may raise anything
            frames = _own_frames(error)
            cause = error.with_traceback(frames[0] if frames else None)  # the traceback starts in the plugin
            raise CheckFailed(f"{self.thing}: {_explained(error, frames)}") from cause


def _own_frames(error: Exception) -> list[TracebackType]:
    """Frames of a traceback within the plugin, outermost first. Frames of lgbench and torch do not help the author."""
    others, found, frame = {"lgbench", "numpy", "torch", *sys.stdlib_module_names}, [], error.__traceback__
    while frame:
        if str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0] not in others:
            found.append(frame)
        frame = frame.tb_next
    return found


def _explained(error: Exception, frames: Sequence[TracebackType]) -> str:
    said = ", ".join((message_of(error), *getattr(error, "__notes__", ())))
    if not frames:
        return f"its result cannot be used: {said}"
    return f"it raised {said} ({frames[-1].tb_frame.f_code.co_filename}:{frames[-1].tb_lineno})"


def expect(holds: bool | Tensor, sentence: str) -> None:
    """Raise :class:`CheckFailed` with the sentence unless the rule holds."""
    if not holds:
        raise CheckFailed(sentence)


def expect_kind(what: str, found: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
    """Raise :class:`CheckFailed` unless a tensor has this shape and dtype. `what` begins the sentence: "its values are"."""
    expected = f"{tuple(shape)} {_name_of(dtype)}"
    expect(kind_of(found) == expected, f"{what} {kind_of(found)}, expected {expected}")


def expect_close(found: Tensor, expected: Tensor, sentence: str, tolerance: float = 1e-4) -> None:
    """Raise :class:`CheckFailed`, with the difference, unless all numbers agree relative to the largest finite number."""
    expect(found.shape == expected.shape, f"{sentence}: the shapes are {tuple(found.shape)} and {tuple(expected.shape)}")
    found, expected = found.double(), expected.double()
    largest = max(1.0, expected.nan_to_num(0, 0, 0).abs().max().item())
    same = torch.isclose(found, expected, rtol=0, atol=tolerance * largest, equal_nan=True)
    if not same.all():
        raise CheckFailed(f"{sentence}: they differ by {(found - expected)[~same].abs().max().item():.2g}")


@contextmanager
def no_global_randomness() -> Iterator[None]:
    """Raise CheckFailed if the block draws from a global random generator, or seeds one. All states are restored."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):  # without states of GPUs, which would start CUDA
        before = _global_states()
        try:
            yield
            for name, state in _global_states().items():
                use = "use the random numbers that it is given (in a model's training: lgbench.noise)"
                expect(state == before[name], f"it draws from {name}, or sets it: {use}")
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)


def _global_states() -> dict[str, object]:
    return {
        "torch's global generator": torch.get_rng_state().numpy().tobytes(),  # bytes, because == of arrays is no single bool
        "Python's global `random`": random.getstate(),
        "numpy's global generator": pickle.dumps(np.random.get_state()),
    }


def built_or_none(build: Callable[[], object], seed: int = 0) -> nn.Module | None:
    """Module whose initial weights depend on `seed` alone, or None. Raises NotChecked with the reason of a refusal."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` keeps a call for each kind of GPU until it starts
        try:
            module = build()
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), "it raises Unsupported without a reason: say what it cannot do")
            raise NotChecked(str(refusal)) from refusal
    if not (module is None or isinstance(module, nn.Module)):
        raise CheckFailed(f"it gives {type(module).__name__}, expected a torch.nn.Module")
    return module


def built(build: Callable[[], object], seed: int = 0, what: str = "it") -> nn.Module:
    """Module whose initial weights depend on `seed` alone. Raises NotChecked with the reason of a refusal."""
    module = built_or_none(build, seed)
    if module is None:
        raise CheckFailed(f"{what} gives None, expected a torch.nn.Module: end it with `return`, or return nn.Identity()")
    return module


def accepted(places: Iterable[Place], build: Callable[[Place], Built], otherwise: str) -> list[tuple[Place, Built]]:
    """Places that are not refused, each with what is built for it.

    If all are refused, raises NotChecked, with a reason; CheckFailed if each refusal came from an error other than ImportError,
    as of a function that fails on every signature.
    """
    found, refusals = [], []
    for place in places:
        try:
            found.append((place, build(place)))
        except NotChecked as refusal:
            refusals.append(refusal)
    if not found:
        causes = [refusal.__cause__ and refusal.__cause__.__cause__ for refusal in refusals]
        crashed = all(cause and not isinstance(cause, ImportError) for cause in causes)
        raise (CheckFailed if crashed else NotChecked)(f"{otherwise}: {refusals[0]}")
    return found


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
    """Integers from 0 to below `high`, always the same."""
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def kind_of(tensor: Tensor) -> str:
    """Shape and dtype, such as "(2, 9) float32"."""
    return f"{tuple(tensor.shape)} {_name_of(tensor.dtype)}"


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def expect_gradients(uses: Iterable[tuple[nn.Module, Tensor]], where: str = "") -> None:
    """Raise CheckFailed unless finite gradients of a loss on the outputs reach every parameter in at least one use.

    `uses` has modules, each with its output.
    """
    reached: dict[str, bool] = {}
    for module, output in uses:
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            continue
        expect(output.requires_grad, f"{where}its output does not depend on its parameters: nothing would train them")
        # Random factors: the sum over a norm or a softmax has no gradient.
        loss = (output * numbers(*output.shape, seed=5).to(output.dtype)).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            expect(gradient.isfinite().all(), f"{where}the gradient of its parameter {name} is not finite")
            reached[name] = reached.get(name, False) or bool(gradient.any())
    missed = ", ".join(name for name, moved in reached.items() if not moved)
    expect(not missed, f"{where}no gradient reaches {missed}: not used in forward, or multiplied by zero")
