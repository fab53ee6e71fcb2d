"""An experiment: its record, the objects behind the names in the record, and its parts as settings and tasks ask for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from lgbench.chain import Chain
from lgbench.contracts import (
    PART_KINDS,
    Architecture,
    Averager,
    Measurement,
    NormScheme,
    Optimizer,
    Parts,
    Position,
    Signature,
    SublayerSpec,
    Task,
    TensorModule,
    Tokens,
)
from lgbench.errors import Unsupported
from lgbench.experiment.contexts import context_positions, string_positions
from lgbench.experiment.record import Evaluation, ExperimentRecord, Training
from lgbench.experiment.tuning import Tuning
from lgbench.noise import Noise
from lgbench.randomness import seeded

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class Tested:
    """Data for a test of one model, trained by lgbench or elsewhere."""

    record: ExperimentRecord
    task: Task
    measurements: tuple[Measurement, ...]

    @property
    def train(self) -> Training:
        return self.record.train

    @property
    def evaluate(self) -> Evaluation:
        return self.record.evaluate

    @property
    def seed(self) -> int:
        return self.record.seed


@dataclass(frozen=True, eq=False)
class Experiment(Tested):
    """Data for the training and the test of one model. Experiments with equal records are equal."""

    architecture: Architecture
    parts: Mapping[str, Any]
    """Parts by kind, with their options set, for each kind of part of the architecture."""
    optimizer: Optimizer
    averagers: Mapping[str, Averager]
    """Averagers by their names in results."""
    plugins: Mapping[str, str]
    """Versions of the distributions behind the numbers, by name; hashes for plugin files."""
    measured_by: Mapping[str, str]
    """Versions of the distributions behind the measurements, without effect on the training."""
    positions: dict[int, int] = field(default_factory=dict)
    """Positions of the longest input, by length. Filled on demand, with a draw from the task; shared by all experiments on the
    task."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of the dependencies of `plugins`, under names such as "transformers of lgbench-huggingface"."""
    first_tuning_run: Experiment | None = None
    """Tuning run at the first rate of the grid, from which the others follow; None for a fixed learning rate."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.record == other.record

    def __hash__(self) -> int:
        return hash(self.record.run_id)

    @property
    def entry(self) -> str:
        return self.record.entry

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @cached_property
    def population_key(self) -> Hashable:
        """Key of the experiments for one population: equal model shapes, number of steps and plugins.

        Seed, task, learning rate, weight decay and warmup may differ. Parts use the numbers of positions, so the key includes
        both. A training process loads only the plugins in the metadata of all its runs, so the key includes the plugins.
        """
        plugins = tuple(sorted(plugins_of([self])))
        return (self.program_key, self.train.steps, self.record.averagers, self.evaluate, self._longest(), plugins)

    @property
    def program_key(self) -> Hashable:
        """Key of the experiments with shared compiled programs, in populations of one size. Steps and tests may differ."""
        shared = replace(self.train, lr=0.0, weight_decay=0.0, warmup=0.0, steps=0)
        record = self.record
        made_of = (record.entry, record.optimizer, record.options, record.precision)
        trained, _ = self._longest()
        return (self.task.signature, made_of, shared, trained)

    @property
    def step_key(self) -> Hashable:
        """Key of the experiments with one training step, in populations of one size. Seed, learning rate and steps may differ.

        Parts may use the positions of the longest test input, which is shorter in a tuning run. A name may stand for another
        class in a later registry.
        """
        types = tuple(map(type, (self.architecture, *self.parts.values(), self.optimizer)))
        return (self.program_key, self._longest(), types)

    def with_seed(self, seed: int) -> Experiment:
        """Copy with another seed."""
        return replace(self, record=self.record.with_seed(seed))

    def tuned(self, outcome: Tuning) -> Experiment:
        """Copy with the learning rate of a finished tuning."""
        return replace(self, record=self.record.tuned(outcome))

    @property
    def tuning_runs(self) -> list[Experiment]:
        """Tuning runs of the grid, by rate and then seed. An open grid may need further rates."""
        asked = self.record.tuning if self.first_tuning_run else None
        return [self.tuning_run(lr, seed) for lr in asked.grid for seed in asked.seeds] if asked else []

    def tuning_run(self, lr: float, seed: int) -> Experiment:
        """Tuning run at a learning rate, of the grid or beyond."""
        assert self.first_tuning_run
        record = self.first_tuning_run.record
        changes = dict(record.protocol.changes) | {"train.lr": str(lr)}
        use = replace(record.protocol, changes=tuple((key, changes[key]) for key, _ in record.protocol.changes))
        other = replace(record, train=replace(record.train, lr=lr), protocol=use, seed=seed)
        return replace(self.first_tuning_run, record=other)

    def parts_to_build(self) -> Parts:
        """Parts for the architecture's `build`. The first call draws contexts to count positions."""
        chosen: dict[str, Any] = dict.fromkeys(PART_KINDS) | dict(self.parts)
        train_positions, test_positions = self._longest()
        if self.train.dropout and chosen["norm"]:
            chosen["norm"] = with_dropout(chosen["norm"], self.train.dropout, self.train.batch, train_positions)
        return Parts(**chosen, train_positions=train_positions, test_positions=test_positions)

    def build(self) -> nn.Module:
        """Model with initial weights from its seed alone, on the CPU. Raises Unsupported for a task or parts of no use."""
        parts = self.parts_to_build()
        options = {key.removeprefix("model."): value for key, value in self.record.options if key.startswith("model.")}

        def build(signature: Signature, parts: Parts) -> nn.Module:
            return cast(nn.Module, self.architecture.build(signature, parts, **options))  # as every Model is

        with seeded(self.seed, "weights"):
            if self.architecture.reads_positions:
                return build(self.task.signature, parts)
            return with_position_ids(build, self.task.signature, parts)

    @property
    def drops_position_ids(self) -> bool:
        """Whether the task gives position ids, and the architecture has neither a use for them nor a position code."""
        inputs = self.task.signature.inputs
        given = isinstance(inputs, Tokens) and inputs.positions is not None
        return given and not self.architecture.reads_positions and "position" not in self.parts

    def _longest(self) -> tuple[int, int]:
        """Positions of the longest input in training, and of the longest input overall."""
        trained, tested = self.train.max_length, max(self.train.max_length, self.evaluate.max_length)
        for length in {trained, tested} - self.positions.keys():
            self.positions[length] = context_positions(self.task, length)
        return self.positions[trained], max(self.positions[tested], string_positions(self.task, tested))


