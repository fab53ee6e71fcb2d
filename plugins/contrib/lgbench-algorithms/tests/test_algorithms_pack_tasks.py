"""Every task of the pack: its answers against plain Python, and plain Python against published examples."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch

import lgbench_algorithms
from lgbench import Answers, Random
from lgbench.conformance.check import Check
from lgbench.extensions.describe import page
from lgbench.extensions.registry import Registry
from lgbench.testing import checks
from lgbench_algorithms.layouts import END, EmptyTokens, Problem, Written

TASKS = {task.name: task for task in lgbench_algorithms.lgbench_tasks() if isinstance(task, Problem)}
PACK = Path(__file__).parents[1]
CONTEXTS = 1000
LONGEST = 12
every = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def answered(task: Problem, length: int, n: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Questions as text, and the answers that count."""
    inputs, distribution, weights = task.sample(length, Random(n, seed))
    counts = torch.ones(distribution.shape[:2], dtype=torch.bool) if weights is None else weights > 0
    assert bool((distribution.amax(-1) == 1).all()) and bool((distribution.sum(-1) == 1).all())
    found = []
    for context, best, counted in zip(inputs, distribution.argmax(-1), counts, strict=True):
        question, _ = task.parted(task.text(context).split())
        found.append((" ".join(question), [task.outputs[at] for at in best[counted].tolist()]))
    return found


@every
def test_a_thousand_answers_are_those_of_plain_python(task: Problem) -> None:
    lengths = range(max(1, task.train_lengths[0]), LONGEST + 1)
    for length in lengths:
        for question, answer in answered(task, length, -(-CONTEXTS // len(lengths))):
            assert answer == list(task.solve(question)), question


@every
def test_long_answers_are_those_of_plain_python(task: Problem) -> None:
    assert task.max_length is not None
    for question, answer in answered(task, task.max_length, 4, seed=1):
        assert answer == list(task.solve(question))


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("even-pairs", "0 1 0 0 1 0", "0"),
        ("modular-arithmetic", "1 + 2 * 3", "2"),
        ("modular-arithmetic", "1 - 1 - 1", "4"),
        ("modular-arithmetic", "0 * 1 + 4 * 3 - 2", "0"),
        ("parity-check", "0 1 1 0 1", "1"),
        ("cycle-navigation", "-1 -1 +1 stay -1", "3"),
        ("stack-manipulation", "0 1 1 0 push-1 pop pop", "1 1 0 end"),
        ("stack-manipulation", "1 1 0 pop pop pop", "end"),
        ("reverse-string", "0 1 1 0 1", "1 0 1 1 0"),
        ("modular-arithmetic-brackets", "( ( 2 * - 1 ) - ( 3 ) )", "0"),
        ("solve-equation", "( x - ( 3 + 4 ) ) = 1", "3"),
        ("duplicate-string", "0 1 1", "0 1 1 0 1 1"),
        ("missing-duplicate", "0 1 1 0 0 1 ? 0", "1"),
        ("missing-duplicate", "1 0 1 1 ? 1 pad", "0"),
        ("odds-first", "0 1 2 3 4", "0 2 4 1 3"),
        ("binary-addition", "0 1 0 0 1 + 0 1 1", "0 0 0 1 1 end"),
        ("binary-addition", "1 0 0 1 + 0 0 0 0 0 1", "1 0 0 1 0 1 end"),
        ("binary-multiplication", "0 1 0 0 1 * 0 1 1", "0 0 1 1 0 1 1 end"),
        ("binary-multiplication", "1 0 0 1 * 0 0 0 0 0 1", "0 0 0 0 0 1 0 0 1 end"),
        ("square-root", "1 0 1 0 0 1", "0 1 1"),
        ("square-root", "1 1 1", "0 1"),
        ("bucket-sort", "4 2 1 3 0 1", "0 1 1 2 3 4"),
        ("copy-unique", "14 3 101", "14 3 101 end"),
        ("copy-repeat", "a b b", "a b b end"),
        ("sort", "14 3 101", "3 14 101 end"),
        ("count", "8 11", "8 9 10 11 end"),
        ("binary-majority", "0 1 1", "1 end"),
        ("majority", "c a b a", "a end"),
        ("interleaved-majority", "0 1 1 0 0 1 1 0 0", "0 0 1 end"),
        ("mode", "c a B a", "a end"),
        ("parity-uniform-ones", "1 1 0", "even end"),
        ("decimal-addition", "5 7 + 4 8", "1 0 5 end"),
        ("decimal-addition-reversed", "5 7 + 4 8", "5 0 1 end"),
        ("decimal-addition-hints", "h8 5 h7 7 + h8 4 h7 8", "h9 1 h8 0 h7 5 end"),
        ("decimal-addition-hints-reversed", "h8 5 h7 7 + h8 4 h7 8", "h7 5 h8 0 h9 1 end"),
        ("decimal-addition-coupled", "5 7 + 4 8", "5 0 1 end"),
        ("binary-addition-written", "1 0 1 + 1 1", "1 0 0 0 end"),
    ],
)
def test_plain_python_gives_what_is_published(name: str, question: str, answer: str) -> None:
    assert list(TASKS[name].solve(question)) == answer.split()


