"""The checks of architectures find each breach of the contract and name it, and find nothing in those that keep it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers.breaking import GRAPH, OPTIONS, Doing, InMode, check_of, complaint, complaints, refusing, table, unproven
from helpers.toy_registries import but
from torch import nn

from lgbench import Answers, Architecture, AttentionSpec, SublayerSpec, Tokens, Unsupported
from lgbench.noise import Noise
from lgbench_norms import SCHEMES
from lgbench_transformer.transformer import Transformer


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


class Moving(nn.Module):
    """Tokens that their position ids, if there are some, change before a model reads them."""

    def __init__(self, model, moved):
        super().__init__()
        self.model, self.moved = model, moved

    def forward(self, inputs):
        return self.model(inputs if inputs.ndim == 2 else self.moved(*inputs.unbind(-1)))


def reading_ids(moved):
    """An architecture for tokens whose models read position ids."""

    def build(self, signature, parts):
        return Moving(of_tokens_alone(self, signature, parts), moved)

    return but(AVERAGES, reads_positions=True, build=build)


TRANSFORMER, NO_NORM = Transformer(), SCHEMES[0]


def given(**changes):
    """The transformer that changes parts before it uses them, by functions of the part."""

    def build(self, signature, parts, **options):
        changed = {kind: change(getattr(parts, kind)) for kind, change in changes.items()}
        return TRANSFORMER.build(signature, replace(parts, **changed), **options)

    return but(TRANSFORMER, build=build)


def without(part, **others):
    """Copy of a part, with some of its attributes replaced."""
    return SimpleNamespace(**{name: getattr(part, name) for name in dir(part) if name[0] != "_"} | others)


def silent(*methods):
    """The transformer that does not ask a norm scheme for some things."""
    return given(norm=lambda norm: without(norm, **{name: getattr(NO_NORM, name) for name in methods}))


def gains_of_out_dropped(norm):
    """A norm scheme that is asked for the gain of `out` alone, without effect."""

    def gain(spec, matrix):
        if matrix == "out":
            norm.gain(spec, matrix)
        return 1.0

    return without(norm, gain=gain)


def gains_of_the_second_layer_dropped(norm):
    """A norm scheme that is asked for all gains, those of the second layer without effect."""

    def gain(spec, matrix):
        found = norm.gain(spec, matrix)
        return found if spec.layer == 1 else 1.0

    return without(norm, gain=gain)


def residual_thrown_away(norm):
    """A norm scheme whose residual connections are made, and replaced."""
    return without(norm, residual=lambda *given: [NO_NORM.residual(*given), norm.residual(*given)][0])


def residual_of_its_own(norm):
    """A norm scheme that is asked for `output`, with x + around it."""
    return without(norm, residual=lambda spec, sublayer: NO_NORM.residual(spec, nn.Sequential(sublayer, norm.output(spec))))


def outputs_of_zeros(self, signature, parts):
    """The transformer with zeros for all output projections of attention."""
    model = TRANSFORMER.build(signature, parts)
    for name, parameter in model.named_parameters():
        if name.endswith(".out.weight"):
            nn.init.zeros_(parameter)
    return model


def without_tokens_and_rotation(self, signature, parts):
    """The transformer that refuses codes that read tokens, and rotates nothing."""
    if parts.position.reads_tokens:
        raise Unsupported("it gives no tokens to a position code")
    return TRANSFORMER.build(signature, replace(parts, position=without(parts.position, rotate=lambda spec: None)))


def of_embedded_positions_alone(self, signature, parts):
    """The transformer that refuses codes for attention, and does not call `embed` either."""
    spec = AttentionSpec(1, 1, 32, 1, 8)
    if parts.position.rotate(spec) or parts.position.bias(spec):
        raise Unsupported("it has no queries to rotate, and no logits to add to")
    return TRANSFORMER.build(signature, replace(parts, position=without(parts.position, embed=lambda width, positions: None)))


def dividing_by(self, signature, parts, *, heads=1):
    assert 6 // heads
    return AVERAGES.build(signature, parts)


def of_none(self, signature, parts, *, width: int | None = None):
    return AVERAGES.build(signature, parts)


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
USES_NORMS = "modules of a norm scheme are used, and nothing goes around them"
GAINS = "initial weights follow the gains of a norm scheme"
FEEDS_ATTENTION = "an attention gets what it needs"
FEEDS_POSITION = "each module of a position code is called, with the tokens that it reads"
READS_IDS = "position ids reach its models"
LOGITS = "logits have the right shape and dtype"
KEPT = "its weights and buffers are there before it is used, and stay"
SEEDED = "nothing but the seed decides a model's weights and answers"
CAUSAL = "answers are causal"
LEARNS = "gradients reach every parameter"
LONGER = "inputs longer than in training work"
ALONE = "a seed does not depend on who is trained beside it"

ARCHITECTURES = [
    (but(AVERAGES, defaults={"norm": "pre-nrom"}), PARTS, "not installed: no norm 'pre-nrom'; did you mean 'pre-norm'?"),
    (but(AVERAGES, build=dividing_by), OPTIONS, "with heads=0 it raised ZeroDivisionError: integer division or modulo by"),
    (but(AVERAGES, build=of_none), OPTIONS, "the option width of averages has the default None, expected an int, finite float"),
    (silent("embed"), ASKS_NORMS, "does not ask the norm scheme for `embed`"),
    (silent("residual"), ASKS_NORMS, "asks the norm scheme for neither `residual` nor `output`, "),
    (given(norm=residual_thrown_away), USES_NORMS, "it does not call a module of the norm scheme's `residual`"),
    (given(norm=residual_of_its_own), USES_NORMS, "its logits depend on the input: for a residual connection, call `residual`"),
    (
        given(norm=gains_of_out_dropped),
        GAINS,
        "no initial weight follows the norm scheme's `gain` for out, attention of layer 1: multiply",
    ),
    (given(norm=gains_of_the_second_layer_dropped), GAINS, "`gain` for key, attention of layer 2: multiply"),
    (given(attention=lambda attention: without(attention, needs=frozenset())), FEEDS_ATTENTION, "query_input and key_input"),
    (given(position=lambda position: without(position, reads_tokens=False)), FEEDS_POSITION, "`embed` without the tokens of"),
    (
        given(position=lambda position: without(position, rotate=lambda spec: None)),
        FEEDS_POSITION,
        "it does not call the module of a position code's `rotate`",
    ),
    (
        but(TRANSFORMER, build=without_tokens_and_rotation),
        FEEDS_POSITION,
        "it does not call the module of a position code's `rotate`",
    ),
    (
        but(TRANSFORMER, build=of_embedded_positions_alone),
        FEEDS_POSITION,
        "`embed`: call it, or raise lgbench.Unsupported if the code's `embed` is not None",
    ),
    (reading_ids(lambda tokens, ids: tokens), READS_IDS, "it declares reads_positions, and other ids change nothing"),
    (reading_ids(lambda tokens, ids: (tokens + ids.sum()) % 5), READS_IDS, "ids of a context change the answers to another"),
    (refusing(AVERAGES, " "), LOGITS, "it raises Unsupported without a reason: say what it cannot do"),
    (answering(lambda logits: logits[:, -1]), LOGITS, "its logits are (2, 4) float32, expected (2, 9, 4) of a floating type"),
    (answering(lambda logits: logits * torch.nan), LOGITS, "some logits are not finite"),
    (doing(of_three_largest), LOGITS, "selected index k out of range, at length 2, on tokens answered at every prefix ("),
    (with_module(MadeWhenUsed), KEPT, "in training a forward pass makes the parameter or buffer behind.bias: make it in"),
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
    (doing(MixesModels.apply), ALONE, "on 9 positions the gradient of embed.weight in a stack is not the one that it has"),
    (doing(from_length(100, lambda x: x + (x - x).sqrt())), ALONE, "on 257 positions a training step gives a loss or a"),
]


RIGHT = [AVERAGES, reading_ids(lambda tokens, ids: (tokens + ids) % 5), TRANSFORMER, with_module(OfNoise), doing(ByHand.apply)]


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


def of_own_mixing(self, signature, parts):
    """A layer that mixes positions in its own way, as a state-space model does, with a norm scheme around it."""
    spec = SublayerSpec("attention", 1, 1, 6)
    return Averaging(signature, lambda: nn.Sequential(parts.norm.embed(6), parts.norm.residual(spec, nn.Linear(6, 6))))


def of_idle_option(self, signature, parts, *, width=8, activation="gelu"):
    return AVERAGES.build(signature, parts)


ONE_BY_ONE = "vmap cannot take this model, so its seeds are trained one after the other, which is slower: "
BY_BACKWARD = "torch.func cannot take this model, so its gradients come from ordinary autograd: In order to use"
NO_GRAPH = "its training step cannot be traced as one graph, so the step is not compiled: "
SIGNS = torch.ones(2)
"""No part of a model, so nobody knows its values where the operators alone are traced."""

NOTES = [
    (but(AVERAGES, build=of_idle_option), OPTIONS, "no other value that was tried of width, activation makes another model"),
    (but(AVERAGES, defaults={"norm": "no-norm"}, build=of_own_mixing), ASKS_NORMS, "`gain`, `final`, so these"),
    (
        given(norm=lambda norm: without(norm, gain=lambda spec, matrix: norm.gain(spec, matrix) if matrix != "up" else 1.0)),
        GAINS,
        "it does not ask the norm scheme for the `gain` of up: right only without such a matrix",
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
        "a forward pass changes behind.1.num_batches_tracked, behind.1.running_mean, behind.1.running_var; averages are",
    ),
    (with_module(Recurrent), ALONE, "vmap takes some of it one model at a time, which is slower: There is a performance drop"),
    (doing(lambda x: x if SIGNS.sum() > 0 else -x), GRAPH, NO_GRAPH),
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()


def test_zeros_follow_every_gain(registry):
    assert check_of(but(TRANSFORMER, build=outputs_of_zeros), GAINS, registry)() is None


def test_options_are_tried_within_their_ranges(registry):
    within = but(AVERAGES, build=dividing_by, ranges={"heads": (1, 4)})
    assert "no other value that was tried of heads" in check_of(within, OPTIONS, registry)()


def test_options_of_the_transformer_make_other_models(registry):
    assert check_of(registry.architectures["transformer"], OPTIONS, registry)() is None


def test_a_module_may_stand_at_two_places(registry):
    def looped():
        block = nn.Linear(6, 6)
        return nn.Sequential(block, nn.Tanh(), block)

    assert complaints([with_module(looped)], registry) == []


@pytest.mark.parametrize("do", [Rounds.apply, lambda x: x @ torch.eye(6)], ids=["rounding", "float32 alone"])
def test_rounding_is_no_breach(registry, do):
    assert check_of(doing(do), ALONE, registry)() is None
