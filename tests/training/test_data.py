from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from helpers.plain_training import CPU
from helpers.toy_registries import Marked, Weighted

from lgbench.errors import PluginError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.training import data
from lgbench.training.data import CHUNK, stream, training_lengths


def alone(task, training, seed, device=CPU, done=0):
    """The stream of a population of one, without the leading dimension."""
    return ((step.inputs[0], step.targets[0]) for step in stream([(task, seed)], training, device, done))


def settings(task, **changes):
    return replace(PROTOCOLS["quick"].settings(task)[0], **{"batch": 3, **changes})


@pytest.mark.parametrize("done", [1, CHUNK - 1, CHUNK, CHUNK + 3, CHUNK + 5])
@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest()], ids=lambda task: task.name)
def test_a_stream_can_be_entered_after_any_step(task, done):
    training = settings(task, steps=CHUNK + 5)
    whole, rest = list(alone(task, training, 0)), list(alone(task, training, 0, done=done))
    assert len(rest) == len(whole) - done
    for (inputs, targets), (later_inputs, later_targets) in zip(whole[done:], rest, strict=True):
        assert torch.equal(inputs, later_inputs) and torch.equal(targets, later_targets)


@pytest.mark.parametrize("steps", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest()], ids=lambda task: task.name)
def test_a_stream_has_one_batch_a_step_with_legal_targets(task, steps):
    training = settings(task, steps=steps)
    lengths = training_lengths(task, training)
    batches = list(alone(task, training, 0))
    assert len(batches) == len(lengths) == steps
    for (inputs, targets), length in zip(batches, lengths, strict=True):
        assert inputs.shape[:2] == (3, length)
        if isinstance(task, toys.Walk):
            assert toys.WALK[inputs].gather(-1, targets[..., None]).gt(0).all()
        else:
            assert torch.equal(targets, inputs.sum(1).argmax(-1, keepdim=True))


@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest(), toys.Even()], ids=lambda task: task.name)
def test_how_many_steps_are_drawn_at_once_changes_nothing(task, monkeypatch):
    training = settings(task, steps=CHUNK + 5)
    whole = list(alone(task, training, 0))
    for chunk, numbers in ((1, 2**22), (7, 2**22), (CHUNK, 1), (CHUNK, 600), (10 * CHUNK, 2**22)):
        monkeypatch.setattr(data, "CHUNK", chunk)
        monkeypatch.setattr(data, "DRAWN_NUMBERS", {"cpu": numbers})
        for (inputs, targets), (same, right) in zip(whole, alone(task, training, 0), strict=True):
            assert torch.equal(inputs, same) and torch.equal(targets, right)


class Other(toys.Walk):
    name = "toy-other"


def test_a_seed_has_the_same_contexts_beside_models_of_other_tasks_and_others_on_each_task():
    members = [(Other(), 0), (toys.Walk(), 3), (Other(), 3), (toys.Walk(), 0)]
    training = settings(toys.Walk(), steps=9)
    streams = [alone(task, training, seed) for task, seed in members]
    for together, *single in zip(stream(members, training, CPU), *streams, strict=True):
        for model, (inputs, targets) in enumerate(single):
            assert torch.equal(together.inputs[model], inputs) and torch.equal(together.targets[model], targets)
        assert not torch.equal(together.inputs[0], together.inputs[3])


def test_lengths_cover_the_range_and_are_the_same_for_all_seeds():
    task = toys.Largest()
    training = settings(task, steps=200, min_length=2, max_length=5)
    lengths = training_lengths(task, training)
    assert set(lengths) == {2, 3, 4, 5}
    for seed in (0, 1):
        assert [inputs.shape[1] for inputs, _ in alone(task, training, seed)] == lengths


def test_tasks_that_answer_at_every_prefix_train_on_the_longest():
    task = toys.Walk()
    assert set(training_lengths(task, settings(task, steps=50))) == {6}


def test_exact_targets_are_p_star_itself_on_the_contexts_that_drawn_ones_belong_to():
    task = toys.Walk()
    drawn, exact = (list(alone(task, settings(task, steps=CHUNK, targets=targets), 0)) for targets in ("sampled", "exact"))
    for (inputs, tokens), (same, distribution) in zip(drawn, exact, strict=True):
        assert torch.equal(inputs, same) and torch.equal(distribution, toys.WALK[inputs])
        assert distribution.gather(-1, tokens[..., None]).gt(0).all()


def test_weights_come_with_the_contexts_that_they_belong_to_and_only_where_a_task_gives_some():
    training = settings(toys.Walk(), steps=3)
    for members, weighted in (
        ([(toys.Walk(), 0), (toys.Walk(), 1)], None),
        ([(toys.Walk(), 0), (Weighted(), 1)], [1, 1, 1, 1, 1, 1]),
    ):
        for step in stream(members, training, CPU):
            assert len(step.tensors) == (2 if weighted is None else 3)
            if weighted:
                assert step.weights.shape == step.targets.shape == (2, 3, 6)
                assert torch.equal(step.weights[0], torch.tensor(weighted).float().expand(3, 6))
                assert torch.equal(step.weights[1], torch.tensor([0.0, 2.0, 0.0, 4.0, 0.0, 6.0]).expand(3, 6))


def test_a_task_that_answers_where_it_marks_trains_on_every_length():
    task = Marked()
    lengths = training_lengths(task, settings(task, steps=100))
    assert set(lengths) == {2, 3, 4, 5, 6}
    for step, length in zip(stream([(task, 0)], settings(task, steps=100), CPU), lengths, strict=True):
        assert step.inputs.shape == step.targets.shape == step.weights.shape == (1, 3, length)


@pytest.mark.parametrize("done", [0, 3])
def test_a_task_that_breaks_its_own_p_star_is_stopped_by_name_in_whatever_chunk(done):
    """On a CPU, where looking costs nothing, every chunk is looked at."""

    class Late(toys.Walk):
        name = "toy-late"
        drawn = 0

        def sample(self, length, random):
            self.drawn += 1
            batch = super().sample(length, random)
            return batch if self.drawn <= done else batch._replace(distribution=batch.distribution * 1.5)

    with pytest.raises(PluginError, match="toy-late at length 6") as raised:
        list(alone(Late(), settings(toys.Walk(), steps=5 * CHUNK), 0))
    assert "a sum of 1.5" in str(raised.value)
