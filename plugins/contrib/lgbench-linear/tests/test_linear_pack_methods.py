"""Every method, against its equations step by step, for one head of one context at a time, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from linear_pack_cases import BY_NAME, built, call, inputs, spec_of
from torch import Tensor

from lgbench_linear import chunks
from lgbench_linear.deltanet import DeltaProduct

Weights = dict[str, Tensor]


class Head:
    """The weights that one head of H has, and the inputs of one context: q, k, v (T, D), x (T, W)."""

    def __init__(self, weights: Weights, heads: int, head: int, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> None:
        self.weights, self.heads, self.head = weights, heads, head
        self.q, self.k, self.v, self.x = q, k, v, x

    def own(self, name: str) -> Tensor:
        """This head's share of a weight whose first dimension is that of the heads and their features."""
        return self.weights[name].chunk(self.heads)[self.head]

    def linear(self, name: str) -> Tensor:
        """This head's share of a linear map of x, (T, features)."""
        return self.x @ self.own(f"{name}.weight").T

    def convolved(self, *features: Tensor, bias: bool = False) -> tuple[Tensor, ...]:
        """The features after convolution and SiLU, position by position."""
        joint, taps = torch.cat(features, -1), self.weights["convolve.weight"][:, self.head]
        offset = self.own("convolve.bias") if bias else torch.zeros_like(joint[0])
        rows = []
        for t in range(len(joint)):
            total = offset
            for back in range(4):
                total = total + (taps[3 - back] * joint[t - back] if t >= back else 0)
            rows.append(total / (1 + (-total).exp()))
        return torch.stack(rows).split([part.shape[1] for part in features], -1)

    def decay(self) -> tuple[Tensor, Tensor]:
        """dt and the decay, (T,) each."""
        dt = (1 + (self.linear("decay.project")[:, 0] + self.own("decay.bias")).exp()).log()
        return dt, (-self.own("decay.log_rate").exp() * dt).exp()


def unit(x: Tensor) -> Tensor:
    return x / ((x * x).sum() + 1e-6).sqrt()


def rms(x: Tensor, epsilon: float) -> Tensor:
    return x / ((x * x).mean() + epsilon).sqrt()


def layer_norm(x: Tensor, epsilon: float) -> Tensor:
    return (x - x.mean()) / (x.var(correction=0) + epsilon).sqrt()


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def deltaproduct(head: Head, largest_beta: float, householders: int) -> Tensor:
    dim = head.q.shape[1]
    more = head.linear("more").split(dim, -1) if householders > 1 else ()
    q, *steps = head.convolved(head.q, head.k, head.v, *more)
    beta = largest_beta * sigmoid(head.linear("beta"))
    state, out = torch.zeros(dim, dim, dtype=q.dtype), []
    for t in range(len(q)):
        for step in range(householders):
            key, value = unit(steps[2 * step][t]), steps[2 * step + 1][t]
            state = state + beta[t, step] * torch.outer(key, value - state.T @ key)
        out.append(head.weights["norm.weight"] * rms(state.T @ unit(q[t]) / dim**0.5, 1e-5))
    return torch.stack(out)


def gated_deltanet(head: Head, largest_beta: float) -> Tensor:
    q, k, v = head.convolved(head.q, head.k, head.v)
    dim, beta, gate, (_, decay) = q.shape[1], largest_beta * sigmoid(head.linear("beta")), head.linear("gate"), head.decay()
    state, out = torch.zeros(dim, dim, dtype=q.dtype), []
    for t in range(len(q)):
        key = unit(k[t])
        state = decay[t] * state
        state = state + beta[t] * torch.outer(key, v[t] - state.T @ key)
        out.append(head.weights["norm.weight"] * rms(state.T @ unit(q[t]) / dim**0.5, 1e-5) * silu(gate[t]))
    return torch.stack(out)


def mamba_2(head: Head) -> Tensor:
    q, k, v = head.convolved(head.q, head.k, head.v, bias=True)
    (dt, decay), gate = head.decay(), head.linear("gate")
    state, out = torch.zeros(q.shape[1], v.shape[1], dtype=q.dtype), []
    for t in range(len(q)):
        state = decay[t] * state + dt[t] * torch.outer(k[t], v[t])
        out.append(head.own("gain") * rms((state.T @ q[t] + head.own("skip") * v[t]) * silu(gate[t]), 1e-5))
    return torch.stack(out)


