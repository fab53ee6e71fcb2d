"""Counter languages, against brute force from their rules alone."""

from __future__ import annotations

import math
import re
from collections import Counter as Occurrences

import pytest
from languages_pack_cases import compare, strings, text
from scipy.stats import chisquare

from lgbench import Language, Random
from lgbench.errors import UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.describe import page
from lgbench.extensions.registry import Registry
from lgbench_languages.boolean import OPERATORS, Boolean
from lgbench_languages.counter import Counter
from lgbench_languages.shuffle import PAIRS, Shuffle

TASKS: dict[str, Language] = {
    task.name: task for task in (Counter(2), Counter(3), Counter(4), *map(Shuffle, (1, 2, 4, 6)), *map(Boolean, (1, 2, 3)))
}


def blocks_are_equal(string: str, letters: str) -> bool:
    found = re.fullmatch("".join(f"({letter}+)" for letter in letters), string)
    return found is not None and len(set(map(len, found.groups()))) == 1


def each_type_is_nested(string: str, kinds: int) -> bool:
    """Each type alone vanishes when adjacent pairs are crossed out."""
    for pair in PAIRS[:kinds]:
        alone = "".join(bracket for bracket in string if bracket in pair)
        while pair in alone:
            alone = alone.replace(pair, "")
        if alone:
            return False
    return True


def is_expression(string: str) -> bool:
    """From the end, with a stack of finished expressions."""
    stack: list[str] = []
    for symbol in reversed(string):
        arguments = OPERATORS.index(symbol) + 1 if symbol in OPERATORS else 0
        if len(stack) < arguments:
            return False
        stack[len(stack) - arguments :] = [symbol]
    return len(stack) == 1


def is_member(task: Language, string: str) -> bool:
    if isinstance(task, Counter):
        return blocks_are_equal(string, "".join(task.symbols))
    return each_type_is_nested(string, task.kinds) if isinstance(task, Shuffle) else is_expression(string)


def endings(task: Language) -> list[str]:
    """Endings of which one makes a member of each prefix of up to 13 symbols that can become one."""
    if isinstance(task, Counter):
        rest = [("".join(letter * n for letter in task.symbols)) for n in range(1, 15)]
        return sorted({member[start:] for member in rest for start in range(len(member) + 1)}, key=len)
    if isinstance(task, Boolean):
        return ["0" * values for values in range(30)]
    return [""]  # brackets are closed below


@pytest.mark.parametrize("name", [name for name in TASKS if not name.startswith("shuffle")])
def test_p_is_that_of_the_published_rule_on_a_thousand_contexts(name: str) -> None:
    task = TASKS[name]
    lengths = range(task.train_lengths[0], 13)  # a^n b^n has one context for each length
    for length in lengths:
        batch = task.sample(length, Random(math.ceil(1000 / len(lengths)), length))
        compare(task, batch, lambda string: is_member(task, string), endings(task))


@pytest.mark.parametrize("kinds", [1, 2, 4, 6])
def test_p_of_shuffles_is_that_of_the_published_rule_on_a_thousand_contexts(kinds: int) -> None:
    """A prefix can become a member where closing all that is open, in any order, makes it one."""
    task = Shuffle(kinds)

    def goes_on(string: str) -> bool:
        rest = "".join(max(string.count(opens) - string.count(closes), 0) * closes for opens, closes in PAIRS[:kinds])
        return each_type_is_nested(string + rest, kinds)

    for length in range(13):
        batch = task.sample(length, Random(77, length))
        for row, answers in zip(batch.inputs, batch.distribution.tolist(), strict=True):
            string = text(task, row)
            for end, p in enumerate(answers):
                prefix = string[:end]
                legal = [*(goes_on(prefix + symbol) for symbol in task.symbols), each_type_is_nested(prefix, kinds)]
                assert p == pytest.approx([allowed / sum(legal) for allowed in legal]), prefix