def has_an_answer(task: Problem, tokens: tuple[int, ...]) -> bool:
    try:
        return task.reference(torch.tensor(tokens)) is not None
    except ValueError:
        return False


LONGER = {"binary-addition-written": 6, "modular-arithmetic": 4}
"""Numbers of tokens from which on a question of these tasks has a choice."""
FEW_TOKENS = [task for task in TASKS.values() if len(task.words) <= 12 and not task.positions]


@pytest.mark.parametrize("task", FEW_TOKENS, ids=lambda task: task.name)
def test_contexts_that_are_never_drawn_have_no_answer(task: Problem) -> None:
    longest = LONGER.get(task.name) or next(n for n in range(9, 0, -1) if len(task.words) ** n < 3000)
    drawn: set[tuple[int, ...]] = set()
    for length in range(task.train_lengths[0], longest + 1):
        inputs, distribution, weights = task.sample(length, Random(20_000))
        counts = torch.ones(distribution.shape[:2]) if weights is None else weights
        for row, counted in zip(inputs.tolist(), counts.tolist(), strict=True):
            first = len(row) - len(counted)  # the place of the only answer, or 0
            drawn |= {tuple(row[: first + at + 1]) for at, weight in enumerate(counted) if weight}
    short = [tokens for n in range(1, longest + 1) for tokens in product(range(len(task.words)), repeat=n)]
    assert {tokens for tokens in short if has_an_answer(task, tokens)} == drawn.intersection(short) != set()


def test_expressions_in_brackets_that_are_never_drawn_have_no_answer() -> None:
    task = TASKS["modular-arithmetic-brackets"]
    one, plus, minus, opens, closes = (task.words.index(word) for word in "1+-()")
    alike = {task.words.index(word): one for word in "01234"} | {task.words.index("*"): plus}
    for length in range(1, 8):  # of digits all are alike here, and of + and *
        drawn = {tuple(alike.get(token, token) for token in row[:length]) for row in questions(task, length)}
        balanced = (
            tokens
            for tokens in product((one, plus, minus, opens, closes), repeat=length)
            if tokens.count(opens) == tokens.count(closes)
        )
        answered = {tokens for tokens in balanced if has_an_answer(task, (*tokens, task.words.index("_")))}
        assert answered == drawn


def questions(task: Problem, length: int) -> list[list[int]]:
    rows: list[list[int]] = task.sample(length, Random(20_000)).inputs.tolist()
    return rows


