"""Random numbers: the published generator, on every device alike, what is drawn with it, and keys of seeds."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lgbench import Random, randomness
from lgbench.randomness import Stretch, blocks, device_of_data, key_of, quantiles, seeded, signed

CPU = torch.device("cpu")
MOST = 2**64 - 1

PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)),
    ((MOST, MOST, MOST, MOST), (MOST, MOST), (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0)),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]
"""Counter, key and block of philox4x64 with 10 rounds, from the file `kat_vectors` of Random123."""

words = st.integers(0, MOST) | st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, MOST])


def by_definition(counter, key) -> list[int]:
    """Philox4x64-10 in Python's whole numbers."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        first, third = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = third >> 64 ^ b ^ k, third & MOST, first >> 64 ^ d ^ m, first & MOST
        k, m = k + 0x9E3779B97F4A7C15 & MOST, m + 0xBB67AE8584CAA73B & MOST
    return [a, b, c, d]


def in_tensors(counter, key) -> list[int]:
    found = blocks(*(tuple(torch.tensor(signed(word)) for word in part) for part in (counter, key)))
    return [word % 2**64 for word in found.tolist()]


@pytest.mark.parametrize(("counter", "key", "block"), PUBLISHED)
def test_the_generator_gives_the_published_blocks(counter, key, block):
    assert tuple(in_tensors(counter, key)) == tuple(by_definition(counter, key)) == block


@given(counter=st.tuples(words, words, words, words), key=st.tuples(words, words))
def test_any_block_is_that_of_the_definition(counter, key):
    assert in_tensors(counter, key) == by_definition(counter, key)


class TensorsAlone:
    """Draws as a device other than the CPU does, in tensor operations alone."""

    def __init__(self, monkeypatch) -> None:
        def by_tensors(groups, stretch):
            return randomness.stretches(groups, stretch, randomness.table_of(groups, CPU))

        monkeypatch.setattr(randomness, "_by_numpy", by_tensors)


GROUPS = [(0, (0, 0)), (7, (MOST, 5)), (2**31 - 1, (3, MOST)), (2**32, (12345, 2**63))]
STRETCHES = [
    Stretch(0, 1, 0, 0),
    Stretch(0, 33, 2, 0),
    Stretch(2**32 - 3, 5, 0, 1),
    Stretch(2**33, 2, 2**32 - 1, 0),
    Stretch(2**32, 0, 1, 1),
]


@pytest.mark.parametrize("stretch", STRETCHES)
def test_stretches_are_the_same_by_numpy_by_tensors_and_by_definition(stretch):
    by_numpy = randomness.stretches(GROUPS, stretch, None)
    assert torch.equal(randomness.stretches(GROUPS, stretch, randomness.table_of(GROUPS, CPU)), by_numpy)
    for row, (step, key) in zip(by_numpy.tolist(), GROUPS, strict=True):
        numbers = range(stretch.first, stretch.first + stretch.length)
        expected = [by_definition((1 + n, stretch.call, step, stretch.branch), key) for n in numbers]
        assert row == [signed(word) for block in expected for word in block]


def everything(random: Random) -> list[Tensor]:
    """A little of all that can be drawn."""
    return [
        random.uniform(5),
        random.uniform(2, 3, dtype=torch.float64),
        random.integers(10, 3),
        random.integers(torch.tensor([1, 2, 7]), 3),
        random.normal(7),
        random.permutations(6),
        random.permutations(9, 2),
        random.categorical(torch.tensor([0.1, 0.0, 0.9]).expand(random.n, 2, 3)),
        random.branch().integers(1000, 4),
        random.uniform(),
        random.uniform(0),
    ]


def test_other_devices_draw_the_same(monkeypatch):
    keys = [key_of(seed) for seed in (3, 4)]
    expected = everything(Random.stacked(keys, 5, steps=[2, 9], first=1))
    TensorsAlone(monkeypatch)
    for own, same in zip(everything(Random.stacked(keys, 5, steps=[2, 9], first=1)), expected, strict=True):
        assert own.dtype == same.dtype and torch.equal(own, same)