@pytest.mark.parametrize(
    ("name", "length"),
    [("counter-2", 6), ("counter-3", 6), ("shuffle-1", 10), ("shuffle-2", 6), ("shuffle-4", 4), ("shuffle-6", 4)]
    + [("boolean-1", 4), ("boolean-2", 6), ("boolean-3", 5)],
)
def test_members_and_others_are_uniform_among_all_of_their_length(name: str, length: int) -> None:
    task = TASKS[name]
    every = [string for string in strings(task.answers[:-1], length) if len(string) == length]
    for member in (True, False):
        expected = {string for string in every if is_member(task, string) == member}
        n = min(200 * len(expected), 40000)
        drawn = task.begin(task.uniform(length, Random(n, 5), member))  # type: ignore[attr-defined]
        found = Occurrences(text(task, row) for row in drawn)
        mean = n / len(expected)
        assert found.keys() <= expected
        assert all(abs(found[string] - mean) <= 6 * max(1, mean**0.5) for string in expected)


@pytest.mark.parametrize("name", TASKS)
def test_long_strings_are_members_and_others_as_they_are_said_to_be(name: str) -> None:
    task = TASKS[name]
    length = task.testable_length(60)
    inputs, right = task.strings(length, Random(40))
    assert [is_member(task, text(task, row)) for row in inputs] == right.tolist()


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_each_bracket_of_a_context_is_uniform_over_those_that_may_follow(kinds: int) -> None:
    law = {"": 1.0}
    for _ in range(4):
        law = {
            prefix + bracket: p / len(may_follow(prefix, kinds))
            for prefix, p in law.items()
            for bracket in may_follow(prefix, kinds)
        }
    task, n = Shuffle(kinds), 20_000
    drawn = Occurrences(text(task, row) for row in task.sample(4, Random(n, seed=kinds)).inputs)
    assert drawn.keys() <= law.keys()
    assert chisquare([drawn[context] for context in law], [n * p for p in law.values()]).pvalue > 0.001


def may_follow(prefix: str, kinds: int) -> list[str]:
    """Every opening bracket, and the closing ones of types with an open one."""
    closing = [close for open_, close in PAIRS[:kinds] if prefix.count(open_) > prefix.count(close)]
    return [open_ for open_, _ in PAIRS[:kinds]] + closing


def test_brackets_of_two_types_cross() -> None:
    task = Shuffle(2)
    drawn = {text(task, row) for row in task.sample(4, Random(500)).inputs}
    members = {text(task, row) for row in task.begin(task.uniform(4, Random(500), True))}
    assert "([)]" in drawn and "([)]" in members


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("counter-1", "counter-K takes a number of blocks K from 2 to 26, as in counter-4"),
        ("counter-02", "counter-K takes"),
        ("shuffle-11", "shuffle-K takes a number of bracket types K from 1 to 10, as in shuffle-3"),
        ("boolean-4", "boolean-K takes operators with up to K arguments, K from 1 to 3, as in boolean-2"),
    ],
)
def test_impossible_siblings_are_refused_with_the_reason(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"no task '{name}': {said}"):
        Registry.load().tasks[name]


def test_unlisted_siblings_are_made() -> None:
    tasks = Registry.load().tasks
    assert tasks["counter-5"].answers[:5] == ("a", "b", "c", "d", "e") and tasks["shuffle-1"].answers == ("(", ")", "end")
    assert tasks["boolean-1"].answers == ("~", "0", "1", "end")


@pytest.mark.parametrize(("name", "length"), [("counter-3", 7), ("shuffle-2", 7), ("boolean-2", 0)])
def test_a_length_without_a_member_is_refused(name: str, length: int) -> None:
    with pytest.raises(ValueError, match=f"there is no member of length {length}"):
        TASKS[name].strings(length, Random(4))


def test_longer_blocks_are_tested_on_longer_contexts_than_trained_on() -> None:
    for task in map(Counter, (3, 9, 26)):
        for protocol in PROTOCOLS.values():
            train, evaluate = protocol.settings(task)
            assert evaluate.max_length >= 3 * train.max_length


def test_a_task_without_short_contexts_is_shown_at_its_shortest() -> None:
    assert page("counter-26", Registry.load()).endswith("  abcdefghijklm\n    n: 1")


def test_operators_with_one_argument_make_a_regular_language() -> None:
    facts = Boolean(1).facts
    assert facts and (facts.kind, facts.chomsky) == ("star-free", "regular")
    assert "1 argument" in Boolean(1).about and Boolean(2).about.endswith("2 arguments")
