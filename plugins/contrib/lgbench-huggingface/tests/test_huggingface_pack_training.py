"""Models train: in one stack where vmap takes them, and else one after the other."""

from __future__ import annotations

import pytest
import torch
from huggingface_pack_cases import BY_AUTOGRAD, BY_NAME

from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.models import Trained
from lgbench.training.train import train

CHEAP = {
    "train.steps": "3",
    "train.batch": "4",
    "train.max_length": "12",
    "evaluate.contexts": "4",
    "evaluate.strings": "4",
    "evaluate.max_length": "24",
}
CPU = torch.device("cpu")
FAST = ("llama", "bloom")
"""One in each way. The others take half a minute together."""


def trained(name: str, seeds: list[int], said: list[str]) -> Trained:
    request = RunOptions("dyck-1-2", name, average=[], seeds=seeds, protocol="quick", set=CHEAP)
    return train(plan(request, Registry.load()).experiments, CPU, say=said.append)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in BY_NAME])
def test_seeds_in_one_stack_train_as_each_does_alone(name: str) -> None:
    said: list[str] = []
    together = trained(name, [0, 1], said)
    alone = trained(name, [1], [])
    assert together.diverged == [None, None]
    for key, weights in together.weights["raw"].items():
        torch.testing.assert_close(weights[1], alone.weights["raw"][key][0], atol=1e-4, rtol=1e-3)
    moved = [key for key, weights in together.weights["raw"].items() if not torch.equal(weights[0], weights[1])]
    assert moved
    if name in BY_AUTOGRAD:
        assert "vmap cannot take this model" in said[0] and "its gradients come from ordinary autograd" in said[1]
    else:
        assert said == []
