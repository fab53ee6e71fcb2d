"""Population: P models of one shape as one stacked set of parameters, with a common training step.

No training step waits for the device: training curve and first diverged step are tensors too. P = 1 is no special case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from lgbench.contracts import Answers, Schedule, State, Weights
from lgbench.errors import lacks_memory, message_of
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.tuning import ends_of_parts
from lgbench.noise import Noise
from lgbench.randomness import Random, device_of_data, key_of
from lgbench.terminal import duration
from lgbench.training.data import CHUNK, batch_shapes
from lgbench.training.models import POINTS, Models
from lgbench.training.program import EXAMPLES, NOTHING, SMALLEST, Function, Graph, Varying, graph_of, program, traced
from lgbench.training.step import Layout, Rates, TrainState, counting, overwrite, step_of, views

NOISE_AT_ONCE = 2**18
"""Largest count of noise numbers drawn at once; at least one step is drawn. Changes no number."""

POSITIONS = 2
"""Dimension whose size varies with the context length, in inputs, (P, B, T, ...), targets and weights, (P, B, A)."""


class Population:
    """Models in training. The whole state is tensors updated in place."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        device: torch.device,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """Experiments share a `population_key`. Raises ValueError for a model without trained parameters.

        Calls `say` with a sentence for models without a stacked gradient.
        """
        fresh = [experiment.build() for experiment in experiments]
        params, buffers = stacked(fresh)
        frozen = {name for name, p in fresh[0].named_parameters() if not p.requires_grad}
        trained = [tensor for name, tensor in params.items() if name not in frozen]
        if not trained:
            raise ValueError(f"{experiments[0].entry} has no parameters to train")
        self.skeleton = fresh[0]
        self.step_key = experiments[0].step_key
        self.layout = Layout(
            [name for name in params if name not in frozen], [p.shape[1:] for p in trained], [p.dtype for p in trained]
        )
        self.buffers = {name: t.to(device) for name, t in (params | buffers).items() if name not in self.layout.names}
        models = len(experiments)
        rows = torch.cat([p.reshape(models, -1) for p in trained], 1).to(device)  # a parameter may be a single number
        training, optimizer = experiments[0].train, experiments[0].optimizer
        self.state = TrainState(
            weights=rows,
            optimizer=_owned(optimizer.start(views(optimizer, self.layout, rows))),
            step=torch.zeros(1, dtype=counting(device), device=device),
            loss_sum=torch.zeros(models, device=device),
            largest_norm=torch.zeros(models, device=device),
            diverged=torch.zeros(models, dtype=torch.int64, device=device),
        )

        self.batch_shapes = batch_shapes(experiments[0].task, training)
        self.steps = training.steps
        self.marks = ends_of_parts(self.steps, POINTS)
        self._covered = {mark: mark - before for before, mark in pairwise([0, *self.marks])}
        self.curve = torch.zeros(len(self.marks), 2, models, device=device)
        self.averagers = experiments[0].averagers
        schedule = Schedule(training.steps, training.average_every)
        self.averages: dict[str, State] = {
            name: _owned(averager.start(_copied(self.layout.of_all(rows)), schedule))
            for name, averager in self.averagers.items()
        }
        self._rates = Rates.of([experiment.train for experiment in experiments], self.layout, rows)
        self.members = [(experiment.task, experiment.seed) for experiment in experiments]
        self._noises = [name for name, module in self.skeleton.named_modules() if isinstance(module, Noise)]
        self._noise: dict[int, dict[str, Tensor]] = {}
        self.precision = experiments[0].record.precision
        self._step = step_of(self.skeleton, self.layout, optimizer, self.precision, say, models)

    def draw_noise(self, step: int) -> None:
        """Set the numbers of every :class:`lgbench.noise.Noise` for a step. Each model draws from its own seed."""
        if not self._noises:
            return
        values = {name: self.buffers[f"{name}.value"] for name in self._noises}
        if step not in self._noise:
            size = 1 + sum(numbers.numel() for numbers in values.values())  # 1, because a noise may be empty
            steps = range(step, step + max(1, min(CHUNK, NOISE_AT_ONCE // size)))
            drawn = {name: self._uniform(name, steps, numbers) for name, numbers in values.items()}
            self._noise = {later: {name: drawn[name][i] for name in values} for i, later in enumerate(steps)}
        for name, numbers in values.items():
            numbers.copy_(self._noise[step][name])

    def _uniform(self, name: str, steps: Sequence[int], like: Tensor) -> Tensor:
        """Numbers of one noise in the given steps, (steps, P, *shape), drawn in one call for all models."""
        keys = [key_of(seed, "noise", name) for _, seed in self.members]
        random = Random.stacked(keys, 1, steps, device=device_of_data(like.device))
        return random.uniform(*like.shape[1:]).view(len(steps), *like.shape).to(like.device)

    def advance(self, *batch: Tensor) -> Tensor:
        """Training step on the tensors of a :class:`lgbench.training.data.Step` -> losses (P,), in nats."""
        return self._step(self.state, self.buffers, self._rates, *batch)

    def served(self, batch: Sequence[Tensor]) -> Callable[[int], bool]:
        """Whether the first program for many lengths serves contexts of so many positions. Traces without computing."""
        own, step = self.flat()
        graph = traced(step, [*own, *batch], self.varying(batch))
        return graph.serves if graph else lambda positions: False

    def varying(self, batch: Sequence[Tensor]) -> Varying:
        """Tensors of :meth:`flat`'s step that vary with the context length: the inputs, and all of the batch if A = T."""
        own, answers = len(self.flat()[0]), self.members[0][0].signature.answers
        return dict.fromkeys(range(own, own + (1 if answers is Answers.LAST else len(batch))), POSITIONS)

    def flat(self) -> tuple[list[Tensor], Function]:
        """Tensors of a step, all changed in place, and :meth:`advance` as a function of the tensors and a batch."""
        own, form = tree_flatten((self.state, self.buffers, self._rates))

        def step(*tensors: Tensor) -> Tensor:
            return self._step(*tree_unflatten(tensors[: len(own)], form), *tensors[len(own) :])

        return own, step

    def average(self) -> None:
        """Update every average with the current weights."""
        for name, averager in self.averagers.items():
            # Copies, because an averager may write into its arguments.
            state, weights = self.averages[name], _copied(self.layout.of_all(self.state.weights))
            overwrite(state, averager.update(state, weights, self.state.step[0].clone()))

    def mark(self, step: int) -> None:
        """Close the point of the training curve at `step`, if any."""
        if step in self._covered:
            point = self.curve[self.marks.index(step)]
            torch.div(self.state.loss_sum, self._covered[step], out=point[0])
            point[1] = self.state.largest_norm
            self.state.loss_sum.zero_()
            self.state.largest_norm.zero_()

    def variants(self) -> dict[str, Weights]:
        """Weights by variant, "raw" and each average, with a leading P."""
        averaged = {name: averager.weights(self.averages[name]) for name, averager in self.averagers.items()}
        return {"raw": self.layout.of_all(self.state.weights), **averaged}

    def models(self) -> Models:
        """Models with their weights of now."""
        return Models(self.skeleton, self.variants(), self.buffers, self.precision)

    def diverged(self) -> list[int | None]:
        """First step with an infinite or NaN loss, by model; the last step for infinite or NaN weights after its update."""
        broken = (self.state.diverged == 0) & ~self.state.weights.isfinite().all(1)
        return [step or None for step in torch.where(broken, self.steps, self.state.diverged).tolist()]

    def tensors(self) -> dict[str, Tensor]:
        """State of the training by name. A checkpoint saves these tensors and copies them back in place."""
        fields = {name: value for name, value in self.state._asdict().items() if isinstance(value, Tensor)}
        # A forward pass may change a buffer, as BatchNorm does. A buffer that is not persistent follows from the model's sizes.
        persistent = self.skeleton.state_dict().keys() & dict(self.skeleton.named_buffers())
        fields |= {f"buffer/{name}": self.buffers[name] for name in persistent}
        states = {"optimizer": self.state.optimizer} | {f"average/{name}": state for name, state in self.averages.items()}
        return {**fields, "curve": self.curve} | {
            name: tensor for prefix, state in states.items() for name, tensor in _named(prefix, state).items()
        }