def mlstm(head: Head) -> Tensor:
    dim, out_gate = head.q.shape[1], head.linear("output_gate")
    i, f = (15 * ((head.linear(name) + head.own(f"{name}.bias")) / 15).tanh() for name in ("input_gate", "forget_gate"))
    state, total, out = torch.zeros(dim, dim, dtype=i.dtype), torch.zeros(dim, dtype=i.dtype), []
    for t in range(len(i)):
        state = sigmoid(f[t]) * state + i[t].exp() * torch.outer(head.k[t], head.v[t])
        total = sigmoid(f[t]) * total + i[t].exp() * head.k[t]
        query = head.q[t] / dim**0.5
        mixed = state.T @ query / (total @ query).abs().clamp(min=1)
        out.append(head.own("gain") * layer_norm(mixed, 1e-6) * sigmoid(out_gate[t]))
    return torch.stack(out)


def shifted(x: Tensor, share: Tensor) -> Tensor:
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    return (1 - share) * x + share * before


def rwkv_7(head: Head) -> Tensor:
    def low_rank(name: str) -> Tensor:
        return shifted(head.x, head.weights[f"{name}.share"]) @ head.weights[f"{name}.down.weight"].T

    r, k, v = (shifted(x, share) for x, share in zip((head.q, head.k, head.v), head.own("share").chunk(3), strict=True))
    d = low_rank("decay").tanh() @ head.own("decay.up.weight").T + head.own("decay.bias")
    a = sigmoid(low_rank("rate") @ head.own("rate.up.weight").T + head.own("rate.bias"))
    g = sigmoid(low_rank("gate")) @ head.own("gate.up.weight").T
    w = (-math.exp(-0.5) * sigmoid(d)).exp()
    state, out = torch.zeros(k.shape[1], k.shape[1], dtype=k.dtype), []
    for t in range(len(r)):
        kappa = unit(head.own("removed") * k[t])
        key = k[t] * (1 + (a[t] - 1) * head.own("rated"))
        state = (torch.diag(w[t]) - torch.outer(a[t] * kappa, kappa)) @ state + torch.outer(key, v[t])
        normed = head.own("gain") * layer_norm(state.T @ r[t], 64e-5) + head.own("offset")
        out.append(g[t] * (normed + (r[t] * head.own("bonus") * key).sum() * v[t]))
    return torch.stack(out)


EQUATIONS = {
    "deltanet": lambda head: deltaproduct(head, 1.0, 1),
    "deltanet-negative": lambda head: deltaproduct(head, 2.0, 1),
    "deltaproduct": lambda head: deltaproduct(head, 1.0, 2),
    "deltaproduct-negative": lambda head: deltaproduct(head, 2.0, 2),
    "gated-deltanet": lambda head: gated_deltanet(head, 1.0),
    "gated-deltanet-negative": lambda head: gated_deltanet(head, 2.0),
    "mamba-2": mamba_2,
    "mlstm": mlstm,
    "rwkv-7": rwkv_7,
}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 5), (3, 2)])
def test_it_is_its_equation_step_by_step(name: str, heads: int, head_dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "POSITIONS", 4)
    spec = spec_of(heads, head_dim)
    module, given = built(BY_NAME[name], spec), inputs(spec, 11)
    weights, mixed = dict(module.named_parameters()), call(module, *given)
    q, k, v, x = given
    for context in range(2):
        for head in range(heads):
            at = context, head
            expected = EQUATIONS[name](Head(weights, heads, head, q[at], k[at], v[at], x[context]))
            torch.testing.assert_close(mixed[at], expected)


def test_deltaproduct_takes_as_many_steps_as_it_is_told() -> None:
    spec = spec_of(2, 3)
    product = BY_NAME["deltaproduct-negative"]
    assert isinstance(product, DeltaProduct)
    assert product.configured() == product
    module, given = built(product.configured(householders=3), spec), inputs(spec, 9)
    q, k, v, x = (tensor[1] for tensor in given)
    expected = deltaproduct(Head(dict(module.named_parameters()), 2, 1, q[1], k[1], v[1], x), 2.0, 3)
    torch.testing.assert_close(call(module, *given)[1, 1], expected)


def test_deltaproduct_with_one_step_is_deltanet() -> None:
    spec = spec_of(2, 3)
    product, given = BY_NAME["deltaproduct"], inputs(spec, 9)
    assert isinstance(product, DeltaProduct)
    one, other = built(product.configured(householders=1), spec), built(BY_NAME["deltanet"], spec)
    torch.testing.assert_close(call(one, *given), call(other, *given))
