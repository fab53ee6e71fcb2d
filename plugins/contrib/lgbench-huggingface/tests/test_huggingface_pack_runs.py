"""An architecture is an entry like any other."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import transformers
from click.testing import CliRunner
from huggingface_pack_cases import BY_NAME

from lgbench.cli.main import main
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions

CHEAP = ["train.steps=3", "train.batch=4", "evaluate.contexts=4", "evaluate.strings=4", "evaluate.max_length=48"]


def test_a_run_of_llama_has_the_version_of_the_library_in_its_metadata(tmp_path: Path) -> None:
    settings = [part for setting in CHEAP for part in ("--set", setting)]
    arguments = ["run", "--task", "dyck-2-3", "--arch", "llama", "--seeds", "0", "--protocol", "quick", *settings]
    found = CliRunner().invoke(main, [*arguments, "--results", str(tmp_path)])
    assert found.exit_code == 0, found.output
    (run,) = tmp_path.glob("dyck-2-3.llama.*.parquet")
    metadata = json.loads(pq.read_metadata(run).metadata[b"lgbench"])
    by_name = {plugin["name"]: plugin for plugin in metadata["plugins"]}
    assert by_name["lgbench-huggingface"]["libraries"] == {"transformers": transformers.__version__}
    assert by_name["lgbench-huggingface"]["takes_part"]
    assert "libraries" not in by_name["lgbench"]


@pytest.mark.slow  # seconds
def test_every_architecture_serves_every_family_at_its_sizes_but_for_two_that_have_no_single_layer() -> None:
    tasks = ["dyck-1-2", "set-complement", "max-retrieval", "dictionary-lookup", "tomita-5"]
    found = plan(RunOptions(tasks, list(BY_NAME), average=[], seeds=[0], protocol="quick"), Registry.load())
    refused = {tuple(sentence.partition(": ")[0].split(" cannot be run on ")) for sentence in found.refusals}
    assert refused == set(product(["olmo-hybrid", "rwkv"], ["set-complement", "max-retrieval", "dictionary-lookup"]))
