"""Programs: a graph for varying sizes does what its function does, or does not exist; a compiled program has its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers.plain_training import CPU
from helpers.processes import python
from helpers.registries import with_things
from helpers.trainings import numbers
from torch import Tensor, nn
from torch.func import grad, vmap

from lgbench import Position
from lgbench.extensions.registry import Registry
from lgbench.training import program as programs
from lgbench.training.data import draw_batch, stream
from lgbench.training.population import Compiled, Population
from lgbench.training.program import EXAMPLES, Graph, graph_of, program, traced
from lgbench.training.train import train

SIZES = (2, 3, 7, 16, 40)


def gradients(weights, biases, inputs):
    """Of a small network with causal attention, for a stack: weights (P, 4, 4), biases (P, 4), inputs (P, T, 4)."""

    def loss(weight, bias, context):
        x = F.linear(context, weight, bias)
        later = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).triu(1)
        return ((x @ x.T).masked_fill(later, -torch.inf).softmax(-1) @ x).square().mean()

    return vmap(grad(loss, argnums=(0, 1)))(weights, biases, inputs)


def test_a_graph_for_all_sizes_computes_what_its_function_does_for_each():
    weights, biases = torch.randn(3, 4, 4), torch.randn(3, 4)
    graph = traced(gradients, (weights, biases, torch.randn(3, 9, 4)), {2: 1})
    for size in SIZES:
        assert graph.serves(size)
        arguments = weights, biases, torch.randn(3, size, 4)
        torch.testing.assert_close(graph.module(*arguments), gradients(*arguments))


def token_gradients(table, tokens, targets, weights):
    """Of a bigram model with a turn for each position: table (6, 4), and tokens, targets, weights (B, T)."""

    def loss(table):
        x = F.embedding(tokens, table)
        angle = torch.arange(tokens.shape[-1], dtype=table.dtype)
        cos, sin = torch.view_as_real(torch.polar(torch.ones_like(angle), angle=angle))[..., None].unbind(-2)
        turned = torch.cat((x[..., :2] * cos - x[..., 2:] * sin, x[..., :2] * sin + x[..., 2:] * cos), -1)
        by_answer = F.cross_entropy((turned @ table.T).flatten(0, 1), targets.flatten(), reduction="none")
        return (by_answer * weights.flatten()).sum()

    return grad(loss)(table)


def test_a_graph_for_all_sizes_takes_several_arguments_of_one_open_size():
    table = torch.randn(6, 4)

    def drawn(size):
        return torch.randint(6, (2, size)), torch.randint(6, (2, size)), torch.rand(2, size)

    graph = traced(token_gradients, (table, *drawn(9)), {1: 1, 2: 1, 3: 1})
    for size in SIZES:
        assert graph.serves(size)
        arguments = table, *drawn(size)
        torch.testing.assert_close(graph.module(*arguments), token_gradients(*arguments))


@pytest.mark.parametrize(
    ("function", "served"),
    [
        (lambda x: x.cumsum(0) if x.shape[0] % 2 else x, lambda size: size % 2 == 0),
        (lambda x: x[:9], lambda size: size >= 9),
        (lambda x: x if x.shape[0] <= 50 else x.cumsum(0), lambda size: size <= 50),
        (lambda x: torch.cat([part.cumsum(0) for part in x.split(20)]), lambda size: 22 <= size <= 40),
    ],
    ids=["divides", "cuts", "asks", "splits"],
)
def test_a_graph_serves_the_sizes_at_which_the_function_does_the_same_as_at_the_example(function, served):
    graph = traced(function, [torch.randn(9)], {0: 0})
    for size in range(1, 60):
        x = torch.randn(size)
        if graph.serves(size):
            torch.testing.assert_close(graph.module(x), function(x))
        assert graph.serves(size) == (size > 1 and served(size))


@pytest.mark.parametrize("pad", [(0, 1), (2, 0, 0, 3), (1, 2, 3, 0)])
@pytest.mark.parametrize("value", [None, -torch.inf])
def test_padding_is_written_out(pad, value):
    graph = traced(lambda x: (F.pad(x, pad, value=value), F.pad(input=x, pad=pad)), [torch.randn(9, 5)], {0: 0})
    for size in SIZES:
        x = torch.randn(size, 5)
        assert graph.serves(size) and all(map(torch.equal, graph.module(x), (F.pad(x, pad, value=value), F.pad(x, pad))))


def convolved(settings, inputs, weights, bias):
    """Gradients of a convolution by its weights, its bias and the input: inputs (B, T, 6)."""

    def loss(inputs, weights, bias):
        return F.conv1d(inputs.mT, weights, bias, **settings).square().cumsum(-1).sum()

    return grad(loss, argnums=(0, 1, 2))(inputs, weights, bias)


CONVOLUTIONS = [
    ({}, (4, 6, 3)),
    ({"groups": 6, "padding": 3}, (6, 1, 4)),
    ({"groups": 2, "padding": (2,), "dilation": (2,), "stride": (1,)}, (4, 3, 2)),
]
"""Settings and shapes of the weights."""


@pytest.mark.parametrize(("settings", "shape"), CONVOLUTIONS)
def test_a_convolution_may_have_an_open_size(double, settings, shape):
    weights, bias = torch.randn(shape), torch.randn(shape[0])
    graph = traced(lambda *given: convolved(settings, *given), (torch.randn(2, 9, 6), weights, bias), {0: 1})
    for size in (4, 7, 16, 40):
        arguments = torch.randn(2, size, 6), weights, bias
        assert graph.serves(size)
        torch.testing.assert_close(graph.module(*arguments), convolved(settings, *arguments))
    assert "convolution" not in graph.module.code  # which is compiled for the size of the example alone


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "shape"), CONVOLUTIONS)
def test_a_compiled_convolution_has_its_numbers_at_other_sizes_than_the_example(monkeypatch, tmp_path, settings, shape):
    """Of torch.ops.aten.convolution_backward, PyTorch compiles one for the size of the example alone, without a word."""
    monkeypatch.setenv("LGBENCH_CACHE", str(tmp_path))
    weights, bias = torch.randn(shape), torch.randn(shape[0])

    def one(*given):
        return (torch.cat([found.flatten() for found in (*convolved(settings, *given)[1:],)]),)

    graph = traced(one, (torch.randn(2, 9, 6), weights, bias), {0: 1})
    run = program(graph, (torch.randn(2, 9, 6), weights, bias), lambda: None)
    for size in (*EXAMPLES, 5, 40, 200):
        arguments = torch.randn(2, size, 6), weights, bias
        torch.testing.assert_close(run(*arguments), one(*arguments)[0], rtol=1e-4, atol=1e-3)


def takes_sizes_as_numbers(exported, package_path, **_):
    """A compiler that does with every open size what PyTorch's does with those of a convolution."""
    (given, *_) = (node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder")
    assert [int(size) for size in given.shape] == [2, EXAMPLES[0], 6]
    Path(package_path).write_bytes(b"machine code")


@pytest.mark.parametrize(
    "compiler", [takes_sizes_as_numbers, pytest.param(None, marks=pytest.mark.slow)], ids=["stand-in", "of PyTorch"]
)
def test_a_program_that_the_compiler_makes_for_one_size_alone_is_refused(monkeypatch, tmp_path, compiler):
    monkeypatch.setenv("LGBENCH_CACHE", str(tmp_path))
    if compiler:
        monkeypatch.setattr("torch._inductor.aoti_compile_and_package", compiler)
    arguments = torch.randn(2, 9, 6), torch.randn(4, 6, 3), torch.randn(4)
    graph = traced(lambda *given: (convolved({"stride": 2}, *given)[0],), arguments, {0: 1})
    with pytest.raises(RuntimeError, match="the length of the example for every length"):
        program(graph, arguments, lambda: None)
    assert not list((tmp_path / "programs").glob("*.pt2"))


def test_triangular_equations_may_have_an_open_size():
    def gradients(a, b):
        return grad(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True).square().sum(), argnums=(0, 1))(a, b)

    def drawn(size):
        return torch.randn(size, size) + 4 * torch.eye(size), torch.randn(3, size, 2)

    graph = traced(lambda a, b: gradients(a[:, : a.shape[0]], b), [torch.randn(9, 50), torch.randn(3, 9, 2)], {0: 0, 1: 1})
    for size in SIZES:
        a, b = drawn(size)
        a = F.pad(a, (0, 50 - size))
        torch.testing.assert_close(graph.module(a, b), gradients(a[:, :size], b))


