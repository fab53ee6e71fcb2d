"""Parts of a model: how entries name them, and how training treats the models that they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from helpers.folders import PUBLISHED
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.registries import parts_of, with_model, with_things
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Need, Position, Random, SublayerSpec, UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.training.train import train


def test_a_norm_scheme_that_places_nothing_in_an_architecture_is_no_entry(registry):
    norms = [scheme.name for scheme in registry.norms if scheme.name != "no-norm"]
    found = plan_of(registry, "max-retrieval", [f"set-attention+{norm}" for norm in norms])
    nowhere = ["final-norm", "input-norm", "pre-norm"]  # set-attention has no residual connection and no norm before its logits
    assert [experiment.record.norm for experiment in found.experiments] == [norm for norm in norms if norm not in nowhere]
    assert [sentence.split()[0] for sentence in found.refusals] == [f"set-attention+{norm}" for norm in nowhere]
    assert found.refusals[-1] == (
        "set-attention+pre-norm cannot be run on max-retrieval: pre-norm places no norm in set-attention: "
        "leave it out, or name a norm scheme that places one there"
    )


class Bare(toys.Nothing):
    """Nothing, but for what the classes below add."""

    name = "bare"

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        return Residual(sublayer)

    def output(self, spec: SublayerSpec) -> nn.Module:
        return nn.Sequential(nn.Identity(), nn.Sequential())


class Residual(nn.Module):
    """x + 0.5 sublayer(x)."""

    def __init__(self, sublayer: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        change = self.sublayer(x)
        return x[..., -change.shape[-2] :, :] + 0.5 * change


ADDED = {
    "embed": lambda self, width: nn.LayerNorm(width),
    "output": lambda self, spec: nn.Sequential(nn.Identity(), nn.Tanh()),
    "query": lambda self, spec: nn.RMSNorm(spec.head_dim),
    "key": lambda self, spec: nn.RMSNorm(spec.head_dim),
    "head": lambda self, spec: nn.RMSNorm(spec.head_dim),
    "gain": lambda self, spec, matrix: 0.5 if matrix == "value" else 1.0,
}


@pytest.mark.parametrize("place", ADDED)
def test_a_norm_scheme_with_one_place_that_an_architecture_has_is_an_entry(planned, place):
    added = type("Added", (Bare,), {place: ADDED[place]})()
    assert [
        each.entry for each in planned(with_things(Registry.load(), norm=added), "max-retrieval", "set-attention+bare")
    ] == ["set-attention+bare"]


def test_a_norm_scheme_without_a_place_that_an_architecture_has_is_no_entry_there_and_one_elsewhere(planned):
    last = type("Last", (Bare,), {"final": lambda self, width: nn.LayerNorm(width)})()
    for norm in (Bare(), last):
        known = with_things(Registry.load(), norm=norm)
        with pytest.raises(UsageError, match="bare places no norm in set-attention: leave it out"):
            planned(known, "max-retrieval", "set-attention+bare")
        assert len(planned(known, "max-retrieval", "bare")) == 1  # the residual connection is the scheme's own


def test_published_runs_have_the_ids_that_planning_gives_them(monkeypatch):
    monkeypatch.setattr("lgbench.extensions.loading.changed_sources", lambda: "")  # as in a checkout without changes
    registry = Registry.load()
    metadata = {
        run: own["experiment"] for path in PUBLISHED.glob("*.parquet") for run, own in run_files.metadata_of_runs(path).items()
    }
    version = PROTOCOLS["standard"].version
    for task, entry in (("tomita-1", "transformer+peri-norm"), ("max-retrieval", "set-attention")):
        wanted = (task, entry, 0, version)
        about = {
            run: filed
            for run, filed in metadata.items()
            if (filed["task"], filed["entry"], filed["seed"], filed["protocol"]["version"]) == wanted
        }
        ((run_id, filed),) = about.items()
        (experiment,) = plan_of(registry, task, entry, average=filed["averagers"], protocol="standard").experiments
        assert experiment.run_id == run_id


def test_positions_are_counted_to_the_longest_input_of_the_task(planned):
    seen = []

    class Counting(Position):
        """Writes down the numbers that it is built with."""

        name = "counting"

        def embed(self, width: int, positions: int) -> nn.Module:
            seen.append(positions)
            return nn.Identity()

        def rotate(self, spec: AttentionSpec) -> None:
            seen.append(spec.train_keys)

    registry = with_things(Registry.load(), position=Counting())
    planned(registry, ["set-complement"], "counting", train_max_length=16, evaluate_max_length=63)
    assert seen == [63, 16]
    seen.clear()
    planned(registry, ["max-retrieval"], "counting", train_max_length=16, evaluate_max_length=64)
    assert seen == [65, 17]  # a query beside the items
    seen.clear()
    planned(registry, ["tomita-5"], "counting", train_max_length=40, evaluate_max_length=51)
    assert seen == [53, 41, 41]  # a begin token, and membership is tested at 52, since no member is 51 long


def test_an_attention_is_built_for_as_many_keys_as_the_last_query_sees_in_training(planned):
    built, seen = [], []

    class Counting(Attention):
        """Writes down the numbers of keys that it is built for, and called with."""

        name = "counting"

        def build(self, spec: AttentionSpec) -> nn.Module:
            built.append(spec.train_keys)
            return Seeing()

    class Seeing(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, *others: object) -> Tensor:
            seen.append(k.shape[-2])
            return v[..., -q.shape[-2] :, :]

    registry = with_things(Registry.load(), attention=Counting())
    for task, arch in (("max-retrieval", "set-attention+counting"), ("max-retrieval", "counting"), ("dyck-2-3", "counting")):
        (experiment,) = planned(registry, task, arch)
        built.clear()
        model = experiment.build()
        inputs = experiment.task.sample(experiment.train.max_length, Random(2)).inputs
        seen.clear()
        model(inputs)
        assert set(built) == set(seen)
        assert len(set(built)) == 1


class Branching(nn.Module):
    """Reads the value of a tensor, which differs between the models of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table(inputs) * (2.0 if inputs.sum() % 2 else 3.0)


