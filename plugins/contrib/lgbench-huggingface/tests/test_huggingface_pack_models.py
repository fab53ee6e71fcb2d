"""Models are those of transformers: the same weights give the same logits in the library's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from huggingface_pack_cases import BY_NAME, TESTED, TOKENS, built, tokens
from torch import nn

from lgbench import Answers, Signature, Tokens, Unsupported, Vectors
from lgbench_huggingface.library import quiet
from lgbench_huggingface.settings import Sizes

every = pytest.mark.parametrize("name", BY_NAME)

CLASSES = {
    "llama": "Llama",
    "qwen3": "Qwen3",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
    "olmo2": "Olmo2",
    "gpt-neox": "GPTNeoX",
    "gpt2": "GPT2",
    "smollm3": "SmolLM3",
    "diffllama": "DiffLlama",
    "gpt-oss": "GptOss",
    "lfm2": "Lfm2",
    "qwen3-next": "Qwen3Next",
    "olmo-hybrid": "OlmoHybrid",
    "mamba": "Mamba",
    "mamba2": "Mamba2",
    "falcon-mamba": "FalconMamba",
    "falcon-h1": "FalconH1",
    "rwkv": "Rwkv",
    "xlstm": "xLSTM",
    "recurrent-gemma": "RecurrentGemma",
    "bloom": "Bloom",
}


def directly(name: str, seed: int = 0) -> Any:
    """The library's model by its own classes, from the settings alone, with what it does by default."""
    import transformers

    prefix = CLASSES[name]
    config_class = getattr(transformers, f"{prefix}TextConfig" if name == "gemma3" else f"{prefix}Config")
    model_class = getattr(transformers, f"{prefix}LMHeadModel" if name == "gpt2" else f"{prefix}ForCausalLM")
    architecture = BY_NAME[name]
    settings = dict(architecture.settings(Sizes(2, 32, 1, 16)))
    config = config_class(**settings, vocab_size=6, pad_token_id=None)
    if name in ("gpt2", "rwkv"):
        config.max_position_embeddings = TESTED
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        return model_class(config).eval()