@pytest.mark.parametrize(
    "function",
    [lambda x: sum(x[i] for i in range(len(x))), lambda x: x + torch.ones(32), lambda x: x.item()],
    ids=["counts", "expects", "looks"],
)
def test_a_function_that_does_other_things_for_each_size_has_no_such_graph(function):
    assert traced(function, [torch.randn(9)], {0: 0}) is None


@pytest.mark.parametrize(
    ("task", "schemes"),
    [
        pytest.param("max-retrieval", ["pre-norm"], marks=pytest.mark.slow),
        pytest.param("dictionary-lookup", ["post-norm", "peri-norm", "peri-init-norm"], marks=pytest.mark.slow),
    ],
)
def test_the_training_step_is_one_graph_for_all_lengths(registry, planned, task, schemes):
    for experiment in planned(registry, task, schemes, train_batch=4, train_steps=12):
        population, found = Population([experiment], CPU), set()
        own, step = population.flat()
        graph = None
        for batch in stream([(experiment.task, 0)], experiment.train, CPU):
            if batch.inputs.shape[2] < 2:
                continue
            graph = graph or traced(lambda *tensors, step=step: (step(*tensors),), [*own, *batch.tensors], {len(own): 2}).module
            before = [tensor.clone() for tensor in own]
            with torch.no_grad():
                losses = graph(*own, *batch.tensors)[0]
                after = [tensor.clone() for tensor in own]
                for tensor, value in zip(own, before, strict=True):
                    tensor.copy_(value)
                torch.testing.assert_close(population.advance(*batch.tensors), losses)
            torch.testing.assert_close(own, after, rtol=1e-4, atol=1e-5)
            found.add(batch.inputs.shape[2])
        assert len(found) > 4


