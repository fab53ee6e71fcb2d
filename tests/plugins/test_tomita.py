from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import groupby, product

import pytest
import torch
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from helpers.uniform import looks_uniform

from lgbench import Random
from lgbench_tasks.tomita import Tomita

NUMBERS = range(1, 8)
LONGEST = 12
LIVE_WITHIN = 3  # steps: from a prefix of any of the seven languages a member is at most 2 symbols away


def language(regex: str) -> DFA:
    return DFA.from_nfa(NFA.from_regex(regex, input_symbols={"0", "1"}), minify=True)


ODD_ONES_THEN_ODD_ZEROS = "((0|1)*0)?1(11)*0(00)*(1(0|1)*)?"
DFAS = {
    1: language("1*"),
    2: language("(10)*"),
    3: language("(0|1)*") - language(ODD_ONES_THEN_ODD_ZEROS),
    4: language("(1|01|001)*(0|00)?"),
    5: language("((00|11)|(01|10)(00|11)*(01|10))*"),
    6: language("(10|(0|11)(01)*(1|00))*"),
    7: language("0*1*0*1*"),
}


def has_no_odd_ones_then_odd_zeros(string: str) -> bool:
    runs = [(symbol, len(list(run)) % 2) for symbol, run in groupby(string)]
    return (("1", 1), ("0", 1)) not in zip(runs, runs[1:], strict=False)


@cache
def is_member(number: int, string: str) -> bool:
    zeros, ones = string.count("0"), string.count("1")
    return {
        1: zeros == 0,
        2: string == "10" * (len(string) // 2),
        3: has_no_odd_ones_then_odd_zeros(string),
        4: "000" not in string,
        5: zeros % 2 == 0 and ones % 2 == 0,
        6: (zeros - ones) % 3 == 0,
        7: len(list(groupby("0" + string))) <= 4,
    }[number]


@cache
def is_live(number: int, prefix: str) -> bool:
    endings = (ending for length in range(LIVE_WITHIN + 1) for ending in strings_of(length))
    return any(is_member(number, prefix + ending) for ending in endings)


def next_symbols(number: int, prefix: str) -> list[float]:
    """p* from predicates over whole strings: no automaton of the sampler's takes part."""
    legal = [is_live(number, prefix + "0"), is_live(number, prefix + "1"), is_member(number, prefix)]
    return [allowed / sum(legal) for allowed in legal]


@cache
def strings_of(length: int) -> list[str]:
    return ["".join(symbols) for symbols in product("01", repeat=length)]


def members_of(number: int, length: int) -> set[str]:
    return {string for string in strings_of(length) if is_member(number, string)}


def as_strings(inputs: torch.Tensor) -> list[str]:
    assert (inputs[:, 0] == 2).all()
    return ["".join(map(str, row)) for row in inputs[:, 1:].tolist()]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_automaton_has_the_language_of_the_regular_expression_at_all_lengths(number: int) -> None:
    table = Tomita(number).automaton.transitions.tolist()
    accepting = Tomita(number).automaton.accepting.tolist()
    ours = DFA(
        states=set(range(len(table))),
        input_symbols={"0", "1"},
        transitions={state: {"0": row[0], "1": row[1]} for state, row in enumerate(table)},
        initial_state=0,
        final_states={state for state, accepts in enumerate(accepting) if accepts},
    )
    assert ours == DFAS[number]


@pytest.mark.parametrize("number", NUMBERS)
def test_members_and_non_members_are_counted_rightly(number: int) -> None:
    automaton = Tomita(number).automaton
    counts = [automaton.count(length) for length in range(LONGEST + 1)]
    assert counts == [DFAS[number].count_words_of_length(length) for length in range(LONGEST + 1)]
    assert [automaton.count(length, member=False) for length in range(LONGEST + 1)] == [
        2**length - count for length, count in enumerate(counts)
    ]


@pytest.mark.parametrize("number", NUMBERS)
def test_an_answer_is_uniform_over_what_can_still_lead_to_a_member(number: int) -> None:
    inputs, distribution, _ = Tomita(number).sample(9, Random(300, number))
    seen = {}
    for string, rows in zip(as_strings(inputs), distribution.tolist(), strict=True):
        seen |= {string[:end]: row for end, row in enumerate(rows)}
    for prefix, row in seen.items():
        assert row == pytest.approx(next_symbols(number, prefix)), prefix


@pytest.mark.parametrize("number", NUMBERS)
def test_contexts_are_exactly_the_prefixes_of_members(number: int) -> None:
    inputs, _, _ = Tomita(number).sample(6, Random(2000, number))
    assert set(as_strings(inputs)) == {prefix for prefix in strings_of(6) if is_live(number, prefix)}


@pytest.mark.parametrize("number", NUMBERS)
def test_long_contexts_never_leave_the_language(number: int) -> None:
    inputs, distribution, _ = Tomita(number).sample(150, Random(20, number))
    assert all(is_live(number, string[:end]) for string in as_strings(inputs) for end in range(151))
    torch.testing.assert_close(distribution.sum(-1), torch.ones(20, 151))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_walk_goes_on_as_the_answer_says_given_that_it_does_not_end(number: int) -> None:
    inputs, _, _ = Tomita(number).sample(6, Random(4000, number))
    steps = Counter((string[:end], string[end]) for string in as_strings(inputs) for end in range(6))
    for prefix in {prefix for prefix, _ in steps}:
        zeros, ones = steps[prefix, "0"], steps[prefix, "1"]
        zero, one, _ = next_symbols(number, prefix)
        chance = zero / (zero + one)
        assert abs(zeros - chance * (zeros + ones)) <= 5 * (chance * (1 - chance) * (zeros + ones)) ** 0.5, prefix


@pytest.mark.parametrize(("number", "length"), [(1, 7), (2, 6), (3, 7), (4, 6), (5, 6), (6, 6), (7, 6)])
def test_members_are_uniform_among_all_of_their_length(number: int, length: int) -> None:
    inputs, label = Tomita(number).strings(length, Random(8000, number))
    assert looks_uniform(as_strings(inputs[label]), members_of(number, length))


@pytest.mark.parametrize("number", NUMBERS)
def test_uniform_non_members_are_uniform_among_all_of_their_length(number: int) -> None:
    task = Tomita(number)
    drawn = task.begin(task.uniform(6, Random(8000, number), False))
    assert looks_uniform(as_strings(drawn), set(strings_of(6)) - members_of(number, 6))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("count", [40, 41])
def test_the_first_half_are_members_and_the_rest_are_not(number: int, count: int) -> None:
    for length in (6, 60):
        inputs, label = Tomita(number).strings(length, Random(count, number))
        assert inputs.shape == (count, length + 1)
        assert label.tolist() == [is_member(number, string) for string in as_strings(inputs)]
        assert label.sum() == count // 2


def test_half_of_the_non_members_are_members_with_one_to_three_edits() -> None:
    # In 1* every edit leaves the language and a 0 is an edit; a uniform string of 60 has 3 or fewer with p < 1e-13.
    inputs, label = Tomita(1).strings(60, Random(2400))
    zeros = Counter(string.count("0") for string in as_strings(inputs[~label]))
    assert sum(zeros[edits] for edits in (1, 2, 3)) == 600
    assert all(150 < zeros[edits] < 250 for edits in (1, 2, 3))


def test_edits_stand_anywhere_in_the_string() -> None:
    inputs, label = Tomita(1).strings(10, Random(8000))
    few = [string for string in as_strings(inputs[~label]) if string.count("0") == 1]
    assert looks_uniform(few, {"1" * at + "0" + "1" * (9 - at) for at in range(10)})


@pytest.mark.parametrize("number", NUMBERS)
def test_the_testable_length_is_the_nearest_with_members_and_others_and_the_longer_of_two(number: int) -> None:
    testable = [length for length in range(LONGEST + 1) if 0 < len(members_of(number, length)) < 2**length]
    for length in range(LONGEST - 2):
        assert Tomita(number).testable_length(length) == min(testable, key=lambda other: (abs(other - length), -other))


def test_strings_of_a_length_without_members_are_refused() -> None:
    with pytest.raises(ValueError, match="no member of length 7"):
        Tomita(2).strings(7, Random(4))
