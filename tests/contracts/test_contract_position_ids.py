"""Position ids of a task: models with a code that reads ids, against models whose code computes the same from the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from helpers.breaking import assert_sound, check_of, complaint
from helpers.number_positions import ByNumber, Rotation, Table, places
from helpers.plain_decoder import built_in_and
from helpers.plain_training import CPU
from helpers.planning import plan_of
from torch import Tensor, nn

from lgbench import Answers, Architecture, AttentionSpec, Batch, Position, Signature, Task, Tokens, Unsupported, UsageError
from lgbench.experiment.experiment import Experiment
from lgbench.measurement import causality
from lgbench.measurement.evaluate import evaluate
from lgbench.randomness import Random
from lgbench.training.train import train

IDS = 64
ACTS = ("embed", "rotate")


class Numbers(Task):
    """Digits and separators; the answer to each digit is the first digit of its number."""

    name = family = "numbers"
    version = 1
    signature = Signature(Tokens(3), 3, Answers.MARKED)
    train_lengths = (3, 6)
    max_length = 24

    def sample(self, length, random):
        tokens = random.integers(3, length)
        first = (torch.arange(length) - (places(tokens) - 1).clamp(min=0)).clamp(min=0)
        distribution = F.one_hot(tokens.gather(1, first), 3).float()
        return Batch(self.inputs(tokens), distribution, (torch.arange(length) > 0).float().repeat(random.n, 1))

    def inputs(self, tokens: Tensor) -> Tensor:
        return tokens


class NumbersWithIds(Numbers):
    """The same, with the place of each digit in its number as its position id."""

    signature = Signature(Tokens(3, IDS), 3, Answers.MARKED)

    def inputs(self, tokens: Tensor) -> Tensor:
        return torch.stack((tokens, places(tokens)), -1)


class TableById(Table):
    def forward(self, x: Tensor, *, positions: Tensor | None = None) -> Tensor:
        at = torch.arange(x.shape[-2]) if positions is None else positions
        return x + self.rows[at.clamp(max=len(self.rows) - 1)]


class RotationById(Rotation):
    def forward(self, q: Tensor, k: Tensor, *, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        at = torch.arange(k.shape[-2])[None] if positions is None else positions
        at = at[:, None, :, None]
        return self.rotated(q, at[:, :, -q.shape[-2] :]), self.rotated(k, at)


@dataclass(frozen=True)
class ById(Position):
    """Learned rows and rotations by position ids."""

    name = "by-place"
    reads_positions = True

    def embed(self, width: int, positions: int) -> nn.Module:
        return TableById(width)

    def rotate(self, spec: AttentionSpec) -> nn.Module:
        if spec.head_dim % 2:
            raise Unsupported("by-place rotates pairs of features")
        return RotationById()


def test_a_task_with_ids_is_read_from_text_by_a_method_of_its_own_alone():
    assert Numbers().context("2 0 1").tolist() == [2, 0, 1]
    with pytest.raises(Unsupported, match="reads tokens with position ids, .* its class needs a method `context`"):
        NumbersWithIds().context("2 0 1")


@pytest.fixture
def both(planned) -> tuple[Experiment, Experiment]:
    """Two experiments on the same data: one reads places from the tokens, the other from the ids."""
    settings = {"train_steps": 4, "train_batch": 4, "evaluate_contexts": 8}
    (plain,) = planned(built_in_and(task=Numbers(), position=ByNumber("by-place", ACTS)), "numbers", "by-place", **settings)
    (ided,) = planned(built_in_and(task=NumbersWithIds(), position=ById()), "numbers", "by-place", **settings)
    return plain, ided


def test_training_and_tests_are_those_of_a_code_that_computes_the_ids_itself(both):
    plain, ided = (
        {name.replace("model.", "").replace("module.", ""): w for name, w in trained.items()}
        for trained in (train([each], CPU).weights["raw"] for each in both)
    )
    assert plain.keys() == ided.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(ided[name], weight)
    scores = []
    for experiment in both:
        model = experiment.build().eval()
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        scores.append({(s.metric, s.length): s.value for s in evaluate(experiment, {"raw": model}, CPU)})
    assert scores[0] == pytest.approx(scores[1])
    assert len({length for metric, length in scores[0] if metric == "exact_match"}) > 1


def test_a_model_without_a_position_code_gets_the_tokens_alone(planned):
    registry = built_in_and(task=NumbersWithIds())
    (experiment,) = planned(registry, "numbers", "pre-norm", train_steps=1, train_batch=2)
    inputs = NumbersWithIds().sample(6, Random(4)).inputs
    other = inputs.clone()
    other[..., 1] = 0
    model = experiment.build().eval()
    assert torch.equal(model(inputs), model(other))
    assert not torch.equal(model(inputs), model(inputs.flip(0)))


class Reading(Architecture):
    """Logits from the ids alone."""

    name = "reading"
    reads_positions = True

    def build(self, signature, parts):
        assert signature == NumbersWithIds.signature

        class OfIds(nn.Embedding):
            def forward(self, inputs):
                return super().forward(inputs[..., 1])

        return OfIds(IDS, signature.classes)


def test_an_architecture_that_reads_ids_gets_them(planned):
    registry = built_in_and(task=NumbersWithIds(), architecture=Reading())
    (experiment,) = planned(registry, "numbers", "reading", train_steps=2, train_batch=2)
    inputs = NumbersWithIds().sample(6, Random(4)).inputs
    model = experiment.build()
    assert torch.equal(model(inputs), model.weight[inputs[..., 1]])
    assert train([experiment], CPU).curve.loss.isfinite().all()


class OwnPlaces(Architecture):
    """Logits from the tokens, with places of its own and no position code."""

    name = "own-places"

    def build(self, signature, parts):
        return nn.Embedding(signature.inputs.size, signature.classes)


def test_an_architecture_that_drops_ids_is_named():
    registry = built_in_and(task=NumbersWithIds(), architecture=OwnPlaces())
    (note,) = plan_of(registry, ["numbers"], ["own-places", "pre-norm"]).notes
    assert note == "own-places takes no position code and reads no position ids, so it gets the tokens of numbers alone"
    registry = built_in_and(task=NumbersWithIds(), architecture=Reading())
    assert plan_of(registry, ["numbers"], ["reading", "pre-norm"]).notes == ()


def test_a_code_that_reads_no_ids_is_refused_for_a_task_with_ids(planned):
    registry = built_in_and(task=NumbersWithIds(), position=ByNumber("coupled", ("rotate",)))
    with pytest.raises(UsageError, match="coupled reads no position ids, and the task gives them: .* or nope"):
        planned(registry, "numbers", "coupled")


def test_inputs_after_a_cut_have_other_tokens_and_the_same_ids(both):
    _, ided = both
    question = causality.question(ided.task, ided.train, ided.evaluate, seed=0)
    assert question is not None
    contexts = question.inputs[torch.arange(len(question.cuts)) % len(question.inputs)]
    assert torch.equal(question.changed[..., 1], contexts[..., 1])
    for index, cut in enumerate(question.cuts):
        assert torch.equal(question.changed[index, :cut, 0], contexts[index, :cut, 0])
        assert (question.changed[index, cut:, 0] != contexts[index, cut:, 0]).all()


@pytest.mark.slow
def test_the_contract_holds():
    assert_sound(NumbersWithIds())
    assert_sound(ById())


class Ignoring(ById):
    """It declares ids, and rotates by place."""

    name = "ignoring"

    def embed(self, width, positions):
        return None

    def rotate(self, spec):
        module = super().rotate(spec)
        plain = module.forward
        module.forward = lambda q, k, *, positions=None: plain(q, k)
        return module


class Partly(Ignoring):
    """It reads ids on the embedding, and rotates by place."""

    name = "partly"
    embed = ById.embed


class TooFew(NumbersWithIds):
    name = "too-few"
    signature = Signature(Tokens(3, 2), 3, Answers.MARKED)


class Missing(Numbers):
    name = "missing"
    signature = NumbersWithIds.signature


SHAPED = "shapes and dtypes are those of its signature, at every length"


@pytest.mark.parametrize(
    ("thing", "rule", "sentence"),
    [
        (Ignoring(), "position ids stand for places", "it declares reads_positions, and other ids change nothing"),
        (TooFew(), SHAPED, "its position ids are not all from 0 to 1, as its signature says"),
        (Missing(), SHAPED, "expected (n, T, 2): a token and its position id"),
    ],
    ids=["ignoring", "too-few", "missing"],
)
def test_breaches_are_named(thing, rule, sentence, registry):
    assert sentence in complaint(thing, rule, registry)


def test_a_module_that_reads_no_ids_is_a_note(registry):
    note = "other ids do not change rotate, queries, rotate, keys: right only without a position there"
    assert check_of(Partly(), "position ids stand for places", registry)() == note
