"""Parts of a model: how entries name them, and what training owes to the models that they make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import CPU, parts_of, with_model
from torch import Tensor, nn

from lgbench import Attention, Place, Position, Unsupported, UsageError, hookimpl, runfiles
from lgbench.experiment import Request, plan
from lgbench.loading import Distribution
from lgbench.noise import Noise
from lgbench.registry import Registry
from lgbench.selection import find_entries
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.population import Population
from lgbench.training.train import train

LEADERBOARDS = Path(__file__).parent.parent / "leaderboards" / "runs"


class Sharp(nn.Module):
    """Takes the value of the nearest key, times a learned number that is not a vector, and tells in which mode it is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, asking: Tensor, bias: Tensor | None) -> Tensor:
        taken = self.scale * v[..., -q.shape[-2] :, :]
        return taken if self.training else taken * 0 + 7


class Nearest(Attention):
    """The value of the nearest key."""

    name = "nearest"

    def build(self, place: Place) -> nn.Module:
        return Sharp()


class Jitter(nn.Module):
    """x + the noise of the step, in training."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = Noise(1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.noise() if self.training else x


class Jittered(Position):
    """No position, and noise on the embedding in training."""

    name = "jittered"

    def embed(self, width: int, positions: int) -> nn.Module:
        return Jitter()


@pytest.fixture(scope="module")
def known() -> Registry:
    """What is installed, and the parts above."""
    module = ModuleType("own")
    module.lgbench_attentions = hookimpl(specname="lgbench_attentions")(lambda: [Nearest()])
    module.lgbench_positions = hookimpl(specname="lgbench_positions")(lambda: [Jittered()])
    registry = Registry.load()
    assert registry.add(module, "own", Distribution("own", "1")).error is None
    return registry


@pytest.mark.parametrize(
    "name",
    [
        "transformer+peri-norm+nearest+jittered",
        "jittered+nearest+peri-norm",
        "peri-norm+nearest+jittered",
        "transformer+nearest+jittered+peri-norm",
    ],
)
def test_parts_may_be_named_in_any_order_and_make_one_entry(known, planned, name):
    (experiment,) = planned(known, "tomita-1", name)
    assert experiment.entry == "transformer+peri-norm+nearest+jittered"
    assert experiment.parts(known) == {"norm": "peri-norm", "attention": "nearest", "position": "jittered"}


def test_a_part_that_is_the_architectures_own_is_not_another_entry(known, planned):
    plain, named = planned(known, "tomita-1", ["pre-norm"]), planned(known, "tomita-1", ["transformer+softmax+nope+pre-norm"])
    assert plain == named
    assert plain[0].entry == "transformer+pre-norm"
    assert plain[0].parts(known) == {"norm": "pre-norm", "attention": "softmax", "position": "nope"}


def test_another_part_is_another_run(known, planned):
    entries = ["pre-norm", "nearest", "jittered", "nearest+jittered"]
    assert len({experiment.run_id for experiment in planned(known, "tomita-1", entries)}) == 4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("peri-norm+pre-norm", "names two norms, peri-norm and pre-norm; a model has one"),
        ("set-attention+jittered", "set-attention takes no position, so 'set-attention+jittered' cannot be"),
        ("set-attention+jittered", "parts that it takes: norm, attention"),
        ("peri-norm+nearst", "no norm, attention or position 'nearst'; did you mean 'nearest'?"),
        ("transfrmer+nearest", "no architecture, norm, attention or position 'transfrmer'; did you mean 'transformer'?"),
        ("transformer+", "no norm, attention or position ''"),
        ("nearest+transformer", "no norm, attention or position 'transformer'"),
    ],
)
def test_entries_that_cannot_be_say_what_could(known, name, said):
    with pytest.raises(UsageError) as refused:
        find_entries([name], known)
    assert said in str(refused.value)


def test_a_misspelt_entry_is_told_by_its_own_name_where_there_is_no_baseline(toy_registry):
    with pytest.raises(UsageError, match="position 'toy-tabel'; did you mean 'toy-table'"):
        find_entries(["toy-tabel"], toy_registry)
    with pytest.raises(UsageError, match="no architecture 'transformer'"):
        find_entries(["toy-nothing"], toy_registry)


def test_runs_published_before_there_were_parts_keep_their_ids(registry):
    for name in ("tomita-1.transformer+peri-norm.seed-0", "max-retrieval.set-attention+pre-norm.seed-0"):
        (path,) = LEADERBOARDS.glob(f"{name}.*.parquet")
        task, entry, *_ = path.name.split(".")
        assert "attention" not in runfiles.metadata(path)["experiment"]
        (experiment,) = plan(Request([task], [entry], ["bema", "ema"], [0], "standard"), registry).experiments
        assert f".{experiment.run_id}." in path.name


def test_positions_are_counted_to_the_longest_input_of_the_task(known, planned):
    seen = []

    class Counting(Position):
        """Writes down what it is told."""

        name = "counting"

        def embed(self, width: int, positions: int) -> nn.Module:
            seen.append(positions)
            return nn.Identity()

        def turn(self, place: Place) -> None:
            seen.append(place.train_keys)

    registry = Registry.load()
    module = ModuleType("counts")
    module.lgbench_positions = hookimpl(specname="lgbench_positions")(lambda: [Counting()])
    registry.add(module, "counts", Distribution("counts", "1"))
    planned(registry, ["set-complement"], "counting", train_max_length=16, evaluate_max_length=63)
    assert seen == [63, 16]
    seen.clear()
    planned(registry, ["max-retrieval"], "counting", train_max_length=16, evaluate_max_length=64)
    assert seen == [65, 17]  # a query beside the items
    seen.clear()
    planned(registry, ["tomita-5"], "counting", train_max_length=40, evaluate_max_length=51)
    assert seen == [53, 41, 41]  # a begin token, and membership is tested at 52, since no member is 51 long


def test_attentions_are_told_how_many_keys_the_last_query_sees_in_training(known, planned):
    told, seen = [], []

    class Counting(Attention):
        """Writes down what it is told, and what it is given."""

        name = "counting"

        def build(self, place: Place) -> nn.Module:
            told.append(place.train_keys)
            return Seeing()

    class Seeing(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, *others: object) -> Tensor:
            seen.append(k.shape[-2])
            return v[..., -q.shape[-2] :, :]

    registry = Registry.load()
    module = ModuleType("counts")
    module.lgbench_attentions = hookimpl(specname="lgbench_attentions")(lambda: [Counting()])
    registry.add(module, "counts", Distribution("counts", "1"))
    for task, arch in (
        ("max-retrieval", "set-attention+pre-norm+counting"),
        ("max-retrieval", "counting"),
        ("dyck-2-3", "counting"),
    ):
        (experiment,) = planned(registry, task, arch)
        told.clear()
        model = experiment.build(registry)
        inputs, _ = registry.tasks[task].sample(2, experiment.train.max_length, torch.Generator())
        seen.clear()
        model(inputs)
        assert set(told) == set(seen)
        assert len(set(told)) == 1


@pytest.mark.parametrize("position", [position.name for position in Registry.load().positions])
def test_no_installed_attention_lets_a_position_code_tell_it_what_follows(position):
    registry = Registry.load()
    attentions = [attention.name for attention in registry.attentions]
    inputs = torch.randint(3, (2, 40), generator=torch.Generator().manual_seed(0))
    refused = set()
    for attention in attentions:
        try:
            parts = parts_of(registry, attention=attention, position=position)
            model = registry.architectures["transformer"].build(registry.tasks["tomita-5"].signature, parts, width=30, heads=3)
        except Unsupported:
            refused.add(attention)
            continue
        model.double().eval()
        torch.testing.assert_close(model(inputs[:, :9]), model(inputs)[:, :9], atol=1e-9, rtol=0)
    assert refused <= {"t2r"}


def test_training_and_testing_put_a_model_into_the_modes_of_that_name(known, planned):
    (experiment,) = planned(known, "tomita-1", "nearest", train_steps=2)
    trained = train([experiment], known, CPU)
    assert trained.weights["raw"]["blocks.0.sublayer.attend.scale"].item() != 2.0
    inputs = torch.zeros(1, 5, dtype=torch.int64)
    logits = trained.model("raw", 0)(inputs)
    torch.testing.assert_close(logits[:, :1].expand_as(logits), logits)  # sevens everywhere
    assert not trained.skeleton.training


def test_noise_is_a_seeds_own_whoever_trains_beside_it_and_whenever_it_was_interrupted(known, planned, tmp_path):
    first, second = planned(known, "tomita-1", "jittered", seeds=(3, 4), train_steps=6)
    alone, together = train([first], known, CPU), train([second, first], known, CPU)
    for name, weights in alone.weights["raw"].items():
        torch.testing.assert_close(weights[0], together.weights["raw"][name][1])

    class Stop(Exception):
        pass

    def stop(step, loss):
        if step == 4:
            raise Stop

    place = tmp_path / "checkpoint"
    with pytest.raises(Stop):
        train([first], known, CPU, stop, checkpoint=Checkpoint(place, 0.0))
    resumed = train([first], known, CPU, checkpoint=Checkpoint(place, 0.0))
    for name, weights in alone.weights["raw"].items():
        assert torch.equal(weights, resumed.weights["raw"][name])


def test_noise_is_another_one_at_every_step_and_for_every_seed(known, planned):
    population = Population(planned(known, "tomita-1", "jittered", seeds=range(3)), known, CPU)
    seen = []
    for step in range(1, 5):
        population.draw_noise(step)
        seen += population.buffers["embed.1.noise.value"].flatten().tolist()
    assert len(set(seen)) == 12 and all(0 <= number < 1 for number in seen)
    population.draw_noise(1)
    assert population.buffers["embed.1.noise.value"].flatten().tolist() == seen[:3]


class Branching(nn.Module):
    """Asks a tensor for its value, which is another for every model of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table(inputs) * (2.0 if inputs.sum() % 2 else 3.0)


