from __future__ import annotations

import json
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.plain_training import CPU
from helpers.registries import with_model
from helpers.trainings import bits, numbers, resumed_at, stopping_after
from safetensors.torch import save_file
from torch import nn

from lgbench.errors import RunFileError
from lgbench.training import checkpoint as checkpoint_module
from lgbench.training.checkpoint import Checkpoint, TrainingProgress
from lgbench.training.data import stream
from lgbench.training.population import Compiled, Population
from lgbench.training.program import Graph
from lgbench.training.train import train

AWKWARD = [float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 1 / 3]


def state() -> dict[str, torch.Tensor]:
    """Tensors of every kind that a population has, with the numbers that a careless format loses."""
    return {
        "weights": torch.tensor([AWKWARD, AWKWARD[::-1]]),
        "step": torch.tensor([2.0**53 - 1], dtype=torch.float64),
        "diverged": torch.tensor([0, 2**62 + 1, -1]),
        "average/toy-mean/seen/": torch.tensor(0.1),
        "average/toy-mean/half/out.weight": torch.tensor([[1e-7, 65504.0]], dtype=torch.float16),
        "empty": torch.zeros(0, 3),
    }


def blank(tensors) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def saved(path: Path, tensors=None, step: int = 7) -> Checkpoint:
    checkpoint = Checkpoint(path, every=0)
    checkpoint.save(TrainingProgress(step), state() if tensors is None else tensors)
    return checkpoint


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "checkpoint.safetensors"


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time as checkpoints see it, which the test sets; each look at it takes `tick` seconds."""
    clock = SimpleNamespace(now=1000.0, tick=0.0)

    def look() -> float:
        clock.now += clock.tick
        return clock.now

    monkeypatch.setattr(checkpoint_module, "time", SimpleNamespace(monotonic=look))
    return clock


def test_every_tensor_comes_back_to_the_bit(path):
    progress = TrainingProgress(12345, compiled=True, seconds=1 / 3)
    Checkpoint(path, every=0).save(progress, state())
    tensors = blank(state())
    places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    assert Checkpoint(path, every=60).restore(tensors) == progress
    assert bits(tensors) == bits(state())
    assert {name: tensor.data_ptr() for name, tensor in tensors.items()} == places  # compiled steps hold on to them


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_found(path, every):
    checkpoint = saved(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), every):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        tensors = blank(state())
        try:
            progress = checkpoint.restore(tensors)
        except RunFileError:
            assert bits(tensors) == bits(blank(state()))
        else:  # a space between two words of the header
            assert progress == TrainingProgress(7) and bits(tensors) == bits(state()), place


def test_a_failed_save_keeps_the_state_before_and_training_goes_on(toy_registry, planned, path, monkeypatch):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], train_steps=20)
    whole = numbers(train(experiments, CPU))

    def full(tensors, place, metadata):
        save_file(tensors, place, metadata=metadata)
        if json.loads(metadata["progress"])["step"] != 4:
            raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "save_file", full)
    said: list[str] = []
    trained = train(experiments, CPU, checkpoint=Checkpoint(path, 0), say=said.append)
    assert numbers(trained) == whole
    sentence = "no checkpoint after step {}: [Errno 28] No space left on device; training goes on"
    assert said == [sentence.format(step) for step in range(1, 21) if step != 4]
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    again = train(experiments, CPU, checkpoint=Checkpoint(path, 60), say=said.append)
    assert said[-1] == "training goes on after step 4" and numbers(again) == whole


def test_a_population_comes_back_with_all_that_training_changes(registry, planned, path):
    settings = {"train_steps": 10, "train_batch": 2, "train_average_every": 1, "model_width": 8}
    experiments = planned(registry, "tomita-4", "peri-norm", seeds=(0, 1), averagers=None, **settings)
    batch = next(stream([(e.task, e.seed) for e in experiments], experiments[0].train, CPU)).tensors
    before, after = (Population(experiments, CPU) for _ in range(2))
    fresh = bits(after.tensors())
    with torch.no_grad():
        before.advance(*batch)
        before.average()
        before.mark(1)
        before.advance(*batch)
    saved(path, before.tensors(), step=2)
    assert Checkpoint(path, every=60).restore(after.tensors()).step == 2
    assert bits(after.tensors()) == bits(before.tensors())
    same = {name for name, content in bits(before.tensors()).items() if content == fresh[name]}
    assert same == {"diverged"} | {name for name in fresh if name.startswith("average/bema/origin/")}


def resaved(change):
    """Function that saves the state with a change."""
    return lambda path: saved(path, change(state()))


def spoiled(change):
    """Function that saves the state and changes the bytes of the file."""
    return lambda path: (saved(path), path.write_bytes(change(path.read_bytes())))


UNREADABLE = {
    "truncated": spoiled(lambda content: content[:-1]),
    "truncated in its header": spoiled(lambda content: content[:20]),
    "empty": Path.touch,
    "garbage": spoiled(lambda content: b"\xff" * 1000),
}
DAMAGED = {
    "without its progress": lambda path: save_file(state(), path),
    "of an older version": lambda path: save_file(state(), path, metadata={"step": "7"}),
}
FOREIGN = {
    "of more models": resaved(lambda found: {name: torch.cat([t, t]) if t.ndim else t for name, t in found.items()}),
    "of another type": resaved(lambda found: found | {"step": found["step"].float()}),
    "of another averager": resaved(lambda found: {name.replace("toy-mean", "toy-mode"): t for name, t in found.items()}),
    "with a tensor too few": resaved(lambda found: {name: t for name, t in found.items() if name != "diverged"}),
}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        *((name, "cannot be read") for name in UNREADABLE),
        *((name, "is damaged, or of another version") for name in DAMAGED),
        *((name, "is of other models") for name in FOREIGN),
    ],
)
def test_a_file_that_is_no_state_of_these_models_is_refused_and_leaves_them_as_they_are(path, spoil, said):
    (UNREADABLE | DAMAGED | FOREIGN)[spoil](path)
    tensors = blank(state())
    with pytest.raises(RunFileError, match=said) as raised:
        Checkpoint(path, every=60).restore(tensors)
    assert str(path) in str(raised.value)
    assert bits(tensors) == bits(blank(state()))


@pytest.mark.parametrize(
    ("every", "saves", "seconds", "last", "due"),
    [
        (60, False, 59.9, False, False),
        (60, False, 60.0, False, True),
        (60, True, 59.9, False, False),
        (60, True, 60.0, False, True),
        (60, False, 0.0, True, False),
        (60, True, 0.0, True, True),  # a training that was saved before is saved at its end
        (600, False, 9.9, True, False),
        (600, False, 10.0, True, True),  # a long training is saved before its run files are written
        (600, False, 10.0, False, False),
    ],
)
def test_a_checkpoint_is_due_by_time_and_at_the_end_of_a_long_training(path, clock, every, saves, seconds, last, due):
    checkpoint = Checkpoint(path, every)
    if saves:
        clock.now += 100
        checkpoint.save(TrainingProgress(1), state())
    clock.now += seconds
    assert checkpoint.due(last) == due


def test_steps_since_the_latest_checkpoint_are_done_again_with_the_same_numbers(toy_registry, planned, path, clock):
    settings = {"train_batch": 2, "train_average_every": 3, "train_steps": 100}
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], **settings)
    whole = numbers(train(experiments, CPU))
    clock.tick = 1.0  # one look a step, and one at each saving
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        train(experiments, CPU, stopping_after(80), checkpoint=Checkpoint(path, 30), say=said.append)
    seen: list[int] = []
    resumed = train(experiments, CPU, lambda step, loss: seen.append(step), checkpoint=Checkpoint(path, 30), say=said.append)
    assert said == ["training goes on after step 60"] and seen == list(range(61, 101))  # other chunks of data than at first
    assert numbers(resumed) == whole


class Normed(nn.Module):
    """A table with batch norm, whose running mean and variance a forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.out(self.norm(self.table(inputs).mT).mT)