@pytest.mark.parametrize("lengths", [(5, 1, 3), (1, 5, 3)], ids=["from the start", "resumed"])
def test_which_lengths_are_compiled_does_not_depend_on_which_came_first(registry, planned, monkeypatch, lengths):
    """Or a training that goes on from a checkpoint differs from one that was never stopped."""
    compiled = []

    def graph_of(function, arguments, varying, *settings):
        if varying:
            return None
        compiled.append(arguments[-2].shape[2])
        return Graph(None, program=function)

    monkeypatch.setattr("lgbench.training.population.graph_of", graph_of)
    (experiment,) = planned(registry, "max-retrieval", ["pre-norm"], train_batch=4, train_steps=12)
    population = Population([experiment], CPU)
    advance = Compiled(population, pytest.fail)
    inputs, targets = (drawn[0] for drawn in draw_batch(experiment.task, [0], 6, [0], experiment.train, CPU))
    for length in lengths:
        advance(inputs[:, :, :length], targets)
    assert sorted(compiled) == [3, 5]


def test_a_length_has_the_first_program_that_serves_it_and_else_the_plain_step(registry, planned, monkeypatch):
    def graph_of(function, arguments, varying, key, example):
        assert varying
        serves = (lambda positions: positions <= 3) if example == EXAMPLES[0] else (lambda positions: positions > 4)
        return Graph(None, varying, example, serves, lambda *tensors: compiled.append((tensors[-2].shape[2], example)))

    compiled, plain = [], []
    monkeypatch.setattr("lgbench.training.population.graph_of", graph_of)
    (experiment,) = planned(registry, "max-retrieval", ["pre-norm"], train_batch=4, train_steps=12)
    population = Population([experiment], CPU)
    population.advance = lambda inputs, targets: plain.append(inputs.shape[2])
    advance = Compiled(population, pytest.fail)
    inputs, targets = (drawn[0] for drawn in draw_batch(experiment.task, [0], 6, [0], experiment.train, CPU))
    for length in (5, 3, 1, 2, 4):
        advance(inputs[:, :, :length], targets)
    assert compiled == [(5, EXAMPLES[1]), (3, EXAMPLES[0]), (2, EXAMPLES[0])] and plain == [1, 4]


