"""Optimizers as plugins: AdamW against torch's own, Lion elementwise, and Muon by the shapes of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from helpers.checking import assert_sound
from helpers.plain_decoder import built_in_and, learning_rates
from helpers.plain_training import CPU, initial
from helpers.planning import plan_of
from torch import Tensor, nn

from lgbench import Optimizer, State, Unsupported, Weights
from lgbench.experiment.experiment import Experiment
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.data import stream
from lgbench.training.train import train
from lgbench_optimizers import AdamW


@dataclass(frozen=True)
class Lion(Optimizer):
    """w <- w - lr (sign(b1 m + (1 - b1) g) + decay w), m <- b2 m + (1 - b2) g (arXiv 2302.06675)."""

    name = "lion"
    beta1: float = 0.9
    beta2: float = 0.99

    def configured(self, *, beta1: float = 0.9, beta2: float = 0.99) -> Lion:
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise Unsupported(f"optimizer.beta1 and optimizer.beta2 must be in [0, 1), got {beta1} and {beta2}")
        return Lion(beta1, beta2)

    def start(self, weights: Weights) -> State:
        return {"mean": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        mean = state["mean"]
        sign = {name: (self.beta1 * mean[name] + (1 - self.beta1) * g).sign() for name, g in gradients.items()}
        updated = {name: w - lr[name] * (sign[name] + decay[name] * w) for name, w in weights.items()}
        return {"mean": {name: self.beta2 * mean[name] + (1 - self.beta2) * g for name, g in gradients.items()}}, updated


def orthogonal(matrices: Tensor) -> Tensor:
    """By five steps of Newton and Schulz, with the published coefficients, over the last two dimensions."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + 1e-7)
    for _ in range(5):
        product = x @ x.mT
        x = 3.4445 * x + (-4.7750 * product + 2.0315 * product @ product) @ x
    return x.mT if tall else x


class Muon(Optimizer):
    """Momentum made orthogonal for matrices, its sign for everything else (arXiv 2502.16982)."""

    name = "muon"
    elementwise = False

    def start(self, weights: Weights) -> State:
        return {"momentum": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        momentum = {name: 0.9 * state["momentum"][name] + g for name, g in gradients.items()}
        change = {name: orthogonal(m) if m.ndim == 3 else m.sign() for name, m in momentum.items()}  # (P, rows, columns)
        updated = {name: w - lr[name] * (change[name] + decay[name] * w) for name, w in weights.items()}
        return {"momentum": momentum}, updated


class ByHand:
    """Lion or Muon of one model, one parameter after the other."""

    def __init__(self, name: str, model: nn.Module, decay: float) -> None:
        self.name, self.decay = name, decay
        self.memory = {parameter: torch.zeros_like(parameter) for parameter in model.parameters()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for parameter, memory in self.memory.items():
            decay = self.decay if parameter.ndim >= 2 else 0.0
            gradient = parameter.grad
            if self.name == "lion":
                change = torch.sign(0.9 * memory + 0.1 * gradient)
                memory.mul_(0.99).add_(gradient, alpha=0.01)
            else:
                memory.mul_(0.9).add_(gradient)
                change = near_polar(memory) if parameter.ndim == 2 else torch.sign(memory)
            parameter.sub_(lr * (change + decay * parameter))


def near_polar(matrix: Tensor) -> Tensor:
    """The same polynomial on singular values: U f(S) V'."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / (s.square().sum().sqrt() + 1e-7)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ v


def planned(optimizer: Optimizer | str, seeds=(0,), averagers=(), **changes) -> tuple[Experiment, ...]:
    settings = {"train.steps": "8", "train.batch": "4", "train.weight_decay": "0.1", "train.lr": "0.01"}
    settings |= {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    registry = built_in_and(optimizer=[Lion(), Muon()])
    name = optimizer if isinstance(optimizer, str) else optimizer.name
    asked = {"average": averagers, "seeds": seeds, "set": settings, "optimizer": name}
    return plan_of(registry, "tomita-4", "transformer", **asked).experiments


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lion", "muon"])
def test_training_is_a_plain_loop_of_the_published_rule(double, name: str) -> None:
    experiments = planned(name, seeds=(0, 1))  # each matrix is updated by itself
    experiment = experiments[1]
    model, training = initial(experiment), experiment.train
    rule = ByHand(name, model, training.weight_decay)
    batches = stream([(experiment.task, experiment.seed)], training, CPU)
    for rate, batch in zip(learning_rates(training), batches, strict=True):
        model.zero_grad()
        F.cross_entropy(model(batch.inputs[0]).transpose(1, 2), batch.targets[0]).backward()
        rule.step(rate)
    trained = train(experiments, CPU).weights["raw"]
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(trained[key][1], parameter.detach(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["muon"])
def test_training_goes_on_from_a_checkpoint_to_the_bit(tmp_path, name: str) -> None:
    class Stop(Exception):
        pass

    def stop(step: int, loss: Callable[[], float]) -> None:
        if step == 5:
            raise Stop

    experiments = planned(name, seeds=(0, 1), averagers=("ema",))
    path = tmp_path / "checkpoint"
    with pytest.raises(Stop):
        train(experiments, CPU, stop, checkpoint=Checkpoint(path, 0.0))
    resumed, whole = train(experiments, CPU, checkpoint=Checkpoint(path, 0.0)), train(experiments, CPU)
    assert resumed.resumed and not whole.resumed
    for variant in ("raw", "ema"):
        for key, weight in whole.weights[variant].items():
            assert torch.equal(resumed.weights[variant][key], weight)


@pytest.mark.parametrize("elementwise", [True, False])
@pytest.mark.parametrize("options", [{}, {"beta1": 0.5, "beta2": 0.7, "epsilon": 1e-3}])
def test_adamw_is_torchs_own(elementwise: bool, options: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"matrix": (3, 4), "vector": (5,), "number": ()}
    given = {name: torch.randn(2, *shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
    decays = {"matrix": 0.3, "vector": 0.0, "number": 0.0}
    theirs = {name: nn.Parameter(weight.clone()) for name, weight in given.items()}
    betas = (options.get("beta1", 0.9), options.get("beta2", 0.999))
    groups = [{"params": [theirs[name]], "weight_decay": decays[name]} for name in shapes]
    reference = torch.optim.AdamW(groups, betas=betas, eps=options.get("epsilon", 1e-8))
    ours, weights = AdamW().configured(**options), joined(given) if elementwise else given
    decay = {name: torch.full_like(weight, decays[name]) for name, weight in given.items()}
    decay = joined(decay) if elementwise else decay
    state = ours.start(weights)
    for step in range(1, 31):
        rate = 0.1 * step / 30
        drawn = {name: torch.randn(2, *shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
        for name, parameter in theirs.items():
            parameter.grad = drawn[name]
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        lr = {name: torch.full((2, *[1] * (w.ndim - 1)), rate, dtype=torch.float64) for name, w in weights.items()}
        gradients = joined(drawn) if elementwise else drawn
        state, weights = ours.update(state, weights, gradients, lr, decay, torch.tensor([step], dtype=torch.float64))
    expected = {name: parameter.detach() for name, parameter in theirs.items()}
    expected = joined(expected) if elementwise else expected
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-12, atol=1e-12)


def joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As an elementwise optimizer gets them."""
    return {"all": torch.cat([tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None] for tensor in tensors.values()], 1)}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [Lion(), Muon()], ids=lambda optimizer: optimizer.name)
def test_a_published_optimizer_passes_all_checks(optimizer: Optimizer, recwarn) -> None:
    assert_sound(optimizer)
