"""Settings of this process that everybody's code reads: how to read each one, and how to put it back."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext


class Setting(NamedTuple):
    """One setting."""

    title: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    harmful: bool = True
    """Whether another plugin's numbers can depend on it."""


READ_FOR_NUMBERS = (
    *("ATEN", "BLIS", "CUBLAS", "CUDA", "CUDNN", "DNNL", "GOMP", "GOTO", "KMP", "LD_", "LGBENCH", "MKL"),
    *("NCCL", "NVIDIA", "OMP", "ONEDNN", "OPENBLAS", "PYTHON", "PYTORCH", "TORCH", "TRITON", "VECLIB", "XLA"),
)
"""How the names of environment variables begin that decide how this process, or one that it starts, computes."""
HARMLESS_VARIABLES = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
"""Environment variables that scikit-learn and torch's compiler set, and that decide no number. They are left as they are."""


_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""The error handling that numpy begins with."""


def decides_numbers(variable: str) -> bool:
    """Whether an environment variable decides how a process computes."""
    return variable.startswith(READ_FOR_NUMBERS)


def _flag(owner: Any, name: str) -> Setting:
    title = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"
    return Setting(title, partial(getattr, owner, name), partial(setattr, owner, name))


def _legacy(title: str, read: Callable[[], Any], write: Callable[[Any], object]) -> Setting:
    """A switch of torch's older interface, which cannot be read where somebody used the newer one."""

    def read_if_allowed() -> Any:
        try:
            return read()
        except RuntimeError:
            return None

    return Setting(title, read_if_allowed, lambda value: None if value is None else write(value))


def _legacy_flag(owner: Any, title: str, name: str) -> Setting:
    return _legacy(f"{title}.{name}", partial(getattr, owner, name), partial(setattr, owner, name))


def _precisions() -> list[Setting]:
    """The switches of float32 precision, of torch's newer interface where there is one."""
    read, write = (getattr(torch._C, f"_{word}_fp32_precision_{word}ter", None) for word in ("get", "set"))
    matmul = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    legacy = _legacy("the precision of float32 matrix products", *matmul)
    if read is None or write is None:
        return [legacy]
    places = [("generic", "all"), *((b, o) for b in ("cuda", "mkldnn") for o in ("all", "matmul", "conv", "rnn"))]
    newer = [
        Setting(f"the float32 precision of {backend} ({what})", partial(read, backend, what), partial(write, backend, what))
        for backend, what in places
    ]
    return [*newer, legacy]  # which cannot be read while the newer ones contradict it


def _default_device() -> torch.device | None:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context.device if context else None


def _function_modes() -> int:
    """Modes of torch functions that are on, without the default device, which is a setting of its own."""
    modes = [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]
    return sum(not isinstance(mode, DeviceContext) for mode in modes)


def _end_function_modes(wanted: int) -> None:
    while _function_modes() > wanted:
        torch._C._pop_torch_function_stack()


def _dispatch_modes() -> int:
    return len(dispatch._get_current_dispatch_mode_stack())


def _end_dispatch_modes(wanted: int) -> None:
    while _dispatch_modes() > wanted:
        dispatch._pop_mode()


def _flushes_denormals() -> bool:
    with torch._C.DisableTorchFunction():
        return (torch.tensor(1e-40, dtype=torch.float32, device="cpu") * 0.5).item() == 0.0


def _folder() -> str | None:
    with suppress(OSError):  # somebody removed it
        return os.getcwd()
    return None


def _go_to(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def _put_errors(value: Mapping[str, Any]) -> None:
    sys.modules["numpy"].seterr(**value)


def _numpy_errors() -> Mapping[str, Any]:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if numpy and hasattr(numpy, "geterr") else _NUMPY_ERRORS


def _put_handler(number: int, handler: Any) -> None:
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(number, handler)


def _autocast(device: str) -> list[Setting]:
    on, dtype = partial(torch.set_autocast_enabled, device), partial(torch.set_autocast_dtype, device)
    return [
        Setting(f"autocast on {device}", partial(torch.is_autocast_enabled, device), on),
        Setting(f"the dtype of autocast on {device}", partial(torch.get_autocast_dtype, device), dtype),
    ]


def _attention_kernel(name: str) -> Setting:
    cuda = torch.backends.cuda
    return Setting(f"torch.backends.cuda.enable_{name}", getattr(cuda, f"{name}_enabled"), getattr(cuda, f"enable_{name}"))


_MATMUL_SWITCHES = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
SETTINGS = (
    Setting("a mode of torch functions that it left on", _function_modes, _end_function_modes),
    Setting("a mode of torch operators that it left on", _dispatch_modes, _end_dispatch_modes),
    Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("the default device", _default_device, torch.set_default_device),
    Setting("the number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting("whether torch records gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("torch's inference mode, which it left on", torch.is_inference_mode_enabled, lambda value: None),
    Setting("deterministic algorithms", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    Setting("whether denormal numbers are flushed to zero", _flushes_denormals, torch.set_flush_denormal),
    Setting("torch's search for anomalies", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    _flag(torch.utils.deterministic, "fill_uninitialized_memory"),
    *_precisions(),
    *(_flag(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    *(_legacy_flag(torch.backends.cuda.matmul, "torch.backends.cuda.matmul", name) for name in _MATMUL_SWITCHES),
    _legacy_flag(torch.backends.cudnn, "torch.backends.cudnn", "allow_tf32"),
    *map(_attention_kernel, ("flash_sdp", "math_sdp", "mem_efficient_sdp", "cudnn_sdp")),
    _flag(torch.backends.mkldnn, "enabled"),
    _flag(torch.backends.opt_einsum, "enabled"),
    _flag(torch.backends.opt_einsum, "strategy"),
    *_autocast("cpu"),
    *_autocast("cuda"),
    Setting("the working directory", _folder, _go_to),
    Setting("sys.path", lambda: list(sys.path), lambda value: sys.path.__setitem__(slice(None), value), harmful=False),
    Setting("how numpy treats errors", _numpy_errors, _put_errors, harmful=False),
    *(
        Setting(f"what {name.name} does", partial(signal.getsignal, name), partial(_put_handler, name), harmful=False)
        for name in (signal.SIGINT, signal.SIGTERM)
    ),
)
"""In the order in which they are put back."""
