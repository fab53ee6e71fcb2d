"""Probes of language models that transformers loads: real loading code, on small models that the tests make and save."""

from __future__ import annotations

import csv
import json
import math
import re
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from torch.utils._python_dispatch import TorchDispatchMode

from lgbench import Internals, Measurement
from lgbench.cli.main import main
from lgbench.errors import UsageError
from lgbench.experiment.components import is_probe
from lgbench.extensions.registry import Registry
from lgbench.reports.panel_figures import above_zero
from lgbench_pretrained import attention as attention_module
from lgbench_pretrained import probing
from lgbench_pretrained.loading import Source, load
from lgbench_pretrained.probing import Probing
from lgbench_pretrained.tokens import Pieces, RandomTokens

transformers = pytest.importorskip("transformers")

CPU = torch.device("cpu")
README = Path(__file__).parents[1] / "README.md"
VOCABULARY = 300
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
OWN_NAMES = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
KINDS = {
    "llama": SMALL | {"num_key_value_heads": 2},
    "gpt_neox": SMALL,
    "mamba": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "rwkv": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32},
    "mistral": SMALL | {"num_key_value_heads": 2, "sliding_window": 8},
    "gemma2": SMALL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "gpt_oss": SMALL | {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "sliding_window": 8},
    "olmo2": SMALL,
    "cohere": SMALL,
    "gpt2": OWN_NAMES,
    "gptj": OWN_NAMES | {"rotary_dim": 4},
    "gpt_neo": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 8}
    | {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": 512},
    "bloom": {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "mpt": {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4},
    "opt": {key: value for key, value in SMALL.items() if key != "intermediate_size"}
    | {"ffn_dim": 48, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "openai-gpt": OWN_NAMES,  # its modules return lists
    "doge": SMALL | {"num_key_value_heads": 4},  # its attention names the mask
}
WITHOUT_ATTENTION = ("mamba", "rwkv")
PRE_NORM = ("llama", "mistral", "gpt_oss", "gpt2", "gpt_neo", "bloom", "mpt", "doge")
PARALLEL = ("gpt_neox", "gptj", "cohere", "falcon")
POST_NORM = ("opt", "openai-gpt")
PROBES = [each for each in Registry.load().measurements if is_probe(each)]


@pytest.fixture(scope="session", autouse=True)
def quiet():
    """transformers prints progress bars and advice."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """The folder of a small model of a kind. `stirred`: with larger weights, so that attention is uneven."""
    folder, made = tmp_path_factory.mktemp("pretrained"), {}

    def save(kind: str, stirred: bool = False) -> Path:
        if (kind, stirred) not in made:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                config = transformers.CONFIG_MAPPING[kind](**KINDS[kind])
                model = transformers.AutoModelForCausalLM.from_config(config)
                with torch.no_grad():
                    for parameter in model.parameters() if stirred else ():
                        parameter.add_(torch.randn_like(parameter) * 0.1)
            made[kind, stirred] = folder / f"{kind}{'-stirred' * stirred}"
            model.save_pretrained(made[kind, stirred])
        return made[kind, stirred]

    return save


@pytest.fixture(scope="session")
def with_tokenizer(saved):
    """A small Llama with a tokenizer that was trained on the project's README."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(README)], trainer)
    folder = saved("llama")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def loaded(folder: Path, dtype: str = "float32"):
    return load(Source.of(f"{folder}"), dtype, CPU)


def seen(folder: Path, inputs: torch.Tensor) -> Internals:
    """The internals at the last position."""
    pretrained = loaded(folder)
    with pretrained.sight.watching():
        logits, found = probing.read(pretrained.model, inputs, pretrained.sight)
    return Internals(inputs.shape[1], inputs, logits, None, None, *found)


def plain(folder: Path, inputs: torch.Tensor):
    """The same model as transformers runs it by itself, and what it says of its internals."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    has_attention = folder.name.split("-")[0] not in WITHOUT_ATTENTION
    with torch.no_grad():
        return model, model(inputs, output_attentions=has_attention, output_hidden_states=True, use_cache=False)


def tokens(length: int = 24, n: int = 3) -> torch.Tensor:
    return RandomTokens(VOCABULARY).draw(length, n, seed=5)


def command(*words: object):
    return CliRunner().invoke(main, ["probe-model", *map(str, words)])


def refused(result, *parts: str) -> None:
    """The command says one sentence, without a traceback, and exits with 2."""
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.output, result.output


def csv_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


# Internals


@pytest.mark.parametrize("kind", ["llama", "gpt_neox", *(pytest.param(kind, marks=pytest.mark.slow) for kind in [*KINDS][4:])])
def test_weights_streams_and_logits_are_those_that_the_model_gives_itself(kind, saved):
    folder, inputs = saved(kind, stirred=True), tokens()
    found, (_, itself) = seen(folder, inputs), plain(folder, inputs)
    torch.testing.assert_close(found.logits, itself.logits[:, -1].double(), rtol=1e-4, atol=1e-5)
    for attention, weights in zip(found.attentions, itself.attentions, strict=True):
        torch.testing.assert_close(attention.weights, weights[:, :, -1].double(), rtol=1e-4, atol=1e-5)
    firsts, lasts = found.sublayers[::2], found.sublayers[1::2]
    assert [s.role for s in firsts] == ["attention"] * 2 and [s.role for s in lasts] == ["mlp"] * 2
    for own, stream in zip(firsts, itself.hidden_states, strict=False):
        torch.testing.assert_close(own.before, stream[:, -1].double(), rtol=1e-4, atol=1e-5)
    for first, last in zip(firsts, lasts, strict=True):
        torch.testing.assert_close(first.after, last.before)
    for own in (*firsts, *lasts) if kind in PRE_NORM else firsts if kind in PARALLEL else ():
        torch.testing.assert_close(own.norm_input, own.before)
    assert (found.final is None) == (kind in POST_NORM)
    if found.final is not None:
        torch.testing.assert_close(found.final, lasts[-1].after)


ADDS = {
    "llama": "self_attn",
    "gpt_neox": "attention",
    "gemma2": "post_attention_layernorm",
    "olmo2": "post_attention_layernorm",
    "gpt2": "attn",
    "gptj": "attn",
    "cohere": "self_attn",
    "falcon": "self_attention",
    "gpt_oss": "self_attn",
}
"""The part of a layer whose answer is what attention adds to the stream."""
IS_STREAM = {"bloom": "self_attention", "opt": "self_attn_layer_norm"}
"""The part of a layer whose answer is the stream after attention."""


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k in ("llama", "gpt_neox") else pytest.mark.slow) for k in [*ADDS, *IS_STREAM]]
)
def test_the_stream_between_the_sublayers_is_that_of_the_layers_code(kind, saved):
    """Pre-norm, post-norm, peri-norm, norms on the output, and parallel sublayers."""
    folder, inputs = saved(kind, stirred=True), tokens()
    found = seen(folder, inputs)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    answers: dict[str, torch.Tensor] = {}
    name = (ADDS | IS_STREAM)[kind]
    for path, module in model.named_modules():
        if re.search(rf"\.1\.{name}$", path):
            module.register_forward_hook(lambda m, g, answer: answers.update(it=answer[0] if type(answer) is tuple else answer))
    with torch.no_grad():
        model(inputs, use_cache=False)
    answer, sublayer = answers["it"][:, -1].double(), found.sublayers[2]
    assert sublayer.role == "attention" and sublayer.layer == 2
    torch.testing.assert_close(sublayer.update if kind in ADDS else sublayer.after, answer, rtol=1e-4, atol=1e-5)


def test_weights_and_outputs_of_a_llama_are_those_of_softmax_written_out(saved):
    folder, inputs = saved("llama", stirred=True), tokens(17)
    found, (model, itself) = seen(folder, inputs), plain(folder, inputs)
    layer, n = model.model.layers[1], len(inputs)
    with torch.no_grad():
        x = layer.input_layernorm(itself.hidden_states[1])
        q, k, v = (
            p(x).view(n, 17, -1, 8).transpose(1, 2)
            for p in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
    angles = torch.arange(17.0)[:, None] * 10000.0 ** (-torch.arange(4) / 4)

    def rotated(x):
        """Feature i and feature i + 4 turn together."""
        pair = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pair.real, pair.imag], -1)

    k, v = (each.repeat_interleave(2, 1) for each in (rotated(k), v))
    weights = (rotated(q)[:, :, -1:] @ k.mT / math.sqrt(8)).softmax(-1)
    torch.testing.assert_close(found.attentions[1].weights, weights[:, :, 0].double(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.attentions[1].output, (weights @ v)[:, :, 0].double(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "kind", ["llama", pytest.param("mistral", marks=pytest.mark.slow), pytest.param("gpt_oss", marks=pytest.mark.slow)]
)
def test_a_few_queries_at_a_time_give_the_same_numbers_as_all(kind, saved, monkeypatch):
    folder, inputs = saved(kind, stirred=True), tokens(50)
    whole = seen(folder, inputs)
    monkeypatch.setattr(attention_module, "WEIGHTS_AT_ONCE", 3 * 4 * 50 * 7)  # seven queries
    parts = seen(folder, inputs)
    torch.testing.assert_close(parts.logits, whole.logits, rtol=1e-5, atol=1e-6)
    for own, other in zip(parts.attentions, whole.attentions, strict=True):
        torch.testing.assert_close(own.weights, other.weights, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(own.output, other.output, rtol=1e-5, atol=1e-7)


def test_weights_that_an_implementation_does_not_give_are_found_through_the_values(saved, monkeypatch):
    folder, inputs = saved("llama", stirred=True), tokens()
    given, own_function = seen(folder, inputs), attention_module.own_function

    def silent(module):
        attend = own_function(module)
        return lambda *args, **named: (attend(*args, **named)[0], None)

    monkeypatch.setattr(attention_module, "own_function", silent)
    for found, other in zip(seen(folder, inputs).attentions, given.attentions, strict=True):
        torch.testing.assert_close(found.weights, other.weights, rtol=1e-4, atol=1e-6)


def test_an_attention_that_is_not_linear_in_the_values_has_no_weights_and_a_sentence_says_so(saved, monkeypatch):
    own_function = attention_module.own_function

    def squared(module):
        attend = own_function(module)
        return lambda module, q, k, v, *args, **named: attend(module, q, k, v**2, *args, **named)

    monkeypatch.setattr(attention_module, "own_function", squared)
    found = Probing(loaded(saved("llama", stirred=True)), RandomTokens(VOCABULARY), 3, 0, PROBES, CPU)
    rows = [*found.lengths([20])][0]
    assert "attention_entropy" not in {row.metric for row in rows} and "output_std" in {row.metric for row in rows}
    assert "no weights are read in layers 1, 2: the output of attention is not linear in the values" in found.sentences


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(answer):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return answer


def test_memory_is_linear_in_the_length(saved, monkeypatch):
    """The bound on weights is small here, as it is small beside a long text in earnest."""
    monkeypatch.setattr(attention_module, "WEIGHTS_AT_ONCE", 2**12)
    monkeypatch.setattr(probing, "POSITIONS", {"cpu": 1})
    found, model = [], loaded(saved("llama"))
    for length in (128, 256):
        with Largest() as largest:
            [*Probing(model, RandomTokens(VOCABULARY), 1, 0, PROBES, CPU).lengths([length])]
        found.append(largest.elements)
    weights = max(VOCABULARY, 48) * 32  # the largest matrix of the model
    for length, elements in zip((128, 256), found, strict=True):
        assert elements <= max(weights, 48 * length, 2**12)
        assert elements < length**2


# Exponents


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("llama", "float32"),
        ("gpt_neox", "bfloat16"),
        pytest.param("llama", "bfloat16", marks=pytest.mark.slow),
        pytest.param("gpt_neox", "float32", marks=pytest.mark.slow),
    ],
)
def test_outputs_of_random_weights_vanish_like_one_over_the_root_of_n(kind, dtype, saved):
    result = command(f"{saved(kind)}", "--dtype", dtype, "--probe", "output_std", "--lengths", "16:256")
    assert result.exit_code == 0, result.output
    exponent = re.search(r"output_std of layer 1 goes like N\^(-0\.\d\d) \[(.*), (.*)\]", result.output)
    assert float(exponent[1]) == pytest.approx(-0.5, abs=0.06)
    assert float(exponent[2]) <= float(exponent[1]) <= float(exponent[3])


# Contexts


def test_pieces_of_a_text_do_not_overlap_and_a_seed_decides_them():
    text = Pieces(torch.arange(1000), "text")
    found = text.draw(90, 10, seed=1)
    assert found.shape == (10, 90) and (found.diff() == 1).all() and len(found.unique()) == 900
    assert torch.equal(found, text.draw(90, 10, seed=1)) and not torch.equal(found, text.draw(90, 10, seed=2))
    assert torch.equal(text.draw(100, 10, seed=1).flatten(), torch.arange(1000))
    with pytest.raises(UsageError, match="10 contexts of 101 tokens need 1010, and text has 1000: use --lengths up to 100 or"):
        text.draw(101, 10, seed=1)


def test_random_tokens_are_all_of_the_vocabulary_and_a_seed_decides_them():
    found = RandomTokens(50).draw(200, 30, seed=1)
    assert found.min() == 0 and found.max() == 49 and found.float().mean().item() == pytest.approx(24.5, abs=1)
    assert torch.equal(found, RandomTokens(50).draw(200, 30, seed=1))
    assert not torch.equal(found, RandomTokens(50).draw(200, 30, seed=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_text_is_read_as_its_tokens_are(dtype, with_tokenizer, tmp_path):
    (numbers,) = transformers.AutoTokenizer.from_pretrained(with_tokenizer)([README.read_text(encoding="utf-8")])["input_ids"]
    (tmp_path / "tokens.txt").write_text("\n".join(map(str, numbers)))
    common = (f"{with_tokenizer}", "--lengths", "8,16", "--contexts", "4", "--dtype", dtype)
    text = command(*common, "--text", README, "--out", tmp_path / "a.csv")
    by_number = command(*common, "--tokens", tmp_path / "tokens.txt", "--out", tmp_path / "b.csv")
    assert text.exit_code == by_number.exit_code == 0, text.output + by_number.output
    assert "LlamaForCausalLM of 2 layers; 4 contexts of README.md for each length" in text.output
    unknown = "attention_on_source, logit_gap, logit_separation"
    assert f"{unknown} do not apply: nobody knows the right answers to README.md" in text.output
    first, second = csv_of(tmp_path / "a.csv"), csv_of(tmp_path / "b.csv")
    assert {row.pop("contexts_of") for row in first} == {"README.md"} and [row.pop("contexts_of") for row in second]
    assert first == second and {row["dtype"] for row in first} == {dtype}
    random = command(*common, "--out", tmp_path / "c.csv")
    assert random.exit_code == 0 and [r["value"] for r in csv_of(tmp_path / "c.csv")] != [r["value"] for r in first]


# The command


def test_rows_and_figures_are_what_the_tables_show(saved, tmp_path):
    folder, rows = saved("llama", stirred=True), tmp_path / "rows.parquet"
    words = (f"{folder}", "--lengths", "16:64", "--contexts", "4", "--seed", "3")
    result = command(*words, "--out", rows, "--plot", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    table = pq.read_table(rows).to_pylist()
    entropy = {(r["length"], r["layer"], r["head"]): r["value"] for r in table if r["metric"] == "attention_entropy"}
    assert [*entropy] == [(length, layer, head) for length in (16, 32, 64) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert {(r["model"], r["contexts"], r["seed"], r["n"]) for r in table} == {(str(folder), 4, 3, 4)}
    assert all(r["head"] is None for r in table if r["metric"] == "residual_norm")
    mean = sum(entropy[32, 2, head] for head in (1, 2, 3, 4)) / 4
    of_32 = result.output.partition("length 32")[2].partition("length 64")[0]
    assert f"{mean:.4g}" in of_32
    drawn = json.loads((tmp_path / "all.json").read_text())["datasets"]
    of_entropy = next(data for data in drawn.values() if any(row.get("mean") == pytest.approx(mean) for row in data))
    assert {(row["label"], row["length"]) for row in of_entropy} == {(f"layer {i}", n) for i in (1, 2) for n in (16, 32, 64)}
    again = command(*words, "--out", tmp_path / "again.parquet")
    assert again.exit_code == 0 and pq.read_table(tmp_path / "again.parquet").to_pylist() == table


def test_an_interval_that_reaches_zero_is_drawn_to_the_smallest_number_on_a_logarithmic_axis():
    cells = [{"mean": 1.0, "low": 0.5}, {"mean": 0.8, "low": -0.1}, {"mean": 2.0, "low": None}, {"mean": -1.0, "low": -2.0}]
    assert [(cell["low"], cell["band"]) for cell in above_zero(cells)] == [(0.5, 0.5), (-0.1, 0.5), (None, None)]


def test_the_figure_of_one_probe_has_its_exponents(saved, tmp_path):
    words = ("--lengths", "16:64", "--contexts", "4", "--probe", "output_std", "--plot", tmp_path / "std.json")
    result = command(f"{saved('llama')}", *words)
    assert result.exit_code == 0, result.output
    fit = re.search(r"layer 1 goes like (N\^-0\.\d+ \[.*?\])", result.output)[1]
    assert f"layer 1  {fit}" in (tmp_path / "std.json").read_text()


@pytest.mark.parametrize("kind", ["mamba", pytest.param("rwkv", marks=pytest.mark.slow)])
def test_a_model_without_attention_says_which_probes_do_not_apply_and_goes_on(kind, saved, tmp_path):
    folder = saved(kind, stirred=True)
    result = command(folder, "--lengths", "16", "--out", tmp_path / "rows.csv")
    assert result.exit_code == 0 and "lgbench sees no attention in it" in result.output, result.output
    assert "falling back" not in result.output
    found = csv_of(tmp_path / "rows.csv")
    assert {row["metric"] for row in found} == {"residual_norm"} and [row["layer"] for row in found] == ["1", "2"]
    inputs = RandomTokens(VOCABULARY).draw(16, 16, seed=0)
    after = {}
    model = plain(folder, inputs[:1])[0]
    for path, module in model.named_modules():
        if re.search(r"\.(0|1)$", path) and path.count(".") == 2:
            module.register_forward_hook(lambda m, g, x, at=path: after.update({at: x[0] if type(x) is tuple else x}))
    with torch.no_grad():
        model(inputs, use_cache=False)
    norms = [x[:, -1].norm(dim=-1).mean().item() for x in after.values()]
    assert [float(row["value"]) for row in found] == pytest.approx(norms, rel=1e-4)


def test_where_no_probe_applies_the_command_says_why(saved):
    result = command(f"{saved('mamba')}", "--lengths", "16", "--probe", "output_std,logit_gap")
    refused(result, "logit_gap does not apply: nobody knows", "output_std does not apply to MambaForCausalLM")


class Broken(Measurement):
    """A probe that fails."""

    name = "broken"
    label = title = "broken"
    lower_is_better = None
    range = (None, None)

    def of_internals(self, internals):
        raise RuntimeError("oh no")


def test_a_probe_that_fails_is_left_out(saved):
    found = Probing(loaded(saved("llama")), RandomTokens(VOCABULARY), 2, 0, [Broken(), *PROBES], CPU)
    rows = [*found.lengths([4])][0]
    assert "broken failed with RuntimeError: oh no, so it is left out" in found.sentences
    assert rows and "broken" not in {row.metric for row in rows}


def test_weights_that_a_folder_lacks_are_named(saved, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved("llama"))
    left = {name: x for name, x in model.state_dict().items() if name != "model.layers.1.mlp.up_proj.weight"}
    model.save_pretrained(tmp_path, state_dict=left)
    found = Probing(loaded(tmp_path), RandomTokens(VOCABULARY), 2, 0, PROBES, CPU)
    assert [*found.lengths([4])]
    assert (
        "weights of LlamaForCausalLM were not found, so they are random: model.layers.1.mlp.up_proj.weight" in found.sentences
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["./nowhere"], "there is no folder './nowhere': expected one that save_pretrained wrote"),
        (["a/b/c"], "there is no folder 'a/b/c'"),
        (["EMPTY"], "has no config.json: expected a folder that save_pretrained of transformers wrote"),
        (["FILE"], "is a file: expected the folder that it is in"),
        (["BROKEN"], "transformers cannot load the model in"),
        (["NO_WEIGHTS"], "transformers cannot load the model in"),
        (["T5"], "is a t5 model, which is no causal language model"),
        (["LLAMA", "--lengths", "16:1024"], "the model reads 512 positions at most (max_position_embeddings)"),
        (["LLAMA", "--lengths", "16", "--contexts", "999999999999"], "use fewer --contexts or shorter --lengths"),
        (["LLAMA", "--lengths", "0,3"], "--lengths names a length below 1"),
        (["LLAMA", "--lengths", "64:16"], "use the first and the last of lengths that double, as in 16:4096"),
        (["LLAMA", "--lengths", "long"], "'long' names no lengths"),
        (["LLAMA", "--tokens", "FILE"], "FILE' has 'x': expected token numbers from 0 to 299"),
        (["LLAMA", "--tokens", "NUMBERS", "--lengths", "16"], "16 tokens need 256, and NUMBERS has 3"),
        (["LLAMA", "--text", "nowhere.txt"], "cannot read 'nowhere.txt' as a text: No such file"),
        (["LLAMA", "--text", "BINARY"], "as a text: it is not UTF-8"),
        (["GPT_NEOX", "--text", "FILE"], "knows no token of this text; --tokens takes"),
        (["MISTRAL", "--text", "FILE"], "transformers cannot load the tokenizer in"),
        (["LLAMA", "--text", "FILE", "--tokens", "FILE"], "use one of them"),
        (["LLAMA", "--probe", "tvd"], "tvd is no probe"),
        (["LLAMA", "--probe", "none"], "--probe none reads nothing"),
        (["LLAMA", "--out", "rows.txt"], "no format '.txt'"),
        (["LLAMA", "--plot", "rows.csv"], "no format '.csv'"),
        (["LLAMA", "--device", "nowhere"], "device 'nowhere' cannot be used here"),
        (["LLAMA", "--contexts", "1", "--probe", "output_std", "--plot", "a.json"], "nothing to draw"),
    ],
)
def test_a_bad_request_is_answered_in_a_sentence(words, said, saved, with_tokenizer, tmp_path):
    for name in ("EMPTY", "BROKEN", "NO_WEIGHTS", "T5"):
        (tmp_path / name).mkdir()
    (tmp_path / "FILE").write_text("x")
    (tmp_path / "NUMBERS").write_text("1 2 3")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "BROKEN" / "config.json").write_text("{")
    (tmp_path / "NO_WEIGHTS" / "config.json").write_bytes((with_tokenizer / "config.json").read_bytes())
    (tmp_path / "T5" / "config.json").write_text('{"model_type": "t5"}')
    places = {"LLAMA": saved("llama"), "GPT_NEOX": saved("gpt_neox"), "MISTRAL": saved("mistral")}
    places |= {name: tmp_path / name for name in ("EMPTY", "FILE", "NUMBERS", "BINARY", "BROKEN", "NO_WEIGHTS", "T5")}
    words = [re.sub(r"^[A-Z][A-Z0-9_]+$", lambda m: str(places[m[0]]), word) for word in words]
    refused(command(*words), said)


# The network, and what is installed


@pytest.fixture
def no_network(monkeypatch):
    """Whoever tries to reach another machine is noted down, and fails."""
    tried = []

    def refuse(*given, **named):
        tried.append(given)
        raise OSError("no network here")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between two tries
    return tried


def test_a_folder_is_read_without_the_network(no_network, with_tokenizer):
    result = command(with_tokenizer, "--text", README, "--lengths", "8", "--contexts", "2")
    assert result.exit_code == 0 and not no_network, result.output


def test_a_name_on_the_hub_without_a_network_is_answered_in_a_sentence(no_network, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = command("someone/some-model", "--lengths", "8")
    refused(result, "there is no folder 'someone/some-model', and the model of this name could not be had from the hub: ")
    assert len(result.output.splitlines()) == 1
