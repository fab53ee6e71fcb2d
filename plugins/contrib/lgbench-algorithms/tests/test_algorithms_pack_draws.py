"""Drawn questions, against enumeration and uniform distributions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from itertools import product
from string import ascii_letters, ascii_lowercase

import pytest
import torch

import lgbench_algorithms
from lgbench import Random
from lgbench_algorithms.binary import bits_of, integers, positive
from lgbench_algorithms.brackets import expressions
from lgbench_algorithms.layouts import Problem
from lgbench_algorithms.majority import with_one_mode

TASKS = {task.name: task for task in lgbench_algorithms.lgbench_tasks() if isinstance(task, Problem)}
DRAWS = 20_000
FAR = 5
"""Allowed deviation of a frequency, in standard deviations."""


def assert_distributed(found: Counter[str], expected: Mapping[str, float]) -> None:
    n = found.total()
    assert found.keys() <= expected.keys()
    for outcome, p in expected.items():
        assert abs(found[outcome] - n * p) <= FAR * math.sqrt(n * p * (1 - p)) + 1e-9, outcome


@cache
def shapes(length: int, operators: str) -> dict[str, Fraction]:
    """Probabilities of expressions with their digits hidden, by the recursive rule."""
    if length < 5:
        return {("d", "-d", "(d)", "(-d)")[length - 1]: Fraction(1)}
    found: defaultdict[str, Fraction] = defaultdict(Fraction)
    for left in range(1, length - 3):
        parts = product(shapes(left, operators).items(), operators, shapes(length - left - 3, operators).items())
        for (a, p), operator, (b, q) in parts:
            found[f"({a}{operator}{b})"] += p * q / (length - 4) / len(operators)
    return dict(found)


@pytest.mark.parametrize("length", [5, 8, 11])
@pytest.mark.parametrize("operators", ["+-", "+-*"])
def test_expressions_are_distributed_as_the_recursive_rule_says(length: int, operators: str) -> None:
    tokens, _ = expressions(length, len(operators), Random(DRAWS))
    drawn = ("".join("ddddd+-*()"[token] for token in row) for row in tokens.tolist())
    assert_distributed(Counter(drawn), {shape: float(p) for shape, p in shapes(length, operators).items()})


def test_digits_of_expressions_are_uniform() -> None:
    tokens, _ = expressions(20, 3, Random(2000))
    assert_distributed(Counter(map(str, tokens[tokens < 5].tolist())), dict.fromkeys("01234", 0.2))


@pytest.mark.parametrize(
    ("name", "length", "pattern", "outcomes"),
    [
        ("stack-manipulation", 9, r"[01]*", 8),  # the first stack has 1 to 8 symbols
        ("binary-addition", 9, r"[01]*", 7),
        ("binary-multiplication", 9, r"[01]*", 7),
        ("missing-duplicate", 8, r"[01]*", 8),
        ("binary-addition-written", 9, r"[01]*", 6),
    ],
)
def test_a_size_or_place_is_uniform(name: str, length: int, pattern: str, outcomes: int) -> None:
    task = TASKS[name]
    texts = (
        task.text(row).replace("push-", "p").removeprefix("begin ").replace(" ", "")
        for row in task.draw(length, Random(DRAWS))[0]
    )
    found = Counter(str(len(re.match(pattern, text)[0])) for text in texts)  # type: ignore[index]
    assert len(found) == outcomes
    assert_distributed(found, dict.fromkeys(found, 1 / outcomes))


@pytest.mark.parametrize(
    ("name", "length", "pattern", "outcomes"),
    [
        ("decimal-addition", 3, r"\d", range(10)),
        ("decimal-addition-hints", 4, r"^h(\d+)", range(3, 255)),  # of five hints of a sum the lowest is 0 to 251
        ("count", 3, r"^\d+", range(198)),
        ("modular-arithmetic", 5, r"\d", range(5)),
        ("modular-arithmetic", 5, r"[-+*]", "-+*"),
        ("stack-manipulation", 6, r"[a-z]\S+", ("pop", "push-0", "push-1")),
        ("majority", 1, r"[a-z]", ascii_lowercase),
        ("mode", 1, r"[a-zA-Z]", ascii_letters),
    ],
)
def test_symbols_are_uniform(name: str, length: int, pattern: str, outcomes: Iterable[object]) -> None:
    task = TASKS[name]
    texts = (task.text(row).removeprefix("begin ") for row in task.draw(length, Random(DRAWS))[0])
    every = list(map(str, outcomes))
    assert_distributed(
        Counter(one for text in texts for one in re.findall(pattern, text)), dict.fromkeys(every, 1 / len(every))
    )


def test_a_string_with_a_mode_has_five_letters() -> None:
    assert {len(set(row)) for row in TASKS["mode"].draw(60, Random(500))[0].tolist()} == {5}


@pytest.mark.parametrize(("name", "length"), [("binary-majority", 6), ("binary-majority", 7), ("parity-uniform-ones", 6)])
def test_the_number_of_ones_is_uniform_without_ties(name: str, length: int) -> None:
    task = TASKS[name]
    ones = (task.draw(length, Random(DRAWS))[0] == task.symbols.index("1")).sum(1)
    counts = [count for count in range(length + 1) if name != "binary-majority" or 2 * count != length]
    assert_distributed(Counter(map(str, ones.tolist())), {str(count): 1 / len(counts) for count in counts})


def test_bits_with_one_one_have_it_anywhere() -> None:
    bits = TASKS["parity-uniform-ones"].draw(5, Random(DRAWS))[0] == 3
    places = bits[bits.sum(1) == 1].nonzero()[:, 1]
    assert_distributed(Counter(map(str, places.tolist())), {str(place): 0.2 for place in range(5)})


def test_positive_numbers_are_uniform() -> None:
    numbers = integers(positive(Random(DRAWS), 3, lambda bits: ~bits.any(1)))
    assert_distributed(Counter(map(str, numbers)), {str(number): 1 / 7 for number in range(1, 8)})


@pytest.mark.parametrize("length", [1, 2, 5])
def test_strings_with_one_mode_are_uniform(length: int) -> None:
    legal = []
    for string in product("012", repeat=length):
        (_, most), *others = Counter(string).most_common(2)
        if all(second < most for _, second in others):
            legal.append("".join(string))
    strings, modes = with_one_mode(3, length, Random(DRAWS))
    drawn = ["".join(map(str, row)) for row in strings.tolist()]
    assert_distributed(Counter(drawn), dict.fromkeys(legal, 1 / len(legal)))
    assert all(Counter(row).most_common(1)[0][0] == str(mode) for row, (mode,) in zip(drawn, modes.tolist(), strict=True))


def test_numbers_of_any_size_survive_their_bits() -> None:
    numbers = [0, 1, 5, 2**63, 2**64 - 1, 3**200]
    assert integers(bits_of(numbers, 320, torch.device("cpu"))) == numbers


def test_the_unknown_is_the_next_digit_after_a_uniform_place() -> None:
    questions, _ = TASKS["solve-equation"].draw(7, Random(DRAWS))
    drawn = Counter(TASKS["solve-equation"].text(row).replace(" ", "") for row in questions)
    # (d+d): of five places the bracket, the digit and, around the end, the last bracket lead to the first one
    assert set(map(len, drawn)) == {7}
    first = sum(count for text, count in drawn.items() if text[1] == "x")
    assert_distributed(Counter({"first": first, "second": DRAWS - first}), {"first": 0.6, "second": 0.4})


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.train_lengths[0] > 1])
def test_a_length_without_a_question_is_refused(name: str) -> None:
    shortest = TASKS[name].train_lengths[0]
    with pytest.raises(ValueError, match=f"{name} has no question of length {shortest - 1}: the shortest has {shortest}"):
        TASKS[name].sample(shortest - 1, Random(2))
