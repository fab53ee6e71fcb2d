"""The checks of norms, attentions and position codes find each breach of the contract and name it, and nothing in others."""

from __future__ import annotations

import pytest
import torch
from helpers.breaking import GRAPH, OPTIONS, Doing, InMode, check_of, complaint, complaints, refusing, table, unproven
from helpers.toy_registries import but
from torch import nn

from lgbench import Attention, Need, NormScheme, Position, Unsupported
from lgbench.attending import logits, masked_logits, visible
from lgbench.conformance.collect import checks_of

CAUSAL = "answers are causal"
LEARNS = "gradients reach every parameter"
LONGER = "inputs longer than in training work"


class Residual(nn.Module):
    def __init__(self, norm, sublayer, connect):
        super().__init__()
        self.norm, self.sublayer, self.connect = norm, sublayer, connect

    def forward(self, x):
        return self.connect(x, self.sublayer(self.norm(x)))


class Rms(NormScheme):
    """RMSNorm with learned gain, before each sublayer."""

    name = "rms"
    norm = staticmethod(lambda width: nn.RMSNorm(width, eps=1e-6))
    connect = staticmethod(torch.add)

    def embed(self, width):
        return nn.Identity()

    def residual(self, spec, sublayer):
        return Residual(self.norm(spec.width), sublayer, self.connect)

    def output(self, spec):
        return nn.Identity()

    def final(self, width):
        return self.norm(width)


class WithSlots(Rms):
    """RMSNorm before each sublayer, on queries, keys and heads, and smaller initial weights in later layers."""

    name = "with-slots"
    within = staticmethod(lambda width: nn.RMSNorm(width, eps=1e-6))

    def query(self, spec):
        return self.within(spec.head_dim)

    key = head = query

    def gain(self, spec, matrix):
        return spec.layer**-0.5 if matrix in ("value", "out", "up", "down") else 1.0


RMS, WITH_SLOTS = Rms(), WithSlots()


def with_norm(norm):
    return but(RMS, norm=staticmethod(norm))


def within(do):
    """Norms on queries, keys and heads that do something else."""
    return but(WITH_SLOTS, within=staticmethod(lambda width: Doing(do)))


def normalizing(do, parameter=None):
    return with_norm(lambda dim: Doing(do, parameter))


def connecting(connect):
    return but(RMS, connect=staticmethod(connect))


STAYS = "shape and dtype stay, in bfloat16 too"
IN_PLACE = "each position is normalized by itself"
GAINS = "gains of initial weights are finite numbers"
LAST_ONLY = "a sublayer may answer for the last position only"

NORMS = [
    (but(RMS, embed=lambda self, width: None), STAYS, "embed gives None, expected a torch.nn.Module: end it with `return`, or"),
    (normalizing(lambda x: x.float()), STAYS, "final: it gives (2, 9, 12) float32, expected (2, 9, 12) bfloat16"),
    (normalizing(lambda x: x / x.norm(dim=-1, keepdim=True)), STAYS, "final: a vector of zeros becomes something that is not"),
    (normalizing(lambda x: x / (x.norm(dim=0) + 1)), IN_PLACE, "depends on other positions or contexts"),
    (within(lambda x: x - x.mean(-2, keepdim=True)), IN_PLACE, "query, attention of layer 1: the result at one position"),
    (connecting(lambda x, y: x[:, : y.shape[1]] + y), LAST_ONLY, "residual, attention of layer 1: the last position gets"),
    (connecting(lambda x, y: x + 0 * y), LEARNS, "residual, attention of layer 1: no gradient reaches norm.weight,"),
    (but(RMS, gain=lambda self, spec, matrix: None), GAINS, "gain gives None for the matrix 'query', attention of layer 1"),
    (
        with_norm(lambda dim: InMode(True, lambda x: x - x.mean(-2, keepdim=True))),
        f"in transformer: {CAUSAL}",
        "in training, after 4 of 9 positions, its logits change with what comes after them",
    ),
]