@pytest.mark.slow
def test_on_another_device_nothing_is_read_back():
    """On the meta device there are shapes and no values: whatever asked for one would fail."""
    random = Random.stacked([key_of(0), key_of(1)], 3, steps=[0, 1], device="meta")
    assert random.n == 12
    for drawn in (random.uniform(5), random.integers(10, 3), random.permutations(6), random.branch().normal(2, 2)):
        assert drawn.device.type == "meta" and len(drawn) == 12


@pytest.mark.parametrize(("first", "n"), [(0, 1), (0, 40), (17, 3), (39, 1), (5, 0)])
@pytest.mark.parametrize(("seed", "step"), [(0, 4), (2, 11), (1, 0)])
def test_a_context_has_the_same_numbers_alone_and_among_others(seed, step, first, n):
    keys, steps = [key_of(seed) for seed in range(3)], [4, 0, 11]
    together = everything(Random.stacked(keys, 40, steps))
    alone = everything(Random.stacked([keys[seed]], n, [step], first))
    start = (steps.index(step) * 3 + seed) * 40 + first
    for own, among in zip(alone, together, strict=True):
        assert torch.equal(own, among[start : start + n])


@pytest.mark.parametrize("part", [slice(3), slice(3, 9), slice(9, None), slice(-2, None), slice(5, 5), slice(None)])
def test_some_of_the_contexts_have_the_numbers_that_they_have_among_all(part):
    whole, some = Random.stacked([key_of(0), key_of(1)], 7), Random.stacked([key_of(0), key_of(1)], 7)[part]
    assert some.n == len(range(14)[part])
    for own, among in zip(everything(some), everything(whole), strict=True):
        assert torch.equal(own, among[part])
    twice = Random(9)[2:][:3]
    assert torch.equal(twice.integers(99, 4), Random(9).integers(99, 4)[2:5])
    with pytest.raises(ValueError, match="first and their last"):
        Random(9)[::2]


def test_every_call_has_numbers_of_its_own_whoever_makes_it():
    random = Random(4)
    part, branch, other = random[:2], random.branch(), random.branch()
    drawn = [each.uniform(6)[:2] for each in (random, part, random, branch, branch, other, random.branch())]
    values = torch.stack(drawn).flatten().tolist()
    assert len(set(values)) == len(values)


def test_a_branch_may_be_drawn_from_as_often_as_one_likes():
    def after(rounds: int) -> Tensor:
        random = Random(3)
        random.integers(5, 2)
        branch = random.branch()
        for _ in range(rounds):
            branch.uniform(7)
        return torch.cat([random.uniform(4), random.branch().uniform(4)])

    assert torch.equal(after(0), after(5))


def chi_square(counts: Tensor, expected: float | Tensor) -> float:
    return ((counts - expected).square() / expected).sum().item()


def bound(freedom: int) -> float:
    """Six standard deviations above the mean."""
    return freedom + 6 * (2 * freedom) ** 0.5


STREAMS = {
    "one context": lambda draw: draw(Random(1), 60_000),
    "many contexts": lambda draw: draw(Random(60_000), 1),
    "neighbouring steps": lambda draw: draw(Random.stacked([(0, 0)], 1, range(6000)), 10),
    "neighbouring keys": lambda draw: draw(Random.stacked([(key, 0) for key in range(6000)], 1), 10),
    "calls": lambda draw: torch.cat([draw(random, 600) for random in [Random(1)] for _ in range(100)]),
    "branches": lambda draw: torch.cat([draw(random.branch(), 600) for random in [Random(1)] for _ in range(100)]),
    "where a counter passes 2^32": lambda draw: draw(Random.stacked([(1, 2)], 60_000, first=2**35 - 30_000), 1),
}


