"""Lengths: which ones boards show, in one place, and how long an input gets."""

from __future__ import annotations

import pytest
import torch
import toys
from helpers.toy_registries import Marked, Weighted, but, settings

from lgbench.experiment.contexts import (
    answered_lengths,
    board_lengths,
    context_lengths,
    context_positions,
    no_answer_counts,
    spaced_lengths,
    string_positions,
)


@pytest.mark.parametrize(
    ("low", "trained", "longest"), [(1, 40, 512), (5, 16, 63), (5, 16, 16), (1, 1, 1), (3, 3, 3), (2, 100, 40), (1, 8, 9)]
)
def test_spaced_lengths_are_powers_of_two_with_the_training_length_and_the_longest(low, trained, longest):
    powers = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512} & set(range(low, longest + 1))
    assert spaced_lengths(low, trained, longest) == sorted(powers | {longest, min(trained, longest)})


@pytest.mark.parametrize(
    ("low", "high", "longest", "shown"),
    [
        (1, 6, 48, [1, 2, 4, 6, 8, 16, 32, 48]),
        (0, 6, 48, [1, 2, 4, 6, 8, 16, 32, 48]),  # a context of nothing is no length to show
        (3, 6, 48, [4, 6, 8, 16, 32, 48]),
        (1, 40, 16, [1, 2, 4, 8, 16]),
        (1, 1, 1, [1]),
    ],
)
def test_boards_show_powers_of_two_the_training_length_and_the_longest(low, high, longest, shown):
    assert board_lengths(toys.Walk(), *settings(low, high, longest)) == shown


@pytest.mark.parametrize(
    ("own", "longest", "shown"),
    [
        ((3, 5, 7, 11), 64, [3, 5, 7, 11]),
        ((11, 3, 7, 5, 3), 64, [3, 5, 7, 11]),  # in any order, each once
        ((3, 5, 7, 11), 7, [3, 5, 7]),
        ((3, 5, 7, 11), 6, [3, 5]),
        ((100,), 200, [100]),
    ],
)
def test_a_task_may_say_which_lengths_boards_show(own, longest, shown):
    task = but(toys.Largest(), lengths=own)
    training, evaluation = settings(2, 5, longest)
    assert board_lengths(task, training, evaluation) == shown == context_lengths(task, training, evaluation)


def test_a_task_that_answers_at_every_prefix_is_drawn_at_its_longest_length_alone():
    assert context_lengths(toys.Walk(), *settings(1, 6, 48)) == [48]
    assert context_lengths(but(toys.Walk(), lengths=(3, 11)), *settings(1, 6, 48)) == [11]
    assert context_lengths(Marked(), *settings(2, 6, 48)) == [2, 4, 6, 8, 16, 32, 48]


def test_each_answer_of_a_context_has_a_length_of_its_own_where_every_prefix_is_answered():
    assert answered_lengths(toys.Walk(), 5, 5) == [1, 2, 3, 4, 5]
    assert answered_lengths(toys.Even(), 5, 6) == [0, 1, 2, 3, 4, 5]
    assert answered_lengths(toys.Largest(), 5, 1) == answered_lengths(Marked(), 5, 5) == [5]


def test_the_longest_inputs_have_the_begin_token_of_a_language_and_its_strings_may_be_longer():
    class Rarely(toys.Even):
        def testable_length(self, length):
            return length + 3

    tasks = (toys.Walk(), toys.Largest(), toys.Even(), Rarely(), Marked())
    assert [context_positions(task, 20) for task in tasks] == [20, 20, 21, 21, 20]
    assert [string_positions(task, 20) for task in tasks] == [0, 0, 21, 24, 0]


def weighing(task, weigh):
    """The task, with weights (n, A) of its own for n contexts of a length."""

    def sample(self, length, random):
        batch = task.sample(length, random)
        return batch._replace(weights=weigh(batch.distribution[..., 0], random))

    return but(task, sample=sample)


def at_every(count, start):
    """Of the answers 1, 2, 3, ... those of `start`, `start` + `count`, ... count."""

    def weigh(like, random):
        answers = 1 + torch.arange(like.shape[1])
        return ((answers >= start) & ((answers - start) % count == 0)).float().expand_as(like)

    return weigh


def rarely(like, random):
    return (random.uniform(*like.shape[1:]) < 0.2).float()


def never(like, random):
    return torch.zeros_like(like)


@pytest.mark.parametrize(
    ("task", "longest", "shown"),
    [
        (weighing(toys.Walk(), at_every(3, 3)), 32, "1, 2, 4, ..."),  # the training length is 5
        (but(weighing(toys.Walk(), at_every(3, 3)), lengths=(4, 7)), 32, "4, 7"),
        (weighing(toys.Even(), at_every(3, 4)), 32, "1, 2, 4, ..."),  # the first answer is to no symbol
        (weighing(toys.Largest(), never), 32, "1, 2, 4, ..."),
        (weighing(Marked(), never), 2, "1, 2"),
        (but(toys.Walk(), lengths=()), 32, "none"),
    ],
)
def test_a_task_of_which_no_answer_counts_where_boards_look_is_named_with_what_would_work(task, longest, shown):
    expected = f"no answer of {task.name} counts at a length that boards show ({shown}): give Task.lengths at which some count"
    assert no_answer_counts(task, *settings(1, 5, longest)) == expected


@pytest.mark.parametrize(
    "task",
    [
        toys.Walk(),
        toys.Even(),
        toys.Largest(),
        Weighted(),
        Marked(),  # of a context of 1 nothing counts
        weighing(toys.Walk(), at_every(100, 5)),  # the training length alone
        but(weighing(toys.Walk(), at_every(3, 3)), lengths=(4, 9)),
        weighing(toys.Walk(), rarely),
        weighing(toys.Largest(), rarely),
    ],
)
def test_one_answer_that_counts_is_enough(task):
    assert no_answer_counts(task, *settings(1, 5, 32)) is None
