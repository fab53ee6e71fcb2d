from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from helpers.uniform import looks_uniform

from lgbench import Random, UsageError
from lgbench.extensions.registry import Registry
from lgbench_tasks.dyck import Dyck

LISTED = [(1, 8), (2, 3), (2, 5), (8, 5)]
SIZES = [*LISTED, (3, 4), (1, 1), (5, 1)]


def stack_after(symbols: Sequence[int], kinds: int, depth: int) -> list[int] | None:
    """The open brackets, None once the string is no prefix of the language."""
    stack: list[int] = []
    for symbol in symbols:
        if symbol < kinds:
            stack.append(symbol)
            if len(stack) > depth:
                return None
        elif not stack or stack.pop() != symbol - kinds:
            return None
    return stack


def is_member(symbols: Sequence[int], kinds: int, depth: int) -> bool:
    return stack_after(symbols, kinds, depth) == []


def hewitt(prefix: Sequence[int], kinds: int, depth: int) -> list[float]:
    stack = stack_after(prefix, kinds, depth)
    assert stack is not None
    end = 0.0 if stack else 0.5
    opening = 0.0 if len(stack) == depth else 0.5
    closing = [0.0] * kinds
    if stack:
        closing[stack[-1]] = 1 - opening
    return [opening / kinds] * kinds + closing + [end]


def members_of(length: int, kinds: int, depth: int) -> set[tuple[int, ...]]:
    return {symbols for symbols in product(range(2 * kinds), repeat=length) if is_member(symbols, kinds, depth)}


def paths(length: int, depth: int) -> int:
    """How many ways there are up and down from the ground to the ground, never above `depth`."""
    ways = [1] + [0] * depth
    for _ in range(length):
        ways = [(ways[at - 1] if at else 0) + (ways[at + 1] if at < depth else 0) for at in range(depth + 1)]
    return ways[0]


def without_begin(inputs: torch.Tensor, kinds: int) -> list[tuple[int, ...]]:
    assert (inputs[:, 0] == 2 * kinds).all()
    return [tuple(row) for row in inputs[:, 1:].tolist()]


@pytest.mark.parametrize(("kinds", "depth", "longest"), [(1, 8, 12), (1, 2, 12), (2, 3, 7), (2, 1, 6), (3, 4, 5)])
def test_membership_agrees_with_a_stack_on_every_short_string(kinds: int, depth: int, longest: int) -> None:
    for length in range(longest + 1):
        strings = list(product(range(2 * kinds), repeat=length))
        symbols = torch.tensor(strings, dtype=torch.int64)
        assert Dyck(kinds, depth).accepts(symbols).tolist() == [is_member(string, kinds, depth) for string in strings]


@pytest.mark.parametrize(("kinds", "depth"), SIZES)
def test_a_long_member_is_never_rejected_and_one_wrong_bracket_always_is(kinds: int, depth: int) -> None:
    task = Dyck(kinds, depth)
    members = task.uniform(80, Random(40), True)
    assert all(is_member(string, kinds, depth) for string in members.tolist())
    assert task.accepts(members).all()
    at = torch.arange(40)
    spoilt = members.clone()
    spoilt[at, 2 * at] = (spoilt[at, 2 * at] + 1) % (2 * kinds)
    assert not task.accepts(spoilt).any()


@pytest.mark.parametrize(("kinds", "depth"), SIZES)
def test_the_answer_is_hewitts_distribution_given_the_stack(kinds: int, depth: int) -> None:
    inputs, distribution, _ = Dyck(kinds, depth).sample(40, Random(40, kinds + depth))
    assert distribution.shape == (40, 41, 2 * kinds + 1)
    for string, rows in zip(without_begin(inputs, kinds), distribution.tolist(), strict=True):
        for end, row in enumerate(rows):
            assert row == pytest.approx(hewitt(string[:end], kinds, depth)), string[:end]


