"""Training a population: P models of one shape as one stacked set of parameters. P = 1 is not a special case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from lgbench import seeds
from lgbench.contracts import Weights
from lgbench.data import stream
from lgbench.experiment import Experiment
from lgbench.registry import Registry

POINTS = 50
"""How many points of the training curve are kept, at most."""


@dataclass(frozen=True)
class Curve:
    """What training looked like, at up to POINTS steps; a point covers the steps since the one before."""

    steps: list[int]
    loss: Tensor
    """(points, P): mean over the covered steps, in nats."""
    gradient_norm: Tensor
    """(points, P): the largest norm over the covered steps, so that a spike is not averaged away."""


@dataclass(frozen=True)
class Trained:
    """A trained population. `weights`: by variant ("raw" and each averager), tensors with a leading P."""

    skeleton: nn.Module
    weights: dict[str, Weights]
    buffers: Weights
    curve: Curve
    diverged: list[int | None]
    """The first step with a loss that is not finite, or the last where its update left weights that are not."""

    def model(self, variant: str, index: int) -> Callable[[Tensor], Tensor]:
        """One model of the population as a function from inputs to logits."""
        state = {name: tensor[index] for name, tensor in (self.weights[variant] | self.buffers).items()}
        return lambda inputs: functional_call(self.skeleton, state, (inputs,))


def population_key(experiment: Experiment, registry: Registry) -> tuple[object, ...]:
    """Experiments with equal keys can be trained as one population: one shape, one way to train, any seed and task."""
    signature = registry.tasks[experiment.task].signature
    model = (experiment.architecture, experiment.norm, experiment.model)
    return (signature, *model, experiment.averagers, experiment.train, experiment.evaluate)


def train(
    experiments: Sequence[Experiment],
    registry: Registry,
    device: torch.device,
    report: Callable[[int, Callable[[], float]], None],
) -> Trained:
    """Train all experiments, which share a :func:`population_key`, at once.

    After every step `report` is given the number of steps done and a function for the mean loss of the latest one.
    """
    training = experiments[0].train
    models = [_fresh(experiment, registry) for experiment in experiments]
    params, buffers = _stacked(models, device)
    skeleton = models[0]
    averagers = {name: registry.averagers[name] for name in experiments[0].averagers}
    states = {name: averager.start(params) for name, averager in averagers.items()}
    optimizer, schedule = _optimizer(params, experiments[0])
    gradients = _gradients(skeleton)
    recorder = _Recorder(len(experiments), training.steps, device)
    streams = [stream(registry.tasks[e.task], training, e.seed, device) for e in experiments]
    # The fused attention kernels have no batching rule for their backward pass, so vmap would run them one by one.
    # Gradients come from torch.func alone: without no_grad autograd would keep a second graph around them.
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        for step, batches in enumerate(zip(*streams, strict=True), start=1):
            inputs, targets = (torch.stack(column) for column in zip(*batches, strict=True))
            grads, losses = gradients(params, buffers, inputs, targets)
            for name, parameter in params.items():
                parameter.grad = grads[name]
            optimizer.step()
            schedule.step()
            recorder.record(step, losses, grads)
            if step % training.average_every == 0:
                states = {name: averager.update(states[name], params, step) for name, averager in averagers.items()}
            report(step, lambda losses=losses: losses.mean().item())  # type: ignore[misc]
    recorder.check(params)
    averaged = {name: averager.weights(states[name]) for name, averager in averagers.items()}
    return Trained(skeleton, {"raw": params, **averaged}, buffers, recorder.curve(), recorder.diverged())


def _fresh(experiment: Experiment, registry: Registry) -> nn.Module:
    """A model whose initial weights depend on its seed alone and are drawn on the CPU on every machine."""
    with seeds.initial(experiment.seed, "weights"):
        return experiment.build(registry)


def _stacked(models: list[nn.Module], device: torch.device) -> tuple[Weights, Weights]:
    """What is trained and what is not (buffers and frozen parameters), each with a leading P."""
    params, buffers = stack_module_state(models)
    frozen = {name for name, p in models[0].named_parameters() if not p.requires_grad}
    state = {name: tensor.detach().to(device) for name, tensor in (params | buffers).items()}
    trained = {name: tensor for name, tensor in state.items() if name in params and name not in frozen}
    return trained, {name: tensor for name, tensor in state.items() if name not in trained}


def _gradients(skeleton: nn.Module) -> Callable[..., tuple[Weights, Tensor]]:
    """(params, buffers, inputs, targets), each with a leading P -> gradients with a leading P, losses (P,)."""

    def loss(params: Weights, buffers: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(skeleton, params | buffers, (inputs,))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    vectorized: Callable[..., tuple[Weights, Tensor]] = vmap(grad_and_value(loss))
    return vectorized


def _optimizer(params: Weights, experiment: Experiment) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW is elementwise, so a population steps as its models would alone. Gains and biases are not decayed."""
    training = experiment.train
    matrices = [p for p in params.values() if p.ndim >= 3]
    others = [p for p in params.values() if p.ndim < 3]
    groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=training.lr, fused=True)
    warmup = max(1, round(training.warmup * training.steps))

    def factor(done: int) -> float:
        return min((done + 1) / warmup, (training.steps - done) / max(1, training.steps - warmup))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class _Recorder:
    """Keeps loss, gradient norm and the first step that diverged, on the device, without waiting for it."""

    def __init__(self, models: int, steps: int, device: torch.device) -> None:
        self.marks = sorted({max(1, round(steps * (i + 1) / POINTS)) for i in range(POINTS)})
        self.first_bad = torch.zeros(models, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros(models, device=device)
        self.norm_max = torch.zeros(models, device=device)
        self.covered = 0
        self.points: list[tuple[Tensor, Tensor]] = []

    def record(self, step: int, losses: Tensor, grads: Weights) -> None:
        square = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0)
        self.first_bad = torch.where((self.first_bad == 0) & ~losses.isfinite(), step, self.first_bad)
        self.loss_sum = self.loss_sum + losses
        self.norm_max = torch.maximum(self.norm_max, square.sqrt())
        self.covered += 1
        if step == self.marks[len(self.points)]:
            self.points.append((self.loss_sum / self.covered, self.norm_max))
            self.loss_sum, self.norm_max, self.covered = (
                torch.zeros_like(self.loss_sum),
                torch.zeros_like(self.norm_max),
                0,
            )

    def check(self, params: Weights) -> None:
        """The last update, which no loss follows, may have broken a model too."""
        sound = torch.stack([p.flatten(1).isfinite().all(1) for p in params.values()]).all(0)
        self.first_bad = torch.where((self.first_bad == 0) & ~sound, self.marks[-1], self.first_bad)

    def curve(self) -> Curve:
        loss, norm = (torch.stack(column).cpu() for column in zip(*self.points, strict=True))
        return Curve(self.marks, loss, norm)

    def diverged(self) -> list[int | None]:
        return [step or None for step in self.first_bad.tolist()]
