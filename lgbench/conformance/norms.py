"""What norm schemes promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import get_args

import torch
from torch import Tensor, nn

from lgbench.conformance.check import Gradients, Outcome, built, expect, expect_close, kind_of, numbers, stirred
from lgbench.contracts import NormScheme, Role

DIM, POSITIONS = 12, 9
ROLES: tuple[Role, ...] = get_args(Role)


class LastOnly(nn.Module):
    """A sublayer that answers for the last position only."""

    def __init__(self, sublayer: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.sublayer(x[..., -1:, :])
        return answer


def promises(scheme: NormScheme) -> Mapping[str, Callable[[], Outcome]]:
    return {
        "shape and dtype stay, in bfloat16 too": lambda: _norms_keep_shape_and_dtype(scheme),
        "each position is normalized by itself": lambda: _norms_stay_in_place(scheme),
        "a sublayer may answer for the last position only": lambda: _norms_take_the_last(scheme),
        "gradients reach every parameter": lambda: _norms_learn(scheme),
    }


def _places_of_norm(scheme: NormScheme, sublayer: Callable[[], nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    yield "embed", built(lambda: scheme.embed(DIM))
    yield "final", built(lambda: scheme.final(DIM))
    for role in ROLES:
        yield f"output, {role}", built(lambda role=role: scheme.output(DIM, role))  # type: ignore[misc]
        yield f"residual, {role}", built(lambda role=role: scheme.residual(DIM, sublayer(), role))  # type: ignore[misc]


def _linear() -> nn.Module:
    return nn.Linear(DIM, DIM)


def _norms_keep_shape_and_dtype(scheme: NormScheme) -> Outcome:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for where, module in _places_of_norm(scheme, _linear):
            x = numbers(2, POSITIONS, DIM).to(dtype)
            y = module.to(dtype)(x)
            fits = y.shape == x.shape and y.dtype == x.dtype
            expect(fits, f"{where}: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
            expect(bool(y.isfinite().all()), f"{where}: of {kind_of(x)} it makes something that is not finite")
            zeros = module(torch.zeros_like(x))
            expect(bool(zeros.isfinite().all()), f"{where}: a vector of zeros becomes something that is not finite")
    return None


def _norms_stay_in_place(scheme: NormScheme) -> Outcome:
    x, other = numbers(2, POSITIONS, DIM), numbers(2, POSITIONS, DIM, seed=1)
    mixed = x.clone()
    mixed[1], mixed[:, 4:] = other[1], other[:, 4:]
    for where, module in _places_of_norm(scheme, _linear):
        sentence = f"{where}: what stands at one position depends on other positions or contexts"
        expect_close(module(x)[0, :4], module(mixed)[0, :4], sentence, 1e-6)
    return None


def _norms_take_the_last(scheme: NormScheme) -> Outcome:
    x = numbers(2, POSITIONS, DIM)
    for role in ROLES:
        full = built(lambda role=role: scheme.residual(DIM, _linear(), role))  # type: ignore[misc]
        last = built(lambda role=role: scheme.residual(DIM, LastOnly(_linear()), role))  # type: ignore[misc]
        expect_close(last(x)[:, -1], full(x)[:, -1], f"residual, {role}: the last position gets something else then", 1e-6)
    return None


def _norms_learn(scheme: NormScheme) -> Outcome:
    for where, module in _places_of_norm(scheme, _linear):
        gradients = Gradients(f"{where}: ")
        gradients.look(module, stirred(module)(numbers(2, POSITIONS, DIM)))
        gradients.expect_all()
    return None
