"""Selective attention: against another library, and the memory of its blocks of queries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_pack_cases import BY_NAME, Inputs, call, inputs, spec_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lgbench import Unsupported
from lgbench_attention.selective import SelectiveAttention

SELECTIVE = BY_NAME["selective"]


class Largest(TorchDispatchMode):
    """Keeps the size of the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.size = max(self.size, out.numel())
        return out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own, on import
@pytest.mark.parametrize("bias", ["none", "of all contexts", "of each context"])
def test_it_is_what_x_transformers_makes_of_it(bias: str) -> None:
    from x_transformers.attend import selective_attn

    spec = spec_of(heads=3, head_dim=5)
    given = inputs(SELECTIVE, spec, 12, 12, bias, scale=2.0)
    logits = given.q @ given.k.mT / 5**0.5 + (given.bias if given.bias is not None else 0.0)
    masked = logits.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), -torch.finfo(torch.float64).max)
    expected = selective_attn(masked).softmax(-1) @ given.v
    torch.testing.assert_close(call(SELECTIVE.build(spec), given), expected)


def asked(given: Inputs, queries: int) -> Inputs:
    return given._replace(query_input=given.query_input[:, -queries:])


@pytest.mark.parametrize("queries", [1, 5, 17])
@pytest.mark.parametrize("block", [1, 2 * 17, 2 * 2 * 17 * 3, 2 * 2 * 17 * 17 - 1])
def test_blocks_of_any_size_give_what_one_gives(block: int, queries: int) -> None:
    given = asked(inputs(SELECTIVE, spec_of(heads=2), 17, 17, "of each context"), queries)
    expected = call(SelectiveAttention(1.0), given)
    torch.testing.assert_close(call(SelectiveAttention(1.0, block), given), expected)
    direction = torch.randn_like(expected)
    found = []
    for module in SelectiveAttention(1.0), SelectiveAttention(1.0, block):
        q = given.q.clone().requires_grad_()
        (call(module, given._replace(q=q)) * direction).sum().backward()
        found.append(q.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("queries", [1, 300])
def test_no_more_logits_are_made_at_a_time_than_a_block(queries: int) -> None:
    given = asked(inputs(SELECTIVE, spec_of(heads=2), 300, 300, dtype=torch.float32), queries)
    with torch.no_grad(), Largest() as largest:
        call(SelectiveAttention(1.0, block=2 * 2 * 300 * 10), given)
    assert largest.size <= max(2 * 2 * 300 * 10, 2 * 11 * 300, given.q.numel())


def test_it_refuses_cross_attention() -> None:
    with pytest.raises(Unsupported, match="cross attention"):
        SELECTIVE.build(spec_of(cross_attention=True))