def test_models_that_vmap_cannot_take_train_one_by_one_and_a_sentence_says_so(planned):
    registry, said = with_model(Branching), []
    both = planned(registry, "toy-walk", "toy-own", seeds=(0, 1), train_steps=5)
    together = train(both, CPU, say=said.append)
    (sentence,) = said
    assert "vmap" in sentence and "one after the other" in sentence
    for index, experiment in enumerate(both):
        alone = train([experiment], CPU)
        for name, weights in alone.weights["raw"].items():
            torch.testing.assert_close(weights[0], together.weights["raw"][name][index])


class Doubled(torch.autograd.Function):
    """Twice the input, with a gradient written by hand and no `setup_context`, which `torch.func` demands."""

    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


@pytest.mark.slow
def test_a_model_that_torch_func_cannot_take_trains_by_ordinary_autograd_to_equal_numbers(planned):
    def model(double):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.out = nn.Embedding(3, 4), nn.Linear(4, 3)
                self.register_buffer("scale", torch.rand(4))

            def forward(self, inputs):
                return self.out(double(self.table(inputs)).tanh() * self.scale)

        return Own

    said, plain = [], []
    own, others = (
        train(planned(with_model(model(double)), "toy-even", "toy-own", seeds=(0, 1), train_steps=20), CPU, say=heard.append)
        for double, heard in ((Doubled.apply, said), (lambda x: 2 * x, plain))
    )
    assert not plain
    assert [sentence.partition(" cannot")[0] for sentence in said] == ["vmap", "torch.func"]
    assert "ordinary autograd" in said[1] and "setup_context" in said[1]
    for name, weights in others.weights["raw"].items():
        torch.testing.assert_close(own.weights["raw"][name], weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(own.curve.loss, others.curve.loss)


@pytest.mark.parametrize(
    ("error", "compile"),
    [
        (RuntimeError("the model itself is broken"), False),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"), True),
    ],
    ids=["broken", "memory of a GPU", "memory"],
)
def test_neither_a_broken_model_nor_too_little_memory_is_blamed_on_vmap(planned, error, compile):
    class Failing(Branching):
        def forward(self, inputs):
            raise error

    said = []
    with pytest.raises(type(error), match="broken|memory"):
        train(planned(with_model(Failing), "toy-walk", "toy-own"), CPU, compile=compile, say=said.append)
    assert not said


@pytest.mark.parametrize("needs", [(), (Need.ALL_QUERIES,), (Need.QUERY_INPUT,), (Need.KEY_INPUT,), tuple(Need)], ids=str)
@pytest.mark.parametrize(("architecture", "keys"), [("transformer", 5), ("set-attention", 4)])
def test_an_attention_gets_what_it_needs_and_nothing_else(registry, architecture, keys, needs):
    class Looking(nn.Module):
        def forward(self, q, k, v, bias, **needed):
            every_key_has_a_query = architecture == "transformer"
            assert q.shape[-2] == (5 if Need.ALL_QUERIES in needs and every_key_has_a_query else 1) and k.shape[-2] == keys
            shapes = {"query_input": (2, 1, 32), "key_input": (2, keys, 32)}
            assert {name: x.shape for name, x in needed.items()} == {n: s for n, s in shapes.items() if Need(n) in needs}
            return q[:, :, -1:]

    class Needing(Attention):
        """Looks at what it is given."""

        name = "needing"

        def build(self, spec):
            return Looking()

    Needing.needs = frozenset(needs)
    task = registry.tasks["max-retrieval"]
    parts = replace(parts_of(registry), attention=Needing())
    model = registry.architectures[architecture].build(task.signature, parts, width=32, **({"layers": 1} if keys == 5 else {}))
    assert model(torch.zeros(2, 5, 11)).shape == (2, 1, 10)