def stacked(models: Sequence[nn.Module]) -> tuple[Weights, Weights]:
    """Copies of the parameters and of the buffers of models of one shape, each tensor with a leading dimension for the model.

    Models may have different classes, unlike in torch.func.stack_module_state: a class may be defined where it is built.
    """
    every = [dict(model.named_parameters()) for model in models], [dict(model.named_buffers()) for model in models]
    params, buffers = ({name: torch.stack([each[name].detach() for each in own]) for name in own[0]} for own in every)
    return params, buffers


class Compiled:
    """Compiled training step: a program for batches of all lengths that it serves, or a program for each length.

    A program is made at the first batch of its shape. The plain step runs if there is no C++ compiler, if the model cannot
    be traced, and for lengths that no program serves. With varying lengths it also runs for contexts of a single position.
    Whether programs serve many lengths is known only at the first longer batch, and a step must not depend on the order of
    batches.
    """

    def __init__(self, population: Population, say: Callable[[str], None]) -> None:
        self.population, self.say = population, say
        self.compiles = True
        """Whether steps are compiled. Certain only after the first program has run."""
        self._own, self._step = population.flat()
        self._shortest = SMALLEST if population.batch_shapes > 1 else 0
        self._one_for_all = population.batch_shapes > 1
        """Whether programs for many lengths are tried."""
        self._graphs: dict[int, Graph | None] = {}
        """Graphs of an open length, by example."""
        self._programs: dict[Hashable, Function | None] = {}
        """Program by shapes of the batch; None for the plain step."""
        self._works = False
        """Whether a program has run."""
        self._began: float | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        if not self.compiles or batch[0].shape[POSITIONS] < self._shortest:
            return self.population.advance(*batch)
        batch = tuple(tensor.contiguous() for tensor in batch)  # as the strides of a program are
        try:
            losses = self._advance(*batch)
        except Exception as error:  # tracing and compiling may raise anything, before a tensor is changed
            if self._works or lacks_memory(error):
                raise
            self.say(f"the training step cannot be compiled here and runs as it is: {message_of(error)}")
            self.compiles = False
            return self.population.advance(*batch)
        if self._began is not None:
            self.say(f"compiled the training step in {duration(time.monotonic() - self._began)}")
            self._began = None
        return losses

    def _advance(self, *batch: Tensor) -> Tensor:
        shapes = tuple(tensor.shape for tensor in batch)
        if shapes not in self._programs:
            self._programs[shapes] = self._program(batch)
        found = self._programs[shapes]
        if found is None:
            return self.population.advance(*batch)
        losses = found(*self._own, *batch)
        self._works = True
        return losses

    def _program(self, batch: Sequence[Tensor]) -> Function | None:
        """Program for the shapes of a batch; None where the plain step has to run."""
        if self._one_for_all and self._open(batch, EXAMPLES[0]) is None:
            self._one_for_all = False
        arguments, positions = [*self._own, *batch], batch[0].shape[POSITIONS]
        graphs: Iterable[Graph | None] = (self._open(batch, example) for example in EXAMPLES)
        if not self._one_for_all:
            graphs = [graph_of(self._step, arguments, NOTHING, self.population.step_key)]
        for graph in graphs:
            if graph and graph.serves(positions):
                return program(graph, arguments, self._begin)
        return None

    def _open(self, batch: Sequence[Tensor], example: int) -> Graph | None:
        """Graph of an open length."""
        if example not in self._graphs:
            varying = self.population.varying(batch)
            self._graphs[example] = graph_of(self._step, [*self._own, *batch], varying, self.population.step_key, example)
        return self._graphs[example]

    def _begin(self) -> None:
        self.say("compiling the training step")
        self._began = time.monotonic()


def _copied(weights: Weights) -> Weights:
    return {name: tensor.clone() for name, tensor in weights.items()}


def _owned(state: State) -> State:
    """Copies of a state's tensors: a state may name one tensor several times, and each copy is updated in place."""
    return {part: _copied(tensors) for part, tensors in state.items()}


def _named(prefix: str, state: State) -> dict[str, Tensor]:
    """Tensors of a state by one name each."""
    return {f"{prefix}/{part}/{name}": tensor for part, tensors in state.items() for name, tensor in tensors.items()}
