from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
import torch
from scipy.stats import chisquare

import lgbench_recall
from lgbench import Random, Task
from lgbench.conformance.check import Check
from lgbench.testing import checks
from lgbench_recall.induction_heads import InductionHeads
from lgbench_recall.k_hop import KHop
from lgbench_recall.multi_query import VALUES, VOCABULARY, MultiQueryRecall
from lgbench_recall.selective_copying import SelectiveCopying
from lgbench_recall.variable_tracking import VariableTracking

CONTEXTS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("check", checks(lgbench_recall))
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def answered(task: Task, lengths: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
    """Texts of 1,000 contexts of these lengths, each with its right answers in order. Every p* has a single one."""
    for length in lengths:
        inputs, distribution, weights = task.sample(length, Random(-(-CONTEXTS // len(lengths)), seed=length))
        for place, context in enumerate(inputs):
            p = distribution[place] if weights is None else distribution[place, weights[place] > 0]
            assert ((p == 0) | (p == 1)).all()
            yield task.text(context), [task.answers[right] for right in p.argmax(-1).tolist()]


def sources(task: Task, text: str) -> list[str]:
    """Tokens at the positions that the answer at the last position comes from."""
    found = task.sources(task.context(text)[None])
    assert found is not None
    return [text.split()[place] for place in found[0].nonzero().flatten().tolist()]


def test_the_values_of_associative_recall_are_those_of_its_pairs() -> None:
    task = MultiQueryRecall()
    for length in range(1, 13):
        inputs, distribution, weights = task.sample(length, Random(84, seed=length))
        assert weights is not None
        for context, p, weight in zip(inputs.tolist(), distribution, weights.tolist(), strict=True):
            assert len(context) == 16 * length
            pairs = dict(zip(context[: 2 * length : 2], context[1 : 2 * length : 2], strict=True))
            assert len(pairs) == len(set(pairs.values())) == length
            assert set(pairs) <= set(range(1, VALUES)) and set(pairs.values()) <= set(range(VALUES, VOCABULARY))
            asked = [place for place, counts in enumerate(weight) if counts]
            assert sorted(context[place] for place in asked) == sorted(pairs)
            assert all(place >= 2 * length and place % 2 == 0 for place in asked)
            for place in asked:
                assert p[place].tolist() == [float(VALUES + value == pairs[context[place]]) for value in range(VALUES)]


def test_associative_recall_has_an_answer_where_it_asks_and_hardly_elsewhere() -> None:
    """Fillers are drawn from the whole vocabulary, so one may look like a query, or like one more pair."""
    asked, others = [], []
    for length in (2, 5):
        inputs, _, weights = MultiQueryRecall().sample(length, Random(40))
        assert weights is not None
        for context, weight in zip(inputs, weights.tolist(), strict=True):
            for place, counts in enumerate(weight):
                answer = MultiQueryRecall().reference(context[: place + 1])
                (asked if counts else others).append(answer is not None)
    assert all(asked) and sum(others) < 0.05 * len(others)


def test_gaps_of_associative_recall_follow_the_published_law() -> None:
    n = 20_000
    weights = MultiQueryRecall().sample(2, Random(n)).weights
    assert weights is not None
    places = weights.nonzero()[:, 1].view(n, 2) // 2 - 2  # slots, from 0
    law = torch.arange(1, 15, dtype=torch.float64) ** (0.01 - 1)
    law /= law.sum()
    pairs = Counter(map(tuple, places.tolist()))
    # Two slots without replacement, in either order.
    expected = {
        (i, j): (law[i] * law[j] * (1 / (1 - law[i]) + 1 / (1 - law[j]))).item() * n
        for i in range(14)
        for j in range(i + 1, 14)
    }
    assert chisquare([pairs[pair] for pair in expected], list(expected.values())).pvalue > 0.001


def test_the_first_key_of_associative_recall_tends_to_have_the_nearest_slot() -> None:
    inputs = MultiQueryRecall().sample(2, Random(20_000)).inputs
    first = ((inputs[:, 4::2] == inputs[:, :1]).float().argmax(1) == 0).double()
    law = torch.arange(1, 15, dtype=torch.float64) ** (0.01 - 1)
    assert first.mean().item() == pytest.approx((law[0] / law.sum()).item(), abs=0.015)


def test_values_of_associative_recall_are_uniform() -> None:
    values = Counter(MultiQueryRecall().sample(8, Random(4000)).inputs[:, 1:16:2].flatten().tolist())
    assert chisquare([values[value] for value in range(VALUES, VOCABULARY)]).pvalue > 0.001


def test_induction_heads_name_what_came_after_the_trigger() -> None:
    for text, (right,) in answered(InductionHeads(), range(3, 13)):
        found = re.fullmatch(r"([a-o] )*! ([a-o]) ([a-o] )*!", text)
        assert found and found[2] == right
        assert sources(InductionHeads(), text) == [right]


def test_the_trigger_of_induction_heads_is_anywhere() -> None:
    places = Counter((InductionHeads().sample(9, Random(7000)).inputs == 15).float().argmax(1).tolist())
    assert chisquare([places[place] for place in range(7)]).pvalue > 0.001
    assert sum(places.values()) == sum(places[place] for place in range(7))


def test_induction_heads_refuse_a_context_without_room_in_words() -> None:
    with pytest.raises(ValueError, match="length 2: two triggers and a letter are 3 tokens"):
        InductionHeads().sample(2, Random(1))


def hop(letters: str) -> str:
    """The letters up to the destination of one hop from the last; empty where it leads nowhere."""
    earlier = letters[:-1].rfind(letters[-1])
    return letters[: earlier + 2] if earlier >= 0 else ""


def test_hops_lead_where_they_should_at_every_prefix() -> None:
    few = 0
    for text, right in answered(KHop(), range(1, 13)):
        number, *letters = text.split()
        assert all(a != b for a, b in zip(letters, letters[1:], strict=False))
        assert right[0] == "~"
        for end, answer in enumerate(right[1:], 1):
            reached = "".join(letters[:end])
            for _ in range(int(number)):
                reached = hop(reached) if reached else ""
            assert answer == (reached[-1] if reached else "~")
        assert len(sources(KHop(), text)) == (right[-1] != "~")
        assert set(sources(KHop(), text)) <= {right[-1]}
        few += int(number) in range(1, 4) and right[-1] != "~"
    assert few > 50  # hops that lead somewhere are among them


def test_long_chains_of_hops_are_followed() -> None:
    inputs, distribution, _ = KHop().sample(98, Random(60))
    for context, p in zip(inputs, distribution, strict=True):
        number, *letters = KHop().text(context).split()
        reached = "".join(letters)
        for _ in range(int(number)):
            reached = hop(reached) if reached else ""
        assert KHop().answers[p[-1].argmax()] == (reached[-1] if reached else "~")


def test_hops_and_letters_are_uniform() -> None:
    inputs = KHop().sample(5, Random(8000)).inputs
    hops, letters = Counter((inputs[:, 0] - 4).tolist()), inputs[:, 1:]
    first, steps = Counter(letters[:, 0].tolist()), Counter((letters.diff() % 4).flatten().tolist())
    for found, outcomes in ((hops, range(17)), (first, range(4)), (steps, range(1, 4))):
        assert found.keys() == {*outcomes} and chisquare([*found.values()]).pvalue > 0.001


def test_selective_copying_gives_the_letters_in_order() -> None:
    for text, right in answered(SelectiveCopying(), range(1, 40)):
        tokens, asked = text.split(" ?")[0].split(), text.count("?")
        letters = [token for token in tokens if token != "."]
        assert asked == len(letters) == min(16, len(tokens))
        assert right == letters
        assert sources(SelectiveCopying(), text) == letters[-1:]


def test_the_letters_of_selective_copying_are_anywhere() -> None:
    is_letter = SelectiveCopying().sample(32, Random(4000)).inputs[:, :32] < 14
    assert is_letter.float().mean(0).tolist() == pytest.approx([0.5] * 32, abs=0.04)


def test_variables_have_the_values_that_python_gives_them() -> None:
    for text, (right,) in answered(VariableTracking(), range(1, 13)):
        *tokens, command, asked = text.split()
        assert command == "print"
        assignments = [f"{variable} = {source}" for variable, source in zip(tokens[::2], tokens[1::2], strict=True)]
        held: dict[str, object] = {}
        exec("\n".join(assignments), {}, held)
        assert str(held[asked]) == right
        assert sources(VariableTracking(), text) == [right]


def test_assignments_and_the_question_are_drawn_as_said() -> None:
    inputs = VariableTracking().sample(3, Random(20_000)).inputs
    variables, sources, asked = inputs[:, :6:2], inputs[:, 1:6:2], inputs[:, -1]
    is_value = sources >= 16
    assert is_value[:, 0].all()
    assert is_value[:, 1:].float().mean().item() == pytest.approx(1 / 2, abs=0.02)
    values, every = Counter(sources[is_value].tolist()), Counter(variables.flatten().tolist())
    assert chisquare([values[value] for value in range(16, 26)]).pvalue > 0.001
    assert chisquare([every[variable] for variable in range(16)]).pvalue > 0.001
    apart = (variables.sort().values.diff() > 0).all(1)  # of three variables one knows which is meant
    copies = apart & ~is_value[:, 2]
    of = (variables[copies, :2] == sources[copies, 2:]).sum(0)
    assert of.sum() == copies.sum() and chisquare(of).pvalue > 0.001
    assert chisquare((variables[apart] == asked[apart, None]).sum(0)).pvalue > 0.001


def test_chains_of_a_hundred_assignments_are_followed() -> None:
    inputs, distribution, _ = VariableTracking().sample(100, Random(50))
    for context, p in zip(inputs, distribution, strict=True):
        *tokens, _, asked = VariableTracking().text(context).split()
        held: dict[str, object] = {}
        exec("\n".join(f"{a} = {b}" for a, b in zip(tokens[::2], tokens[1::2], strict=True)), {}, held)
        assert VariableTracking().answers[p[0].argmax()] == str(held[asked])


@pytest.mark.parametrize("task", lgbench_recall.lgbench_tasks(), ids=lambda task: task.name)
def test_texts_are_read_back_and_other_words_are_refused(task: Task) -> None:
    context = task.sample(8, Random(1)).inputs[0]
    assert torch.equal(task.context(task.text(context)), context)
    with pytest.raises(ValueError, match="'#' is none of its tokens"):
        task.context("#")


@pytest.mark.parametrize(
    ("task", "context", "said"),
    [
        (InductionHeads(), "a b c", "two triggers, the second of them at the end"),
        (InductionHeads(), "a ! !", "two triggers"),
        (InductionHeads(), "a ! b", "two triggers"),
        (KHop(), "a b a", "a number of hops from 0 to 16, and letters without equal neighbours"),
        (KHop(), "3 a a", "without equal neighbours"),
        (KHop(), "3 a 2", "and letters"),
        (SelectiveCopying(), ". a ?", "16 letters among noise, or fewer without noise"),
        (SelectiveCopying(), "a ? ?", "no more question marks than letters"),
        (SelectiveCopying(), "a ? b ?", "no more question marks"),
        (VariableTracking(), "b 8 g print g", "expected assignments of a value or of a variable"),
        (VariableTracking(), "b 8 g c print g", "c has no value where it is read"),
        (VariableTracking(), "b 8 print g", "g has no value where it is read"),
    ],
)
def test_an_impossible_context_gets_a_sentence(task: Task, context: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        task.reference(task.context(context))


@pytest.mark.parametrize("task", [InductionHeads(), KHop(), SelectiveCopying(), VariableTracking()], ids=lambda task: task.name)
def test_drawn_contexts_are_possible(task: Task) -> None:
    for length in (3, 17, 40):
        for context in task.sample(length, Random(50)).inputs:
            assert sum(task.reference(context) or []) == 1


@pytest.mark.parametrize("context", ["5", "5 200", "5 200 7 7", "200 5 200", "5 6 5", "5 200 7 5", "0 0 5 200 5"])
def test_associative_recall_says_nothing_where_it_asks_nothing(context: str) -> None:
    assert MultiQueryRecall().reference(MultiQueryRecall().context(context)) is None
