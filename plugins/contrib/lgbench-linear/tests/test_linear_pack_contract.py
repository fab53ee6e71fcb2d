"""Tests of every method of this pack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from linear_pack_cases import BY_NAME, built, call, inputs, spec_of
from torch import nn

import lgbench_linear
from lgbench import AttentionSpec, Unsupported
from lgbench.conformance.check import Check
from lgbench.testing import checks
from lgbench_linear.layers import Decay

every = pytest.mark.parametrize("name", BY_NAME)
SLOW = "its training step is one graph", "inputs longer than in training work"
"""Checks that take seconds."""


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=pytest.mark.slow if any(slow in check.__name__ for slow in SLOW) else ())
        for check in checks(lgbench_linear)
        if "-negative" not in check.thing  # its twin differs by a factor
        and ("one graph" not in check.name or "rwkv" in check.thing)  # ten seconds each, for a note
    ],
)
def test_it_keeps_the_contract(check: Check) -> None:
    assert "vmap cannot" not in (check() or "")


def test_the_readme_has_every_method_with_its_paper() -> None:
    rows = re.findall(r"^\|.*?\| (`.+?`) \|.*\[(\d{4}\.\d{5})\]", (Path(__file__).parents[1] / "README.md").read_text(), re.M)
    found = {name: paper for names, paper in rows for name in re.findall("`(.+?)`", names)}
    assert found.keys() == BY_NAME.keys()
    for name, paper in found.items():
        assert paper in (BY_NAME[name].about or str(BY_NAME[name].__doc__))


@every
@pytest.mark.parametrize("asked", [1, 4])
def test_the_last_positions_alone_take_what_they_take_among_all(name: str, asked: int) -> None:
    spec = spec_of()
    module, given = built(BY_NAME[name], spec), inputs(spec, 70)
    torch.testing.assert_close(call(module, *given, asked=asked), call(module, *given)[:, :, -asked:])


@every
@pytest.mark.parametrize("size", [0.0, 1e3])
def test_answers_and_gradients_are_finite_for_inputs_of_any_size(name: str, size: float) -> None:
    spec = spec_of(2, 5)
    module = built(BY_NAME[name], spec, torch.float32)
    given = [size * x for x in inputs(spec, 130, dtype=torch.float32)]
    asked = [*(x.requires_grad_() for x in given), *module.parameters()]
    mixed = call(module, *given)
    assert mixed.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(mixed.square().sum(), asked))


@every
def test_the_recurrence_is_float32_under_automatic_mixed_precision(name: str) -> None:
    spec = spec_of(2, 5)
    module = built(BY_NAME[name], spec, torch.float32)
    given = inputs(spec, 70, dtype=torch.float32)
    exact = call(module, *given)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(call(module, *given), exact)
        narrow = call(module, *(x.bfloat16() for x in given))
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, call(module, *(x.bfloat16().float() for x in given)).bfloat16())


@pytest.mark.slow  # 2^14 positions take a second each
@every
@torch.no_grad()
def test_one_answer_may_depend_on_many_thousands_of_positions(name: str) -> None:
    spec = spec_of(1, 31)
    module = built(BY_NAME[name], spec, torch.float32)
    given = inputs(spec, 2**14 + 1, dtype=torch.float32)
    answer, exact = call(module, *given, asked=1), call(module.double(), *(x.double() for x in given), asked=1)
    torch.testing.assert_close(answer, exact.float(), atol=1e-3, rtol=1e-3)


@every
def test_biases_and_cross_attention_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(Unsupported, match=f"{name} has no logits .* bias"):
        BY_NAME[name].build(AttentionSpec(1, 1, 8, 2, 17, has_bias=True))
    with pytest.raises(Unsupported, match=f"{name} reads keys and queries of the same positions"):
        BY_NAME[name].build(AttentionSpec(1, 1, 8, 2, 17, cross_attention=True))


def test_steps_and_decays_start_where_they_were_published() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decay = Decay(4, 1000)
    dt = nn.functional.softplus(decay.bias)
    assert 0.001 <= dt.min() < 0.0011 and 0.09 < dt.max() <= 0.1
    rate = decay.log_rate.exp()
    assert 1 <= rate.min() < 1.1 and 15.9 < rate.max() <= 16
