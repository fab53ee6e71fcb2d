"""Position ids: a token with the id m gets what a token at place m gets."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from lgbench import AttentionSpec, Position
from lgbench.noise import Noise
from lgbench_positions.absolute import Coupled, RandomisedLearned, Sinusoidal
from lgbench_positions.relative import Alibi
from lgbench_positions.rotary import Rope

SPEC = AttentionSpec(layer=1, layers=1, width=8, heads=2, train_keys=8)
CONTEXTS, TOKENS = 3, 6
IDS = torch.stack([torch.randperm(TOKENS, generator=torch.Generator().manual_seed(seed)) for seed in range(CONTEXTS)])
ADDED = [Sinusoidal(), RandomisedLearned(), Coupled()]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def placed(x: Tensor) -> Tensor:
    """Tokens (B, ..., T, D) in the order of their ids."""
    order = IDS.argsort(-1)
    return torch.stack([x[b].index_select(-2, order[b]) for b in range(CONTEXTS)])


def returned(x: Tensor) -> Tensor:
    """Inverse of :func:`placed`."""
    return torch.stack([x[b].index_select(-2, IDS[b]) for b in range(CONTEXTS)])


@pytest.mark.parametrize("position", ADDED, ids=lambda position: position.name)
def test_a_code_on_the_embedding_is_that_of_the_place(position: Position) -> None:
    x = numbers(CONTEXTS, TOKENS, SPEC.width)
    module = position.embed(SPEC.width, TOKENS)
    assert module is not None
    module = module.double().eval()
    torch.testing.assert_close(module(x, positions=IDS), returned(module(placed(x))))


def test_a_rotation_is_that_of_the_place() -> None:
    q, k = (numbers(CONTEXTS, SPEC.heads, TOKENS, SPEC.head_dim, seed=seed) for seed in (1, 2))
    module = Rope().rotate(SPEC)
    expected = [returned(each) for each in module(placed(q), placed(k))]
    for queries in (TOKENS, 2, 1):
        found = module(q[:, :, -queries:], k, positions=IDS)
        torch.testing.assert_close(found[0], expected[0][:, :, -queries:])
        torch.testing.assert_close(found[1], expected[1])


def test_a_linear_penalty_grows_with_the_distance_of_ids() -> None:
    q, k = (numbers(CONTEXTS, SPEC.heads, TOKENS, SPEC.head_dim, seed=seed) for seed in (1, 2))
    bias = Alibi().bias(SPEC)(q[:, :, -2:], k, positions=IDS)
    assert bias.shape == (CONTEXTS, SPEC.heads, 2, TOKENS)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in bias.shape)).tolist():
        slope = 2 ** (-8 * (h + 1) / SPEC.heads)
        assert bias[b, h, i, j].item() == pytest.approx(-slope * abs(IDS[b, TOKENS - 2 + i] - IDS[b, j]).item())


def test_coupled_ids_share_one_row_and_start_anywhere_in_training() -> None:
    module = Coupled().embed(SPEC.width, 10)
    marked = torch.arange(10.0)[:, None].expand(10, SPEC.width)
    module.load_state_dict({"table": marked}, strict=False)
    (noise,) = (each for each in module.modules() if isinstance(each, Noise))
    ids = torch.tensor([[3, 0, 3, 1], [2, 2, 0, 0]])
    x = torch.zeros(2, 4, SPEC.width)
    assert torch.equal(module.eval()(x, positions=ids)[..., 0].long(), ids)
    starts = Counter()
    for number in torch.linspace(0, 1, 700)[:-1]:
        noise.value.fill_(number.item())
        rows = module.train()(x, positions=ids)[..., 0].long() - ids
        assert len(rows.unique()) == 1
        starts[int(rows[0, 0])] += 1
    assert set(starts) == set(range(7))  # the largest id is 3, and the table has 10 rows
    assert max(starts.values()) - min(starts.values()) <= 2


def test_rows_of_random_subsets_keep_the_order_of_ids() -> None:
    module = RandomisedLearned().embed(SPEC.width, 20)
    marked = torch.arange(20.0)[:, None].expand(20, SPEC.width)
    module.load_state_dict({"table": marked}, strict=False)
    (noise,) = (each for each in module.modules() if isinstance(each, Noise))
    noise.value.copy_(torch.rand(20, generator=torch.Generator().manual_seed(3)))
    rows = module.train()(torch.zeros(CONTEXTS, TOKENS, SPEC.width), positions=IDS)[..., 0].long()
    subset = noise.value.argsort()[:TOKENS].sort().values
    assert not torch.equal(subset, torch.arange(TOKENS))
    assert torch.equal(rows, subset[IDS])
