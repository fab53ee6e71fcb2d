"""An architecture is an entry like any other."""

from __future__ import annotations

from itertools import product

import pytest
from huggingface_pack_cases import BY_NAME

from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions

CHEAP = ["train.steps=3", "train.batch=4", "evaluate.contexts=4", "evaluate.strings=4", "evaluate.max_length=48"]


@pytest.mark.slow  # seconds
def test_every_architecture_serves_every_family_at_its_sizes_but_for_two_that_have_no_single_layer() -> None:
    tasks = ["dyck-1-2", "set-complement", "max-retrieval", "dictionary-lookup", "tomita-5"]
    found = plan(RunOptions(tasks, list(BY_NAME), average=[], seeds=[0], protocol="quick"), Registry.load())
    refused = {tuple(sentence.partition(": ")[0].split(" cannot be run on ")) for sentence in found.refusals}
    assert refused == set(product(["olmo-hybrid", "rwkv"], ["set-complement", "max-retrieval", "dictionary-lookup"]))
