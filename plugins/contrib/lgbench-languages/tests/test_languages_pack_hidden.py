"""Random automata and hidden Markov models, against hmmlearn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hmmlearn.hmm import CategoricalHMM
from scipy.stats import kstest

from lgbench import Random
from lgbench.errors import UsageError
from lgbench.extensions.registry import Registry
from lgbench_languages.hidden import HiddenMarkov, ProbabilisticAutomaton, RandomSource, mixed, rows

SOURCES = [kind(*sizes) for kind in (ProbabilisticAutomaton, HiddenMarkov) for sizes in ((8, 4, 1), (3, 2, 5), (1, 3, 2))]
by_name = pytest.mark.parametrize("task", SOURCES, ids=lambda task: task.name)


def in_hmmlearn(task: RandomSource) -> CategoricalHMM:
    """The same source. An automaton is a hidden Markov model whose states are pairs of a state and the symbol that it emits."""
    if isinstance(task, HiddenMarkov):
        start, moves, emitted = np.eye(task.states)[0], task.moves.numpy(), task.emitted.numpy()
    else:
        assert isinstance(task, ProbabilisticAutomaton)
        pairs = [(state, symbol) for state in range(task.states) for symbol in range(task.symbols)]
        next_states, chances = task.automaton.transitions.tolist(), task.emitted.numpy()
        start = np.array([chances[0, symbol] * (state == 0) for state, symbol in pairs])
        moves = np.array([[(then == next_states[s][x]) * chances[then, y] for then, y in pairs] for s, x in pairs])
        emitted = np.array([np.eye(task.symbols)[symbol] for _, symbol in pairs])
    model = CategoricalHMM(n_components=len(start), n_features=task.symbols)
    model.startprob_, model.transmat_, model.emissionprob_ = start, moves, emitted
    return model


def log_likelihood(model: CategoricalHMM, symbols: list[int]) -> float:
    return float(model.score(np.array(symbols)[:, None])) if symbols else 0.0


@by_name
def test_p_is_that_of_hmmlearn_on_a_thousand_contexts(task: RandomSource) -> None:
    model = in_hmmlearn(task)
    known: dict[tuple[int, ...], list[float]] = {}
    for length in range(13):
        batch = task.sample(length, Random(77, length))
        for row, answers in zip(batch.inputs[:, 1:].tolist(), batch.distribution[:, -1].tolist(), strict=True):
            if tuple(row) not in known:
                before = log_likelihood(model, row)
                after = [log_likelihood(model, [*row, symbol]) for symbol in range(task.symbols)]
                known[tuple(row)] = [math.exp(each - before) for each in after]
            assert answers == pytest.approx(known[tuple(row)], abs=2e-6)


@by_name
def test_contexts_are_as_frequent_as_hmmlearn_says(task: RandomSource) -> None:
    n, model = 20_000, in_hmmlearn(task)
    found, counts = np.unique(task.sample(4, Random(n, 3)).inputs[:, 1:].numpy(), axis=0, return_counts=True)
    for row, count in zip(found.tolist(), counts.tolist(), strict=True):
        chance = math.exp(log_likelihood(model, row))
        assert abs(count - n * chance) <= 6 * (n * chance * (1 - chance) + 1) ** 0.5


@by_name
def test_p_stays_a_distribution_over_thousands_of_symbols(task: RandomSource) -> None:
    p = task.sample(2000, Random(2)).distribution
    assert p.isfinite().all() and torch.allclose(p.sum(-1), torch.ones(2, 2001))


def test_a_context_is_the_same_to_the_bit_alone_and_among_others() -> None:
    task = HiddenMarkov(8, 4, 1)
    every = task.sample(40, Random(300))
    alone = task.sample(40, Random(300)[17:18])
    assert torch.equal(alone.distribution[0], every.distribution[17]) and torch.equal(alone.inputs[0], every.inputs[17])


def test_rows_are_distributions_and_mixing_is_a_product_of_matrices() -> None:
    table = rows(Random(1, 9), 5, 3, power=2)
    weights = rows(Random(1, 4), 7, 5, power=2)
    torch.testing.assert_close(table.sum(1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(mixed(weights.T, table).T, weights @ table)


@pytest.mark.parametrize(("kind", "power"), [(ProbabilisticAutomaton, 4), (HiddenMarkov, 8)])
def test_rows_are_powers_of_uniform_numbers(kind: type[RandomSource], power: int) -> None:
    """A root of the odds is the ratio of two uniform numbers."""
    tables = np.stack([kind(16, 16, seed).emitted.numpy() for seed in range(100)])  # type: ignore[attr-defined]
    ratios = (tables[..., ::2] / tables[..., 1::2]).ravel() ** (1 / power)
    assert kstest(ratios, lambda r: np.where(r < 1, r / 2, 1 - 1 / (2 * r))).pvalue > 0.001


def test_the_name_is_the_source() -> None:
    tasks = Registry.load().tasks
    assert torch.equal(tasks["hmm-5-3-9"].moves, HiddenMarkov(5, 3, 9).moves)  # type: ignore[attr-defined]
    assert not torch.equal(HiddenMarkov(5, 3, 8).moves, HiddenMarkov(5, 3, 9).moves)
    with pytest.raises(
        UsageError, match="pfa-S-V-SEED takes S from 1 to 16 states and V from 2 to 16 symbols, as in pfa-5-3-7"
    ):
        tasks["pfa-5-1-9"]


@pytest.mark.parametrize("kind", [ProbabilisticAutomaton, HiddenMarkov])
def test_a_context_is_written_without_its_begin_token(kind: type[RandomSource]) -> None:
    task = kind(3, 12, 2)
    row = task.sample(5, Random(1)).inputs[0]
    assert torch.equal(task.context(task.text(row)), row) and task.context("(empty)").tolist() == [12]
    assert task.context("0 11 3").tolist() == [12, 0, 11, 3]
    with pytest.raises(
        ValueError, match="'12' is none of its symbols, which are the numbers from 0 to 11, with blanks between"
    ):
        task.context("0 12")


@pytest.mark.parametrize("task", [HiddenMarkov(16, 16, 1), ProbabilisticAutomaton(16, 16, 1)], ids=lambda task: task.name)
def test_the_reference_goes_on_where_probabilities_underflow(task: RandomSource) -> None:
    inputs, p, _ = task.sample(600, Random(2))
    for row, answers in zip(inputs, p[:, -1].tolist(), strict=True):
        assert answers == pytest.approx(list(task.reference(row)), abs=1e-6)