def plugins_of(population: Iterable[Experiment]) -> dict[str, str]:
    """Versions of the plugins for training and tests of these experiments, by name."""
    return {name: version for each in population for name, version in (*each.plugins.items(), *each.measured_by.items())}


class Dropout(nn.Module):
    """Output of a sublayer, (B, T, W), in training with a share `rate` of zeros and the rest divided by 1 - `rate`.

    The harness draws the mask, so `torch.nn.Dropout` is no choice: its numbers come from torch's global generator, and depend
    on the population and on interruptions.
    """

    def __init__(self, rate: float, batch: int, positions: int, width: int) -> None:
        """`positions`: largest T in training."""
        super().__init__()
        self.rate = rate
        self.noise = Noise(batch, positions, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, W) -> the same shape."""
        if not self.training:
            return x
        # index_select, because a slice compares T with the drawn positions, and no program would then serve all lengths.
        noise = self.noise().index_select(-2, torch.arange(x.shape[-2], device=x.device))
        masked: Tensor = x * (noise >= self.rate) / (1 - self.rate)
        return masked


def with_dropout(scheme: NormScheme, rate: float, batch: int, positions: int) -> NormScheme:
    """Copy of a norm scheme with dropout on the output of each sublayer, before the norm on the output and the residual sum."""

    def dropout(spec: SublayerSpec) -> Dropout:
        return Dropout(rate, batch, positions, spec.width)

    def residual(spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        return scheme.residual(spec, Chain(sublayer, dropout(spec)))

    def output(spec: SublayerSpec) -> TensorModule:
        return Chain(dropout(spec), scheme.output(spec))

    return with_methods(scheme, residual=residual, output=output)


def with_methods(part: Part, **methods: Callable[..., Any]) -> Part:
    """Copy of a part with other methods. A copy, because an architecture may look at the class of a part."""
    own = copy.copy(part)
    vars(own).update(methods)  # frozen dataclasses too
    return own


def recorded(part: Part, **records: Callable[..., None]) -> Part:
    """Copy of a part. After each named method the function in `records` receives the result and the method's arguments."""

    def replaced(name: str, record: Callable[..., None]) -> Callable[..., Any]:
        make = getattr(part, name)

        def made(*arguments: Any, **named: Any) -> Any:
            result = make(*arguments, **named)
            record(result, *arguments, **named)
            return result

        return made

    return with_methods(part, **{name: replaced(name, record) for name, record in records.items()})


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context in which every module is in evaluation mode. Each module returns to its own mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training  # one by one, because train() would wake frozen layers


@dataclass
class CurrentIds:
    """Position ids of the forward pass that runs, (B, T) int64."""

    found: Tensor | None = None


class WithIds(nn.Module):
    """Module of a position code, called with the current position ids."""

    def __init__(self, module: nn.Module, ids: CurrentIds) -> None:
        super().__init__()
        self.module, self.ids = module, ids

    def forward(self, *given: Tensor, **tokens: Tensor) -> Any:
        """As the module, for tensors of K positions."""
        return self.module(*given, positions=self.ids.found, **tokens)


class TokensAndIds(nn.Module):
    """Model on tokens with position ids, from a model on tokens alone."""

    def __init__(self, model: nn.Module, ids: CurrentIds) -> None:
        super().__init__()
        self.model, self.ids = model, ids

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, 2) int64 -> logits (B, A, V)."""
        tokens, self.ids.found = inputs.unbind(-1)
        logits: Tensor = self.model(tokens)
        self.ids.found = None  # a stack's traced tensors must not outlive the call
        return logits


def with_position_ids(build: Callable[[Signature, Parts], nn.Module], signature: Signature, parts: Parts) -> nn.Module:
    """Model for a signature. Architectures see tokens alone; position ids go to the position code, if any.

    Raises Unsupported for a position code that acts and cannot read ids.
    """
    inputs = signature.inputs
    if not isinstance(inputs, Tokens) or inputs.positions is None:
        return build(signature, parts)
    ids = CurrentIds()
    if parts.position is not None:
        parts = replace(parts, position=_reading(parts.position, ids, inputs.positions))
    return TokensAndIds(build(replace(signature, inputs=Tokens(inputs.size)), parts), ids)


def _reading(code: Position, ids: CurrentIds, count: int) -> Position:
    """Copy of a position code whose modules get the current ids, of which there are `count`."""
    if not any(getattr(type(code), made) is not getattr(Position, made) for made in ("embed", "rotate", "bias")):
        return code
    if not code.reads_positions:
        raise Unsupported(
            f"{code.name} reads no position ids, and the task gives them: use a position code that reads them, or nope"
        )

    def told(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **named: Any) -> WithIds | None:
            module = make(*arguments, **named)
            return None if module is None else WithIds(module, ids)

        return made

    # A row for each id, and ids may be larger than places.
    embed = told(lambda width, positions: code.embed(width, count))
    return with_methods(code, embed=embed, rotate=told(code.rotate), bias=told(code.bias))
