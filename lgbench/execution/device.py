"""Device and manner of execution. Neither changes a result by more than rounding."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from lgbench.errors import UsageError


@dataclass(frozen=True)
class Execution:
    """The options of `lgbench run` that say where and how. Raises UsageError where a number is out of range."""

    device: torch.device
    compile: bool | None = None
    """Whether to compile the training step; None to follow :func:`lgbench.training.cost.compiling_pays`."""
    population: int | None = None
    """How many models to train together at most; None for what is fastest and fits in memory."""
    checkpoint: float = 60.0
    """Seconds of training between two checkpoints."""
    workers: int = 1
    """How many processes train at the same time, each a population of its own with one thread."""
    keep_weights: bool = False
    """Whether the weights of each run are kept, beside its run file. Changes no number."""

    @classmethod
    def on(
        cls,
        device: str,
        compile: bool | None = None,
        population: int | None = None,
        checkpoint: float = 60.0,
        workers: int | None = None,
        keep_weights: bool = False,
    ) -> Execution:
        """`workers` None: one on a GPU. On a CPU as many as torch would use threads, which OMP_NUM_THREADS limits."""
        where = choose_device(device)
        default = torch.get_num_threads() if where.type == "cpu" else 1
        return cls(where, compile, population, checkpoint, default if workers is None else workers, keep_weights)

    def __post_init__(self) -> None:
        if self.population is not None and self.population < 1:
            raise UsageError(f"--population is {self.population}, expected at least 1 model")
        if self.workers < 1:
            raise UsageError(f"--workers is {self.workers}, expected at least 1 process")
        if not self.checkpoint >= 0:
            raise UsageError(f"--checkpoint is {self.checkpoint}, expected seconds, at least 0")


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one. Raises UsageError where the device is unknown or not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"device {name!r} cannot be used here; use auto, cpu, or cuda or mps where there is one") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {name!r} is not supported; use auto, cpu, cuda or mps")
    return device


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Inside, torch uses so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Have this process keep the memory that it frees, up to 256 MiB, and use it again. Changes no number.

    Otherwise glibc gives large results back to the system and fetches them anew in every step, and a third of the time of
    training goes into page faults (benchmarks/stacks.py). Does nothing where there is no glibc.
    """
    if sys.platform != "linux":
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune:
        tune(_MMAP_THRESHOLD, 32 * 2**20)  # the largest that glibc takes
        tune(_TRIM_THRESHOLD, 256 * 2**20)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of the settings in malloc.h."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Without TF32, which cuDNN's recurrent networks and convolutions take by default and other products do not.

    So all entries are computed in the same precision, whatever an imported plugin has set for the whole process.
    """
    newer = {place: place.fp32_precision for place in _precisions()}
    products, cudnn = _older()
    _set_older("highest", False)
    for place in newer:
        if place.fp32_precision not in ("none", "ieee"):
            place.fp32_precision = "ieee"
    try:
        yield
    finally:
        _set_older(products, cudnn)
        for place, precision in newer.items():
            place.fp32_precision = precision


def _older() -> tuple[str | None, bool | None]:
    """The values of torch's older switches; None where reading one raises an error, since the newer ones are set otherwise."""
    products, cudnn = None, None
    with suppress(RuntimeError):
        products = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        cudnn = torch.backends.cudnn.allow_tf32
    return products, cudnn


def _set_older(products: str | None, cudnn: bool | None) -> None:
    if products is not None:
        torch.set_float32_matmul_precision(products)
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn


def _precisions() -> list[Any]:
    """The places of the newer switches, which PyTorch 2.9 brought, general ones first."""
    backends = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        return []
    places = [backends, backends.cuda.matmul]
    for library in (backends.cudnn, backends.mkldnn):
        places += [library, *(getattr(library, name) for name in ("matmul", "conv", "rnn") if hasattr(library, name))]
    return places