def test_buffers_that_training_changes_go_on_from_a_checkpoint_to_the_bit(planned, path):
    experiments = planned(with_model(Normed), "toy-walk", "toy-own", seeds=(0, 1), train_steps=8)
    whole = train(experiments, CPU)
    assert whole.buffers["norm.num_batches_tracked"].tolist() == [8, 8]
    assert numbers(resumed_at(4, experiments, path, CPU)) == numbers(whole)


def test_a_training_that_was_done_is_not_repeated(toy_registry, planned, path):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], train_steps=20)
    whole = train(experiments, CPU, checkpoint=Checkpoint(path, 0))
    again = train(experiments, CPU, stopping_after(20), checkpoint=Checkpoint(path, 0))
    assert numbers(again) == numbers(whole)
    assert again.resumed and not whole.resumed


@pytest.mark.parametrize("spoil", [UNREADABLE["truncated"], FOREIGN["of more models"]], ids=["truncated", "of more models"])
def test_an_unusable_checkpoint_is_reported_and_training_starts_anew_with_the_same_numbers(toy_registry, planned, path, spoil):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], train_steps=20)
    whole = numbers(train(experiments, CPU))
    spoil(path)
    said: list[str] = []
    again = train(experiments, CPU, checkpoint=Checkpoint(path, 0), say=said.append)
    assert numbers(again) == whole and not again.resumed
    (sentence,) = said
    assert str(path) in sentence and sentence.endswith("training starts from its beginning")


