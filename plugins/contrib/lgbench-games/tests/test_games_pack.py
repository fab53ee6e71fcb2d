from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import lgbench_games
from lgbench import Random, Task
from lgbench.conformance.check import Check
from lgbench.testing import checks
from lgbench_games.connect_four import ConnectFour
from lgbench_games.othello import FIELDS, OVER, Othello, replayed

PASS = 64
"""The action of OpenSpiel for a player without a move."""


@pytest.mark.slow
@pytest.mark.parametrize("check", checks(lgbench_games))
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def game_of_open_spiel(name: str) -> Any:
    return pytest.importorskip("pyspiel", reason="OpenSpiel has no package for this Python").load_game(name)


def legal_squares(state: Any) -> list[int]:
    """Squares on which the mover, or after a pass the other player, may move; none when the game is over."""
    while not state.is_terminal() and state.legal_actions() == [PASS]:
        state.apply_action(PASS)
    return [] if state.is_terminal() else state.legal_actions()


def follow_othello(game: Any, context: list[int], p: Tensor, counts: list[float]) -> tuple[int, int]:
    """Compare p* after each move with OpenSpiel. Returns the moves before the end, and the passes."""
    state, passes = game.new_initial_state(), 0
    legal = legal_squares(state)
    for place, token in enumerate(context):
        if not legal:
            assert set(context[place:]) == {OVER} and not any(counts[place - 1 :])
            return place, passes
        assert FIELDS[token] in legal
        state.apply_action(FIELDS[token])
        before = state.current_player()
        legal = legal_squares(state)
        passes += bool(legal) and state.current_player() != before
        assert counts[place] == bool(legal)
        right = [FIELDS.index(square) for square in legal] or [OVER]
        assert p[place].tolist() == pytest.approx([(token in right) / len(right) for token in range(OVER + 1)])
    return len(context), passes


@pytest.mark.parametrize("length", range(1, 13))
def test_legal_moves_of_othello_are_those_of_open_spiel(length: int) -> None:
    inputs, distribution, weights = Othello().sample(length, Random(84, seed=length))
    assert weights is not None
    game = game_of_open_spiel("othello")
    for context, p, counts in zip(inputs.tolist(), distribution, weights.tolist(), strict=True):
        follow_othello(game, context, p, counts)


def test_whole_games_of_othello_are_those_of_open_spiel_passes_and_early_ends_among_them() -> None:
    inputs, distribution, weights = Othello().sample(59, Random(2000))
    assert weights is not None
    game, passes = game_of_open_spiel("othello"), 0
    early = (weights == 0).any(1)
    assert early.sum() > 5
    chosen = torch.arange(2000) < 150
    for context, p, counts in zip(*(each[chosen | early] for each in (inputs, distribution, weights)), strict=True):
        passes += follow_othello(game, context.tolist(), p, counts.tolist())[1]
    assert passes > 50


def test_a_plain_replay_has_the_same_legal_moves_of_othello() -> None:
    inputs, distribution, weights = Othello().sample(59, Random(60, seed=4))
    assert weights is not None
    for context, p, counts in zip(inputs.tolist(), distribution, weights.tolist(), strict=True):
        for place in range(0, 59, 7):
            if counts[place]:
                assert p[place].nonzero()[:, 0].tolist() == replayed(context[: place + 1])


def test_moves_of_othello_are_uniform_over_the_legal_ones() -> None:
    inputs = Othello().sample(2, Random(12_000)).inputs
    counts = Counter(map(tuple, inputs.tolist()))
    assert len(counts) == 12  # 4 first moves, each with 3 replies
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_games_of_othello_with_an_early_disc_on_h8_are_those_of_open_spiel() -> None:
    """Square 63 is the sign of an int64."""
    inputs, distribution, weights = Othello().sample(59, Random(300, seed=9))
    assert weights is not None
    early = (inputs[:, :30] == FIELDS.index(63)).any(1)
    assert early.sum() > 20
    game = game_of_open_spiel("othello")
    for context, p, counts in zip(*(each[early] for each in (inputs, distribution, weights)), strict=True):
        follow_othello(game, context.tolist(), p, counts.tolist())


def test_connect_four_is_that_of_open_spiel() -> None:
    game, ended = game_of_open_spiel("connect_four"), 0
    for length in (*range(1, 13), 42):
        inputs, distribution, weights = ConnectFour().sample(length, Random(84, seed=length))
        assert weights is not None
        for context, p, counts in zip(inputs.tolist(), distribution, weights.tolist(), strict=True):
            state = game.new_initial_state()
            for place, token in enumerate(context):
                assert counts[place] == (not state.is_terminal())
                if state.is_terminal():
                    assert token == 7 and p[place].tolist() == [0] * 7 + [1]
                    continue
                state.apply_action(token)
                right = [7] if state.is_terminal() else state.legal_actions()
                assert p[place].tolist() == pytest.approx([(column in right) / len(right) for column in range(8)])
            ended += state.is_terminal()
    assert ended > 80


def test_moves_of_connect_four_are_uniform_over_the_columns_with_room() -> None:
    inputs, distribution, _ = ConnectFour().sample(16, Random(6000))
    counts = Counter(inputs[:, 0].tolist())
    assert chisquare([counts[column] for column in range(7)]).pvalue > 0.001
    full = (distribution[:, 14, :7] > 0).sum(1) == 6  # one column is full
    places = (distribution[:, 14, :7] > 0).cumsum(1).gather(1, inputs[:, 15:].clamp(max=6))[full, 0]
    assert chisquare([(places == place).sum().item() for place in range(1, 7)]).pvalue > 0.001


@pytest.mark.parametrize("task", lgbench_games.lgbench_tasks(), ids=lambda task: task.name)
def test_texts_are_read_back_and_other_words_are_refused(task: Task) -> None:
    context = task.sample(30, Random(1)).inputs[0]
    assert torch.equal(task.context(task.text(context)), context)
    with pytest.raises(ValueError, match="'#' is none of its tokens"):
        task.context("#")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (Othello(), "f5 f5", "'f5' is no legal move after 'f5'"),
        (Othello(), "a1", "'a1' is no legal move after 'the start'"),
        (ConnectFour(), "1 1 1 1 1 1 1", "'1' is no legal move after '1 1 1 1 1 1'"),
        (ConnectFour(), "1 2 1 2 1 2 1 2", "'2' is no legal move after '1 2 1 2 1 2 1'"),
    ],
)
def test_an_illegal_move_is_refused_in_words(task: Task, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task.context(text)
