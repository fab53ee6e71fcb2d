"""The entry `hf`: any causal language model, from a file with its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from huggingface_pack_cases import TESTED, TOKENS, parts, tokens

import lgbench
from lgbench import Architecture, JsonFile, Model, Parts, Signature
from lgbench.cli.main import main
from lgbench.conformance.check import Check
from lgbench.experiment.plan import Replanner
from lgbench.extensions.registry import Registry
from lgbench.results.stored_runs import stored
from lgbench.testing import checks
from lgbench_huggingface.configured import Configured
from lgbench_huggingface.library import quiet

OPT = {
    "model_type": "opt",
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.21",
    "vocab_size": 50272,
    "dropout": 0.1,
}
CHEAP = {"train.steps": 3, "train.batch": 4, "evaluate.contexts": 4, "evaluate.strings": 4, "evaluate.max_length": 48}


def written(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def built(content: dict[str, Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Configured().build(TOKENS, parts(), config=JsonFile(json.dumps(content))).eval()


@torch.no_grad()
def test_a_model_is_that_of_the_library_with_the_tasks_vocabulary_in_float32_and_without_dropout() -> None:
    from transformers import OPTConfig, OPTForCausalLM

    ours = built(OPT)
    sizes = {key: value for key, value in OPT.items() if key.endswith(("size", "dim", "layers", "heads"))}
    with quiet():
        theirs = OPTForCausalLM(
            OPTConfig(**{**sizes, "vocab_size": 6}, max_position_embeddings=TESTED, pad_token_id=None)
        ).eval()
    theirs.load_state_dict(ours.language_model.state_dict())
    torch.testing.assert_close(ours(tokens(TESTED)), theirs(tokens(TESTED)).logits)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert torch.equal(ours.train()(tokens(9)), ours.eval()(tokens(9)))


@torch.no_grad()
@pytest.mark.parametrize(
    "content",
    [
        OPT | {"layerdrop": 0.5, "num_hidden_layers": 4},
        {
            **{"model_type": "mixtral", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
            **{"num_attention_heads": 2, "num_key_value_heads": 2, "router_jitter_noise": 0.9},
        },
    ],
    ids=lambda content: content["model_type"],
)
def test_nothing_random_of_the_library_is_left(content: dict[str, Any]) -> None:
    model = built(content)
    expected = model(tokens(9))
    assert all(torch.equal(model.train()(tokens(9)), expected) for _ in range(5))


def test_a_deep_rwkv_has_the_initial_weights_of_the_library_and_trains() -> None:
    from transformers import RwkvConfig, RwkvForCausalLM

    ours = built({"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 7}).train()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        theirs = RwkvForCausalLM(RwkvConfig(vocab_size=6, hidden_size=32, num_hidden_layers=7, pad_token_id=None))
    theirs = theirs.state_dict()
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.language_model.state_dict().items())
    ours(tokens(9)).sum().backward()


@torch.no_grad()
def test_a_model_that_may_be_an_encoder_is_causal() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = built({"model_type": "bert", **sizes})
    torch.testing.assert_close(model(tokens(9))[:, :5], model(tokens(9)[:, :5]))


class Opt(Architecture):
    """OPT, as `hf` builds it."""

    name = "opt"

    def build(self, signature: Signature, parts: Parts) -> Model:
        return Configured().build(signature, parts, config=JsonFile(json.dumps(OPT)))


@pytest.mark.slow  # seconds
@pytest.mark.parametrize("check", checks(Opt()))
def test_what_it_builds_keeps_the_contract(check: Check) -> None:
    assert check() is None


def test_a_run_has_the_configuration_and_can_be_planned_again(tmp_path: Path) -> None:
    path = written(tmp_path, OPT)
    lgbench.run(
        "dyck-1-2", "hf", seeds=[0], protocol="quick", set={**CHEAP, "model.config": str(path)}, results=tmp_path / "results"
    )
    path.unlink()
    (run,) = (tmp_path / "results").glob("*.parquet")
    found = stored(run)[0].metadata
    assert json.loads(dict(found.experiment.options)["model.config"]) == OPT
    assert Replanner(Registry.load()).experiment(found.experiment).record == found.experiment
    (pack,) = [plugin for plugin in found.plugins if plugin.name == "lgbench-huggingface"]
    assert pack.libraries == {"transformers": __import__("transformers").__version__}


BAD = [
    (None, "cannot be read: No such file or directory; name a file with a JSON object"),
    ("{", "is no JSON object: Input data was truncated"),
    ("[1]", "is no JSON object: Expected `object`, got `array`"),
    ({"hidden_size": 8}, "the configuration of hf names no model_type"),
    ({"model_type": "lama"}, "has no 'lama' with these settings: Unrecognized model identifier: lama."),
    (
        {"model_type": "bert", "is_decoder": False, "hidden_size": 33},
        "cannot build a 'bert' with these settings: The hidden size (33)",
    ),
    ({"model_type": "t5"}, "'t5' is no causal language model in transformers"),
    ({"model_type": "opt", "hidden_size": "wide"}, "has no 'opt' with these settings"),
    ({**OPT, "quantization_config": {"bits": 4}}, "has quantization_config, and weights are trained in float32: leave it out"),
    ({**OPT, "auto_map": {"AutoModel": "a.B"}}, "has auto_map, and code from the hub is not run: leave it out"),
    (
        {"model_type": "lfm2", "hidden_size": 33, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1},
        "the model 'lfm2' of this configuration cannot be computed: The size of tensor a (33) must match",
    ),
    ({"model_type": "llama", "hidden_size": 2**40}, "hf cannot be run on dyck-1-2: "),
]


@pytest.mark.parametrize(("content", "reason"), BAD)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "none.json" if content is None else written(tmp_path, content)
    arguments = ["run", "--task", "dyck-1-2", "--arch", "hf", "--set", f"model.config={path}", "--results", str(tmp_path / "r")]
    found = CliRunner().invoke(main, arguments)
    said = found.stderr.replace("\n", " ")
    assert found.exit_code == 2 and reason in " ".join(said.split()), found.output
    assert "Traceback" not in found.output


def test_without_a_file_it_says_what_it_needs(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["run", "--task", "dyck-1-2", "--arch", "hf", "--results", str(tmp_path)])
    assert found.exit_code == 2
    assert "hf needs the configuration of a model: --set model.config=FILE.json" in " ".join(found.stderr.split())
