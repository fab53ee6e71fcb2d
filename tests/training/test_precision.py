"""Models that compute in bfloat16: what becomes narrow and what does not, and how runs of two precisions stay apart."""

from __future__ import annotations

import pytest
import torch
from helpers.plain_training import CHEAP, CPU, scores
from helpers.planning import plan_of
from helpers.registries import with_model
from torch import nn

from lgbench.errors import UsageError
from lgbench.execution.scheduler import grouped
from lgbench.experiment.plan import Replanner
from lgbench.measurement import evaluate
from lgbench.training import step
from lgbench.training.train import train

SETTINGS = CHEAP | {"train.steps": 60, "train.batch": 8, "evaluate.contexts": 8}


def planned(registry, task, arch, precision, averagers=(), seeds=(0, 1)):
    return plan_of(registry, task, arch, average=averagers, seeds=seeds, set=SETTINGS, precision=precision).experiments


@pytest.mark.slow
@pytest.mark.parametrize(("task", "arch"), [("tomita-4", "peri-norm"), ("max-retrieval", "set-attention")])
def test_training_in_bfloat16_is_near_to_that_in_float32_and_is_not_it(registry, task, arch):
    said = []
    wide, narrow = (train(planned(registry, task, arch, each), CPU, say=said.append) for each in ("float32", "bfloat16"))
    assert not said  # vmap takes it
    assert not torch.equal(wide.curve.loss, narrow.curve.loss)
    torch.testing.assert_close(narrow.curve.loss[:10], wide.curve.loss[:10], rtol=0.02, atol=0.02)
    assert all(weight.dtype == torch.float32 for weight in narrow.weights["raw"].values())
    one, other = (scores(planned(registry, task, arch, run.precision)[0], run, 0) for run in (wide, narrow))
    assert one.keys() == other.keys() and one != other


@pytest.mark.slow
def test_rounding_to_bfloat16_is_not_taken_for_a_lack_of_causality(registry):
    for arch in ("pre-norm", "post-norm", "peri-norm"):
        experiments = planned(registry, "tomita-1", arch, "bfloat16", averagers=("ema",))
        run = train(experiments, CPU)
        found = [value for (_, metric, *_), value in scores(experiments[0], run, 0).items() if metric == "looks_ahead"]
        assert found == [0.0, 0.0]


class Seeing(nn.Module):
    """Notes the type in which its product is computed."""

    seen: set = set()

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, inputs):
        normed = self.norm(self.table(inputs))
        logits = self.out(normed)
        self.seen.add((normed.dtype, logits.dtype))
        return logits


@pytest.mark.parametrize(("precision", "product"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_products_are_narrow_in_training_and_testing_and_norms_logits_and_state_are_not(precision, product):
    (experiment,) = planned(with_model(Seeing), "toy-walk", "toy-own", precision, seeds=(0,))
    Seeing.seen.clear()
    run = train([experiment], CPU)
    assert Seeing.seen == {(torch.float32, product)}
    Seeing.seen.clear()
    assert run.model("raw", 0)(torch.zeros(1, 2, dtype=torch.int64)).dtype == torch.float32
    assert Seeing.seen == {(torch.float32, product)}


class Embedding(nn.Module):
    """Sum of embedded vectors: no product but that with the inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 3)

    def forward(self, inputs):
        return self.embed(inputs).sum(1, keepdim=True)


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_vectors_of_a_task_are_embedded_without_rounding(compile):
    losses = []
    for precision in ("float32", "bfloat16"):
        (experiment,) = planned(with_model(Embedding), "toy-largest", "toy-own", precision, seeds=(0,))
        losses.append(train([experiment], CPU, compile=compile, models=1).curve.loss)
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


def test_a_record_leads_back_to_its_precision_and_two_precisions_never_train_together(registry):
    both = [planned(registry, "tomita-1", "pre-norm", precision)[0] for precision in ("float32", "bfloat16")]
    assert [Replanner(registry).experiment(each.record).record for each in both] == [each.record for each in both]
    assert len(grouped(both)) == 2


def test_an_unknown_precision_is_refused(registry):
    with pytest.raises(UsageError, match="no precision 'float8'; .*known: bfloat16, float32"):
        planned(registry, "tomita-1", "pre-norm", "float8")


@pytest.mark.slow
def test_on_mps_steps_are_counted_in_float32_and_scores_are_computed_on_the_cpu(registry, monkeypatch):
    """No such device is here: the CPU stands for it where types are chosen."""
    assert step.counting(torch.device("mps")) == torch.float32
    (experiment,) = planned(registry, "tomita-1", "pre-norm", "float32", seeds=(0,))
    exact = train([experiment], CPU)
    monkeypatch.setattr("lgbench.training.population.counting", lambda device: torch.float32)
    monkeypatch.setattr(step, "counting", lambda device: torch.float32)
    counted = train([experiment], CPU)
    torch.testing.assert_close(counted.curve.loss, exact.curve.loss, rtol=1e-4, atol=1e-5)
    asked = []
    predict = evaluate._answering(lambda inputs: (asked.append(inputs.device), inputs.float())[1], torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):  # whose values cannot come back
        predict(torch.zeros(2))
    assert asked == [torch.device("meta")]
