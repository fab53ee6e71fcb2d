"""Dropout: where it acts, that its masks are those of a seed, and that it is off in tests."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.plain_training import CPU, initial
from helpers.trainings import resumed_at
from torch import nn

from lgbench import UsageError
from lgbench.experiment.experiment import Dropout
from lgbench.randomness import Random
from lgbench.training.cost import _longest
from lgbench.training.population import Population
from lgbench.training.train import train

RATE = 0.25
FAMILIES = [
    ("tomita-1", "post-norm"),
    ("tomita-1", "peri-norm"),
    ("max-retrieval", "pre-norm"),
    ("max-retrieval", "set-attention"),
]


def dropped(shape: tuple[int, ...], rate: float, seed: int) -> Dropout:
    """Dropout with a drawn mask, for outputs of a shape."""
    module = Dropout(rate, *shape)
    module.noise.value.copy_(Random(1, seed).uniform(*shape)[0])
    return module


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_zeros_mean_and_variance_are_those_of_torchs_dropout(rate):
    shape = (64, 32, 64)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) + 1
    torch.manual_seed(2)
    ours, theirs = dropped(shape, rate, 3)(x), F.dropout(x, rate)
    count = x.numel()
    for found in (ours, theirs):
        assert (found == 0).double().mean().item() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / count) ** 0.5)
        torch.testing.assert_close(found[found != 0], (x / (1 - rate))[found != 0])
    spread = theirs.double().std().item() / count**0.5
    assert ours.double().mean().item() == pytest.approx(theirs.double().mean().item(), abs=5 * 2**0.5 * spread)
    assert ours.double().var().item() == pytest.approx(theirs.double().var().item(), rel=0.05)


def test_shorter_inputs_have_the_first_rows_of_the_mask_and_tests_none():
    module, x = dropped((4, 9, 8), RATE, 1), torch.ones(4, 9, 8)
    assert torch.equal(module(x[:, :5]), module(x)[:, :5]) and (module(x) == 0).any()
    assert module.eval()(x) is x


def sublayers(model: nn.Module) -> list[nn.Module]:
    """Modules with masked outputs, in a model without dropout."""
    blocks = getattr(model, "blocks", None)
    return [model.norm] if blocks is None else [block.sublayer for block in blocks]


@pytest.mark.parametrize(("task", "entry"), FAMILIES)
def test_a_model_in_training_is_the_plain_one_with_masked_outputs_of_its_sublayers(registry, planned, task, entry):
    (with_mask,), (plain,) = planned(registry, task, entry, train_dropout=RATE), planned(registry, task, entry)
    population, model = Population([with_mask], CPU), initial(plain)
    population.draw_noise(1)
    inputs = _longest([plain], CPU).inputs[0]
    masks = {name: (noise[0] >= RATE) / (1 - RATE) for name, noise in population.buffers.items()}
    places = sublayers(model)
    assert len(masks) == len(places)
    for place, mask in zip(places, masks.values(), strict=True):
        if place is getattr(model, "norm", None):  # without a residual connection: before the norm on the output
            place.register_forward_pre_hook(lambda module, given, mask=mask: given[0] * mask[:, : given[0].shape[1]])
        else:
            place.register_forward_hook(lambda module, given, out, mask=mask: out * mask[:, : out.shape[1]])
    skeleton = population.skeleton
    for module in skeleton.modules():
        if isinstance(module, Dropout):
            module.noise.value.copy_(
                population.buffers[next(n for n, m in skeleton.named_modules() if m is module.noise) + ".value"][0]
            )
    torch.testing.assert_close(skeleton(inputs), model(inputs))
    assert not torch.allclose(skeleton(inputs), initial(plain)(inputs), atol=1e-3)
    assert torch.equal(skeleton.eval()(inputs), initial(plain).eval()(inputs))


def test_without_dropout_a_run_is_the_one_that_it_was_before_the_setting(registry, planned):
    (unset,), (zero,) = planned(registry, "tomita-1", "pre-norm"), planned(registry, "tomita-1", "pre-norm", train_dropout=0)
    assert unset.run_id == zero.run_id and "dropout" not in zero.record.identity["train"]
    assert not list(initial(zero).buffers())
    (some,) = planned(registry, "tomita-1", "pre-norm", train_dropout=RATE)
    assert some.run_id != zero.run_id and str(some.record.protocol).endswith("train.dropout=0.25")
    assert some.population_key != zero.population_key


@pytest.mark.parametrize(("task", "entry"), FAMILIES[1:3])
def test_masks_are_a_seeds_own_whoever_trains_beside_it_and_whenever_it_was_interrupted(
    registry, planned, tmp_path, task, entry
):
    first, second, third = planned(registry, task, entry, seeds=(3, 4, 5), train_steps=6, train_dropout=RATE)
    one, other = train([first, second], CPU), train([third, first], CPU)
    resumed = resumed_at(4, [first, second], tmp_path / "checkpoint", CPU)
    for name, weights in one.weights["raw"].items():
        assert torch.equal(weights, resumed.weights["raw"][name])
        torch.testing.assert_close(weights[0], other.weights["raw"][name][1], rtol=1e-4, atol=1e-5)


def test_every_step_seed_and_sublayer_has_a_mask_of_its_own(registry, planned):
    population = Population(planned(registry, "tomita-1", "pre-norm", seeds=(0, 1), train_dropout=RATE), CPU)
    seen = []
    for step in (1, 2):
        population.draw_noise(step)
        seen += [noise[model].clone() for noise in population.buffers.values() for model in (0, 1)]
    assert len(seen) == 2 * 2 * 4
    for index, one in enumerate(seen):
        for other in seen[:index]:
            agree = ((one >= RATE) == (other >= RATE)).double().mean().item()
            assert agree == pytest.approx(RATE**2 + (1 - RATE) ** 2, abs=0.02)


@pytest.mark.slow  # a graph takes seconds
def test_one_program_serves_all_lengths_with_dropout_as_without(registry, planned):
    settings = {"train_dropout": RATE, "train_batch": 2, "model_width": 8, "evaluate_max_length": 32}
    (experiment,) = planned(registry, "max-retrieval", "pre-norm", **settings)
    with torch.no_grad():
        serves = Population([experiment], CPU).served(_longest([experiment], CPU).tensors)
        assert all(map(serves, range(2, 100)))


def test_a_model_without_sublayers_of_a_norm_scheme_is_refused(toy_registry, planned):
    with pytest.raises(UsageError, match="train.dropout=0.25 has no effect in toy-table, .*: train it without dropout"):
        planned(toy_registry, "toy-walk", "toy-table", train_dropout=RATE)