def test_models_that_vmap_cannot_take_train_one_by_one_and_are_told(planned):
    registry, said = with_model(Branching), []
    both = planned(registry, "toy-walk", "toy-own", seeds=(0, 1), train_steps=5)
    together = train(both, registry, CPU, say=said.append)
    (sentence,) = said
    assert "vmap cannot take this model, so its seeds are trained one after the other, which is slower" in sentence
    for index, experiment in enumerate(both):
        alone = train([experiment], registry, CPU)
        for name, weights in alone.weights["raw"].items():
            torch.testing.assert_close(weights[0], together.weights["raw"][name][index])


def test_what_is_broken_in_any_way_of_training_is_not_blamed_on_vmap(planned):
    class Wrong(Branching):
        def forward(self, inputs):
            raise RuntimeError("the model itself is broken")

    registry, said = with_model(Wrong), []
    with pytest.raises(RuntimeError, match="the model itself is broken"):
        train(planned(registry, "toy-walk", "toy-own"), registry, CPU, say=said.append)
    assert not said


def test_an_attention_of_every_query_is_given_all_of_them_and_answers_the_last(known):
    class Told(nn.Module):
        def forward(self, q, k, v, asking, bias):
            assert q.shape == k.shape and asking.shape[1] == 1
            return q[:, :, -1:]

    class Every(Attention):
        """Looks at all queries."""

        name, every_query = "every", True

        def build(self, place):
            return Told()

    task = known.tasks["max-retrieval"]
    parts = replace(parts_of(known), attention=Every())
    model = known.architectures["transformer"].build(task.signature, parts, layers=1)
    assert model(torch.zeros(2, 5, 11)).shape == (2, 1, 10)
