"""Published tasks that count some positions only, as plugins, trained and measured, and held to plain computations."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
import toys
from helpers.breaking import assert_sound
from helpers.number_positions import ByNumber
from helpers.plain_decoder import built_in_and
from helpers.plain_training import CPU, initial
from helpers.planning import plan_of
from helpers.toy_registries import toys_and
from torch import Tensor

from lgbench import Answers, Batch, Optimizer, Random, Signature, State, Task, Tokens, Weights
from lgbench.experiment.experiment import Experiment
from lgbench.measurement.evaluate import context_free_scores, evaluate
from lgbench.randomness import key_of
from lgbench.training.models import Trained
from lgbench.training.population import Population
from lgbench.training.train import train

WRITE, IGNORE, READ = 2, 3, 4
"""Tokens; 0 and 1 are bits."""


class FlipFlop(Task):
    """Pairs of an instruction and a bit; the bit of a read is that of the latest write (arXiv 2306.00946). Only reads count."""

    name = family = "flip-flop"
    version = 1
    signature = Signature(Tokens(5), 5, Answers.EVERY_PREFIX)
    train_lengths = (1, 9)
    lengths = (3, 5, 9, 17)

    def sample(self, length: int, random: Random) -> Batch:
        pairs = (length + 1) // 2
        instructions = WRITE + random.integers(READ + 1 - WRITE, pairs)
        instructions[:, 0] = WRITE
        bits = random.integers(2, pairs)
        for pair in range(1, pairs):
            bits[:, pair] = torch.where(instructions[:, pair] == WRITE, bits[:, pair], self._memory(instructions, bits, pair))
        tokens = torch.stack([instructions, bits], -1).flatten(1)[:, :length]
        distribution = torch.zeros(random.n, 2 * pairs, 5)
        distribution[:, 0::2, :2] = 0.5
        distribution[:, 1::2, WRITE:] = 1 / 3
        reads = (instructions == READ)[..., None]
        distribution[:, 0::2, :2] = torch.where(reads, F.one_hot(bits, 2).float(), distribution[:, 0::2, :2])
        return Batch(tokens, distribution[:, :length], (tokens == READ).float())

    def reference(self, context: Tensor) -> list[float]:
        *before, last = context.tolist()
        if len(before) % 2:
            return [0.0, 0.0, 1 / 3, 1 / 3, 1 / 3]
        if last != READ:
            return [0.5, 0.5, 0.0, 0.0, 0.0]
        written = [bit for instruction, bit in zip(before[0::2], before[1::2], strict=True) if instruction == WRITE]
        return [1.0 - written[-1], float(written[-1]), 0.0, 0.0, 0.0]

    @staticmethod
    def _memory(instructions: Tensor, bits: Tensor, pair: int) -> Tensor:
        """A read repeats what is stored; an ignored bit is anything, and is not stored. Bits before `pair` are known."""
        drawn = bits[:, pair]
        stored = bits[:, 0]
        for earlier in range(1, pair):
            stored = torch.where(instructions[:, earlier] == WRITE, bits[:, earlier], stored)
        return torch.where(instructions[:, pair] == READ, stored, drawn)


class Copy(Task):
    """Symbols, a separator, and the symbols again: the second time every symbol is known, and counts."""

    name = family = "copy"
    version = 1
    signature = Signature(Tokens(5), 4, Answers.MARKED)
    train_lengths = (1, 3)
    lengths = (1, 2, 3, 6)

    def sample(self, length: int, random: Random) -> Batch:
        symbols = random.integers(4, length)
        inputs = torch.cat([symbols, torch.full((random.n, 1), 4), symbols[:, :-1]], 1)
        before = torch.full((random.n, length, 4), 0.25)
        weights = torch.cat([torch.zeros(random.n, length), torch.ones(random.n, length)], 1)
        return Batch(inputs, torch.cat([before, F.one_hot(symbols, 4).float()], 1), weights)


def planned(task: Task, seeds: tuple[int, ...] = (0,), entry: str = "transformer", **changes: object) -> tuple[Experiment, ...]:
    settings = {"train.steps": "6", "train.batch": "8", "evaluate.max_length": "17" if task.name == "flip-flop" else "6"}
    settings |= {"evaluate.contexts": "40", "model.width": "8", "model.layers": "1"}
    settings |= {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    registry = built_in_and(task=task, position=ByNumber("by-number", ("embed", "rotate", "bias")))
    return plan_of(registry, task.name, entry, seeds=seeds, set=settings).experiments


tasks = pytest.mark.parametrize("task", [FlipFlop(), Copy()], ids=lambda task: task.name)


def drawn(experiment: Experiment, length: int) -> Batch:
    """The contexts that a seed is tested on."""
    key = key_of(experiment.seed, "evaluate", experiment.task.name, "contexts", length)
    return experiment.task.sample(length, Random.stacked([key], experiment.evaluate.contexts))


def distances(model, batch: Batch) -> dict[tuple[int, int], float]:
    """The total variation distance at every position that counts, by context and position."""
    p = model(batch.inputs).detach().double().softmax(-1).tolist()
    exact, found = batch.distribution.tolist(), {}
    for b, t in batch.weights.nonzero().tolist():
        found[b, t] = sum(abs(x - y) for x, y in zip(p[b][t], exact[b][t], strict=True)) / 2
    return found


def test_reads_are_measured_at_the_lengths_after_which_one_comes() -> None:
    (experiment,) = planned(FlipFlop())
    model = initial(experiment).eval()
    found = {s.length: (s.value, s.n) for s in evaluate(experiment, {"raw": model}, CPU) if s.metric == "tvd"}
    by_hand = distances(model, drawn(experiment, 17))
    assert sorted(found) == list(range(1, 18))
    for length, (value, n) in found.items():
        own = [distance for (_, position), distance in by_hand.items() if position == length - 1]
        assert n == len(own)
        assert value == (pytest.approx(sum(own) / len(own), abs=1e-6) if own else None)
    assert [length for length, (_, n) in found.items() if n] == [3, 5, 7, 9, 11, 13, 15, 17]


def test_all_copied_symbols_count_for_the_length_of_what_is_copied() -> None:
    (experiment,) = planned(Copy())
    model = initial(experiment).eval()
    found = {s.length: (s.value, s.n) for s in evaluate(experiment, {"raw": model}, CPU) if s.metric == "tvd"}
    assert sorted(found) == [1, 2, 3, 6]
    for length, (value, n) in found.items():
        own = list(distances(model, drawn(experiment, length)).values())
        assert n == len(own) == 40 * length
        assert value == pytest.approx(sum(own) / len(own), abs=1e-6)


@pytest.mark.parametrize(("task", "level"), [(FlipFlop(), 0.5), (Copy(), 0.75)], ids=["flip-flop", "copy"])
def test_the_context_free_level_is_that_of_the_positions_that_count(task: Task, level: float) -> None:
    (own,) = planned(task)
    scores = context_free_scores(task, own.measurements, own.train, own.evaluate)
    levels = {score.length: score.value for score in scores if score.metric == "tvd"}
    assert levels == pytest.approx(dict.fromkeys(task.lengths, level), abs=0.1)


class Descent(Optimizer):
    """w <- w - lr g."""

    name = "descent"

    def start(self, weights: Weights) -> State:
        return {}

    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        return {}, {name: w - lr[name] * gradients[name] for name, w in weights.items()}


def test_the_gradient_of_exact_targets_is_the_expectation_of_that_of_sampled_ones(double) -> None:
    registry = toys_and(optimizer=Descent())
    experiments = plan_of(registry, "toy-walk", "toy-table", set={"train.warmup": "0"}, optimizer="descent").experiments
    inputs, p, _ = toys.Walk().sample(4, Random(1, 1))

    def moved(targets: Tensor) -> Tensor:
        population = Population(experiments, CPU)
        before = population.state.weights.clone()
        with torch.no_grad():
            population.advance(inputs[None], targets[None])
        return population.state.weights - before

    expected = torch.zeros_like(moved(p))
    for tokens in product(range(3), repeat=4):
        probability = p[0, range(4), tokens].prod()
        expected += probability * moved(torch.tensor([tokens]))
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(moved(p), expected, rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("backend", "targets"), [("eager", "exact"), ("inductor", "sampled")])
def test_weights_and_codes_that_read_tokens_compile(monkeypatch, backend: str, targets: str) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    experiments, said = planned(FlipFlop(), (0, 1), "by-number", train_targets=targets), []
    compiled: Trained = train(experiments, CPU, compile=True, say=said.append)
    assert compiled.compiled, said
    for name, weight in train(experiments, CPU).weights["raw"].items():
        torch.testing.assert_close(compiled.weights["raw"][name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("task", [Copy(), FlipFlop()], ids=lambda task: task.name)
def test_a_published_task_passes_all_checks(task: Task, recwarn) -> None:
    assert_sound(task)
