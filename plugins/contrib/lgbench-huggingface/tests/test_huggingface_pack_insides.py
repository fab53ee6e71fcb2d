"""What probes see inside of models of transformers is what the library itself says of them."""

from __future__ import annotations

import pytest
import torch
from huggingface_pack_cases import BY_NAME, TOKENS, built, tokens

from lgbench import Answers, Signature, Vectors
from lgbench_pretrained.decoder import DecoderSight, sight_of

CPU = torch.device("cpu")
VECTORS = Signature(Vectors(5), 4, Answers.LAST)


@pytest.mark.parametrize("signature", [TOKENS, VECTORS], ids=["tokens", "vectors"])
@pytest.mark.parametrize(
    "name", ["llama", "bloom", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma2", "lfm2"))]
)
def test_weights_and_streams_are_those_of_the_library(name, signature):
    watched, plain = (built(BY_NAME[name], signature, heads=2) for _ in range(2))
    model, inputs = plain.language_model, tokens(20)
    if signature is VECTORS:
        inputs = torch.rand(2, 20, 5, generator=torch.Generator().manual_seed(1))
    if model._can_set_attn_implementation():
        model.set_attn_implementation("eager")
    given = {"input_ids": inputs} if plain.embed is None else {"inputs_embeds": plain.embed(inputs)}
    with torch.no_grad():
        expected = model(**given, output_attentions=True, output_hidden_states=True)
    sight = DecoderSight(watched, CPU, 1e-3)
    with sight.watching(), torch.no_grad():
        sight.begin()
        watched(inputs)
    seen = sight.at(0)
    weights = [each for each in expected.attentions if each is not None]
    assert len(seen.attentions) == len(weights) > 0
    for attention, own in zip(seen.attentions, weights, strict=True):
        torch.testing.assert_close(attention.weights, own[:, :, -1].double(), rtol=1e-4, atol=1e-6)
    first = [each for each in seen.sublayers if each.layer == 1]
    torch.testing.assert_close(first[0].before, expected.hidden_states[0][:, -1].double())
    torch.testing.assert_close(first[-1].after, expected.hidden_states[1][:, -1].double())


def test_a_model_that_runs_its_layers_several_times_is_seen_in_the_last_pass():
    model = built(BY_NAME["llama"], heads=2)
    sight, first, last = DecoderSight(model, CPU, 1e-3), tokens(20), tokens(20).flip(1)
    found = []
    for passes in ((last,), (first, last)):
        sight.begin()
        with sight.watching(), torch.no_grad():
            for inputs in passes:
                model(inputs)
        found.append(sight.at(0))
    once, again = found
    assert len(again.attentions) == 2 and len(again.sublayers) == 4
    assert torch.equal(again.final, once.final)
    assert all(torch.equal(own.weights, other.weights) for own, other in zip(again.attentions, once.attentions, strict=True))


def test_a_difference_of_two_attentions_has_no_weights():
    model = built(BY_NAME["diffllama"], heads=2)
    sight = DecoderSight(model, CPU, 1e-3)
    with sight.watching(), torch.no_grad():
        sight.begin()
        model(tokens(20))
    assert sight.at(0).attentions == () and sight.not_linear == {1, 2}
    assert [each.role for each in sight.at(0).sublayers] == ["attention", "mlp"] * 2


def test_layers_of_the_text_are_found_beside_as_many_layers_of_pictures():
    from transformers import AutoModelForCausalLM, Gemma3Config

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = sizes | {"vocab_size": 300, "num_key_value_heads": 2, "head_dim": 8}
    config = Gemma3Config(text_config=text, vision_config=sizes | {"image_size": 28, "patch_size": 14}, mm_tokens_per_image=4)
    model = AutoModelForCausalLM.from_config(config)
    assert list(DecoderSight(model, CPU, 1e-3).layers) == list(model.get_decoder().layers)


def test_one_decoder_is_found_within_any_module_and_nothing_else_is_one():
    llama = built(BY_NAME["llama"])
    assert len(sight_of(torch.nn.Sequential(llama), CPU, 1e-3).layers) == 2
    assert sight_of(torch.nn.Linear(2, 2), CPU, 1e-3) is None
    assert sight_of(torch.nn.ModuleList([llama, built(BY_NAME["llama"])]), CPU, 1e-3) is None


def test_an_encoder_beside_a_decoder_is_not_taken_for_the_model():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=8, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0)
    assert sight_of(torch.nn.Sequential(T5ForConditionalGeneration(config)), CPU, 1e-3) is None
