"""`lgbench.evaluate_model`: measurements of a model trained outside lgbench."""

from __future__ import annotations

import copy
import hashlib
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from lgbench.contracts import NAME, RESERVED_NAMES, Task, Tokens
from lgbench.errors import LgbenchError, RunFailed, Unsupported, UsageError, first_line, located, unknown
from lgbench.execution.device import choose_device, environment, full_float32
from lgbench.execution.runner import run_metadata
from lgbench.experiment.components import family_of, find_tasks, plugins_used, takes_part, versions_of
from lgbench.experiment.contexts import board_lengths, context_lengths, context_positions, draw, no_answer_counts
from lgbench.experiment.experiment import Tested, evaluating
from lgbench.experiment.protocols import BOARDS_PROTOCOL, PROTOCOLS
from lgbench.experiment.record import EXTERNAL, EXTERNAL_VERSION, Evaluation, ExperimentRecord, ProtocolUse, Training
from lgbench.experiment.settings import all_settings, check_settings, longest_context, override
from lgbench.extensions.function_files import as_name, require_logits
from lgbench.extensions.registry import Found, Registry
from lgbench.measurement.causality import TOLERANCE, Predict
from lgbench.measurement.evaluate import context_free_scores, evaluate
from lgbench.measurement.scores import Score, reasons
from lgbench.options import listed
from lgbench.randomness import Random, key_of
from lgbench.results import run_files
from lgbench.results.file_format import digest
from lgbench.results.rows import rows_of
from lgbench.results.stored_runs import ExecutionRecord, ExternalModel, Seconds

Model = nn.Module | Callable[[Tensor], Any]
UNNAMED = "model"
"""Name of a model without one, such as a lambda."""


def described(model: Model) -> ExternalModel:
    """Description of a model in the metadata."""
    named = type(model) if isinstance(model, nn.Module) or not hasattr(model, "__qualname__") else model
    made_of = f"{named.__module__}.{named.__qualname__}"[:200]  # metadata are no place for a page
    if not isinstance(model, nn.Module):
        return ExternalModel("function", made_of, None, None)
    return ExternalModel("module", made_of, sum(p.numel() for p in model.parameters()), _digest(model))


def name_of(model: Model) -> str:
    """Default name of a model, from its class or function.

    >>> name_of(nn.Linear(1, 1)), name_of(lambda inputs: inputs)
    ('linear', 'model')
    """
    own = type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)
    return as_name(own.replace("<lambda>", "")) or UNNAMED


def device_of(model: Model, named: str | None) -> torch.device:
    """Named device; by default the device of a module, and the CPU for a function."""
    if named is not None:
        return choose_device(named)
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def asked(model: Model, name: str, task: Task, device: torch.device) -> Iterator[Predict]:
    """Function from inputs to logits, with the model in evaluation mode and on the device until the end of the context.

    Afterwards the model has its old modes and device. Calls raise Unsupported for logits of the wrong type or shape, and for a
    model without some token of the task.
    """
    signature, who = task.signature, _who(name)

    def predict(inputs: Tensor) -> Tensor:
        try:
            logits = model(inputs)
        except Exception as error:  # a stranger's model may raise anything
            if sentence := _lacks_token(model, inputs[:1], task):
                raise Unsupported(f"{who} {sentence}") from error
            raise
        if not isinstance(logits, Tensor):
            with suppress(RuntimeError, TypeError, ValueError):  # the error below says what was returned
                logits = torch.as_tensor(logits)  # of NumPy, or a list
        require_logits(who, logits, inputs.shape[:2], signature)
        wide: Tensor = logits if logits.dtype == torch.float64 else logits.float()
        return wide.to(inputs.device)

    if not isinstance(model, nn.Module):
        yield predict
        return
    before = device_of(model, None)
    with evaluating(model):
        try:
            if device != before:  # a model on several devices stays there
                model.to(device)
            yield predict
        finally:
            if device != before:
                model.to(before)


def _who(name: str) -> str:
    return "the model" if name == UNNAMED else f"the model {name}"


def _lacks_token(model: Model, inputs: Tensor, task: Task) -> str | None:
    """Reason why a model fails, if the reason is its vocabulary: it knows the token 0, and not all tokens of the task."""
    if not isinstance(task.signature.inputs, Tokens):
        return None
    size = task.signature.inputs.size
    for token in range(size):
        try:
            model(torch.full_like(inputs, token))
        except Exception:  # a stranger's model may raise anything
            if token == 0:
                return None
            needed = f"{task.name} has {size} input tokens, from 0 to {size - 1}"
            return f"cannot read the token {token}: {needed}; build its embedding for {size} tokens or more"
    return None


def _digest(model: nn.Module) -> str:
    """SHA-256 of the tensors in the module's state."""
    total = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            # As bytes, because NumPy has no bfloat16.
            total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