def test_a_step_that_cannot_be_compiled_is_told_also_after_a_length_that_no_program_serves(registry, planned, monkeypatch):
    def no_compiler(*arguments):
        raise RuntimeError("no compiler")

    unserved = Graph(None, serves=lambda positions: positions < 4)
    monkeypatch.setattr("lgbench.training.population.graph_of", lambda *settings: unserved)
    monkeypatch.setattr("lgbench.training.population.program", no_compiler)
    (experiment,) = planned(registry, "max-retrieval", ["pre-norm"], train_batch=4, train_steps=12)
    said = []
    advance = Compiled(Population([experiment], CPU), said.append)
    inputs, targets = (drawn[0] for drawn in draw_batch(experiment.task, [0], 6, [0], experiment.train, CPU))
    with torch.no_grad():
        for length in (5, 3):
            advance(inputs[:, :, :length], targets)
    assert said == ["the training step cannot be compiled here and runs as it is: RuntimeError: no compiler"]


@pytest.fixture
def traced_functions(monkeypatch):
    """Functions that were traced. Their graphs run as they are, without a compiler."""
    functions = []

    def noted(function, *settings):
        functions.append(function)
        return traced(function, *settings)

    monkeypatch.setattr(programs, "_LATEST", {})
    monkeypatch.setattr(programs, "traced", noted)
    monkeypatch.setattr(programs, "_of_graph", lambda graph, *_: lambda *given: graph(*given)[0])
    return functions


@pytest.mark.parametrize("task", [pytest.param("tomita-5", marks=pytest.mark.slow), "set-complement"])
def test_an_entry_is_traced_once_for_all_seeds_and_rates(registry, planned, traced_functions, task):
    for arch, seed, lr, count in (("pre-norm", 0, 0.001, 1), ("pre-norm", 1, 0.003, 1), ("post-norm", 1, 0.003, 2)):
        experiments = planned(registry, task, arch, (seed,), train_steps=6, train_batch=4, train_lr=lr)
        plain, compiled = train(experiments, CPU), train(experiments, CPU, compile=True)
        assert numbers(compiled) == numbers(plain)
        assert len(traced_functions) == count


class Scaled(nn.Module):
    """Embeddings as a multiple of the number of positions."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.positions = positions

    def forward(self, x: Tensor) -> Tensor:
        return x * self.positions / 100


class ByLength(Position):
    """Position code that reads how long inputs get in a test, as a number."""

    name = "by-length"

    def embed(self, width: int, positions: int) -> nn.Module:
        return Scaled(positions)


def test_a_longer_test_is_another_program_for_parts_may_read_its_length(planned, traced_functions):
    registry = with_things(Registry.load(), position=ByLength())
    for longest in (32, 63):
        changes = {"train_steps": 6, "train_batch": 4, "evaluate_max_length": longest}
        experiments = planned(registry, "set-complement", "pre-norm+by-length", **changes)
        assert numbers(train(experiments, CPU, compile=True)) == numbers(train(experiments, CPU))


def test_a_function_with_constant_tensors_is_traced_each_time(traced_functions):
    for constant in (torch.tensor(2.0), torch.tensor(3.0)):
        graph = graph_of(lambda x, constant=constant: x * constant, [torch.ones(1)], {}, "key")
        assert program(graph, [torch.ones(1)], pytest.fail)(torch.ones(1)) == constant


SOLVE = """
import torch
from lgbench.training.program import program, traced

def solved(a, b):
    return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)

a, b = torch.randn(3, 8, 8).tril(), torch.randn(3, 8, 2)
graph = traced(lambda *given: (solved(*given),), (a, b))
found = program(graph, (a, b), lambda: print("compiled"))(a, b)
torch.testing.assert_close(found, solved(a, b))
"""


@pytest.mark.slow
def test_an_operator_that_the_compiler_only_calls_has_its_numbers_and_no_word_of_the_compiler(tmp_path):
    first, again = (python(SOLVE, XDG_CACHE_HOME=str(tmp_path), LGBENCH_CACHE=str(tmp_path)) for _ in range(2))
    assert (first.returncode, first.stdout, first.stderr) == (0, "compiled\n", "")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