class Softmax(Attention):
    """softmax(q . k / sqrt(D) + bias) v over the visible keys."""

    name = "plain"

    @staticmethod
    def attend(q, k, v, bias):
        return masked_logits(q, k, bias).softmax(-1) @ v

    def build(self, spec):
        undivided = spec.scale * spec.head_dim**0.5  # since `logits` divides
        return Doing(lambda q, *given: self.attend(q * undivided, *given))


SOFTMAX = Softmax()
SOFT = Softmax.attend


def attending(attend, **changes):
    return but(SOFTMAX, attend=staticmethod(attend), **changes)


def of_every_query(q, k, v, bias, query_input=None):
    """The outputs of the queries, less half the running mean of the outputs: of the queries that are asked, or else of all."""
    found = SOFT(q, k, v, bias)
    means = found.cumsum(-2) / torch.arange(1, found.shape[-2] + 1)[:, None]
    return (found - means / 2)[:, :, -(found.shape[-2] if query_input is None else query_input.shape[1]) :]


def forgetting(q, k, v, bias, key_input):
    """Softmax whose keys fade as later inputs say (a forget gate, as in arXiv 2503.02130)."""
    gates = torch.nn.functional.logsigmoid(key_input.mean(-1)).cumsum(-1)  # (B, K)
    fading = (gates[:, -q.shape[-2] :, None] - gates[:, None]) * visible(q, k)
    return SOFT(q, k, v, fading[:, None] if bias is None else bias + fading[:, None])


def needing(attend, *needs):
    return attending(attend, needs=frozenset(needs))


def seeing(seen):
    """Softmax over other keys than those that are visible; `seen` says which, (Q, K)."""

    def attend(q, k, v, bias):
        return logits(q, k, bias).masked_fill(~seen(q.shape[-2], k.shape[-2]), -torch.inf).softmax(-1) @ v

    return attending(attend)


def blind_to_bias(q, k, v, bias):
    return SOFT(q, k, v, None)


def unmasked_with_bias(q, k, v, bias):
    return SOFT(q, k, v, None) if bias is None else logits(q, k, bias).softmax(-1) @ v


def of_the_first_context(q, k, v, bias):
    return SOFT(q, k, v, bias if bias is None or bias.ndim < 4 else bias[:1])


def below(queries, keys, diagonal):
    return torch.ones(queries, keys, dtype=torch.bool).tril(diagonal)


OF_QUERIES = "shape and dtype are those of the queries, for one key and for many"
NO_LATER_KEYS = "queries do not see later keys"
LAST_QUERIES = "the last queries alone get what they get among others"
SCALED = "logits are scaled as `spec.scale` says"
BIASED = "a bias of zeros changes nothing, another something, and that of a context acts on that context"

ATTENTIONS = [
    (attending(lambda *given: SOFT(*given)[..., 1:]), OF_QUERIES, "with Q = 1 and K = 1 it gives (2, 1, 1, 6) float32,"),
    (seeing(lambda q, k: below(q, k, k - q - 1)), OF_QUERIES, "with Q = 1 and K = 1 it gives something that is not finite"),
    (seeing(lambda q, k: below(q, k, k)), NO_LATER_KEYS, "the first 4 queries take something else if what comes after them"),
    (
        needing(lambda q, k, v, bias, x: SOFT(q, k, v, bias) + x.mean(), Need.KEY_INPUT),
        NO_LATER_KEYS,
        "the first 4 queries take something else",
    ),
    (seeing(lambda q, k: below(q, k, 0)), LAST_QUERIES, "the last query alone takes something else: they differ"),
    (attending(blind_to_bias), BIASED, "a bias changes nothing: raise Unsupported for a spec with `has_bias`"),
    (attending(unmasked_with_bias), BIASED, "with a bias of zeros, (1, 9, 9), it gives something else than without"),
    (attending(of_the_first_context), BIASED, "context 1 takes something else than where all have its bias"),
    (but(SOFTMAX, configured=lambda self, *, window=64: self), OPTIONS, "the option window changes nothing: 65 gives the same"),
]


