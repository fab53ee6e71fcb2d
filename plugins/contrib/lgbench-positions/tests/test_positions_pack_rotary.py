from __future__ import annotations

import cmath

import pytest
import torch
from torch import Tensor

from lgbench import AttentionSpec, Position, Unsupported
from lgbench_positions.rotary import MAX_POSITIONS, Rope, XPos

ROTATING = [Rope(), XPos()]
EVERY_ROTATING = pytest.mark.parametrize("position", ROTATING, ids=[position.name for position in ROTATING])
Heads = tuple[Tensor, Tensor]


def spec_of(head_dim: int, heads: int = 2, cross_attention: bool = False) -> AttentionSpec:
    return AttentionSpec(1, 1, heads * head_dim, heads, 20, cross_attention=cross_attention)


def drawn(queries: int, keys: int, head_dim: int, dtype: torch.dtype = torch.float64, heads: int = 2) -> Heads:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, heads, keys, head_dim, dtype=torch.float64, generator=generator).to(dtype)
    k = torch.randn(3, heads, keys, head_dim, dtype=torch.float64, generator=generator).to(dtype)
    return q[:, :, keys - queries :], k


def products(position: Position, q: Tensor, k: Tensor) -> Tensor:
    module = position.rotate(spec_of(q.shape[-1], q.shape[1]))
    assert module is not None
    rotated_q, rotated_k = module(q, k)
    assert (rotated_q.shape, rotated_k.shape) == (q.shape, k.shape)
    assert rotated_q.dtype == rotated_k.dtype == q.dtype
    logits: Tensor = rotated_q @ rotated_k.mT
    return logits


def published(position: Position, q: Tensor, k: Tensor, distance: int) -> float:
    """Pairs as complex numbers: Re sum_i q_i conj(k_i) e^(i theta_i distance), for xPos times zeta_i^(distance / 512)."""
    pairs = q.shape[-1] // 2
    total = 0.0
    for i in range(pairs):
        q_i, k_i = (complex(x[2 * i].item(), x[2 * i + 1].item()) for x in (q, k))
        term = q_i * k_i.conjugate() * cmath.exp(1j * 10_000 ** (-i / pairs) * distance)
        if position.name == "xpos":
            term *= ((i / pairs + 0.4) / 1.4) ** (distance / 512)
        total += term.real
    return total + sum((q[2 * pairs :] * k[2 * pairs :]).tolist())


@EVERY_ROTATING
@pytest.mark.parametrize("head_dim", [2, 3, 7, 8])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 5), (1, 5), (1, 1)])
def test_logits_are_the_published_function_of_the_difference(
    position: Position, head_dim: int, queries: int, keys: int
) -> None:
    q, k = drawn(queries, keys, head_dim)
    actual = products(position, q, k)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in actual.shape)).tolist():
        expected = published(position, q[b, h, i], k[b, h, j], keys - queries + i - j)
        assert actual[b, h, i, j].item() == pytest.approx(expected, abs=1e-12)


@EVERY_ROTATING
def test_the_odd_feature_is_left_as_it_is(position: Position) -> None:
    q, k = drawn(4, 6, 7)
    module = position.rotate(spec_of(7))
    assert module is not None
    for rotated, x in zip(module(q, k), (q, k), strict=True):
        assert torch.equal(rotated[..., -1], x[..., -1])


@EVERY_ROTATING
@pytest.mark.parametrize(("queries", "keys"), [(1, 16_385), (16_385, 16_385)])
def test_sixteen_thousand_keys_are_finite_and_as_published(position: Position, queries: int, keys: int) -> None:
    q, k = (x[:1] for x in drawn(queries, keys, 6, torch.float32, heads=1))
    module = position.rotate(spec_of(6, heads=1))
    assert module is not None
    rotated_q, rotated_k = module(q, k)
    assert rotated_q.isfinite().all()
    assert rotated_k.isfinite().all()
    for i in {0, queries - 1}:
        logits = rotated_q[0, 0, i] @ rotated_k[0, 0].mT
        assert logits.isfinite().all()
        at = keys - queries + i
        for j in {0, at // 2, max(0, at - 300), at}:
            expected = published(position, q[0, 0, i].double(), k[0, 0, j].double(), at - j)
            assert logits[j].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("queries", [1, MAX_POSITIONS])
def test_xpos_works_up_to_as_many_positions_as_it_says(queries: int) -> None:
    q, k = torch.full((1, 1, queries, 2), 1e2), torch.full((1, 1, MAX_POSITIONS, 2), 1e2)
    rotated_q, rotated_k = XPos().rotate(spec_of(2, heads=1))(q, k)
    logits = rotated_q[0, 0, -1] @ rotated_k[0, 0].mT
    assert logits.isfinite().all()
    assert logits[0] == pytest.approx(0, abs=1e-6)
    assert logits[-1] == pytest.approx(2e4)


def test_xpos_refuses_more_positions_in_words() -> None:
    q, k = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, MAX_POSITIONS + 1, 2)
    with pytest.raises(ValueError, match="30000 positions.* 30001"):
        products(XPos(), q, k)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is not supported:DeprecationWarning")
@EVERY_ROTATING
@pytest.mark.parametrize("queries", [1, 30])
def test_x_transformers_gives_the_same_logits(position: Position, queries: int) -> None:
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    q, k = drawn(queries, 30, 8, torch.float32)
    angles, scale = RotaryEmbedding(8, use_xpos=position.name == "xpos").forward_from_seq_len(30)
    their_q = apply_rotary_pos_emb(q, angles, scale)
    their_k = apply_rotary_pos_emb(k, angles, scale**-1)
    torch.testing.assert_close(products(position, q, k), their_q @ their_k.mT, atol=1e-4, rtol=1e-4)


@EVERY_ROTATING
def test_a_head_of_one_feature_is_refused_in_words(position: Position) -> None:
    with pytest.raises(Unsupported, match=f"{position.name} rotates pairs of features.* has 1"):
        position.rotate(spec_of(1))


@EVERY_ROTATING
def test_cross_attention_is_refused_with_the_reason(position: Position) -> None:
    with pytest.raises(Unsupported, match=f"{position.name} .* cross attention"):
        position.rotate(spec_of(4, cross_attention=True))