@pytest.mark.parametrize(
    ("name", "context", "said"),
    [
        ("parity-check", "0 _ 1 _", "'0 _ 1' is no question of this task"),
        ("modular-arithmetic", "1 + + 2 _", "no question"),
        ("modular-arithmetic", "_", "it has no question"),
        ("count", "begin 0 199 =", "from 0 to 199 are no 1 to 150 numbers"),
        ("modular-arithmetic-brackets", "( 1 + 2 _", r"expected an expression d, - d, \( d \)"),
        ("copy-unique", "begin 3 5 3 =", "3 comes twice, expected different symbols"),
        ("mode", "begin a b =", "a and b are equally frequent"),
        ("mode", "begin a b c d e f f =", "it has 6 different letters, expected at most 5"),
        ("count", "begin 9 8 =", "from 9 to 8 are no 1 to 150 numbers"),
        ("decimal-addition", "begin 1 + 2 3 =", "the numbers have 1 and 2 digits, expected equally many"),
        ("decimal-addition-hints", "begin h8 5 h6 7 + h8 4 h7 8 =", "expected hints that fall by one"),
        ("decimal-addition-hints", "begin h255 5 + h255 4 =", "from one below h255"),
        ("decimal-addition-hints", "begin h0 5 h1 5 + h0 4 h1 4 =", "expected hints that fall by one"),
        ("sort", "3 5 =", "does not begin with the token begin"),
    ],
)
def test_an_impossible_context_gets_a_sentence(name: str, context: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TASKS[name].reference(TASKS[name].context(context))


@pytest.mark.parametrize("task", [task for task in TASKS.values() if isinstance(task, EmptyTokens)], ids=lambda task: task.name)
def test_a_question_is_followed_by_as_many_empty_tokens_as_its_answer_has(task: EmptyTokens) -> None:
    inputs, distribution, weights = task.sample(10, Random(20))
    empty = inputs == len(task.symbols)
    assert bool((empty.sum(1) == empty[0].sum()).all()) and bool((empty.cumprod(1).sum(1) == 0).all())
    assert bool((empty.flip(1).cumprod(1).flip(1).bool() == empty).all())  # they stand at the end
    if task.where is Answers.LAST:
        assert weights is None and distribution.shape[1] == 1 and int(empty[0].sum()) == 1
        return
    assert weights is not None
    assert bool((empty | (weights == 0)).all())
    if END not in task.outputs:
        assert torch.equal(weights > 0, empty)


@pytest.mark.parametrize("check", [pytest.param(check, id=check.__name__) for check in checks(lgbench_algorithms)])
def test_it_keeps_the_contract(check: Check) -> None:
    assert not check()  # a note would say what is not checked


def test_the_readme_has_every_task() -> None:
    rows = re.findall(r"^\| `(.+?)` \|", (PACK / "README.md").read_text(encoding="utf-8"), re.M)
    assert rows == list(TASKS)


@pytest.mark.parametrize("task", [task for task in TASKS.values() if isinstance(task, Written)], ids=lambda task: task.name)
def test_a_written_answer_is_read_one_symbol_late(task: Written) -> None:
    inputs, distribution, weights = task.sample(9, Random(20))
    assert weights is not None
    for context, best, counted in zip(inputs, distribution.argmax(-1), weights > 0, strict=True):
        words = task.text(context).split()
        answer = [task.outputs[at] for at in best[counted].tolist()]
        assert words[0] == "begin" and words[words.index("=") + 1 :][: len(answer) - 1] == answer[:-1]
        assert answer[-1] == END and END not in answer[:-1]
        places = counted.nonzero().flatten().tolist()
        assert places == list(range(words.index("="), words.index("=") + len(answer)))


def test_tokens_of_equal_significance_share_a_position_id() -> None:
    task = TASKS["decimal-addition-coupled"]
    length = 7
    batch = task.sample(length, Random(3))
    assert batch.positions is not None
    words = task.text(batch.inputs[0]).split()
    plus, equals = words.index("+"), words.index("=")
    ids = batch.positions[0].tolist()
    expected = dict.fromkeys((0, plus, equals), 0)
    for digit in range(length):  # counted from the lowest
        expected |= {place: digit + 1 for place in (plus - 1 - digit, equals - 1 - digit, equals + 1 + digit)}
    expected[equals + 1 + length] = length + 1
    assert ids == [expected[place] for place in range(len(words))]
    assert torch.equal(batch.positions, batch.positions[:1].expand_as(batch.positions))


def test_a_written_answer_is_shown_in_its_middle() -> None:
    shown = page("decimal-addition-coupled", Registry.load())
    assert "reads 13 tokens with one of 202 position ids each" in shown
    numbers = re.findall(r"begin ([\d ]+) \+ ([\d ]+) = ([\d ]+)\n    (\d): 1", shown)
    assert len(numbers) == 3
    for *added, before, digit in numbers:
        first, second = (int("".join(number.split())) for number in added)
        written = "".join(before.split()) + digit
        assert 1 < len(written) < 8 and str(first + second).zfill(9)[::-1].startswith(written)
