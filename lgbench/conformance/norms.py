"""Checks of norm schemes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import get_args

import torch
from torch import Tensor, nn

from lgbench.conformance.check import Checks, Outcome, expect, expect_close
from lgbench.conformance.material import Gradients, built, built_or_none, kind_of, numbers, stirred
from lgbench.contracts import Matrix, NormScheme, Role, SublayerSpec, TensorModule

WIDTH, HEADS, POSITIONS, LAYERS = 12, 2, 9, 3
ROLES: tuple[Role, ...] = get_args(Role)
MATRICES: dict[Role, tuple[Matrix, ...]] = {"attention": ("query", "key", "value", "out"), "mlp": ("up", "down")}


class LastOnly(nn.Module):
    """A sublayer that answers for the last position only."""

    def __init__(self, sublayer: TensorModule) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        return self.sublayer(x[..., -1:, :])


def checks_of_norm(scheme: NormScheme) -> Checks:
    return {
        "shape and dtype stay, in bfloat16 too": lambda: _keeps_shape_and_dtype(scheme),
        "each position is normalized by itself": lambda: _stays_in_place(scheme),
        "a sublayer may answer for the last position only": lambda: _takes_the_last(scheme),
        "gains of initial weights are finite numbers": lambda: _has_finite_gains(scheme),
        "gradients reach every parameter": lambda: _learns(scheme),
    }


def specs() -> Iterator[SublayerSpec]:
    """The sublayers of the first and of the last layer: a scheme may treat them differently."""
    for layer in (1, LAYERS):
        for role in ROLES:
            yield SublayerSpec(role, layer, LAYERS, WIDTH, HEADS if role == "attention" else 1)


def _linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _slots(scheme: NormScheme) -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Every module of the scheme: its slot, the module, and the shape of its input."""
    stream = (2, POSITIONS, WIDTH)
    yield "embed", built(lambda: scheme.embed(WIDTH)), stream
    yield "final", built(lambda: scheme.final(WIDTH)), stream
    for spec in specs():
        where = f"{spec.role} of layer {spec.layer}"
        yield f"output, {where}", built(lambda spec=spec: scheme.output(spec)), stream  # type: ignore[misc]
        yield f"residual, {where}", built(lambda spec=spec: scheme.residual(spec, _linear())), stream  # type: ignore[misc]
        if spec.role == "attention":
            for slot, module in _heads(scheme, spec):
                yield f"{slot}, {where}", module, (2, HEADS, POSITIONS, spec.head_dim)


def _heads(scheme: NormScheme, spec: SublayerSpec) -> Iterator[tuple[str, nn.Module]]:
    """The modules within attention that the scheme has."""
    methods: dict[str, Callable[[SublayerSpec], TensorModule | None]] = {
        "query": scheme.query,
        "key": scheme.key,
        "head": scheme.head,
    }
    for slot, method in methods.items():
        module = built_or_none(lambda method=method: method(spec))  # type: ignore[misc]
        if module is not None:
            yield slot, module


def _keeps_shape_and_dtype(scheme: NormScheme) -> Outcome:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for where, module, shape in _slots(scheme):
            x = numbers(*shape).to(dtype)
            y = module.to(dtype)(x)
            fits = y.shape == x.shape and y.dtype == x.dtype
            expect(fits, f"{where}: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
            expect(bool(y.isfinite().all()), f"{where}: {kind_of(x)} becomes something that is not finite")
            zeros = module(torch.zeros_like(x))
            expect(bool(zeros.isfinite().all()), f"{where}: a vector of zeros becomes something that is not finite")
    return None


def _stays_in_place(scheme: NormScheme) -> Outcome:
    for where, module, shape in _slots(scheme):
        x, other = numbers(*shape), numbers(*shape, seed=1)
        mixed = x.clone()
        mixed[1], mixed[..., 4:, :] = other[1], other[..., 4:, :]
        sentence = f"{where}: the result at one position depends on other positions or contexts"
        expect_close(module(x)[0, ..., :4, :], module(mixed)[0, ..., :4, :], sentence, 1e-6)
    return None


def _takes_the_last(scheme: NormScheme) -> Outcome:
    x = numbers(2, POSITIONS, WIDTH)
    for spec in specs():
        full = built(lambda spec=spec: scheme.residual(spec, _linear()))  # type: ignore[misc]
        last = built(lambda spec=spec: scheme.residual(spec, LastOnly(_linear())))  # type: ignore[misc]
        sentence = f"residual, {spec.role} of layer {spec.layer}: the last position gets something else then"
        expect_close(last(x)[:, -1], full(x)[:, -1], sentence, 1e-6)
    return None


def _has_finite_gains(scheme: NormScheme) -> Outcome:
    for spec in specs():
        for matrix in MATRICES[spec.role]:
            gain = scheme.gain(spec, matrix)
            fits = isinstance(gain, float | int) and not isinstance(gain, bool) and math.isfinite(gain)
            where = f"the matrix {matrix!r}, {spec.role} of layer {spec.layer}"
            expect(fits, f"gain gives {gain!r} for {where}, expected a finite float")
    return None


def _learns(scheme: NormScheme) -> Outcome:
    for where, module, shape in _slots(scheme):
        gradients = Gradients(f"{where}: ")
        gradients.add(module, stirred(module)(numbers(*shape)))
        gradients.expect_all()
    return None