@pytest.mark.parametrize(("kinds", "depth"), [(1, 8), (2, 3), (3, 2)])
def test_a_walk_goes_on_as_the_answer_says_given_that_it_does_not_end(kinds: int, depth: int) -> None:
    inputs, _, _ = Dyck(kinds, depth).sample(4, Random(6000, 3))
    steps = Counter((string[:end], string[end]) for string in without_begin(inputs, kinds) for end in range(4))
    for prefix in {prefix for prefix, _ in steps}:
        total = sum(steps[prefix, symbol] for symbol in range(2 * kinds))
        *chances, end = hewitt(prefix, kinds, depth)
        for symbol, chance in enumerate(chances):
            expected = chance / (1 - end)
            assert abs(steps[prefix, symbol] - expected * total) <= 5 * (expected * (1 - expected) * total) ** 0.5, prefix


@pytest.mark.parametrize(("kinds", "depth", "length"), [(1, 8, 10), (1, 2, 10), (2, 3, 6), (2, 2, 6), (3, 4, 4), (3, 1, 4)])
def test_members_are_uniform_among_all_of_their_length(kinds: int, depth: int, length: int) -> None:
    members = members_of(length, kinds, depth)
    assert len(members) == paths(length, depth) * kinds ** (length // 2)
    assert Dyck(kinds, depth).levels.count(length) == paths(length, depth)
    inputs, label = Dyck(kinds, depth).strings(length, Random(12000, 7))
    assert looks_uniform(without_begin(inputs[label], kinds), members)


@pytest.mark.parametrize(("kinds", "depth"), SIZES)
@pytest.mark.parametrize("count", [40, 41])
def test_the_first_half_are_members_and_the_rest_are_not(kinds: int, depth: int, count: int) -> None:
    for length in (6, 60):
        inputs, label = Dyck(kinds, depth).strings(length, Random(count, 1))
        assert inputs.shape == (count, length + 1)
        assert label.tolist() == [is_member(string, kinds, depth) for string in without_begin(inputs, kinds)]
        assert label.sum() == count // 2


def test_half_of_the_non_members_are_members_with_one_to_three_edits() -> None:
    # In dyck-8-1 the members are (a a)(b b)...: the fewest edits back can be counted pair by pair.
    inputs, label = Dyck(8, 1).strings(40, Random(400))

    def edits(string: tuple[int, ...]) -> int:
        pairs = zip(string[::2], string[1::2], strict=True)
        return sum(0 if b == a + 8 else 1 if a < 8 or b >= 8 else 2 for a, b in pairs)

    needed = [edits(string) for string in without_begin(inputs[~label], 8)]
    assert min(needed) >= 1
    assert sum(few <= 3 for few in needed) == 100


@pytest.mark.parametrize(("kinds", "depth"), [(1, 1), (1, 8), (2, 3)])
def test_the_testable_length_is_the_nearest_with_members_and_others_and_the_longer_of_two(kinds: int, depth: int) -> None:
    testable = [n for n in range(9) if 0 < len(members_of(n, kinds, depth)) < (2 * kinds) ** n]
    for length in range(7):
        nearest = min(testable, key=lambda other: (abs(other - length), -other))
        assert Dyck(kinds, depth).testable_length(length) == nearest


def test_odd_lengths_have_no_members_and_are_refused() -> None:
    with pytest.raises(ValueError, match="no member of length 7"):
        Dyck(2, 3).strings(7, Random(4))


def test_any_size_can_be_had_by_name(registry: Registry) -> None:
    task = registry.tasks["dyck-3-4"]
    assert (task.name, task.signature.classes) == ("dyck-3-4", 7)
    inputs, distribution, _ = task.sample(30, Random(20))
    for string, rows in zip(without_begin(inputs, 3), distribution.tolist(), strict=True):
        assert rows[-1] == pytest.approx(hewitt(string, 3, 4))


def test_the_listed_sizes_are_one_family_and_others_are_not_of_it(registry: Registry) -> None:
    assert {registry.tasks[f"dyck-{kinds}-{depth}"].family for kinds, depth in LISTED} == {"dyck"}
    assert registry.tasks["dyck-3-4"].family != "dyck"


@pytest.mark.parametrize("name", ["dyck-0-3", "dyck-2-0", "dyck-1001-3"])
def test_impossible_sizes_are_refused_with_what_would_work(registry: Registry, name: str) -> None:
    with pytest.raises(UsageError, match=f"no task '{name}': .*from 1 to 1000"):
        registry.tasks[name]
