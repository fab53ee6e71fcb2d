"""What breaks a promise of architectures or parts is found, and said in a sentence; what keeps them all is left in peace."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from breaking import DECLARED, DOCUMENTED, but, check_of, complaint, complaints, table, unproven
from torch import nn

from lgbench import Answers, Architecture, Attention, NormScheme, Position, Tokens, Unsupported
from lgbench.attending import logits, masked_logits, visible
from lgbench.conformance.collect import checks_of
from lgbench.noise import Noise


class Doing(nn.Module):
    """A function as a module, with a parameter that it is given last."""

    def __init__(self, do, parameter=None):
        super().__init__()
        self.do, self.parameter = do, None if parameter is None else nn.Parameter(parameter)

    def forward(self, *given, **named):
        return self.do(*given, *named.values(), *([] if self.parameter is None else [self.parameter]))


class Averaging(nn.Module):
    """Logits from the mean of what was read so far, and of what a module makes of that."""

    def __init__(self, signature, behind):
        super().__init__()
        inputs = signature.inputs
        self.embed = nn.Embedding(inputs.size, 6) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, 6)
        self.behind = behind()
        self.out = nn.Linear(6, signature.classes)
        self.answered = slice(-1 if signature.answers is Answers.LAST else None, None)

    def forward(self, inputs):
        x = self.embed(inputs)
        means = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return self.out(self.behind(means.tanh()))[:, self.answered]


class Averages(Architecture):
    """The mean of what was read so far, through a tanh."""

    name = "averages"
    behind = nn.Identity

    def build(self, signature, parts):
        return Averaging(signature, self.behind)


AVERAGES = Averages()


def with_module(module):
    """An architecture whose models have a module behind the means, (B, T, 6)."""
    return but(AVERAGES, behind=staticmethod(module))


def doing(do, parameter=None):
    """An architecture whose models do something to the means, with a parameter or without."""
    return with_module(lambda: Doing(do, parameter))


def answering(change):
    """An architecture that gives something else for its logits."""
    return but(AVERAGES, build=lambda self, *given: nn.Sequential(AVERAGES.build(*given), Doing(change)))


def refusing(thing, reason):
    def build(self, *given):
        raise Unsupported(reason)

    return but(thing, build=build)


class InMode(nn.Module):
    """Does something in training alone, or in evaluation alone."""

    def __init__(self, training, do):
        super().__init__()
        self.mode, self.do = training, do

    def forward(self, x):
        return self.do(x) if self.training == self.mode else x


class Counting(nn.Module):
    """Gives something else every time."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class MixesModels(torch.autograd.Function):
    """The identity, with a wrong rule for vmap."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(context, inputs, output):
        pass

    @staticmethod
    def backward(context, gradient):
        return gradient

    @staticmethod
    def vmap(info, dimensions, x):
        return x.mean(dimensions[0], keepdim=True).expand_as(x), dimensions[0]


class Rounds(MixesModels):
    """The identity, with a rule for vmap that loses digits."""

    @staticmethod
    def vmap(info, dimensions, x):
        return x * (1 + 1e5 * torch.finfo(x.dtype).eps), dimensions[0]


def of_none(self, signature, parts, *, width: int | None = None):
    return AVERAGES.build(signature, parts)


def of_class(self, signature, parts, *, width=8, activation=nn.GELU):
    return AVERAGES.build(signature, parts)


def of_nothing(self, signature, parts, *, width):
    return AVERAGES.build(signature, parts)


def without_star(self, signature, parts, width=8):
    return AVERAGES.build(signature, parts)


def of_every_type(self, signature, parts, *, layers=2, scale=1.0, mlp=True, activation="gelu"):
    return AVERAGES.build(signature, parts)


class OfNoise(nn.Module):
    """What a model may do with random numbers: take them in training from where they are given."""

    def __init__(self):
        super().__init__()
        self.noise = Noise(6)

    def forward(self, x):
        return x + self.noise() if self.training else x


class Recurrent(nn.LSTM):
    def __init__(self):
        super().__init__(6, 6, batch_first=True)

    def forward(self, x):
        return super().forward(x)[0]


def of_batch(x):
    return x - x.mean(0)


def of_all_positions(x):
    return x - x.mean(1, keepdim=True)


PARTS = "its parts are of kinds that there are, and installed"
OPTIONS = "its options can be set"
LOGITS = "logits have the shape and dtype that they must"
SEEDED = "nothing but the seed decides a model's weights and answers"
CAUSAL = "causal answers do not look ahead"
LEARNS = "gradients reach every parameter"
LONGER = "inputs longer than in training work"
ALONE = "a seed does not depend on who is trained beside it"
GRAPH = "its training step is one graph"

ARCHITECTURES = [
    (but(AVERAGES, defaults=["norm"]), DECLARED, "lgbench.Architecture declares defaults: Mapping[str, str]"),
    (but(AVERAGES, __doc__=None), DOCUMENTED, "it has no docstring: say what it is"),
    (but(AVERAGES, defaults={"nrom": "pre-norm"}), PARTS, "name a 'nrom', which is no kind of part; known: norm, attention"),
    (but(AVERAGES, defaults={"norm": "pre-nrom"}), PARTS, "not installed: no norm 'pre-nrom'; did you mean 'pre-norm'?"),
    (but(AVERAGES, build=of_none), OPTIONS, "the option width of averages has the default None, expected an int, float, bool"),
    (but(AVERAGES, build=of_class), OPTIONS, "the option activation of averages has the default <class 'torch.nn.modules."),
    (but(AVERAGES, build=of_nothing), OPTIONS, "the option width of averages has no default, expected an int, float, bool"),
    (but(AVERAGES, build=without_star), OPTIONS, "build takes width where `--set` does not reach: put a star before, as in"),
    (refusing(AVERAGES, " "), LOGITS, "it raises Unsupported without a reason: say what it cannot do"),
    (
        answering(lambda logits: logits[:, -1]),
        LOGITS,
        "at length 1, on tokens answered at every prefix, its logits are (2, 4) float32, expected (2, 1, 4) of a",
    ),
    (answering(lambda logits: logits.long()), LOGITS, "its logits are (2, 1, 4) int64, expected (2, 1, 4) of a floating type"),
    (answering(lambda logits: (logits, None)), LOGITS, "what it gives cannot be used: AttributeError: 'tuple' object has no"),
    (answering(lambda logits: logits * torch.nan), LOGITS, "some logits are not finite"),
    (doing(lambda x: x @ x), LOGITS, "it raised RuntimeError: "),
    (doing(lambda x: x + torch.rand(6)), SEEDED, "it draws from torch's global generator, or sets it"),
    (with_module(lambda: nn.Dropout(0.1)), SEEDED, "use the generator that it is given (in a model's training: lgbench.noise)"),
    (doing(lambda x: x + np.random.rand()), SEEDED, "it draws from numpy's global generator"),
    (doing(lambda x: x + random.random()), SEEDED, "it draws from Python's global `random`"),
    (with_module(Counting), SEEDED, "in training the same input gave other logits the second time"),
    (
        with_module(lambda: Doing(torch.mul, torch.tensor(np.random.rand(6)))),
        SEEDED,
        "the same seed gave other weights the second time, in behind.parameter",
    ),
    (doing(of_batch), SEEDED, "in training an answer depends on what else is in the batch"),
    (with_module(lambda: InMode(False, of_batch)), SEEDED, "in evaluation an answer depends on what else is in the batch"),
    (
        with_module(lambda: nn.Sequential(Doing(lambda x: x.mT), nn.BatchNorm1d(6), Doing(lambda x: x.mT))),
        SEEDED,
        "in training an answer depends on what else is in the batch",
    ),
    (doing(of_all_positions), CAUSAL, "in training, after 1 of 9 positions, its logits change with what comes after them"),
    (with_module(lambda: InMode(True, of_all_positions)), CAUSAL, "in training, after 1 of 9 positions, its logits change"),
    (doing(lambda x, idle: x, torch.ones(2)), LEARNS, "no gradient reaches behind.parameter: not used in forward"),
    (doing(lambda x, idle: x + 0 * idle, torch.ones(6)), LEARNS, "no gradient reaches behind.parameter"),
    (doing(lambda x, y: x + (y - y).sqrt(), torch.ones(6)), LEARNS, "gradient of its parameter behind.parameter is not finite"),
    (answering(lambda logits: logits.detach()), LEARNS, "what it gives does not depend on its parameters: nothing would train"),
    (doing(lambda x, table: x + table[: x.shape[1]], torch.ones(9, 6)), LONGER, "it raised RuntimeError: The size of tensor a"),
    (
        doing(lambda x, table: x + table[torch.arange(x.shape[1])], torch.ones(9, 6)),
        LONGER,
        "it raised IndexError: index 9 is out of bounds for dimension 0 with size 9",
    ),
    (doing(lambda x: x if x.shape[1] < 20 else x / 0), LONGER, "on 40 positions, trained on 9, some logits are not finite"),
    (doing(MixesModels.apply), ALONE, "in a stack the gradient of embed.weight is not what it is alone: they are"),
    (doing(lambda x: MixesModels.apply(x @ torch.eye(6))), ALONE, "in a stack the gradient of embed.weight is not what it is"),
]


class Residual(nn.Module):
    def __init__(self, norm, sublayer, connect):
        super().__init__()
        self.norm, self.sublayer, self.connect = norm, sublayer, connect

    def forward(self, x):
        return self.connect(x, self.sublayer(self.norm(x)))


class Rms(NormScheme):
    """RMSNorm with learned gain, before each sublayer."""

    name = "rms"
    norm = staticmethod(lambda dim: nn.RMSNorm(dim, eps=1e-6))
    connect = staticmethod(torch.add)

    def embed(self, dim):
        return nn.Identity()

    def residual(self, dim, sublayer, role):
        return Residual(self.norm(dim), sublayer, self.connect)

    def output(self, dim, role):
        return nn.Identity()

    def final(self, dim):
        return self.norm(dim)


RMS = Rms()


def with_norm(norm):
    return but(RMS, norm=staticmethod(norm))


def normalizing(do, parameter=None):
    return with_norm(lambda dim: Doing(do, parameter))


def connecting(connect):
    return but(RMS, connect=staticmethod(connect))


STAYS = "shape and dtype stay, in bfloat16 too"
IN_PLACE = "each position is normalized by itself"
LAST_ONLY = "a sublayer may answer for the last position only"

NORMS = [
    (but(RMS, __doc__=None), DOCUMENTED, "it has no docstring"),
    (
        normalizing(lambda x: x.float() / (x.float().norm(dim=-1, keepdim=True) + 1e-6)),
        STAYS,
        "final: (2, 9, 12) bfloat16 becomes (2, 9, 12) float32, and both should stay",
    ),
    (normalizing(lambda x: x.mean(-1, keepdim=True)), STAYS, "final: (2, 9, 12) float32 becomes (2, 9, 1) float32"),
    (normalizing(lambda x: x / x.norm(dim=-1, keepdim=True)), STAYS, "final: a vector of zeros becomes something that is not"),
    (normalizing(lambda x: x.log()), STAYS, "final: of (2, 9, 12) float32 it makes something that is not finite"),
    (normalizing(lambda x: x / (x.norm(dim=-2, keepdim=True) + 1)), IN_PLACE, "final: what stands at one position depends on"),
    (normalizing(lambda x: x / (x.norm(dim=0) + 1)), IN_PLACE, "depends on other positions or contexts"),
    (connecting(lambda x, y: x + y.mean(-2, keepdim=True)), IN_PLACE, "residual, attention: what stands at one position"),
    (connecting(lambda x, y: x + y.reshape(x.shape)), LAST_ONLY, "it raised RuntimeError: shape '[2, 9, 12]' is invalid for"),
    (connecting(lambda x, y: x[:, : y.shape[1]] + y), LAST_ONLY, "residual, attention: the last position gets something else"),
    (normalizing(lambda x, idle: x, torch.ones(2)), LEARNS, "final: what it gives does not depend on its parameters"),
    (connecting(lambda x, y: x + 0 * y), LEARNS, "residual, attention: no gradient reaches norm.weight, sublayer.weight"),
    (with_norm(lambda dim: nn.Dropout(0.1)), f"in transformer: {SEEDED}", "it draws from torch's global generator"),
    (
        with_norm(lambda dim: InMode(True, lambda x: x - x.mean(-2, keepdim=True))),
        f"in transformer: {CAUSAL}",
        "in training, after 1 of 9 positions, its logits change with what comes after them",
    ),
]


class Softmax(Attention):
    """softmax(q . k / sqrt(D) + bias) v over the visible keys."""

    name = "plain"
    parameter = None

    @staticmethod
    def attend(q, k, v, asking, bias):
        return masked_logits(q, k, bias).softmax(-1) @ v

    def build(self, place):
        undivided = place.scale * place.head_dim**0.5  # since `logits` divides
        return Doing(lambda q, *given: self.attend(q * undivided, *given), self.parameter)


SOFTMAX = Softmax()
SOFT = Softmax.attend


def attending(attend, **changes):
    return but(SOFTMAX, attend=staticmethod(attend), **changes)


def of_every_query(q, k, v, asking, bias):
    """What the queries ask for, less what all queries ask for on average up to there."""
    found = SOFT(q, k, v, asking, bias)
    means = found.cumsum(-2) / torch.arange(1, found.shape[-2] + 1)[:, None]
    return (found - means)[:, :, -asking.shape[1] :]


def seeing(seen):
    """Softmax over other keys than those that are visible; `seen` says which, (Q, K)."""

    def attend(q, k, v, asking, bias):
        return logits(q, k, bias).masked_fill(~seen(q.shape[-2], k.shape[-2]), -torch.inf).softmax(-1) @ v

    return attending(attend)


def blind_to_bias(q, k, v, asking, bias):
    return SOFT(q, k, v, asking, None)


def unmasked_with_bias(q, k, v, asking, bias):
    return SOFT(q, k, v, asking, None) if bias is None else logits(q, k, bias).softmax(-1) @ v


def for_full_bias(q, k, v, asking, bias):
    return SOFT(q, k, v, asking, bias if bias is None else bias.view(q.shape[1], q.shape[2], k.shape[2]))


def below(queries, keys, diagonal):
    return torch.ones(queries, keys, dtype=torch.bool).tril(diagonal)


OF_QUERIES = "shape and dtype are those of the queries, for one key and for many"
NO_LATER_KEYS = "queries do not see later keys"
LAST_QUERIES = "the last queries alone get what they get among others"
SCALED = "logits are scaled as its place says"
BIASED = "a bias of zeros changes nothing, and another something"

ATTENTIONS = [
    (but(SOFTMAX, __doc__=None), DOCUMENTED, "it has no docstring"),
    (refusing(SOFTMAX, ""), OF_QUERIES, "it raises Unsupported without a reason"),
    (
        attending(lambda *given: SOFT(*given)[..., 1:]),
        OF_QUERIES,
        "with Q = 1 and K = 1 it gives (2, 1, 1, 6) float32, expected",
    ),
    (attending(lambda *given: SOFT(*given).double()), OF_QUERIES, "gives (2, 1, 1, 7) float64, expected (2, 1, 1, 7) float32"),
    (
        attending(SOFT, every_query=True),
        OF_QUERIES,
        "with Q = 1 and K = 9 it gives (2, 1, 9, 7) float32, expected (2, 1, 1, 7)",
    ),
    (seeing(lambda q, k: below(q, k, k - q - 1)), OF_QUERIES, "with Q = 1 and K = 1 it gives something that is not finite"),
    (attending(lambda q, k, *given: SOFT(q @ k.mT, k, *given)), OF_QUERIES, "it raised RuntimeError: "),
    (seeing(lambda q, k: below(q, k, k)), NO_LATER_KEYS, "what the first 4 queries take changes with what comes after them"),
    (
        attending(lambda q, k, v, asking, bias: SOFT(q, k, v, asking, bias) + asking.mean()),
        NO_LATER_KEYS,
        "what the first 4 queries take changes",
    ),
    (seeing(lambda q, k: below(q, k, 0)), LAST_QUERIES, "the last query alone takes something else: they are"),
    (
        seeing(lambda q, k: below(q, k, k - q if q in (1, k) else 0)),
        LAST_QUERIES,
        "one of the last four queries without the others takes something else",
    ),
    (attending(blind_to_bias), BIASED, "a bias changes nothing: raise Unsupported for a place that is `biased`"),
    (attending(unmasked_with_bias), BIASED, "with a bias of zeros, (1, 9, 9), it gives something else than without"),
    (attending(for_full_bias), BIASED, "it raised RuntimeError: shape '[1, 9, 9]' is invalid for input of size 9"),
    (
        attending(lambda q, k, v, asking, bias, idle: SOFT(q, k, v, asking, bias), parameter=torch.ones(2)),
        LEARNS,
        "what it gives does not depend on its parameters",
    ),
    (
        attending(lambda q, k, v, asking, bias: InMode.forward(None, q)),
        OF_QUERIES,
        "it raised AttributeError: 'NoneType' object has no attribute 'training'",
    ),
]


class Everywhere(Position):
    """Learned vectors on the embedding, queries that grow, and a bias against what is far away."""

    name = "everywhere"

    @staticmethod
    def onto(x, table):
        return x + table[: x.shape[-2]]

    @staticmethod
    def turned(q, k):
        return q * torch.arange(1, k.shape[-2] + 1)[-q.shape[-2] :, None], k

    @staticmethod
    def added(q, k):
        queries, keys = (torch.arange(x.shape[-2]) for x in (q, k))
        distance = keys - queries[:, None] - (len(keys) - len(queries))
        return distance / torch.arange(1, q.shape[1] + 1)[:, None, None]

    def embed(self, width, positions):
        return Doing(self.onto, torch.randn(positions, width))

    def turn(self, place):
        return Doing(self.turned)

    def bias(self, place):
        return Doing(self.added)


EVERYWHERE = Everywhere()
NOWHERE = but(EVERYWHERE, embed=Position.embed, turn=Position.turn, bias=Position.bias)


def placing(**changes):
    return but(EVERYWHERE, **{name: staticmethod(do) for name, do in changes.items()})


def arange_like(x):
    return torch.arange(x.shape[-2], dtype=x.dtype)


SHAPES = "shapes stay, and a bias has one for every query and key"
FOLLOWS = "a token's position does not depend on what follows"
LAST_STANDS = "the last queries stand where they stand among others"

POSITIONS = [
    (but(EVERYWHERE, __doc__=None), DOCUMENTED, "it has no docstring"),
    (placing(onto=lambda x, table: x[..., 1:]), SHAPES, "embed: (2, 1, 7) float32 becomes (2, 1, 6) float32, and both"),
    (
        placing(turned=lambda q, k: (q[..., 1:], k)),
        SHAPES,
        "turn: (2, 1, 1, 7) and (2, 1, 1, 7) become (2, 1, 1, 6) and (2, 1, 1, 7), and both should stay",
    ),
    (placing(turned=lambda q, k: (q.unflatten(-1, (-1, 2)).flatten(-2), k)), SHAPES, "it raised RuntimeError: "),
    (placing(added=lambda q, k: Everywhere.added(k, k)), SHAPES, "bias is (1, 65, 65), expected (1, 1, 65)"),
    (placing(added=lambda q, k: torch.zeros(2, 1, 1, 1)), SHAPES, "bias is (2, 1, 1, 1), expected (1, 1, 1)"),
    (
        placing(added=lambda q, k: Everywhere.added(q, k).where(visible(q, k), -torch.inf)),
        SHAPES,
        "some of the bias is not finite; what a query does not see is masked anyhow",
    ),
    (placing(onto=lambda x, table: x + table[: x.shape[1]].flip(0)), FOLLOWS, "embed: the first positions are told otherwise"),
    (placing(added=lambda q, k: arange_like(k) / k.shape[-2]), FOLLOWS, "bias: the first positions are told otherwise where"),
    (placing(turned=lambda q, k: (q, k / k.shape[-2])), FOLLOWS, "turn: the first positions are told otherwise where"),
    (placing(turned=lambda q, k: (q * k.shape[-2], k / k.shape[-2])), FOLLOWS, "turn: the first positions are told otherwise"),
    (
        placing(added=lambda q, k: arange_like(k) * arange_like(q)[:, None]),
        LAST_STANDS,
        "bias: the last query alone gets another",
    ),
    (
        placing(turned=lambda q, k: (q * arange_like(q)[:, None], k)),
        LAST_STANDS,
        "turn: the last query alone is turned otherwise",
    ),
    (
        placing(turned=lambda q, k: (Everywhere.turned(q, k)[0] * (q.shape[-2] in (1, k.shape[-2])), k)),
        LAST_STANDS,
        "turn: one of the last four queries without the others is turned otherwise",
    ),
    (
        but(EVERYWHERE, embed=lambda self, width, positions: Doing(self.onto, torch.randn(9, width))),
        f"in transformer: {LONGER}",
        "it raised RuntimeError: The size of tensor a",
    ),
]

ROWS = [*ARCHITECTURES, *NORMS, *ATTENTIONS, *POSITIONS]
RIGHT = [AVERAGES, with_module(OfNoise), RMS, SOFTMAX, attending(of_every_query, every_query=True), EVERYWHERE, NOWHERE]


@pytest.mark.parametrize(("thing", "promise", "words"), table(ROWS))
def test_a_broken_promise_is_found_and_named(registry, thing, promise, words):
    assert words in complaint(thing, promise, registry)


def test_nothing_is_found_in_what_keeps_every_promise(registry):
    assert complaints(RIGHT, registry, unasked=f"in transformer: {GRAPH}") == []  # which takes long, and can only be noted


def test_every_promise_of_architectures_and_parts_is_broken_or_noted_here(registry):
    left = unproven(RIGHT, [*ROWS, *NOTES], registry)
    assert {promise for promise in left if not promise.startswith("in transformer: ")} == set()


def of_tokens_alone(self, signature, parts):
    if not isinstance(signature.inputs, Tokens):
        raise Unsupported("it reads tokens")
    return AVERAGES.build(signature, parts)


def of_constant_weights(self, signature, parts):
    built = AVERAGES.build(signature, parts)
    for parameter in built.parameters():
        nn.init.constant_(parameter, 0.5)
    return built


def without_bias(self, place):
    if place.biased:
        raise Unsupported("it has no logits")
    return SOFTMAX.build(place)


def without_turn(self, place):
    raise Unsupported("it turns nothing")


ONE_BY_ONE = "vmap cannot take it, so that its seeds train one after the other, which is slower: RuntimeError: vmap: It looks"
NO_GRAPH = "torch.compile cannot make one graph of its training step, which runs as it is: Unsupported: "

NOTES = [
    (refusing(AVERAGES, "it is tired"), LOGITS, "not checked: it is built for no signature: it is tired"),
    (but(AVERAGES, defaults={"norm": "pre-nrom"}), LOGITS, "not checked: it is built for no signature: no norm 'pre-nrom'"),
    (but(AVERAGES, build=of_tokens_alone), LOGITS, "refuses vectors answered at every prefix; vectors answered once, at the"),
    (but(AVERAGES, build=of_constant_weights), SEEDED, "all seeds begin with the same weights: right only where none is drawn"),
    (doing(lambda x: x * x.abs().max().item()), ALONE, ONE_BY_ONE),
    (doing(lambda x: x if x.sum() > 0 else -x), ALONE, ONE_BY_ONE),
    (with_module(Recurrent), ALONE, "vmap takes some of it one model at a time, which is slower: There is a performance drop"),
    (with_module(Recurrent), GRAPH, NO_GRAPH),
    (doing(torch.compiler.disable(torch.tanh)), GRAPH, NO_GRAPH),
    (refusing(SOFTMAX, "it is blind"), OF_QUERIES, "not checked: it refused every place, such as: it is blind"),
    (but(SOFTMAX, build=without_bias), BIASED, "not checked: it refused every place, such as: it has no logits"),
    (but(SOFTMAX, build=lambda self, place: Doing(SOFT)), SCALED, "it makes no use of place.scale"),
    (but(EVERYWHERE, turn=without_turn), SHAPES, "not checked: it refused every place, such as: it turns nothing"),
    (NOWHERE, SHAPES, "it does nothing in any of three places: right only for no position code"),
]


@pytest.mark.parametrize(("thing", "promise", "words"), table(NOTES))
def test_what_is_allowed_and_had_better_be_known_is_a_note(registry, thing, promise, words):
    assert words in check_of(thing, promise, registry)()


def test_options_of_every_type_can_be_set(registry):
    assert check_of(but(AVERAGES, build=of_every_type), OPTIONS, registry)() is None


@pytest.mark.parametrize("do", [Rounds.apply, lambda x: x @ torch.eye(6)], ids=["rounding", "float32 alone"])
def test_what_is_as_good_as_alone_is_not_blamed(registry, do):
    assert check_of(doing(do), ALONE, registry)() is None


def test_a_part_is_tried_in_an_architecture_that_takes_it(toy_registry):
    promises = [check.promise for check in checks_of(RMS, toy_registry)]
    assert f"in toy-broken: {CAUSAL}" in promises
    note = check_of(SOFTMAX, f"in a model: {CAUSAL}", toy_registry)()
    assert note == "not checked: it is built for no signature: no architecture is installed that takes attentions"