@pytest.mark.parametrize("numbers", STREAMS.values(), ids=STREAMS)
def test_numbers_are_uniform_and_neighbours_independent(numbers):
    for bins, draw in ((64, lambda r, m: r.uniform(m) * 64), (37, lambda r, m: r.integers(37, m))):
        drawn = numbers(draw).flatten().long()
        assert len(drawn) == 60_000
        assert chi_square(torch.bincount(drawn, minlength=bins), 60_000 / bins) < bound(bins - 1)
        few = drawn * 8 // bins
        pairs = torch.bincount(few[::2] * 8 + few[1::2], minlength=64)
        shares = torch.bincount(torch.arange(bins) * 8 // bins, minlength=8) / bins
        assert chi_square(pairs, 30_000 * torch.outer(shares, shares).flatten()) < bound(63)


def test_uniform_numbers_lie_on_the_grid_that_is_promised():
    for dtype, digits in ((torch.float32, 24), (torch.float64, 53)):
        drawn = Random(100, 1).uniform(1000, dtype=dtype)
        assert drawn.dtype is dtype and drawn.min() >= 0 and drawn.max() < 1
        steps = drawn.double() * 2**digits
        assert torch.equal(steps, steps.round()) and (steps % 2 == 1).double().mean().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("high", [1, 2, 3, 1000, 2**31 - 1, 2**31])
def test_integers_are_below_their_bound(high):
    drawn = Random(10, 2).integers(high, 1000)
    assert drawn.dtype is torch.int64 and drawn.min() >= 0 and drawn.max() < high
    assert drawn.double().mean().item() == pytest.approx((high - 1) / 2, abs=0.02 * high)


@pytest.mark.parametrize("high", [0, -3, 2**31 + 1])
def test_integers_below_an_impossible_bound_are_refused(high):
    with pytest.raises(ValueError, match=f"below {high} here: `high` is from 1 to 2\\^31"):
        Random(1).integers(high, 3)


def test_normal_numbers_have_the_moments_and_the_shares_of_the_normal_distribution():
    drawn = Random(100, 3).normal(4000).double().flatten()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt(math.prod(range(1, 4 * power, 2)) / len(drawn))  # E x^(2 power) = (2 power - 1)!!
        assert abs((drawn**power).mean().item() - moment) < 6 * spread
    edges = torch.linspace(-2.998, 2.998, 13, dtype=torch.float64)  # between two multiples of 1/256
    shares = torch.special.ndtr(torch.cat([edges, torch.tensor([math.inf])])).diff(prepend=torch.zeros(1))
    assert chi_square(torch.bincount(torch.bucketize(drawn, edges), minlength=14), len(drawn) * shares) < bound(13)


def test_the_table_of_normal_numbers_is_that_of_the_standard_library():
    from statistics import NormalDist

    table = quantiles(CPU)
    for i in (0, 1, 77, 20_000, 32_767, 32_768, 65_535):
        assert table[i].item() == pytest.approx(NormalDist().inv_cdf((i + 0.5) / 65_536), abs=2**-9)
    assert torch.equal(table, -table.flip(0)) and torch.equal(table * 256, (table * 256).round())


@pytest.mark.parametrize(("size", "first"), [(4, None), (4, 2), (5, 1), (3, 3)])
def test_all_orders_are_equally_likely(size, first):
    drawn = Random(12_000, 5).permutations(size, first)
    counts = Counter(map(tuple, drawn.tolist()))
    orders = set(permutations(range(size), size if first is None else first))
    assert counts.keys() == orders
    assert chi_square(torch.tensor(list(counts.values())), 12_000 / len(orders)) < bound(len(orders) - 1)


def test_what_is_drawn_has_the_frequencies_of_its_distribution_and_is_never_impossible():
    distribution = torch.tensor([[0.5, 0.0, 0.3, 0.2, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.01, 0.09, 0.4, 0.25, 0.25]])
    n = 20_000
    drawn = Random(n).categorical(distribution.expand(n, 3, 5))
    assert drawn.shape == (n, 3) and drawn.dtype == torch.int64
    for column, p in zip(drawn.T, distribution, strict=True):
        counts = torch.bincount(column, minlength=5)
        assert not counts[p == 0].any()
        assert chi_square(counts[p > 0], n * p[p > 0]) < bound(4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_one_answer_of_a_distribution_is_drawn_and_later_draws_stay_the_same(dtype):
    answers = torch.arange(1000).remainder(977).view(500, 2)
    certain = torch.nn.functional.one_hot(answers, 1001).to(dtype)
    random, other = Random(500), Random(500)
    assert torch.equal(random.categorical(certain), answers)
    unsure = certain.clone()
    unsure[499, 1, :2] = 1.0  # in the last of the chunks
    found = other.categorical(unsure)
    assert found[499, 1] in (0, 1, answers[499, 1]) and torch.equal(found.flatten()[:-1], answers.flatten()[:-1])
    assert torch.equal(random.uniform(3), other.uniform(3))


def test_an_answer_beside_one_of_probability_1_is_drawn_as_often_as_it_says():
    distribution = torch.tensor([[1.0, 0.0], [1.0, 1.0]])  # sums need not be 1
    drawn = Random(4000).categorical(distribution.expand(4000, 2, 2))
    assert not drawn[:, 0].any() and 1800 < drawn[:, 1].sum() < 2200


def test_the_default_type_of_numbers_is_not_looked_at():
    expected = everything(Random(3))
    torch.set_default_dtype(torch.float64)
    try:
        found = everything(Random(3))
    finally:
        torch.set_default_dtype(torch.float32)
    for own, same in zip(found, expected, strict=True):
        assert own.dtype == same.dtype and torch.equal(own, same)


def test_no_global_generator_is_read_or_set():
    before = torch.get_rng_state(), repr(np.random.get_state())
    first = everything(Random(3))
    torch.manual_seed(1)
    np.random.seed(1)
    after = torch.get_rng_state(), repr(np.random.get_state())
    assert all(map(torch.equal, first, everything(Random(3))))
    assert torch.equal(torch.get_rng_state(), after[0]) and repr(np.random.get_state()) == after[1]
    assert before[1] != after[1]


def test_data_are_drawn_where_models_are_but_for_mps():
    assert device_of_data(torch.device("mps")) == CPU
    assert device_of_data(torch.device("cuda", 1)) == torch.device("cuda", 1)


ASKED = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "ab"), (0, "b", "a"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1), (0,)]


