"""The checks of architectures find each breach of the contract and name it, and find nothing in those that keep it."""

from __future__ import annotations

import pytest
import torch
from helpers.breaking import OPTIONS, Doing, InMode, but, check_of, complaint, complaints, refusing, table, unproven
from torch import nn

from lgbench import Answers, Architecture, AttentionSpec, SublayerSpec, Tokens, Unsupported
from lgbench.attending import needed_inputs
from lgbench.noise import Noise


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


class ByHand(torch.autograd.Function):
    """The identity, without a `setup_context`, as most kernels are written that come with a gradient of their own."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient


class Rounds(MixesModels):
    """The identity, with a rule for vmap that loses digits."""

    @staticmethod
    def vmap(info, dimensions, x):
        return x * (1 + 1e5 * torch.finfo(x.dtype).eps), dimensions[0]


class Attending(Architecture):
    """One head of attention over an embedding, with a position code."""

    name = "attending"
    defaults = {"attention": "softmax", "position": "nope"}

    def build(self, signature, parts):
        if signature.answers is Answers.LAST or not isinstance(signature.inputs, Tokens):
            raise Unsupported("it reads tokens and answers at every position")
        return OneHead(signature, parts, self)

    @staticmethod
    def attend(attention, q, k, v, bias, needs, x):
        return attention(q, k, v, bias, **needed_inputs(needs, x, x))

    @staticmethod
    def tokens_of(position, inputs):
        return {"tokens": inputs} if position.reads_tokens else {}


class OneHead(nn.Module):
    def __init__(self, signature, parts, own):
        super().__init__()
        spec = AttentionSpec(1, 1, 6, 1, parts.train_positions)
        self.embedding = nn.Embedding(signature.inputs.size, 6)
        self.query, self.key = nn.Linear(6, 6), nn.Linear(6, 6)
        self.position, self.needs, self.own = parts.position, parts.attention.needs, own
        self.embed, self.rotate, self.bias = (
            parts.position.embed(6, parts.test_positions),
            parts.position.rotate(spec),
            parts.position.bias(spec),
        )
        self.attention = parts.attention.build(spec)
        self.out = nn.Linear(6, signature.classes)

    def forward(self, inputs):
        tokens = self.own.tokens_of(self.position, inputs)
        x = self.embedding(inputs)
        x = x if self.embed is None else self.embed(x, **tokens)
        q, k = self.query(x)[:, None], self.key(x)[:, None]
        q, k = (q, k) if self.rotate is None else self.rotate(q, k, **tokens)
        bias = None if self.bias is None else self.bias(q, k, **tokens)
        return self.out(self.own.attend(self.attention, q, k, x[:, None], bias, self.needs, x)[:, 0])


ATTENDING = Attending()


def giving(**changes):
    """Attending that gives its parts something else."""
    return but(ATTENDING, **{name: staticmethod(do) for name, do in changes.items()})


SPEC = SublayerSpec("attention", 1, 1, 6)


class Normed(Averages):
    """The mean of what was read so far, as the attention of a layer with norms."""

    name = "normed"
    defaults = {"norm": "no-norm", "attention": "softmax"}

    def build(self, signature, parts):
        return Averaging(signature, lambda: nn.Sequential(*self.behind(parts.norm)))

    @staticmethod
    def behind(norm):
        yield norm.embed(6)
        asked = norm.gain(SPEC, "query"), norm.query(SPEC), norm.key(SPEC), norm.head(SPEC)
        yield norm.residual(SPEC, nn.Linear(6, 6))
        yield norm.final(6) if asked else None


NORMED = Normed()


def asking(*calls):
    """Normed that calls other methods of the norm scheme, or with other specs: by name, or by name and spec."""

    def behind(norm):
        for name, *spec in (call if isinstance(call, tuple) else (call,) for call in calls):
            given = {"embed": (6,), "final": (6,), "gain": (*(spec or [SPEC]), "out")}.get(name, spec or [SPEC])
            found = getattr(norm, name)(*given, *([nn.Linear(6, 6)] if name == "residual" else []))
            if isinstance(found, nn.Module):
                yield found

    return but(NORMED, behind=staticmethod(behind))


def dividing_by(self, signature, parts, *, heads=1):
    assert 6 // heads
    return AVERAGES.build(signature, parts)


def of_none(self, signature, parts, *, width: int | None = None):
    return AVERAGES.build(signature, parts)


def without_rotation(self, signature, parts):
    model = ATTENDING.build(signature, parts)
    model.rotate = None
    return model


def without_star(self, signature, parts, width=8):
    return AVERAGES.build(signature, parts)


def of_every_type(self, signature, parts, *, layers=2, scale=1.0, mlp=True):
    behind = [nn.Linear(6, 6) for _ in range(layers)] + [Doing(lambda x: x * scale)] + [nn.Linear(6, 6)] * mlp
    return Averaging(signature, lambda: nn.Sequential(*behind))


class OfNoise(nn.Module):
    """A right use of random numbers: in training alone, from the numbers that the model is given."""

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


class MadeWhenUsed(nn.Module):
    """Has a buffer from its first call on, as some libraries make their biases."""

    def forward(self, x):
        if not hasattr(self, "bias"):
            self.register_buffer("bias", torch.ones(6))
        return x + self.bias


class Rescaled(nn.Module):
    """Halves a weight in evaluation, and doubles it in training, as RWKV does for float16."""

    halved = False

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x):
        if self.halved == self.training:
            with torch.no_grad():
                self.weight.mul_(2 if self.halved else 0.5)
            self.halved = not self.halved
        return x * self.weight * (2 if self.halved else 1)


class Remembering(nn.Module):
    """Keeps a tensor that it makes when it is first called, which is no buffer."""

    bias = None

    def forward(self, x):
        if self.bias is None:
            self.bias = x.new_ones(6)
        return x + self.bias


class Trained(nn.Module):
    """Knows whether it was ever trained."""

    was = False

    def forward(self, x):
        self.was |= self.training
        return x + self.was


class InPlace(nn.Module):
    """From a chunk of positions on it writes into a tensor that it made, which vmap does not know to be one of several."""

    chunk = 16

    def forward(self, x):
        if x.shape[1] < self.chunk:
            return x
        found = torch.zeros(x.shape)
        for start in range(0, x.shape[1], self.chunk):
            found[:, start : start + self.chunk] = x[:, start : start + self.chunk]
        return found


def of_three_largest(x):
    return x + x.cummax(1).values - x.detach().topk(3, 1).values.sum() * 0


def from_length(length, do):
    return lambda x: do(x) if x.shape[1] >= length else x


def of_batch(x):
    return x - x.mean(0)


def of_all_positions(x):
    return x - x.mean(1, keepdim=True)


PARTS = "its parts are of known kinds, and installed"
ASKS_NORMS = "a norm scheme is asked for every norm that it has"
FEEDS_ATTENTION = "an attention gets what it needs"
FEEDS_POSITION = "a position code gets the tokens that it reads"
LOGITS = "logits have the right shape and dtype"
KEPT = "its weights and buffers are there before it is used, and stay"
SEEDED = "nothing but the seed decides a model's weights and answers"
CAUSAL = "causal answers do not look ahead"
LEARNS = "gradients reach every parameter"
LONGER = "inputs longer than in training work"
ALONE = "a seed does not depend on who is trained beside it"
GRAPH = "its training step is one graph"

SLOTS = ("query", "key", "head", "gain")

ARCHITECTURES = [
    (but(AVERAGES, defaults={"nrom": "pre-norm"}), PARTS, "name a 'nrom', which is no kind of part; known: norm, attention"),
    (but(AVERAGES, defaults={"norm": "pre-nrom"}), PARTS, "not installed: no norm 'pre-nrom'; did you mean 'pre-norm'?"),
    (but(AVERAGES, build=dividing_by), OPTIONS, "with heads=0 it raised ZeroDivisionError: integer division or modulo by"),
    (but(AVERAGES, build=of_none), OPTIONS, "the option width of averages has the default None, expected an int, float, bool"),
    (but(AVERAGES, build=without_star), OPTIONS, "`--set` cannot reach width of without_star: put a star before, as in "),
    (asking(*SLOTS, "residual", "final"), ASKS_NORMS, "does not ask the norm scheme for `embed`"),
    (asking("embed", "query", "key", "residual"), ASKS_NORMS, "for `head` and `gain`, attention of layer 1: their norms would"),
    (
        giving(attend=lambda attention, q, k, v, bias, needs, x: attention(q, k, v, bias)),
        FEEDS_ATTENTION,
        "it does not give an attention the query_input and key_input that it needs",
    ),
    (
        giving(tokens_of=lambda position, inputs: {}),
        FEEDS_POSITION,
        "it calls the module of a position code's `embed` without the tokens of all positions",
    ),
    (but(ATTENDING, build=without_rotation), FEEDS_POSITION, "it does not call the module of a position code's `rotate`"),
    (refusing(AVERAGES, " "), LOGITS, "it raises Unsupported without a reason: say what it cannot do"),
    (answering(lambda logits: logits[:, -1]), LOGITS, "its logits are (2, 4) float32, expected (2, 9, 4) of a floating type"),
    (answering(lambda logits: logits * torch.nan), LOGITS, "some logits are not finite"),
    (
        doing(of_three_largest),
        LOGITS,
        "selected index k out of range, at length 2, on tokens answered at every prefix (",
    ),
    (
        with_module(MadeWhenUsed),
        KEPT,
        "in training a forward pass makes the parameter or buffer behind.bias: make it in __init__",
    ),
    (with_module(Rescaled), KEPT, "in evaluation a forward pass changes the parameter behind.weight, which an optimizer alone"),
    (with_module(Remembering), GRAPH, "after a training step it raised "),
    (with_module(Trained), GRAPH, "after a training step that changed no weight its logits are other ones; is the tensor that"),
    (with_module(lambda: nn.Dropout(0.1)), SEEDED, "use the random numbers that it is given (in a model's training: lgbench."),
    (with_module(Counting), SEEDED, "in training the same input gave other logits the second time"),
    (with_module(lambda: InMode(False, of_batch)), SEEDED, "in evaluation an answer depends on what else is in the batch"),
    (with_module(lambda: InMode(True, of_all_positions)), CAUSAL, "in training, after 4 of 9 positions, its logits change"),
    (doing(lambda x: x / (1 + x.shape[1])), CAUSAL, "its logits change with what comes after them, or with how much comes"),
    (doing(from_length(100, of_all_positions)), CAUSAL, "of 513 positions, its logits change with what comes after them"),
    (doing(lambda x, idle: x + 0 * idle, torch.ones(6)), LEARNS, "no gradient reaches behind.parameter: not used in forward"),
    (doing(lambda x, y: x + (y - y).sqrt(), torch.ones(6)), LEARNS, "gradient of its parameter behind.parameter is not finite"),
    (answering(lambda logits: logits.detach()), LEARNS, "its output does not depend on its parameters: nothing would train"),
    (doing(lambda x, table: x + table[: x.shape[1]], torch.ones(9, 6)), LONGER, "it raised RuntimeError: The size of tensor a"),
    (
        doing(MixesModels.apply),
        ALONE,
        "on 9 positions the gradient of embed.weight in a stack is not the one that it has alone",
    ),
    (
        doing(from_length(100, lambda x: x + (x - x).sqrt())),
        ALONE,
        "on 257 positions a training step gives a loss or a gradient that is not finite",
    ),
]


RIGHT = [AVERAGES, ATTENDING, NORMED, asking("embed", *SLOTS, "output"), with_module(OfNoise), doing(ByHand.apply)]


@pytest.mark.parametrize(("thing", "rule", "words"), table(ARCHITECTURES))
def test_a_breach_is_found_and_named(registry, thing, rule, words):
    assert words in complaint(thing, rule, registry)


def test_nothing_is_found_in_architectures_that_keep_the_contract(registry):
    assert complaints(RIGHT, registry, lambda rule: rule == GRAPH) == []


def test_a_training_step_that_is_one_graph_is_not_noted(registry):
    assert check_of(AVERAGES, GRAPH, registry)() is None


def test_every_check_of_architectures_finds_or_notes_something_here(registry):
    assert unproven(RIGHT, [*ARCHITECTURES, *NOTES], registry) == set()


def of_tokens_alone(self, signature, parts):
    if not isinstance(signature.inputs, Tokens):
        raise Unsupported("it reads tokens")
    return AVERAGES.build(signature, parts)


def of_constant_weights(self, signature, parts):
    built = AVERAGES.build(signature, parts)
    for parameter in built.parameters():
        nn.init.constant_(parameter, 0.5)
    return built


def without_attention(norm):
    """A layer that mixes positions in its own way, as a state-space model does, with a norm scheme around it."""
    yield norm.embed(6)
    yield norm.residual(SPEC, nn.Linear(6, 6))
    yield norm.final(6)


def of_idle_option(self, signature, parts, *, width=8, activation="gelu"):
    return AVERAGES.build(signature, parts)


ONE_BY_ONE = "vmap cannot take this model, so its seeds are trained one after the other, which is slower: "
BY_BACKWARD = "torch.func cannot take this model, so its gradients come from ordinary autograd: In order to use"
NO_GRAPH = "its training step cannot be traced as one graph, so the step is not compiled: "
SIGNS = torch.ones(2)
"""No part of a model, so nobody knows its values where the operators alone are traced."""

NOTES = [
    (but(AVERAGES, build=of_idle_option), OPTIONS, "no other value that was tried of width, activation makes another model"),
    (
        but(NORMED, defaults={"norm": "no-norm"}, behind=staticmethod(without_attention)),
        ASKS_NORMS,
        "it does not ask the norm scheme for `query`, `key`, `gain`, so norms of queries and keys, or factors of initial",
    ),
    (refusing(AVERAGES, "it is tired"), LOGITS, "not checked: it is built for no signature: it is tired"),
    (but(AVERAGES, build=of_tokens_alone), LOGITS, "refuses vectors answered at every prefix; vectors answered once, at the"),
    (but(AVERAGES, build=of_constant_weights), SEEDED, "all seeds start with the same weights: right only for a"),
    (doing(lambda x: x * x.abs().max().item()), ALONE, f"{ONE_BY_ONE}vmap: It looks"),
    (doing(ByHand.apply), ALONE, BY_BACKWARD),
    (with_module(InPlace), ALONE, f"on 257 positions {ONE_BY_ONE}vmap: inplace arithmetic"),
    (
        with_module(lambda: nn.Sequential(Doing(lambda x: x.mT), nn.BatchNorm1d(6), Doing(lambda x: x.mT))),
        KEPT,
        "a forward pass changes behind.1.num_batches_tracked, behind.1.running_mean, behind.1.running_var, which a stack of",
    ),
    (with_module(Recurrent), ALONE, "vmap takes some of it one model at a time, which is slower: There is a performance drop"),
    (doing(lambda x: x if SIGNS.sum() > 0 else -x), GRAPH, NO_GRAPH),
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()


def test_options_are_tried_within_their_ranges(registry):
    within = but(AVERAGES, build=dividing_by, ranges={"heads": (1, 4)})
    assert "no other value that was tried of heads" in check_of(within, OPTIONS, registry)()


def test_options_of_every_type_can_be_set(registry):
    assert check_of(but(AVERAGES, build=of_every_type), OPTIONS, registry)() is None


def test_options_of_the_transformer_make_other_models(registry):
    assert check_of(registry.architectures["transformer"], OPTIONS, registry)() is None


@pytest.mark.parametrize("do", [Rounds.apply, lambda x: x @ torch.eye(6)], ids=["rounding", "float32 alone"])
def test_rounding_is_no_breach(registry, do):
    assert check_of(doing(do), ALONE, registry)() is None
