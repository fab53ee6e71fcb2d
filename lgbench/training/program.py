"""Programs: functions of tensors, traced once and compiled ahead of time to machine code that any process here can load.

A program is kept in the user's cache under a name that says all that it depends on: the operators of the traced function,
the shapes of its arguments, PyTorch, the processor and the number of threads. So whoever needs the same one finds it, in this
command or in a later one. Sizes that vary from call to call are no part of it, where one graph is for all of them.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import Dim

from lgbench import user_cache
from lgbench.atomic_files import replaced
from lgbench.lock import Lock
from lgbench.training.tracing import NOTHING, Varying, traced

SUFFIX = ".pt2"

SETTINGS = {"aot_inductor.compile_wrapper_opt_level": "O0"}
"""Only the code that calls the kernels is compiled so: it takes a third of the C++ compiler's time otherwise, for no gain."""

EXAMPLE = 32
"""The size of what varies while a program is made. Always the same: from another one a compiler may make another program."""

Function = Callable[..., Tensor]
"""A function of tensors, some of which it changes in place -> a tensor."""


def program(
    function: Function, arguments: Sequence[Tensor], report: Callable[[], None], varying: Varying = NOTHING
) -> Function:
    """The program of a function, for arguments of these shapes, types and device. It changes the same arguments in place.

    Calls `report` before it compiles, which takes long, and not where it finds the program. Raises SizesMatter where no one
    program is for all sizes of what varies, and an error of any other kind where the function cannot be traced (it does other
    things for other values) or compiled (there is no C++ compiler).
    """
    arguments = [_example(argument, varying.get(place)) for place, argument in enumerate(arguments)]
    graph = traced(_as_tuple(function), arguments, varying)
    kept = user_cache.folder("programs")
    if kept is None:
        report()
        with _compiled(graph, arguments, varying) as made:
            return _loaded(made)
    path = kept / f"{_name(graph, arguments, varying)}{SUFFIX}"
    with Lock.waited_for(path.with_suffix(".lock")):  # other processes wait for the program instead of compiling it too
        if not path.exists():
            report()
            user_cache.remove_old(kept)
            with replaced(path) as partial, _compiled(graph, arguments, varying) as made:
                shutil.copyfile(made, partial)
    user_cache.used(path)
    return _loaded(path)


def _as_tuple(function: Function) -> Callable[..., tuple[Tensor]]:
    return lambda *arguments: (function(*arguments),)


def _example(argument: Tensor, varies: int | None) -> Tensor:
    if varies is None:
        return argument
    return argument.new_zeros([EXAMPLE if place == varies else size for place, size in enumerate(argument.shape)])


@contextmanager
def _compiled(graph: fx.GraphModule, arguments: Sequence[Tensor], varying: Varying) -> Iterator[Path]:
    """A file with a compiled graph, for the number of threads that torch has now. It is gone after the block."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _unlogged(), torch.no_grad():
        warnings.simplefilter("ignore")  # of PyTorch's own code
        path = Path(folder) / f"step{SUFFIX}"
        shapes = tuple({varying[place]: Dim.DYNAMIC} if place in varying else {} for place in range(len(arguments)))
        exported = torch.export.export(graph, tuple(arguments), dynamic_shapes=shapes if varying else None, strict=False)
        # Otherwise each kind of vector instructions that the processor has is first tried out, for 20 s on a new machine.
        with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=dict(SETTINGS))
        yield path


@contextmanager
def _unlogged() -> Iterator[None]:
    """Inside, the compiler logs errors alone. It has a warning for each operator that it calls and does not compile itself."""
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _loaded(path: Path) -> Function:
    run: Any = torch._inductor.aoti_load_package(str(path))
    return lambda *arguments: run(*arguments)[0]


def _name(graph: fx.GraphModule, arguments: Sequence[Tensor], varying: Varying) -> str:
    """A name for all that a program depends on."""
    parts = [
        graph.code,
        torch.__version__,
        _processor(),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        SETTINGS,
    ]
    parts += [_layout(tensor, varying.get(place)) for place, tensor in enumerate(arguments)]
    for name, constant in graph.named_buffers():
        parts += [name, _layout(constant), constant.detach().cpu().reshape(-1).tolist()]
    for name, constant in vars(graph).items():
        if isinstance(constant, Tensor):
            parts += [name, _layout(constant), constant.detach().cpu().reshape(-1).tolist()]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def _layout(tensor: Tensor, varies: int | None = None) -> tuple[Any, ...]:
    device = torch.cuda.get_device_name(tensor.device) if tensor.device.type == "cuda" else tensor.device
    if varies is None:
        return tuple(tensor.shape), tensor.stride(), tensor.dtype, str(device)
    return tuple(size for place, size in enumerate(tensor.shape) if place != varies), varies, tensor.dtype, str(device)


@cache
def _processor() -> str:
    """The processor, with the instructions that it has where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags", "Features"))
