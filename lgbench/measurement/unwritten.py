"""Check that a measurement only reads the tensors that it receives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from lgbench.contracts import Measurement
from lgbench.errors import PluginError
from lgbench.terminal import sentence


@contextmanager
def unwritten(measurement: Measurement, given: object) -> Iterator[None]:
    """Raise PluginError if the measurement writes into a tensor of `given`, since the next measurement reads the same tensor.

    PyTorch counts the writes to a tensor, so nothing is copied or compared.
    """
    before = [(tensor, tensor._version) for tensor in _tensors(given)]
    yield
    if any(tensor._version != version for tensor, version in before):
        module = type(measurement).__module__
        raise PluginError(
            sentence(f"the measurement {measurement.name} of {module} writes into tensors that other measurements read: ")
            + "use operations that make new tensors, such as x.abs() in place of x.abs_(), or x.clone() first"
        )


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "__dict__"):
        yield from _tensors(vars(value))
