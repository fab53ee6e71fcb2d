"""Training steps of tasks that answer once, at marked positions, or with position ids: one graph for all lengths."""

from __future__ import annotations

import pytest
import torch

from lgbench import RunOptions
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.training.cost import compiling_pays
from lgbench.training.data import stream
from lgbench.training.population import Compiled, Population
from lgbench.training.program import EXAMPLES, SMALLEST, traced

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", ["parity-check", "copy-repeat", "decimal-addition-coupled"])
def test_one_graph_makes_the_training_steps_of_all_lengths(task: str) -> None:
    asked = RunOptions(task, "pre-norm", seeds=[0], average=(), protocol="quick", set={"train.batch": "4", "train.steps": "8"})
    (experiment,) = plan(asked, Registry.load()).experiments
    population = Population([experiment], CPU)
    own, step = population.flat()
    graph, found = None, set()
    for batch in stream(population.members, experiment.train, CPU):
        if (length := batch.inputs.shape[2]) < SMALLEST:
            continue
        graph = graph or traced(step, [*own, *batch.tensors], population.varying(batch.tensors)).module
        before = [tensor.clone() for tensor in own]
        with torch.no_grad():
            losses = graph(*own, *batch.tensors)
            after = [tensor.clone() for tensor in own]
            for tensor, value in zip(own, before, strict=True):
                tensor.copy_(value)
            torch.testing.assert_close(population.advance(*batch.tensors), losses)
        torch.testing.assert_close(own, after, rtol=1e-4, atol=1e-5)
        found.add(length)
    assert len(found) > 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "arch"),
    [
        ("parity-check", "pre-norm"),
        ("copy-repeat", "pre-norm"),
        ("decimal-addition-coupled", "pre-norm"),
        ("reverse-string", "stick-breaking"),
        ("reverse-string", "randomised-learned"),
        ("reverse-string", "mamba-2"),  # two programs: more than 64 symbols are two chunks
        ("reverse-string", "deltanet-negative"),  # the same, with triangular equations
    ],
)
def test_compiled_programs_make_the_training_steps_of_all_lengths(task: str, arch: str) -> None:
    asked = RunOptions(task, arch, seeds=[0], average=(), protocol="quick", set={"train.batch": "4", "train.steps": "60"})
    (experiment,) = plan(asked, Registry.load()).experiments
    plain, other, found = Population([experiment], CPU), Population([experiment], CPU), set()
    advance = Compiled(other, lambda sentence: None)
    with torch.no_grad():
        for step, batch in enumerate(stream(plain.members, experiment.train, CPU), 1):
            for population in (plain, other):
                population.draw_noise(step)
            torch.testing.assert_close(advance(*batch.tensors), plain.advance(*batch.tensors))
            torch.testing.assert_close(other.flat()[0], plain.flat()[0], rtol=1e-4, atol=1e-5)
            for ours, theirs in zip(other.flat()[0], plain.flat()[0], strict=True):
                ours.copy_(theirs)  # or rounding adds up over steps
            found.add(batch.inputs.shape[2])
    programs = {id(made) for made in advance._programs.values() if made}
    assert len(found) > 20 and advance.compiles and advance._one_for_all and 0 < len(programs) <= len(EXAMPLES)


@pytest.mark.parametrize(("device", "pays"), [("cpu", True), ("cuda", False)])
def test_a_stack_which_has_no_such_graph_is_not_compiled_for_each_length(device: str, pays: bool) -> None:
    """A CPU trains the models of such a program alone, a GPU trains a stack of them, uncompiled."""
    asked = RunOptions("copy-repeat", "pre-norm", seeds=[0], average=(), protocol="short")
    (experiment,) = plan(asked, Registry.load()).experiments
    with torch.no_grad():
        assert compiling_pays(experiment, torch.device(device)) == pays


@pytest.mark.parametrize("task", ["modular-arithmetic-brackets", "solve-equation"])
def test_whether_to_compile_is_asked_of_a_task_that_draws_no_empty_batch(task: str) -> None:
    (experiment,) = plan(RunOptions(task, "pre-norm", seeds=[0], average=(), protocol="standard"), Registry.load()).experiments
    assert compiling_pays(experiment, CPU)
