"""The kernels in chunks, against recurrences step by step in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lgbench_linear import chunks
from lgbench_linear.decayed_sum import decayed_sum
from lgbench_linear.delta_rule import delta_rule
from lgbench_linear.generalized_delta_rule import generalized_delta_rule

B, H, D = 2, 3, 5
lengths = pytest.mark.parametrize("length", [1, 3, 4, 5, 14])
Inputs = list[Tensor]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of four positions."""
    monkeypatch.setattr(chunks, "POSITIONS", 4)


def normal(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def delta_inputs(length: int, steps: int, decays: bool, largest_beta: float) -> Inputs:
    many = B, H, steps * length
    given = [normal(B, H, length, D, seed=1), normalize(normal(*many, D, seed=2), dim=-1), normal(*many, D, seed=3)]
    given.append(largest_beta * normal(*many, seed=4, scale=3.0).sigmoid())
    return [*given, -normal(*many, seed=5).exp()] if decays else given


def delta_by_steps(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None = None) -> Tensor:
    steps = k.shape[2] // q.shape[2]
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    read = []
    for step in range(k.shape[2]):
        key, value, rate = k[:, :, step, :, None], v[:, :, step, None], beta[:, :, step, None, None]
        decay = 1.0 if log_decay is None else log_decay[:, :, step, None, None].exp()
        transition = decay * (torch.eye(k.shape[-1], dtype=q.dtype) - rate * key @ key.mT)
        state = transition @ state + rate * key @ value
        if step % steps == steps - 1:
            read.append(state.mT @ q[:, :, step // steps, :, None])
    return torch.stack(read, 2).squeeze(-1)


def sum_inputs(length: int, size: float = 1.0) -> Inputs:
    q, k, v = normal(B, H, length, D, seed=1), normal(B, H, length, D, seed=2), normal(B, H, length, D + 1, seed=3)
    return [q, k, v, -normal(B, H, length, seed=4).exp(), normal(B, H, length, seed=5, scale=size)]


def sum_by_steps(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_weight: Tensor) -> Tensor:
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    read = []
    for t in range(q.shape[2]):
        decay, weight = log_decay[:, :, t, None, None].exp(), log_weight[:, :, t, None, None].exp()
        state = decay * state + weight * k[:, :, t, :, None] @ v[:, :, t, None]
        read.append(state.mT @ q[:, :, t, :, None])
    return torch.stack(read, 2).squeeze(-1)


def generalized_inputs(length: int) -> Inputs:
    q, removed, k, v = (normal(B, H, length, D, seed=seed) for seed in (1, 2, 3, 4))
    log_decay, a = -normal(B, H, length, D, seed=5, scale=3.0).sigmoid(), normal(B, H, length, D, seed=6).sigmoid()
    return [q, log_decay, normalize(removed, dim=-1), a, k, v]


def generalized_by_steps(q: Tensor, log_decay: Tensor, removed: Tensor, a: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    read = []
    for t in range(q.shape[2]):
        away = removed[:, :, t, :, None]
        transition = torch.diag_embed(log_decay[:, :, t].exp()) - (a[:, :, t, :, None] * away) @ away.mT
        state = transition @ state + k[:, :, t, :, None] @ v[:, :, t, None]
        read.append(state.mT @ q[:, :, t, :, None])
    return torch.stack(read, 2).squeeze(-1)


def unscaled_sum(*given: Tensor) -> Tensor:
    scaled, m = decayed_sum(*given)
    return m.exp().unsqueeze(-1) * scaled


def assert_same(kernel: Callable[..., Tensor], by_steps: Callable[..., Tensor], given: Inputs) -> None:
    """In outputs, and in the gradient of every input."""
    given = [tensor.requires_grad_() for tensor in given]
    ours, expected = kernel(*given), by_steps(*given)
    torch.testing.assert_close(ours, expected)
    direction = normal(*expected.shape, seed=9)
    found = torch.autograd.grad((ours * direction).sum(), given)
    for gradient, other in zip(found, torch.autograd.grad((expected * direction).sum(), given), strict=True):
        torch.testing.assert_close(gradient, other)


@lengths
@pytest.mark.parametrize("decays", [False, True], ids=["without decay", "with decay"])
@pytest.mark.parametrize(("steps", "largest_beta"), [(1, 1.0), (1, 2.0), (3, 2.0)])
def test_the_delta_rule_is_its_recurrence(small: None, length: int, decays: bool, steps: int, largest_beta: float) -> None:
    assert_same(delta_rule, delta_by_steps, delta_inputs(length, steps, decays, largest_beta))


@lengths
def test_the_decayed_sum_is_its_recurrence(small: None, length: int) -> None:
    assert_same(unscaled_sum, sum_by_steps, sum_inputs(length))


@lengths
def test_the_generalized_delta_rule_is_its_recurrence(small: None, length: int) -> None:
    assert_same(generalized_delta_rule, generalized_by_steps, generalized_inputs(length))


@pytest.mark.slow  # a recurrence of 150 steps, and its gradient
def test_all_are_their_recurrences_in_chunks_of_the_usual_size() -> None:
    assert_same(delta_rule, delta_by_steps, delta_inputs(150, 2, True, 2.0))
    assert_same(unscaled_sum, sum_by_steps, sum_inputs(150))
    assert_same(generalized_delta_rule, generalized_by_steps, generalized_inputs(150))


def test_the_scale_of_the_decayed_sum_is_its_largest_factor() -> None:
    q, k, v, log_decay, log_weight = sum_inputs(150, size=5.0)
    largest = [log_weight[:, :, 0]]
    for t in range(1, 150):
        largest.append(torch.maximum(largest[-1] + log_decay[:, :, t], log_weight[:, :, t]))
    torch.testing.assert_close(decayed_sum(q, k, v, log_decay, log_weight)[1], torch.stack(largest, 2))
    assert (decayed_sum(q, k, v, log_decay, torch.zeros_like(log_weight))[1] == 0).all()


def test_weights_beyond_float32_do_not_overflow() -> None:
    q, k, v, log_decay, log_weight = (tensor.float() for tensor in sum_inputs(200, size=400.0))
    scaled, m = decayed_sum(q, k, v, log_decay, log_weight)
    assert m.max() > 500
    assert scaled.isfinite().all()


EXTREMES = {"keeps all": 0.0, "forgets all": 100.0}


@pytest.mark.parametrize("rate", EXTREMES.values(), ids=EXTREMES)
def test_extreme_decays_give_finite_outputs_and_gradients(rate: float) -> None:
    q, k, v, beta, _ = delta_inputs(200, 1, True, 2.0)
    for kernel, given in (
        (delta_rule, [q, k, v, beta, torch.full_like(beta, -rate)]),
        (unscaled_sum, [q, k, v, torch.full_like(beta, -rate), torch.zeros_like(beta)]),
        (generalized_delta_rule, [q, torch.full_like(q, -min(rate, 1.0)), k, torch.ones_like(q), k, v]),
    ):
        asked = [tensor.float().requires_grad_() for tensor in given]
        out = kernel(*asked)
        assert out.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.square().sum(), asked))


@pytest.mark.parametrize("length", [512, pytest.param(2**14, marks=pytest.mark.slow)])
@pytest.mark.parametrize("same_key", [False, True], ids=["keys differ", "one key"])
def test_rounding_does_not_grow_over_long_inputs(length: int, same_key: bool) -> None:
    """With beta = 2 and one key, every step is a reflection: nothing that was written, and no error, is forgotten."""
    q, k, v, beta = delta_inputs(length, 1, False, 2.0)
    k = k[:, :, :1].expand_as(k) if same_key else k
    assert relative_error(delta_rule, [q, k, v, torch.full_like(beta, 2.0)]) < 1e-7 * length
    assert relative_error(generalized_delta_rule, generalized_inputs(length)) < 1e-5
    assert relative_error(unscaled_sum, sum_inputs(length)) < 1e-5


def relative_error(kernel: Callable[..., Tensor], given: Inputs) -> float:
    """Of float32 against float64, on the same inputs."""
    narrow = [tensor.float() for tensor in given]
    exact, rounded = kernel(*(tensor.double() for tensor in narrow)), kernel(*narrow)
    return ((rounded - exact).abs().max() / exact.abs().max()).item()