class Everywhere(Position):
    """Learned vectors on the embedding, queries that grow, and a bias against what is far away."""

    name = "everywhere"

    @staticmethod
    def onto(x, table):
        return x + table[: x.shape[-2]]

    @staticmethod
    def rotated(q, k):
        return q * torch.arange(1, k.shape[-2] + 1)[-q.shape[-2] :, None], k

    @staticmethod
    def added(q, k):
        queries, keys = (torch.arange(x.shape[-2]) for x in (q, k))
        distance = keys - queries[:, None] - (len(keys) - len(queries))
        return distance / torch.arange(1, q.shape[1] + 1)[:, None, None]

    def embed(self, width, positions):
        return Doing(self.onto, torch.randn(positions, width))

    def rotate(self, spec):
        return Doing(self.rotated)

    def bias(self, spec):
        return Doing(self.added)


EVERYWHERE = Everywhere()
NOWHERE = but(EVERYWHERE, embed=Position.embed, rotate=Position.rotate, bias=Position.bias)


def placing(**changes):
    return but(EVERYWHERE, **{name: staticmethod(do) for name, do in changes.items()})


def arange_like(x):
    return torch.arange(x.shape[-2], dtype=x.dtype)


def counting(x, tokens):
    """How many tokens of the same kind a token follows, for a code that reads tokens, (B, T, 1)."""
    return torch.nn.functional.one_hot(tokens, 8).cumsum(-2).gather(-1, tokens[..., None]).to(x.dtype)


class OfTokens(Position):
    """Counts, which are added to the embedding and to the bias of each context: CoPE and Abacus in one."""

    name = "of-tokens"
    reads_tokens = True
    counted = staticmethod(counting)

    def embed(self, width, positions):
        return Doing(lambda x, tokens: x + self.counted(x, tokens))

    def bias(self, spec):
        return Doing(lambda q, k, tokens: -self.counted(k, tokens)[:, None, -q.shape[-2] :].abs() + 0 * q @ k.mT)


OF_TOKENS = OfTokens()


def counting_as(counted):
    return but(OF_TOKENS, counted=staticmethod(counted))


SHAPES = "shapes stay, and a bias has a number for every query and key"
FOLLOWS = "a token's position does not depend on what follows"
LAST_STANDS = "the last queries have the positions that they have among others"
APART = "each context has its own positions"

POSITIONS = [
    (placing(onto=lambda x, table: x[..., 1:]), SHAPES, "embed gives (2, 1, 6) float32, expected (2, 1, 7) float32"),
    (placing(added=lambda q, k: Everywhere.added(k, k)), SHAPES, "bias is (1, 65, 65), expected (1, 1, 65), or (2, 1, 1,"),
    (
        placing(added=lambda q, k: Everywhere.added(q, k).where(visible(q, k), -torch.inf)),
        SHAPES,
        "some of the bias is not finite; the attention itself hides later keys",
    ),
    (placing(onto=lambda x, table: x + table[: x.shape[1]].flip(0)), FOLLOWS, "embed: the first positions change if more"),
    (placing(added=lambda q, k: arange_like(k) * arange_like(q)[:, None]), LAST_STANDS, "bias: the last query alone gets"),
    (placing(rotated=lambda q, k: (q * arange_like(q)[:, None], k)), LAST_STANDS, "rotate, queries: the last query alone"),
    (counting_as(lambda x, tokens: counting(x, tokens).mean(0, keepdim=True)), APART, "embed: its result depends on the"),
    (
        but(EVERYWHERE, embed=lambda self, width, positions: Doing(self.onto, torch.randn(9, width))),
        f"in transformer: {LONGER}",
        "it raised RuntimeError: The size of tensor a",
    ),
]
ROWS = [*NORMS, *ATTENTIONS, *POSITIONS]
RIGHT = [
    RMS,
    WITH_SLOTS,
    SOFTMAX,
    needing(of_every_query, Need.ALL_QUERIES),
    needing(of_every_query, Need.ALL_QUERIES, Need.QUERY_INPUT),
    needing(forgetting, Need.KEY_INPUT),
    EVERYWHERE,
    NOWHERE,
    OF_TOKENS,
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(ROWS))
def test_a_breach_is_found_and_named(registry, thing, rule, words):
    assert words in complaint(thing, rule, registry)


