"""Device, precision and provenance of runs. A device changes results by rounding alone."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lgbench.checkout import VERSION, git_commit
from lgbench.errors import UsageError
from lgbench.options import RunOptions


@dataclass(frozen=True)
class Execution:
    """Device, populations and processes of a command. Raises UsageError for a number out of range."""

    device: torch.device
    compile: bool | None = None
    """Whether to compile the training step; None to follow :func:`lgbench.training.cost.compiling_pays`."""
    population: int | None = None
    """Largest number of models in a population; None for the fastest number within the free memory."""
    checkpoint: float = 60.0
    """Seconds of training between two checkpoints."""
    workers: int = 1
    """Number of worker processes. Each trains one population, with one thread on a CPU."""
    save_weights: bool = False
    """Whether to keep the weights of each run beside the run file. Changes no number."""

    def __post_init__(self) -> None:
        if self.population is not None and self.population < 1:
            raise UsageError(f"--population is {self.population}, expected at least 1 model")
        if self.workers < 1:
            raise UsageError(f"--workers is {self.workers}, expected at least 1 process")
        if not self.checkpoint >= 0:
            raise UsageError(f"--checkpoint is {self.checkpoint}, expected seconds, at least 0")

    @classmethod
    def of(cls, options: RunOptions) -> Execution:
        """Execution on this machine. Raises UsageError for a number out of range, or a device absent from this machine.

        By default one worker on a GPU; on a CPU as many as torch has threads, a number limited by OMP_NUM_THREADS.
        """
        device = choose_device(options.device)
        default = torch.get_num_threads() if device.type == "cpu" else 1
        workers = default if options.workers is None else options.workers
        return cls(device, options.compile, options.population, options.checkpoint, workers, options.save_weights)


def choose_device(name: str) -> torch.device:
    """Device by name; `auto` is a GPU if available, else the CPU. Raises UsageError for an unknown or absent device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)  # torch.device takes devices that this machine lacks
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # AssertionError by torch without CUDA
        raise UsageError(f"device {name!r} cannot be used here; use auto, cpu, or cuda or mps where there is one") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {name!r} is not supported; use auto, cpu, cuda or mps")
    return device


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Context in which torch uses `number` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let this process keep up to 256 MiB of freed memory for new tensors. Changes no number; no effect without glibc.

    By default glibc returns the memory of large tensors to the system in every step. Page faults then take a third of the
    training time (benchmarks/stacks.py).
    """
    if sys.platform != "linux":
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune:
        tune(_MMAP_THRESHOLD, 32 * 2**20)  # the largest value allowed by glibc
        tune(_TRIM_THRESHOLD, 256 * 2**20)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameter numbers of `mallopt`, from malloc.h."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Context without TF32, so that all entries are computed in the same precision.

    By default cuDNN uses TF32 for recurrent networks and convolutions, and torch does not for matrix products. Imported
    plugins may also have changed the settings of the process.
    """
    newer = {place: place.fp32_precision for place in _precisions()}
    products, cudnn = _older()
    _set_older("highest", False)
    for place in newer:
        if place.fp32_precision not in ("none", "ieee"):  # none follows a more general switch
            place.fp32_precision = "ieee"
    try:
        yield
    finally:
        _set_older(products, cudnn)
        for place, precision in newer.items():
            place.fp32_precision = precision


def _older() -> tuple[str | None, bool | None]:
    """Values of torch's older switches; None for a switch in conflict with newer ones, whose reading raises an error."""
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
    """Objects with the precision switches of PyTorch 2.9 and later, general switches first."""
    backends = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        return []
    places = [backends, backends.cuda.matmul]
    for library in (backends.cudnn, backends.mkldnn):
        places += [library, *(getattr(library, name) for name in ("matmul", "conv", "rnn") if hasattr(library, name))]
    return places


@contextmanager
def subnormals_are_zero() -> Iterator[None]:
    """Context in which the CPU takes numbers closer to zero than 1.2e-38 for zero, where it can.

    Saturated attention has gradients of that size. Most CPUs compute with them in microcode, and training then takes up to
    twelve times as long (benchmarks/subnormals.py).
    """
    before = bool(torch.full((), 2e-38) * 0.1 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def as_in_runs(device: torch.device) -> Iterator[None]:
    """Context in which this process computes as for runs: in full float32, on a CPU with one thread and without subnormals.

    For small operators, a second thread costs time.
    """
    keep_freed_memory()
    with full_float32(), subnormals_are_zero(), threads(1) if device.type == "cpu" else nullcontext():
        yield


def device_name(device: torch.device) -> str:
    """Name of the GPU, or model and instruction set of the CPU: "cpu (AMD EPYC, AVX512)". Others round otherwise."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({_processor()}, {torch.backends.cpu.get_cpu_capability()})"


def _processor() -> str:
    """Model of the CPU where the system is Linux and names it, else its architecture, such as "arm64"."""
    with suppress(OSError):
        if found := re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1].strip()
    return platform.machine()


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and machine, equal for all runs of a command."""
    return {
        "lgbench": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git_commit": git_commit(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }
