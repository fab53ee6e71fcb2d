"""Regular languages, against Python's regular expressions and against automata-lib."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
import torch
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from languages_pack_cases import compare, next_symbols, strings, text
from scipy.stats import chisquare

from lgbench import Answers, Language, Random
from lgbench_languages import language, regular
from lgbench_languages.regular import WithoutStrings
from lgbench_languages.suite import RULES, suite

SUITE = {task.name: task for task in suite()}
PUBLISHED: dict[str, Callable[[str], bool]] = {
    "regular-parity": lambda string: string.count("1") % 2 == 0,
    "regular-aa": lambda string: len(string) % 2 == 0,
    "regular-aaaa": lambda string: len(string) % 4 == 0,
    "regular-abab": lambda string: string == "abab" * (len(string) // 4),
    "regular-abcde": lambda string: list(string) == sorted(string) and {*string} == {*"abcde"},
    "regular-ab-d-bc": lambda string: (
        string.count("d") == 1 and "c" not in string.split("d")[0] and "a" not in string.split("d")[1]
    ),
    "regular-012-0-2": lambda string: string.rstrip("2").endswith("0"),
    **{f"regular-d-{n}": lambda string, n=n: is_nested(string, n) for n in (2, 3, 4, 12)},  # type: ignore[misc]
}
"""Membership as arXiv 2009.11264 has it."""
ENDS = ["a" * count + last for count in range(101) for last in ("", "b", "c")]
EVEN = {"start": "even", "accepting": ["even"], "transitions": {"even": {"a": "odd"}, "odd": {"a": "even", "b": "odd"}}}
Map = tuple[int, ...]


def is_nested(string: str, depth: int) -> bool:
    """Whether brackets a and b are balanced and at most so deep."""
    levels = [string[:end].count("a") - string[:end].count("b") for end in range(len(string) + 1)]
    return levels[-1] == 0 and min(levels) >= 0 and max(levels) <= depth


def endings_of(name: str) -> list[str]:
    """Endings of which one makes a member of each prefix that can become one."""
    depth = re.fullmatch(r"regular-d-(\d+)", name)
    if depth:
        return ["b" * count for count in range(int(depth[1]) + 1)]
    return strings(SUITE[name].answers[:-1], 4 if name == "regular-abcde" else 3)


@pytest.mark.parametrize("name", SUITE)
def test_p_is_that_of_the_published_rule_on_a_thousand_contexts(name: str) -> None:
    task = SUITE[name]
    lengths = range(task.train_lengths[0], 13)
    for length in lengths:
        compare(task, task.sample(length, Random(math.ceil(1000 / len(lengths)), length)), PUBLISHED[name], endings_of(name))


@pytest.mark.parametrize("depth", [2, 3, 4, 12])
def test_brackets_open_up_to_the_depth_and_no_further(depth: int) -> None:
    """Random contexts hardly ever reach a depth of 12."""
    task = SUITE[f"regular-d-{depth}"]
    for opened in range(depth + 1):
        legal = [float(opened < depth), float(opened > 0), float(opened == 0)]  # a, b, end
        for prefix in ("a" * opened, "a" * depth + "b" * (depth - opened)):
            assert list(task.reference(task.context(prefix))) == [each / sum(legal) for each in legal], prefix
    inputs = task.context("a" * depth + "b" * depth)[None]
    states = task.automaton.states(inputs[:, 1:])[0]
    opens = task.legal.on(inputs.device)[states][:, 0]
    assert opens.tolist() == [end != depth for end in range(2 * depth + 1)]


@pytest.mark.parametrize("name", ["regular-parity", "regular-d-3"])
def test_each_symbol_of_a_prefix_is_uniform_over_those_that_may_follow(name: str) -> None:
    task, n, law = SUITE[name], 20_000, {"": 1.0}
    for _ in range(5):
        following = {prefix: next_symbols(task, PUBLISHED[name], endings_of(name), prefix)[:-1] for prefix in law}
        law = {
            prefix + symbol: law[prefix] * p / sum(own)
            for prefix, own in following.items()
            for symbol, p in zip(task.answers[:-1], own, strict=True)
            if p
        }
    drawn = Counter(text(task, row) for row in task.sample(5, Random(n, 3)).inputs)
    assert drawn.keys() <= law.keys()
    assert chisquare([drawn[string] for string in law], [n * p for p in law.values()]).pvalue > 0.001


def test_runs_of_twos_are_of_any_length_after_either_symbol() -> None:
    task = SUITE["regular-012-0-2"]
    drawn = Counter(text(task, row) for row in task.sample(8, Random(20_000, 3)).inputs)
    runs, last, before = Counter[int](), Counter[str](), Counter[str]()
    for string, count in drawn.items():
        other = string.rstrip("2")
        runs[8 - len(other)] += count
        last[other[-1]] += count
        before.update({symbol: other[:-1].count(symbol) * count for symbol in "012"})
    for found, outcomes in ((runs, range(8)), (last, "01"), (before, "012")):
        assert found.keys() == {*outcomes} and chisquare([*found.values()]).pvalue > 0.001


@pytest.mark.parametrize("name", [name for name, task in SUITE.items() if isinstance(task, Language)])
def test_members_are_uniform_among_all_of_their_length(name: str) -> None:
    task = SUITE[name]
    length = task.testable_length(6)
    is_member = PUBLISHED[name]
    expected = {string for string in strings(task.symbols, length) if len(string) == length and is_member(string)}
    inputs, right = task.strings(length, Random(4000, 7))
    drawn = Counter(text(task, row) for row in inputs[right])
    mean = 2000 / len(expected)
    assert drawn.keys() <= expected
    assert all(abs(drawn[string] - mean) <= 5 * mean**0.5 for string in expected)
    assert expected.isdisjoint(text(task, row) for row in inputs[~right])


def monoid(generators: list[Map]) -> set[Map]:
    found = {tuple(range(len(generators[0])))}
    new = set(found)
    while new:
        new = {tuple(step[state] for state in each) for each, step in product(new, generators)} - found
        found |= new
    return found


def period(element: Map) -> int:
    """Number of different powers that return: 1 for an element of no group."""
    seen: dict[Map, int] = {}
    power, count = element, 0
    while power not in seen:
        seen[power] = count
        power, count = tuple(element[state] for state in power), count + 1
    return count - seen[power]


@pytest.mark.parametrize("name", SUITE)
def test_a_language_is_star_free_where_its_monoid_is_aperiodic(name: str) -> None:
    """Schützenberger's theorem, with the minimal automaton of automata-lib."""
    machine = DFA.from_nfa(NFA.from_regex(RULES[name.removeprefix("regular-")].expression)).to_complete()
    states = sorted(machine.states, key=str)
    steps = [tuple(states.index(machine.transitions[state][symbol]) for state in states) for symbol in machine.input_symbols]
    periods = {period(element) for element in monoid(steps)}
    facts = SUITE[name].facts
    assert facts and facts.star_free == (periods == {1})
    assert periods == {None: {1}, "Z_2": {1, 2}, "Z_4": {1, 2, 4}}[facts.group]
    assert facts.kind == ("star-free" if facts.star_free else "regular with groups")


def test_contexts_are_whole_members_where_a_member_cannot_go_on() -> None:
    task = language("then-b", "a*b|cc*")
    assert task.signature.answers is Answers.MARKED and task.train_lengths == (1, 50)
    batch = task.sample(3, Random(200))
    found = {task.text(row) for row in batch.inputs}
    assert found == {"aab", "ccc"} and batch.weights is not None and batch.weights.min() == 1
    compare(task, batch, lambda string: re.fullmatch("a*b|cc*", string) is not None, strings("abc", 2))


@pytest.mark.parametrize("name", SUITE)
def test_long_contexts_have_more_than_one_answer_unless_their_length_tells_it(name: str) -> None:
    _, p, weights = SUITE[name].sample(40, Random(500))
    # Whole members are scored at every prefix, and prefixes at their end.
    answers = p[:, -1] if weights is None else p.flatten(0, 1)[weights.flatten() > 0]
    assert (len(answers.unique(dim=0)) == 1) == (name in {"regular-aa", "regular-aaaa", "regular-abab"})


@pytest.mark.parametrize(
    ("expression", "whole"),
    [("0*1*0*1*", True), ("(a|b)*c(a|d)*", True), ("a*(bc)*", False), ("aa*|bb*", False), ("a(a|b)*b", False), ("1*", False)],
)
def test_contexts_are_whole_members_where_long_prefixes_have_one_answer(expression: str, whole: bool) -> None:
    assert (language("mine", expression).signature.answers is Answers.MARKED) == whole


def test_positions_after_a_shorter_member_do_not_count() -> None:
    task = language("pairs", "(ab)*c")
    inputs, p, weights = task.sample(4, Random(2))
    assert inputs.tolist() == [[3, 0, 1, 2, 0]] * 2  # begin, abc and a filler
    assert weights is not None and weights.tolist() == [[1.0, 1.0, 1.0, 1.0, 0.0]] * 2
    assert p[:, 3:, -1].eq(1).all()
    with pytest.raises(ValueError, match="pairs has no member of length 0 or shorter"):
        task.sample(0, Random(2))


def test_a_language_without_short_members_is_trained_on_longer_ones() -> None:
    assert language("long", "a{60}b*c").train_lengths == (61, 122)


def test_a_length_without_a_member_is_refused() -> None:
    task = SUITE["regular-d-2"]
    with pytest.raises(ValueError, match="there is no member of length 7"):
        task.strings(7, Random(4))


def test_a_state_may_have_any_name() -> None:
    rows = {None: {"a": 1}, 1: {"a": None, "b": 1}}
    other = language("mine", {"start": None, "accepting": [None], "transitions": rows})
    assert torch.equal(other.sample(9, Random(20)).inputs, language("mine", EVEN).sample(9, Random(20)).inputs)


def test_an_automaton_a_table_and_an_expression_are_the_same_task() -> None:
    expression = "(ab*a)*"
    machines = [expression, NFA.from_regex(expression), DFA.from_nfa(NFA.from_regex(expression)), EVEN]
    drawn = [language("mine", machine).sample(9, Random(20)) for machine in machines]
    for other in drawn[1:]:
        assert torch.equal(other.inputs, drawn[0].inputs) and torch.equal(other.distribution, drawn[0].distribution)


def test_a_state_from_which_nothing_is_accepted_is_never_met() -> None:
    rows = {"here": {"a": "here", "b": "trap"}, "trap": {"a": "trap", "b": "trap"}}
    task = language("mine", {"start": "here", "accepting": ["here"], "transitions": rows})
    batch = task.sample(5, Random(3))
    assert batch.inputs[:, 1:].eq(0).all() and batch.distribution[0, -1].tolist() == [0.5, 0.0, 0.5]


def test_counts_in_braces_are_no_symbols() -> None:
    assert language("mine", "(a{2,3}b)*").answers == ("a", "b", "end")
    assert language("mine", "a*", symbols="ab").answers == ("a", "b", "end")


def test_a_dot_is_any_symbol_and_no_count() -> None:
    assert language("mine", "(.{2}ab)*").answers == ("a", "b", "end")
    assert language("mine", ".*a", symbols="bc").answers == ("a", "b", "c", "end")
    assert language("mine", "[a-c].*").answers == ("a", "b", "c", "end")
    assert language("mine", r"(\(.\))*").answers == ("(", ")", "end")
    assert language("mine", "[^a]*b").answers == ("a", "b", "end")


def test_the_alphabet_of_an_automaton_grows_too() -> None:
    task = language("mine", EVEN, symbols="c")
    assert isinstance(task, Language) and task.answers == ("a", "b", "c", "end")
    assert not task.accepts(torch.tensor([[0, 0, 2]])).any() and task.accepts(torch.tensor([[0, 0]])).all()


@pytest.mark.parametrize("expression", ["(aa)*", "(a|b)*", "(a|b){100}a*", "(a|b)+", "aa*", "a{3,}", "a{60}a*", "a{90}b*c"])
def test_a_language_without_strings_to_tell_apart_is_tested_without(expression: str) -> None:
    task = language("mine", expression)
    assert isinstance(task, WithoutStrings) and not isinstance(task, Language)
    for length in task.train_lengths:
        compare(task, task.sample(length, Random(2)), lambda string: re.fullmatch(expression, string) is not None, ENDS)


def test_a_language_of_long_members_is_tested_on_long_contexts() -> None:
    task = language("mine", "a{300}b*")
    assert task.train_lengths == (300, 600) and task.budgets["quick"].max_length == 2400


def test_a_language_of_a_thousand_states_is_one() -> None:
    task = language("mine", "(a{999}b|c)*")
    assert isinstance(task, Language) and len(task.automaton.accepting) == 1001  # type: ignore[attr-defined]
    inputs, right = task.strings(1001, Random(8))
    members = [re.fullmatch("(a{999}b|c)*", text(task, row)) is not None for row in inputs]
    assert members == right.tolist() and sum(members) == 4


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("(aa", r"mine: '\(aa' is no regular expression: .*unclosed.*; expected symbols with"),
        ("*a", r"mine: '\*a' is no regular expression: '\*' cannot appear at the start"),
        ("{0,1}*2", r"mine: '\{0,1\}\*2' is no regular expression: .*; expected symbols with"),
        (
            "a{3,2}",
            r"mine: 'a\{3,2\}' is no regular expression: Lower bound 3 cannot be greater than upper bound; expected symbols",
        ),
        ("a&b", r"mine: no string is a member: expected a language with infinitely many, such as 'a\*'"),
        ("ab|c", r"mine: no member is longer than 2: expected a language with infinitely many, such as 'a\*'"),
        ("", "mine: '' names no symbol"),
        ("a&b|c&d", "no string is a member"),
        (EVEN | {"transitions": {"even": {"a": "odd"}}}, "names the state 'odd' without a row in transitions: add one"),
        (EVEN | {"start": "here", "accepting": ["there"]}, "names the states 'here', 'there' without a row"),
        (EVEN | {"transitions": {"even": ["a"]}}, "parts of another form: expected {'start': 'x', .*one next state a symbol"),
        (EVEN | {"transitions": {"even": {"a": ["even", "odd"]}}}, "parts of another form"),
        (EVEN | {"accepting": None}, "parts of another form"),
        (EVEN | {"accepting": "even"}, "parts of another form"),
        (
            EVEN | {"transitions": {"even": {1: "odd"}, "odd": {}}},
            "mine: 1 is no symbol: expected printable characters without blanks",
        ),
        (EVEN | {"transitions": {"even": {"end": "odd"}, "odd": {}}}, "mine: 'end' is no symbol"),
        (EVEN | {"transitions": {"even": {"": "odd"}, "odd": {}}}, "mine: '' is no symbol"),
        (r"\s*", "is no symbol: expected printable characters without blanks"),
        (".*", r"mine: '\.\*' names no symbol: expected symbols with"),
        ("(a{0}b)*", r"has a count of 0 or of nothing: expected a number above 0"),
        ("^(ab)*$", r"has an anchor: leave \^ and \$ out"),
        ("(ab){}", "has a count of 0 or of nothing"),
        ("a{,}b*", "has a count of 0 or of nothing"),
        (r"[a\]]*b", r"has a backslash in \[ \]"),
        (r"(a|b)*" + "\\", "has a backslash with no symbol after it"),
        (r"a\ b*", "has a backslash with no symbol after it"),
        ("[z-a]b*|bc*", r"has a range that goes backwards: expected one such as \[a-z\]"),
        ("a]", r"no regular expression: \] stands alone; expected .*, and a backslash before these as symbols"),
        ({"start": 1, 2: 3}, r"the automaton has \['start', 2\]"),
        ("(a|)*", r"'\|' cannot appear immediately before '\)'"),
        ("(?:ab)*", r"'\(' cannot appear immediately before '\?'"),
        ({"start": "even"}, r"the automaton has \['start'\], expected a table with the keys accepting, start, transitions"),
    ],
)
def test_bad_definitions_get_one_sentence(definition: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        regular({"mine": definition})  # type: ignore[dict-item]


def test_languages_without_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no table of names and languages"):
        regular(["a*"])  # type: ignore[arg-type]
