"""The context-free baseline of a task: what the best prediction reaches that ignores the context."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toys
from helpers.toy_registries import METRICS, Marked, Weighted, but, settings
from scipy.optimize import linprog

from lgbench import Answers, Batch, Measurement, Signature, Task, Tokens
from lgbench.contracts import CONTEXT_FREE
from lgbench.experiment.contexts import board_lengths
from lgbench.experiment.record import Evaluation, Training
from lgbench.measurement.evaluate import context_free_scores
from lgbench_measurements.functions import best_blind_prediction

SETTINGS = settings(1, 6, 32)


def levels(task, asked=SETTINGS, measurements=METRICS) -> dict[tuple[str, int], float]:
    return {(s.metric, s.length): s.value for s in context_free_scores(task, measurements, *asked)}


def cheapest(distributions: np.ndarray, shares: np.ndarray) -> float:
    """The least mean total variation distance of one prediction q, by linear programming over q and |q - p|."""
    n, classes = distributions.shape
    size = n * classes
    identity, repeated = np.eye(size), np.tile(np.eye(classes), (n, 1))
    costs = np.concatenate([np.zeros(classes), np.repeat(shares, classes) / 2])
    flat = distributions.reshape(-1)
    found = linprog(
        costs,
        A_ub=np.block([[repeated, -identity], [-repeated, -identity]]),
        b_ub=np.concatenate([flat, -flat]),
        A_eq=np.concatenate([np.ones(classes), np.zeros(size)])[None],
        b_eq=[1.0],
    )
    assert found.success
    return found.fun


class Table(Task):
    """Answers once, with one of the rows of a table, each as often as its share."""

    name = family = "toy-rows"
    version = 1
    train_lengths = (1, 4)

    def __init__(self, rows, shares=None) -> None:
        self.rows = torch.tensor(rows, dtype=torch.float32)
        self.shares = torch.tensor(shares) if shares else torch.full((len(rows),), 1 / len(rows))
        self.signature = Signature(Tokens(len(rows)), self.rows.shape[1], Answers.LAST)

    def sample(self, length, random):
        inputs = random.categorical(self.shares.expand(random.n, length, -1))
        return Batch(inputs, self.rows[inputs[:, -1:]])


def one_hot(classes: int) -> list[list[float]]:
    return torch.eye(classes).tolist()


CLOSED = {
    "one of 2 at random": (Table(one_hot(2)), 1 / 2),
    "one of 3 at random": (Table(one_hot(3)), 2 / 3),
    "one of 10 at random": (Table(one_hot(10)), 9 / 10),
    "always the same": (Table([[0.2, 0.5, 0.3]]), 0.0),
    "nearly always the same": (Table(one_hot(2), [0.95, 0.05]), 0.05),
    "one of two that overlap": (Table([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]), 1 / 4),
    "a walk": (toys.Walk(), cheapest(toys.WALK.numpy(), np.full(3, 1 / 3))),
    "the largest of three": (toys.Largest(), 2 / 3),
    "an even number of ones": (toys.Even(), 1 / 6),
}


@pytest.mark.parametrize(("task", "level"), CLOSED.values(), ids=CLOSED)
def test_the_context_free_level_is_that_of_the_best_prediction_that_is_always_the_same(task, level):
    """To the error of a sample: four standard errors of a share near 1/2 of a thousand."""
    found = levels(task)
    assert [length for _, length in found] == board_lengths(task, *SETTINGS)
    assert all(value == pytest.approx(level, abs=4 * 0.5 / 1000**0.5) for value in found.values())


class ShortWalk(toys.Walk):
    """Its longest tested context is shorter than multiples of the training length, at which eval steps would test."""

    lengths = (4, 6, 8)


def test_the_lengths_of_a_task_that_end_early_have_a_context_free_level_each():
    asked = settings(1, 6, 32, points=2, point_max_length=32)
    assert [length for _, length in levels(ShortWalk(), asked)] == [4, 6, 8]


@pytest.mark.parametrize("seed", range(4))
def test_no_prediction_is_better_than_the_best_by_linear_programming(seed):
    draw = np.random.default_rng(seed)
    n, classes = int(draw.integers(1, 9)), int(draw.integers(2, 6))
    distributions = draw.dirichlet(np.full(classes, draw.choice([0.05, 0.3, 1.0, 10.0])), n)
    if seed % 3 == 0:
        distributions = np.eye(classes)[draw.integers(classes, size=n)]  # ties everywhere
    best = best_blind_prediction(torch.tensor(distributions)).numpy()
    assert best.sum() == pytest.approx(1) and best.min() >= 0
    mean = np.abs(distributions - best).sum(-1).mean() / 2
    assert mean == pytest.approx(cheapest(distributions, np.full(n, 1 / n)), abs=1e-9)


class Remembers(Measurement):
    """Keeps what it is given."""

    name = "remembers"
    label = title = "remembers"
    lower_is_better = True
    range = (0.0, 1.0)
    worst = 1.0

    def __init__(self) -> None:
        self.given = []

    def context_free(self, distribution, test):
        self.given.append((distribution, test))
        return torch.arange(len(test)).double()


def test_a_prediction_is_measured_on_other_contexts_than_it_was_fitted_to():
    """Each half once; with one sample for both, rare classes would look easier than they are."""
    own = Remembers()
    (score, *_) = context_free_scores(Table(one_hot(3)), [own], *SETTINGS)
    (first, second), (again, other) = own.given[:2]
    assert first is not second and torch.equal(first, other) and torch.equal(second, again)
    assert len(first) == len(second) == score.n / 2 >= 64
    whole = torch.cat([first, second])
    assert len(whole.argmax(-1).unique()) == 3 and not torch.equal(first, second)
    assert score.weights == CONTEXT_FREE == "chance" and score.value == (len(first) - 1) / 2


def test_a_measurement_that_does_not_know_its_context_free_level_has_none():
    found = levels(toys.Walk())
    assert {metric for metric, _ in found} == {"tvd"}  # accuracy and ROC AUC do not say
    assert levels(toys.Walk(), measurements=METRICS[1:]) == {}


@pytest.mark.parametrize("task", [Weighted(), Marked()], ids=lambda task: task.name)
def test_answers_that_count_for_nothing_have_no_part_in_it(task):
    own = Remembers()
    asked = settings(2, 6, 8)
    spoilt = but(task, sample=lambda self, length, random: spoil(task.sample(length, random)))
    assert levels(spoilt, asked) == levels(task, asked)
    context_free_scores(task, [own], *asked)
    if task.signature.answers is Answers.MARKED:
        assert [len(one) + len(two) for one, two in own.given[::2]] == [1024, 2 * 1024, 3 * 1024, 4 * 1024]


def spoil(batch: Batch) -> Batch:
    wrong = torch.tensor([0.0, 0.0, 1.0]).expand_as(batch.distribution)
    return batch._replace(distribution=batch.distribution.where(batch.weights[..., None] > 0, wrong))


def test_lengths_at_which_nothing_counts_have_no_context_free_level():
    assert [length for _, length in levels(Weighted())] == [2, 4, 6, 8, 16, 32]


def test_the_lengths_that_a_task_names_have_a_context_free_level_and_no_other():
    for task in (but(toys.Walk(), lengths=(3, 5, 40, 7)), but(toys.Largest(), lengths=(3, 5, 40, 7))):
        assert [length for _, length in levels(task)] == [3, 5, 7]


def test_the_context_free_level_does_not_depend_on_anything_but_task_and_length():
    """Not on the seed, on how many contexts are tested, or on global randomness. Other processes: see test_experiment.py."""
    found = levels(toys.Walk())
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    others = Training(7, 9, 0.3, 0.1, 0.2, 3, 1, 6), Evaluation(99, 100, 32)
    assert levels(toys.Walk(), others) == found
    assert torch.equal(torch.random.get_rng_state(), before)