GRAPH = "lgbench.training.population.graph_of"


def no_compiler(*arguments):
    raise RuntimeError("no compiler")


@pytest.fixture
def compiling(monkeypatch) -> list[object]:
    """Compiling takes no time here and changes nothing; the steps for which it was done."""
    done: list[object] = []

    def graph_of(step, *settings):
        done.append(step)
        return Graph(None, program=step)

    monkeypatch.setattr(GRAPH, graph_of)
    return done


@pytest.mark.parametrize("began", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize("asked", [True, False], ids=["compile", "no-compile"])
def test_training_continues_compiled_or_not_as_it_began_and_says_so(toy_registry, planned, path, compiling, began, asked):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_steps=20)
    with pytest.raises(KeyboardInterrupt):
        train(experiments, CPU, stopping_after(7), compile=began, checkpoint=Checkpoint(path, 0))
    compiling.clear()
    said: list[str] = []
    trained = train(experiments, CPU, compile=asked, checkpoint=Checkpoint(path, 0), say=said.append)
    assert trained.compiled == began and len(compiling) == began and trained.resumed
    how = "" if began == asked else ", compiled as it began" if began else ", not compiled, as it began"
    assert said[0] == f"training goes on after step 7{how}"


def test_a_step_that_could_not_be_compiled_is_not_compiled_where_training_goes_on(toy_registry, planned, path, monkeypatch):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_steps=20)
    monkeypatch.setattr(GRAPH, no_compiler)
    with pytest.raises(KeyboardInterrupt):
        train(experiments, CPU, stopping_after(7), compile=True, checkpoint=Checkpoint(path, 0))
    monkeypatch.setattr(GRAPH, lambda *arguments: pytest.fail("it began without"))
    assert not train(experiments, CPU, compile=True, checkpoint=Checkpoint(path, 0)).compiled


def test_a_step_of_one_position_which_is_never_compiled_does_not_hide_that_others_cannot_be(monkeypatch):
    monkeypatch.setattr(GRAPH, no_compiler)
    plain, said = (lambda inputs: inputs.sum((1, 2))), []
    population = SimpleNamespace(
        flat=lambda: ([], plain), batch_shapes=2, varying=lambda batch: {0: 2}, advance=plain, step_key=0
    )
    compiled = Compiled(population, said.append)
    assert compiled(torch.ones(2, 1, 1)).tolist() == [1, 1] and compiled.compiles
    assert compiled(torch.ones(2, 1, 2)).tolist() == [2, 2] and not compiled.compiles
    assert said == ["the training step cannot be compiled here and runs as it is: RuntimeError: no compiler"]


def test_the_seconds_of_training_are_those_of_all_its_parts(toy_registry, planned, path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("lgbench.training.train.time", SimpleNamespace(monotonic=lambda: now))

    def a_second_a_step(stop):
        def report(step, loss):
            nonlocal now
            now += 1
            stopping_after(stop)(step, loss)

        return report

    experiments = planned(toy_registry, "toy-walk", "toy-table", train_steps=20)
    for stop in (7, 12):
        with pytest.raises(KeyboardInterrupt):
            train(experiments, CPU, a_second_a_step(stop), checkpoint=Checkpoint(path, 0))
        now += 1000
    trained = train(experiments, CPU, a_second_a_step(None), checkpoint=Checkpoint(path, 0))
    assert trained.seconds == 20 - 2  # a step is saved before it is reported
    assert train(experiments, CPU, a_second_a_step(None)).seconds == 20
