"""What probes see inside of models of x-transformers is what the library itself says of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from lgbench import Answers, Signature, Tokens
from lgbench_x_transformers import ARCHITECTURES
from lgbench_x_transformers.network import Network
from lgbench_x_transformers_sight import sight_of

CPU = torch.device("cpu")
WIDTH, HEADS, POSITIONS = 16, 2, 20
SAID_BEFORE_MIXING, SEVERAL_STREAMS = "xt-talking-heads", "xt-hyper-connections"
"""The library says weights before it mixes heads; and a residual stream that is no single one."""
FAST = ("xt-plain", "xt-post-norm", "xt-memory-kv")
ENTRIES = [pytest.param(each, marks=() if each.name in FAST else pytest.mark.slow, id=each.name) for each in ARCHITECTURES]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("place", [0, 7])
def test_weights_and_streams_are_those_of_the_library(entry, place):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Network(Signature(Tokens(6), 6, Answers.EVERY_PREFIX), 2, HEADS, WIDTH, entry.at(WIDTH // HEADS)).eval()
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    inputs = torch.randint(6, (3, POSITIONS), generator=torch.Generator().manual_seed(1))
    sight = sight_of(model, CPU, 1e-3)
    with sight.watching(), torch.no_grad():
        sight.begin((place,))
        model(inputs)
    seen = sight.at(place)
    with torch.no_grad():
        answer, told = model.body(model.embed(inputs), return_hiddens=True)
    assert len(seen.attentions) == len(told.attn_intermediates) == 2
    for attention, own in zip(seen.attentions, told.attn_intermediates, strict=True):
        expected = own.post_softmax_attn[:, :, -1 - place]
        expected = expected[..., expected.shape[-1] - POSITIONS :][..., : POSITIONS - place].double()  # memory comes first
        assert attention.weights.shape == expected.shape
        if entry.name != SAID_BEFORE_MIXING:
            torch.testing.assert_close(attention.weights, expected, rtol=1e-4, atol=1e-6)
    if entry.name != SEVERAL_STREAMS:
        first = next(each for each in seen.sublayers if each.role == "attention")
        torch.testing.assert_close(first.before, told.hiddens[0][:, -1 - place].double())
        for own, after in pairwise(seen.sublayers):
            torch.testing.assert_close(own.after, after.before)
        assert all(each.norm_input is not None for each in seen.sublayers)
        if entry.name == "xt-plain":
            assert all(torch.equal(each.norm_input, each.before) for each in seen.sublayers)
        final = torch.as_tensor(model.body.final_norm(sight.at(place).final.float()))
        torch.testing.assert_close(final, answer[:, -1 - place], rtol=1e-4, atol=1e-5)


def test_a_fused_kernel_that_says_no_weights_is_read_all_the_same():
    """The kernel leaves no weights behind, so they are found from outputs: those of the same model with the plain kernel."""
    from x_transformers import Decoder, TransformerWrapper  # after the pack, which mutes a warning of its import

    plain, fused = (
        TransformerWrapper(
            num_tokens=6,
            max_seq_len=POSITIONS,
            attn_layers=Decoder(dim=WIDTH, depth=2, heads=HEADS, attn_dim_head=WIDTH // HEADS, attn_flash=flash),
        ).eval()
        for flash in (False, True)
    )
    fused.load_state_dict(plain.state_dict())
    inputs = torch.randint(6, (3, POSITIONS), generator=torch.Generator().manual_seed(2))
    seen = []
    for model in (plain, fused):
        sight = sight_of(model, CPU, 1e-3)
        with sight.watching(), torch.no_grad():
            sight.begin((0,))
            model(inputs)
        seen.append(sight.at(0))
    expected, found = seen
    assert len(found.attentions) == len(expected.attentions) == 2
    for own, other in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(own.weights, other.weights, rtol=1e-3, atol=1e-5)