SETTABLE = ("evaluate.contexts", "evaluate.max_length", "evaluate.strings", "train.max_length", "train.min_length")
"""Settings with a meaning without training. Lengths in `train` define the in-distribution range."""
LENGTHS = "evaluate.lengths"
"""Change of a protocol with the tested lengths, separated by blanks."""
MAX_LENGTHS = 100
"""Largest number of requested lengths, since the metadata contains them."""


def planned(
    name: str, task: str, lengths: Sequence[int] | None, seed: int, changed: Mapping[str, str], registry: Registry
) -> tuple[Tested, Collection[str]]:
    """Model on its task, and the names of the distributions and plugin files behind its numbers and measurements.

    Raises UsageError for an invalid name, task, length, setting or seed.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        allowed = "lower-case letters, digits and hyphens, at most 100, as in my-model"
        raise UsageError(f"a model cannot have the name {name!r}: use {allowed}")
    if name in RESERVED_NAMES:
        raise UsageError(f"a model cannot have the name {name!r}, which is reserved: pass another, as in name='my-{name}'")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise UsageError(f"the seed is {seed!r}, expected a whole number from 0 on")
    if other := [key for key in changed if key not in SETTABLE]:
        raise unknown("setting of a model that lgbench does not train", other[0], SETTABLE)
    found = _task(task, registry)
    tested, before = found.thing, PROTOCOLS[BOARDS_PROTOCOL].settings(found.thing)
    train, test = override("train", before[0], changed), override("evaluate", before[1], changed)
    plain, after = all_settings(*before, {}), all_settings(train, test, {})
    changes = {key: str(after[key]) for key in SETTABLE if after[key] != plain[key]}
    if lengths is not None:
        boards = _lengths(lengths)
        if boards[-1] > (longest := longest_context(tested)):
            raise UsageError(f"lengths go to {boards[-1]}, and contexts of {task} to {longest}")
        if "evaluate.max_length" in changed:
            raise UsageError("evaluate.max_length and lengths both say how long inputs get: leave one of them out")
        if boards != board_lengths(tested, train, test):
            tested, test = _at(tested, boards), replace(test, max_length=boards[-1])
            changes[LENGTHS] = " ".join(map(str, boards))
    test = replace(test, points=0, point_max_length=test.max_length)  # no eval steps
    check_settings(tested, train, test)
    try:
        for length in context_lengths(tested, train, test):
            context_positions(tested, length)
    except ValueError as error:  # of a task without contexts of some length
        raise UsageError(first_line(error)) from error
    if reason := no_answer_counts(tested, train, test):
        raise UsageError(reason)
    chosen = [registry.measurements.found(each) for each in registry.measurements.names()]
    chosen = [each for each in chosen if takes_part(each.thing, tested, frozenset())]
    record = _record(name, found, train, test, changes, registry).with_seed(seed)
    return Tested(record, tested, tuple(each.thing for each in chosen)), versions_of(found, *chosen).keys()


def _record(
    name: str, task: Found[Task], train: Training, test: Evaluation, changes: Mapping[str, str], registry: Registry
) -> ExperimentRecord:
    """Record with all training settings 0, since the training is unknown, except the in-distribution lengths."""
    untrained = Training(0, 0, 0.0, 0.0, 0.0, 0, train.min_length, train.max_length)
    return ExperimentRecord(
        task=task.label,
        family=family_of(task),
        task_version=task.thing.version,
        entry=name,
        architecture=name,
        norm=None,
        attention=None,
        position=None,
        optimizer="none",
        options=(),
        averagers=(),
        protocol=ProtocolUse(EXTERNAL, EXTERNAL_VERSION, tuple(sorted(changes.items()))),
        train=untrained,
        evaluate=test,
        plugins=plugins_used({"task": task}, registry.loaded()),
        seed=0,
    )


def _task(name: str, registry: Registry) -> Found[Task]:
    found = find_tasks([name], registry)
    if len(found) > 1:
        raise UsageError(f"{name} is {len(found)} tasks, and a model is for one: name one of them, such as {found[0].label}")
    return found[0]


def _lengths(asked: Sequence[int]) -> list[int]:
    known = isinstance(asked, Sequence) and all(isinstance(n, int) and n >= 1 for n in asked)
    if not known or not 1 <= len({*asked}) <= MAX_LENGTHS:
        raise UsageError(f"lengths is {asked!r}, expected 1 to {MAX_LENGTHS} whole numbers from 1 on, such as [40, 80, 160]")
    return sorted({*asked})


def _at(task: Task, lengths: Sequence[int]) -> Task:
    """Copy of a task with these lengths on boards."""
    # In a subclass: the lengths of a task may be a property of its class, which hides an attribute, and a task may be frozen.
    kind = type(type(task).__name__, (type(task),), {"lengths": property(lambda self: tuple(lengths))})
    object.__setattr__(other := copy.copy(task), "__class__", kind)
    return other


def evaluate_model(
    model: Model,
    task: str,
    *,
    lengths: Sequence[int] | None = None,
    name: str | None = None,
    seed: int = 0,
    device: str | None = None,
    set: Mapping[str, Any] | None = None,
    plugins: str | Path | Sequence[str | Path] = (),
    results: str | Path | None = None,
) -> pa.Table:
    """Rows of measurements of any model on a task, with the columns of :func:`lgbench.run`.

    `model` is a module, or a function, from inputs (B, T) int64 or (B, T, F) float32 to logits (B, A, V). A is T, or 1 where
    the task asks for one answer. Inputs of a task with position ids are (B, T, 2) int64, tokens and their ids. Of a formal
    language, some inputs are a few symbols longer than the longest length. A module is in evaluation mode meanwhile.

    `lengths` are the lengths on boards, by default the lengths of the protocol `standard`. Contexts equal the contexts of its
    runs with the same seed. `device` is by default the module's device, and the CPU for a function. `set` changes
    evaluate.contexts, evaluate.strings, evaluate.max_length, train.min_length and train.max_length. The last two are the
    model's training lengths, by default the task's.

    With a folder `results`, the rows also become a run file with the protocol `external`. Boards show the model apart from
    models trained by lgbench. The run file cannot be submitted or verified. The model's `name`, by default the name of the
    class or function, is its identity: several trainings of one model have one name and several seeds.

    Raises UsageError for an invalid request, or if `results` has other numbers for this name and seed. Raises RunFailed,
    with its cause, for an error in the model.
    """
    if not callable(model):
        raise UsageError(f"the model is {model!r:.100}, expected a module or a function from inputs to logits")
    changes = {key: str(value) for key, value in (set or {}).items()}
    registry = Registry.load(files=[Path(file) for file in listed(plugins)])
    whole, took_part = planned(name_of(model) if name is None else name, task, lengths, seed, changes, registry)
    folder = None if results is None else Path(results)
    if folder is not None:
        run_files.require_writable(folder)
    started, on = time.perf_counter(), device_of(model, device)
    scores = _scores(model, whole, on)
    for reason in reasons(scores, diverged=False):
        warnings.warn(f"{whole.record.title}: {reason}, so boards do not rank it", stacklevel=2)
    level = context_free_scores(whole.task, whole.measurements, whole.train, whole.evaluate)
    rows = rows_of(whole, {whole.train.steps: [*scores, *level]})
    if folder is not None:
        execution, seconds = ExecutionRecord(1, compiled=False, resumed=False), Seconds(0.0, time.perf_counter() - started)
        about = run_metadata(whole, took_part, registry.loaded(), execution, environment(on), seconds)
        _file(folder, whole.record, rows, about | {"external": asdict(described(model))})
    return rows


def _scores(model: Model, whole: Tested, device: torch.device) -> list[Score]:
    name = whole.record.entry
    try:
        with full_float32(), asked(model, name, whole.task, device) as predict:
            _require_repeatable(predict, whole, device)
            return evaluate(whole, {"raw": predict}, device)
    except LgbenchError:
        raise
    except Exception as error:  # a stranger's model may raise anything
        raise RunFailed(f"{whole.record.title} failed: {located(error)}") from error


@torch.no_grad()
def _require_repeatable(predict: Predict, whole: Tested, device: torch.device) -> None:
    """Raise Unsupported for a model with other answers to the same context, as with dropout.

    Its measurements would be noise, and its answers would seem to depend on later inputs.
    """
    longest = context_lengths(whole.task, whole.train, whole.evaluate)[-1]
    inputs = draw(whole.task, longest, Random.stacked([key_of(0, "repeated", whole.task.name)], 1)).inputs.to(device)
    if not torch.allclose(predict(inputs), predict(inputs), TOLERANCE, TOLERANCE, equal_nan=True):
        raise Unsupported(
            f"{_who(whole.record.entry)} gives other answers to the same context the second time: switch off dropout, by "
            "model.eval() for a model inside a function, and draw no random numbers"
        )


def _file(folder: Path, record: ExperimentRecord, rows: pa.Table, metadata: Mapping[str, Any]) -> None:
    """Write a new run file. Raises UsageError for an existing file with other numbers."""
    path = run_files.path_for(folder, record)
    if renamed := run_files.make_room(path, record.run_id):
        warnings.warn(renamed, stacklevel=3)
    run_files.write(path, rows, metadata)  # keeps a file that is there
    if digest({}, run_files.read(path)) != digest({}, rows):
        raise UsageError(
            f"{folder} has other numbers of a model with the name {record.entry} and the seed {record.seed} on {record.task}: "
            "give this model another name or seed, or name another folder"
        )
