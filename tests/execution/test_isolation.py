"""Plugins that misbehave change the numbers of their own runs alone, or are named in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from helpers.commands import changing
from helpers.made_runs import made
from helpers.norm_sources import norm_source
from helpers.plain_training import CHEAP, CPU
from helpers.plain_training import initial as untrained
from helpers.processes import install, lgbench_command
from helpers.toy_registries import but, toys_and
from toys import Walk

import lgbench
from lgbench.errors import PluginError, located
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate

TASK = """
from lgbench import Budget, hookimpl
from lgbench_tasks.tomita import Tomita

class Greedy(Tomita):
    def __init__(self, number):
        super().__init__(number)
        self.budgets["short"] = Budget(steps=1)

@hookimpl
def lgbench_tasks():
    return [Greedy(1)]
"""
HOSTILE = {
    "patches_softmax": {
        "first": "torch.nn.functional.softmax = torch.softmax = torch.Tensor.softmax = lambda x, *given, **named: x * 0 + 0.25"
    },
    "changes_another": {"build": "import a_healthy; a_healthy.DEFAULTS['scale'] = 7.0"},
    "ends_workers": {"forward": "any(t.name == 'jobs' for t in threading.enumerate()) and os._exit(3)"},
}
"""The last one ends its process only where it trains: planning asks every model, too."""


def ran(site: Path, results: Path, *entries: str) -> str:
    words = ["--task", "tomita-1", "--arch", ",".join(entries), "--seeds", "0:2", "--protocol", "quick", *changing(CHEAP)]
    return lgbench_command("run", *words, "--results", str(results), PYTHONPATH=str(site)).stderr


@pytest.mark.slow
def test_hostile_plugins_beside_others_change_no_bit_of_their_runs(tmp_path):
    quiet, hostile = tmp_path / "quiet", tmp_path / "hostile"
    install(quiet, "a_healthy", norm_source("a-healthy"))
    ran(quiet, tmp_path / "alone", "pre-norm", "a-healthy")
    install(hostile, "a_healthy", norm_source("a-healthy"))
    for name, acts in HOSTILE.items():
        install(hostile, name, norm_source(name.replace("_", "-"), **acts))
    said = ran(hostile, tmp_path / "beside", "pre-norm", "a-healthy", *(name.replace("_", "-") for name in HOSTILE))
    alone, beside = made(tmp_path / "alone"), made(tmp_path / "beside")
    assert len(alone) == 4 and alone.items() <= beside.items()
    assert "ended with exit code 3; it had loaded the plugins ends_workers and lgbench" in said
    assert len(beside) == 4 + 2 * (len(HOSTILE) - 1)


def test_an_import_leaves_the_settings_of_the_command_as_they_were(tmp_path, monkeypatch):
    """Workers of other plugins inherit the environment, and the number of threads says how many workers there are."""
    monkeypatch.syspath_prepend(tmp_path)
    threads = torch.get_num_threads()
    act = f"os.environ['MY_SWITCH'] = '1'; torch.set_num_threads({threads + 1}); torch.set_default_dtype(torch.float64)"
    install(tmp_path, "sets_switches", norm_source("switch", act))
    registry = Registry.load({"LGBENCH_PLUGINS": "sets_switches"})
    assert not registry.problems() and "MY_SWITCH" not in os.environ
    assert torch.get_num_threads() == threads and torch.get_default_dtype() is torch.float32


def test_a_task_that_writes_into_the_defaults_of_all_tasks_is_told_so(tmp_path):
    file = tmp_path / "greedy.py"
    file.write_text(TASK)
    with pytest.raises(PluginError, match="'mappingproxy' object does not support item assignment"):
        Registry.load(files=[file])
    assert not lgbench.Task.budgets


def test_only_the_plugins_that_take_part_are_imported(tmp_path):
    files = [tmp_path / "mine.py", tmp_path / "broken.py"]
    files[0].write_text(norm_source("mine"))
    files[1].write_text(norm_source("broken", "1 / 0"))
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        Registry.load(files=files)
    registry = Registry.load(files=files, only=["mine.py"])
    assert "mine" in registry.norms.names() and {each.name for each in registry.loaded()} == {"lgbench", "mine.py"}


def test_tasks_of_two_plugins_are_not_trained_in_one_process(planned):
    """A signature, an entry and settings are equal, so one population could train both."""
    registry = toys_and(task=but(Walk(), name="own-walk", family="own-walk"))
    own, other = planned(registry, ["own-walk", "toy-walk"], "toy-table")
    assert own.population_key[:-1] == other.population_key[:-1] and own.population_key != other.population_key


class Halving(lgbench.Measurement):
    """Half of the first probability. It writes where it should read."""

    name, label, title = "halving", "half", "half"
    lower_is_better, range = True, (0.0, 1.0)

    def of_contexts(self, predictions):
        return predictions.probability.mul_(0.5)[..., 0]


class Ranking(Halving):
    name = "ranking"

    def source(self, task):
        return "strings"

    def of_strings(self, scores):
        return scores.log_probability.cumsum_(-1).mean()


@pytest.mark.parametrize("measurement", [Halving(), Ranking()], ids=["contexts", "strings"])
def test_a_measurement_that_writes_into_what_it_is_given_is_named(planned, measurement):
    (experiment,) = planned(toys_and(measurement=measurement), "toy-even", "toy-table")
    said = f"the measurement {measurement.name} writes into tensors that other measurements read: use"
    with pytest.raises(PluginError, match=said):
        evaluate(experiment, {"raw": untrained(experiment)}, CPU)


class Broadcast(Halving):
    """A single number for all answers."""

    name = "broadcast"

    def of_contexts(self, predictions):
        return predictions.probability.mean()


class Whole(Broadcast):
    """A single number for all contexts."""

    name = "whole"

    def source(self, task):
        return "sequences" if task.signature.answers is lgbench.Answers.LAST else None

    def of_sequences(self, predictions):
        return predictions.probability.mean()


@pytest.mark.parametrize(
    ("measurement", "shape"), [(Broadcast(), r"\(8, 1\)"), (Whole(), r"\(8,\)")], ids=["answers", "contexts"]
)
def test_a_measurement_with_one_number_for_many_is_refused(planned, measurement, shape):
    (experiment,) = planned(toys_and(measurement=measurement), "toy-largest", "toy-table", evaluate_contexts=8)
    with pytest.raises(PluginError, match=rf"{measurement.name} gives values \(\), expected {shape}"):
        evaluate(experiment, {"raw": untrained(experiment)}, CPU)


class Naive(Whole):
    """Sequences of every task."""

    name = "naive"

    def source(self, task):
        return "sequences"


class Failing(Halving):
    name = "failing"

    def source(self, task):
        return task.unknown


@pytest.mark.parametrize(
    ("measurement", "said"),
    [
        (Naive(), "is sequences, and each of its answers has a length of its own"),
        (Failing(), "failed on toy-even: AttributeError"),
    ],
    ids=["sequences", "error"],
)
def test_a_measurement_with_a_wrong_source_is_refused_before_training(planned, measurement, said):
    with pytest.raises(PluginError, match=f"the source of {measurement.name} .*{said}"):
        planned(toys_and(measurement=measurement), "toy-even", "toy-table")


def test_an_error_in_torch_is_located_where_torch_was_called():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2).unflatten(0, (3, -1))
    assert Path(__file__).name in located(caught.value)


def test_an_error_of_a_compiled_program_comes_without_the_stack_of_torch():
    """Of an AOTInductor program that read outside a table, shortened. Other errors keep all their lines."""
    said = (
        "index out of bounds: 0 <= tmp2 < 3L\nException raised from cpp_fused at step.cpp:7 (most recent call first):\nframe #0"
    )
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(said)
    assert located(caught.value).startswith("RuntimeError: index out of bounds: 0 <= tmp2 < 3L (/")
    with pytest.raises(ValueError, match="two") as caught:
        raise ValueError("one\ntwo")
    assert "one\ntwo" in located(caught.value)
