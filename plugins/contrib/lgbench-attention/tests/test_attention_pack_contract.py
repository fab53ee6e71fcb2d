"""Tests of every attention of this pack."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attention_pack_cases import BY_NAME, Inputs, built, call, inputs, spec_of
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

import lgbench_attention
from lgbench.conformance.check import Check
from lgbench.testing import checks

every = pytest.mark.parametrize("name", BY_NAME)
modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
OF_ALL = "of all contexts"
SPARSE = {"entmax15", "sparsemax", "asentmax"}


@pytest.mark.slow
@pytest.mark.parametrize("check", [check for check in checks(lgbench_attention) if "one graph" not in check.name])  # see below
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def test_the_readme_has_every_method_with_its_paper() -> None:
    rows = re.findall(r"^\|.*?\| `(.+?)` \|.*\[(\d{4}\.\d{5})\]", (Path(__file__).parents[1] / "README.md").read_text(), re.M)
    assert [name for name, _ in rows] == list(BY_NAME)
    assert all(paper in str(BY_NAME[name].__doc__) for name, paper in rows)


@every
@modes
@pytest.mark.parametrize("size", [0.0, 1e3])
def test_answers_and_gradients_are_finite_for_equal_and_for_large_logits(name: str, training: bool, size: float) -> None:
    spec = spec_of(heads=2, head_dim=5)
    given = inputs(BY_NAME[name], spec, 6, 6, scale=size, dtype=torch.float32)
    module = BY_NAME[name].build(spec).train(training)
    asked = [given.q.requires_grad_(), given.k.requires_grad_(), given.v.requires_grad_(), *module.parameters()]
    out = call(module, given)
    assert out.isfinite().all()
    gradients = torch.autograd.grad(out.square().sum(), asked, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    "name", ["adaptive-temperature", "ssmax", "log-length", "entmax15", "sparsemax", "asentmax", "selective"]
)
def test_a_single_key_gets_everything(name: str) -> None:
    spec = spec_of()
    given = inputs(BY_NAME[name], spec, 4, 4)
    torch.testing.assert_close(call(built(BY_NAME[name], spec).eval(), given)[:, :, 0], given.v[:, :, 0])


@every
def test_a_bias_may_be_one_for_all_heads_and_queries(name: str) -> None:
    spec = spec_of()
    module = built(BY_NAME[name], spec).eval()
    given = inputs(BY_NAME[name], spec, 5, 5)
    bias = torch.linspace(-1, 1, 5, dtype=torch.float64)
    one, all_alike = given._replace(bias=bias[None, None]), given._replace(bias=bias.expand(2, 5, 5))
    each = given._replace(bias=bias.expand(2, 2, 5, 5))
    torch.testing.assert_close(call(module, one), call(module, all_alike))
    torch.testing.assert_close(call(module, one), call(module, each))


Loss = Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]


def loss_of(module: nn.Module, given: Inputs) -> Loss:
    """A loss of the weights, the queries and the input at the queries."""

    def loss(weights: dict[str, Tensor], q: Tensor, query_input: Tensor) -> Tensor:
        def weighted(*inputs: Tensor, **needed: Tensor) -> Tensor:
            return functional_call(module, weights, inputs, needed)

        return call(weighted, given._replace(q=q, query_input=query_input)).square().sum()

    return loss


@every
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 5)])
def test_models_in_one_stack_have_the_gradients_that_each_has_alone(name: str, queries: int, keys: int) -> None:
    spec = spec_of()
    modules = [built(BY_NAME[name], spec, seed=seed).train() for seed in range(3)]
    given = [inputs(BY_NAME[name], spec, queries, keys, OF_ALL, seed=seed) for seed in range(3)]
    loss = loss_of(modules[0], given[0])
    weights, q, query_input = (
        stack_module_state(modules)[0] if list(modules[0].parameters()) else {},
        torch.stack([each.q for each in given]),
        torch.stack([each.query_input for each in given]),
    )
    gradients, losses = vmap(grad_and_value(loss, argnums=(0, 1)), in_dims=(0 if weights else None, 0, 0))(
        weights, q, query_input
    )
    for index, module in enumerate(modules):
        own = dict(module.named_parameters())
        queries_alone = q[index].clone().requires_grad_()
        alone = loss(own, queries_alone, query_input[index])
        alone.backward()
        torch.testing.assert_close(losses[index], alone.detach())
        torch.testing.assert_close(gradients[1][index], queries_alone.grad)
        for key, weight in own.items():
            torch.testing.assert_close(gradients[0][key][index], weight.grad)


@pytest.mark.slow  # a graph takes seconds
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in SPARSE])
def test_training_in_one_stack_is_one_graph(name: str) -> None:
    spec = spec_of()
    given = inputs(BY_NAME[name], spec, 4, 4)
    module = built(BY_NAME[name], spec).train()
    weights = dict(module.named_parameters())
    step = vmap(grad_and_value(loss_of(module, given), argnums=1), in_dims=(None, 0, 0))
    stacked = weights, given.q[None], given.query_input[None]
    torch.testing.assert_close(torch.compile(step, fullgraph=True, backend="eager")(*stacked), step(*stacked))


@pytest.mark.slow  # a graph takes seconds
@every
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses a deprecated autograd.Function
def test_testing_is_one_graph(name: str) -> None:
    spec = spec_of()
    given = inputs(BY_NAME[name], spec, 1, 5)
    module = built(BY_NAME[name], spec).eval()
    torch.testing.assert_close(call(torch.compile(module, fullgraph=True, backend="eager"), given), call(module, given))