@pytest.mark.slow
def test_an_attention_may_refuse_a_place_for_unscaled_logits_alone(registry):
    def build(self, spec):
        if spec.unscaled and spec.cross_attention:
            raise Unsupported("no unscaled logits of other keys")
        return Softmax.build(self, spec)

    assert complaints([but(SOFTMAX, build=build)], registry, lambda rule: rule == SCALED) == []


def test_nothing_is_found_in_parts_that_keep_the_contract(registry):
    # In a model the built-in parts show it too; these are of kinds that no built-in part is.
    of_new_kinds = [WITH_SLOTS, needing(of_every_query, Need.ALL_QUERIES), needing(forgetting, Need.KEY_INPUT), OF_TOKENS]
    assert complaints(RIGHT, registry, lambda rule: rule.startswith("in transformer: ")) == []
    assert complaints(of_new_kinds, registry, lambda rule: rule == f"in transformer: {GRAPH}") == []


def test_every_check_of_parts_finds_or_notes_something_here(registry):
    left = unproven(RIGHT, [*ROWS, *NOTES], registry)
    assert {rule for rule in left if not rule.startswith("in transformer: ")} == set()


def without_bias(self, spec):
    if spec.has_bias:
        raise Unsupported("it has no logits")
    return SOFTMAX.build(spec)


def refusing_rotation(self, spec):
    raise Unsupported("it rotates nothing")


class Windowed(Softmax):
    """Softmax attention with one keyword that is an option, and two that are none."""

    def __init__(self, window=16, sharpness=1.0):
        self.window, self.sharpness = window, sharpness

    def build(self, spec, *, power=2.0):
        return super().build(spec)

    def configured(self, *, sharpness: float = 1.0):
        return Windowed(self.window, sharpness)


NOTES = [
    (Windowed(), "its keywords are options", "`--set` does not reach window=16 of Windowed, power=2.0 of build: options are"),
    (refusing(SOFTMAX, "it is blind"), OF_QUERIES, "not checked: it refused every place in a model, such as: it is blind"),
    (but(SOFTMAX, build=without_bias), BIASED, "not checked: it refused every place in a model, such as: it has no logits"),
    (but(SOFTMAX, build=lambda self, spec: Doing(SOFT)), SCALED, "it does not use spec.scale, the factor of q . k"),
    (but(EVERYWHERE, rotate=refusing_rotation), SHAPES, "not checked: it refused every place in a model, such as: it rotates"),
    (NOWHERE, SHAPES, "it does nothing in any of the places that were tried: right only for"),
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()


@pytest.mark.parametrize("norm", ["pre-norm", "attention-layer-norm"])
def test_a_keyword_that_every_part_has_is_no_note(registry, norm):
    assert check_of(registry.norms[norm], "its keywords are options", registry)() is None


def test_a_part_is_tried_in_an_architecture_that_takes_it(toy_registry):
    rules = [check.name for check in checks_of(RMS, toy_registry)]
    assert f"in toy-broken: {CAUSAL}" in rules
    note = check_of(SOFTMAX, f"in a model: {CAUSAL}", toy_registry)()
    assert note.endswith("it is built for no signature: no architecture is installed that takes a part of the kind attention")