@every
@torch.no_grad()
def test_logits_are_those_of_the_library_with_the_same_weights(name: str) -> None:
    ours, theirs = built(BY_NAME[name], seed=1), directly(name)
    theirs.load_state_dict(ours.language_model.state_dict())
    for length in (7, 70):  # within a chunk, and beyond
        with quiet():
            expected = theirs(tokens(length), use_cache=False).logits
        torch.testing.assert_close(ours(tokens(length)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # seconds
@every
def test_initial_weights_are_those_of_the_library(name: str) -> None:
    ours, theirs = built(BY_NAME[name]).language_model.state_dict(), directly(name).state_dict()
    assert ours.keys() == theirs.keys()
    for key, weight in ours.items():
        assert torch.equal(weight, theirs[key]), key


NORM, MIXER = "norm", "sublayer"
PRE, POST, SANDWICH = [NORM, MIXER], [MIXER, NORM], [NORM, MIXER, NORM]
PLACES = {
    "llama": PRE + PRE,
    "qwen3": PRE + PRE,
    "gemma2": SANDWICH + SANDWICH,
    "gemma3": SANDWICH + SANDWICH,
    "olmo2": POST + POST,
    "gpt-neox": PRE + PRE,
    "gpt2": PRE + PRE,
    "smollm3": PRE + PRE,
    "diffllama": PRE + PRE,
    "gpt-oss": PRE + PRE,
    "lfm2": PRE + PRE,
    "qwen3-next": PRE + PRE,
    "mamba": PRE,
    "mamba2": PRE,
    "falcon-mamba": PRE,
    "falcon-h1": [NORM, MIXER, MIXER, *PRE],
    "rwkv": PRE + PRE,
    "xlstm": PRE + PRE,
    "recurrent-gemma": PRE + PRE,
    "bloom": PRE + PRE,
}
"""In the order in which a layer calls them. OLMo Hybrid has layers of two kinds, in a test of their own."""


@contextmanager
def calls_within(layer: nn.Module) -> Iterator[list[str]]:
    """The calls of a layer's modules inside, in their order: of norms, and of other modules with weights."""
    called: list[str] = []
    hooks = []
    for child in layer.children():
        kind = NORM if "norm" in type(child).__name__.lower() else MIXER
        if any(True for _ in child.parameters()):
            hooks.append(child.register_forward_hook(lambda *given, kind=kind: called.append(kind)))
    try:
        yield called
    finally:
        for hook in hooks:
            hook.remove()


def layers_of(model: nn.Module) -> nn.ModuleList:
    """The two layers of a model."""
    return next(module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == 2)


def calls_of(name: str, layer: int) -> list[str]:
    model = built(BY_NAME[name])
    with calls_within(layers_of(model)[layer]) as called, torch.no_grad():
        model(tokens(5))
    return called


@pytest.mark.parametrize("name", PLACES)
def test_norms_are_where_the_description_says(name: str) -> None:
    assert calls_of(name, 1) == PLACES[name]  # the first layer of RWKV has the norm of the embedding too
    about = BY_NAME[name].about
    scheme = {tuple(SANDWICH * 2): "sandwich", tuple(POST * 2): "output norms"}.get(tuple(PLACES[name]), "pre-norm")
    assert [each for each in ("pre-norm", "sandwich", "output norms") if each in about] == [scheme]


def test_olmo_hybrid_has_pre_norm_in_linear_layers_and_output_norms_in_those_of_attention() -> None:
    assert [calls_of("olmo-hybrid", layer) for layer in (0, 1)] == [PRE + PRE, POST + POST]


@pytest.mark.slow  # seconds
@every
def test_nothing_is_dropped_out(name: str) -> None:
    model = built(BY_NAME[name]).train()
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    rates += [value for key, value in vars(model.language_model.config).items() if "drop" in key and value is not None]
    assert not any(rates)


def test_learned_positions_go_to_the_tested_length() -> None:
    assert built(BY_NAME["gpt2"]).language_model.transformer.wpe.weight.shape == (TESTED, 32)


@pytest.mark.parametrize("name", ["llama", "bloom", "mamba2"])
@torch.no_grad()
def test_vectors_are_embedded_in_the_place_of_tokens(name: str) -> None:
    of_tokens, of_vectors = built(BY_NAME[name]), built(BY_NAME[name], Signature(Vectors(6), 6, Answers.EVERY_PREFIX))
    table = of_tokens.language_model.get_input_embeddings().weight
    of_vectors.load_state_dict(of_tokens.state_dict(), strict=False)  # all but the two embeddings
    assert of_vectors.embed is not None
    of_vectors.embed.weight.copy_(table.T)
    of_vectors.embed.bias.zero_()
    one_hot = F.one_hot(tokens(9), 6).float()
    if name == "bloom":  # whose embedding is also that of the logits
        of_vectors.language_model.lm_head.weight.copy_(table)
    torch.testing.assert_close(of_vectors(one_hot), of_tokens(tokens(9)))


@pytest.mark.slow  # seconds
@every
@torch.no_grad()
def test_the_last_answer_alone_is_that_among_all(name: str) -> None:
    every_prefix = built(BY_NAME[name])
    last = built(BY_NAME[name], Signature(Tokens(6), 6, Answers.LAST))
    torch.testing.assert_close(last(tokens(9)), every_prefix(tokens(9))[:, -1:])


def test_a_task_with_fewer_classes_than_tokens_has_the_logits_of_its_classes() -> None:
    model = built(BY_NAME["gpt2"], Signature(Tokens(6), 4, Answers.EVERY_PREFIX))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens(5)), built(BY_NAME["gpt2"])(tokens(5))[..., :4])


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("llama", {"heads": 3}, "width 32 is not a multiple of 3 heads"),
        ("gpt2", {"heads": 5}, "width 32 is not a multiple of 5 heads"),
        ("olmo-hybrid", {"layers": 1}, "olmo-hybrid needs 2 layers at least: one of attention, and one of gated DeltaNet"),
        ("xlstm", {"width": 36, "heads": 4}, "xlstm has half as many queries as values, and 4 heads cannot share 18"),
        (
            "rwkv",
            {"layers": 1},
            "rwkv needs 2 layers and a width of 2 at least: its initial values are spread evenly over both",
        ),
        ("mamba", {"width": 0}, "layers, heads, width and window must be at least 1"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused_with_the_reason(name: str, options: dict[str, int], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        built(BY_NAME[name], TOKENS, **options)


@pytest.mark.slow  # seconds
@every
@torch.no_grad()
def test_any_number_of_features_in_a_head_will_do(name: str) -> None:
    has_heads = name not in ("mamba", "falcon-mamba", "rwkv")
    for options in ({"width": 63}, {"width": 36 if name == "xlstm" else 34, "layers": 5} | ({"heads": 2} if has_heads else {})):
        logits = built(BY_NAME[name], **options)(tokens(9))
        assert logits.shape == (2, 9, 6) and logits.isfinite().all()


@pytest.mark.parametrize(
    ("name", "kind"), [("gemma2", "full_attention"), ("gpt-oss", "full_attention"), ("recurrent-gemma", "linear_attention")]
)
def test_a_model_of_one_layer_sees_all_positions(name: str, kind: str) -> None:
    assert built(BY_NAME[name], layers=1).language_model.config.layer_types == [kind]


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "gpt-oss"])
@torch.no_grad()
def test_the_window_decides_what_a_layer_of_local_attention_sees(name: str) -> None:
    inputs = tokens(20)
    other = inputs.clone()
    other[:, 0] = (other[:, 0] + 1) % 6
    apart = {}
    for window in (4, 64):
        model = built(BY_NAME[name], window=window)
        seen: list[torch.Tensor] = []
        layers_of(model)[0].register_forward_hook(lambda module, given, found, seen=seen: seen.append(found))  # type: ignore[misc]
        model(inputs), model(other)
        apart[window] = (seen[0] - seen[1]).abs().amax((0, 2))
    assert apart[4][:4].min() > 0 and apart[4][4:].max() == 0
    assert apart[64].min() > 0