def test_seeds_and_keys_are_the_same_in_every_release_and_depend_on_every_word():
    assert key_of(0, "weights") == (15662360612416451607, 14875898992532668009)
    assert key_of(7, "train", "tomita-1", 64)[0] >> 1 == 427213190682232795
    keys = [word for words in ASKED for word in key_of(*words)]
    assert len({*keys}) == 2 * len(ASKED) and all(0 <= word < 2**64 for word in keys)


def test_initial_decides_weights_whatever_the_global_state_was_and_restores_it():
    built = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        with seeded(5, "weights"):
            built.append(torch.nn.Linear(3, 3).weight.detach())
        assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(*built)


def test_initial_restores_the_global_state_after_an_error():
    before = torch.random.get_rng_state()
    with pytest.raises(KeyError), seeded(5, "weights"):
        torch.rand(3)
        raise KeyError
    assert torch.equal(before, torch.random.get_rng_state())


def test_initial_leaves_the_generators_of_other_devices_alone(monkeypatch):
    """`torch.manual_seed` seeds those of CUDA, now or when CUDA starts."""
    asked = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", asked.append)
    monkeypatch.setattr(torch, "manual_seed", asked.append)
    with seeded(5, "weights"):
        torch.nn.Linear(3, 3)
    assert not asked
