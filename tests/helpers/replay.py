"""CUDA graphs on the CPU: the second call of a function is recorded operator by operator, later ones replay the record.

A record replays into the memory that it was recorded with, as a CUDA graph does. So whatever a function captures by value stays
as it was: a number of Python, a tensor that it replaced by another. And it refuses operators that would wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.plain_training import CPU
from lgbench.experiment.experiment import Experiment
from lgbench.training import train as training
from lgbench.training.models import Trained
from lgbench.training.population import Population
from lgbench.training.program import Captured
from lgbench.training.train import train

WAITING = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "_unique", "_unique2", "unique_dim"}
"""Their results, or the shapes of those, are known to the host only when the device has finished."""
MAKING = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "lift_fresh", "detach", "alias"}
"""They compute nothing: a replay goes on with the memory that they made."""


class Waits(AssertionError):
    """An operator would wait for the device."""


class Draws(AssertionError):
    """An operator draws random numbers inside of a captured function."""


class NoWaiting(TorchDispatchMode):
    """Inside, no operator may wait for the device."""

    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        name = operator._schema.name.removeprefix("aten::")
        if name in WAITING or _indexes_by_truth(name, arguments):
            raise Waits(f"{name} waits for the device")
        return self.run(operator, arguments, keywords or {})

    def run(self, operator, arguments, keywords):
        return operator(*arguments, **keywords)


def _indexes_by_truth(name: str, arguments: Sequence[Any]) -> bool:
    """Whether an operator selects by a tensor of truth values, of which it has to know how many hold."""
    indices = arguments[1] if name in ("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_") else ()
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


class Record(NoWaiting):
    """The operators of a function, in order, each with the tensors that it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, operator, arguments, keywords):
        if torch.Tag.nondeterministic_seeded in operator.tags:
            raise Draws(f"{operator} draws random numbers, which a graph would do from a generator of its own")
        for tensor in _written(operator, arguments, keywords):
            self._keep(tensor)
        result = operator(*arguments, **keywords)
        self._made |= {_memory(tensor) for tensor in _tensors(result)} - {_memory(t) for t in _tensors((arguments, keywords))}
        if not operator.is_view and operator._schema.name.removeprefix("aten::") not in MAKING:
            self.calls.append((operator, arguments, keywords, result))
        return result

    def _keep(self, tensor: Tensor) -> None:
        """Remember what was in memory that is not the record's own, before it is written to."""
        memory = _memory(tensor)
        if memory not in self._made and memory not in self._before:
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self._before[memory] = whole, whole.clone()

    def take_back(self) -> None:
        """Undo what the recording changed, for capturing a CUDA graph runs nothing."""
        for whole, before in self._before.values():
            whole.copy_(before)

    def replay(self) -> None:
        for operator, arguments, keywords, result in self.calls:
            for old, new in zip(_tensors(result), _tensors(operator(*arguments, **keywords)), strict=True):
                if _memory(old) != _memory(new):
                    old.copy_(new)


def _written(operator, arguments, keywords) -> Iterator[Tensor]:
    """The tensors among the arguments that an operator changes."""
    for index, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = arguments[index] if index < len(arguments) else keywords.get(argument.name)
            yield from _tensors(given)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def capturing() -> Iterator[None]:
    """Inside, torch says that a CUDA graph is captured. Some libraries look at values unless it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        yield


class Replayed(Captured):
    """Captured as a record of operators."""

    def _on_side(self, arguments):
        return self.function(*arguments)

    def _capture(self, arguments):
        places = tuple(argument.clone() for argument in arguments)
        with Record() as record:
            result = self.function(*places)
        record.take_back()
        return record, places, result


@contextmanager
def watched() -> Iterator[None]:
    """Inside, no method of a population that every step calls may wait for the device."""

    def never_waiting(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            with NoWaiting():
                return method(*arguments)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_noise", "advance", "average", "mark"):
            patch.setattr(Population, name, never_waiting(getattr(Population, name)))
        yield


def replayed(experiments: Sequence[Experiment]) -> Trained:
    """Train as on a GPU: the step and the averagers are captured."""
    said: list[str] = []
    with watched(), capturing(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "captures", lambda device: True)
        patch.setattr(training, "Captured", Replayed)
        trained = train(experiments, CPU, say=said.append)
    assert not [sentence for sentence in said if "captured" in sentence], said
    return trained


def assert_replay_is_equal(experiments: Sequence[Experiment]) -> None:
    """Training with records has the same bits as training that calls every operator."""
    called, again = train(experiments, CPU), replayed(experiments)
    expected, found = _results(called), _results(again)
    assert expected.keys() == found.keys()
    different = [name for name, tensor in expected.items() if not _same(found[name], tensor)]
    assert not different, f"{experiments[0].record.title}: other bits in {', '.join(different[:5])}"
    assert called.diverged == again.diverged


def _results(trained: Trained) -> dict[str, Tensor]:
    variants = {f"{variant}/{name}": t for variant, weights in trained.weights.items() for name, t in weights.items()}
    return {**variants, **trained.buffers, "loss": trained.curve.loss, "norm": trained.curve.gradient_norm}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(1e30), other.nan_to_num(1e30))
