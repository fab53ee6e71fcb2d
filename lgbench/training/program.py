"""Programs: a function of tensors traced as one graph, also for varying sizes, compiled and kept in the user's cache.

On a GPU, functions of tensors are also captured as CUDA graphs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from platformdirs import user_cache_path
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

from lgbench.atomic_files import replaced
from lgbench.errors import first_line, lacks_memory
from lgbench.lock import Lock

Varying = Mapping[int, int]
"""Dimension of varying size by the place of its argument: one size for all of these, which are contiguous."""

NOTHING: Varying = {}

SMALLEST = 2
"""Smallest varying size: a dimension of size 1 may be broadcast, and needs another graph than larger sizes."""

EXAMPLES = (32, 96)
"""Examples of a varying size, in the order of their use. Fixed: another size may lead to other operators."""

Function = Callable[..., Tensor]
"""Function from tensors, some changed in place, to a tensor."""


@dataclass
class Graph:
    """Operators of a function."""

    module: fx.GraphModule
    varying: Varying = field(default_factory=dict)
    example: int = 0
    """Varying size during tracing and compilation."""
    serves: Callable[[int], bool] = lambda size: True
    """Whether the operators are the function's at a varying size. A function may ask for it, and do otherwise for others."""
    program: Function | None = None
    """The operators compiled, once they are."""


def traced(
    function: Callable[..., Any], arguments: Sequence[Tensor], varying: Varying = NOTHING, example: int = EXAMPLES[0]
) -> Graph | None:
    """Graph of a function, traced at the example size, for the sizes that meet its conditions. Computes nothing.

    None if the function takes a varying size as a number. Raises any error if the function has no single graph.
    """
    if varying:
        return _for_sizes(function, arguments, varying, example)
    with torch.no_grad():
        # A model may hold constants, which are not fake.
        return Graph(make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments))


def _for_sizes(function: Callable[..., Any], arguments: Sequence[Tensor], varying: Varying, example: int) -> Graph | None:
    sizes = ShapeEnv()
    mode = FakeTensorMode(shape_env=sizes, allow_non_fake_inputs=True)
    given = _examples(arguments, varying, example)
    stand_ins = [_stand_in(mode, argument, varying.get(place)) for place, argument in enumerate(given)]
    with torch.no_grad(), _solving_open_sizes(), mode, _OpenSizes():
        try:
            # "real", because the arguments are fake already.
            module = make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*stand_ins)
        except Exception:  # any of PyTorch's for a size taken as a number; one of the function comes again for fixed sizes
            return None
    if sizes.replacements:
        return None
    guards = [guard.expr for guard in sizes.guards]

    @cache
    def serves(size: int) -> bool:
        return size >= SMALLEST and all(guard.subs(dict.fromkeys(guard.free_symbols, size)) for guard in guards)

    return Graph(module, varying, example, serves)


def _examples(arguments: Sequence[Tensor], varying: Varying, example: int) -> list[Tensor]:
    """Arguments with the example in the place of the varying size."""
    shapes = [list(argument.shape) for argument in arguments]
    for place, dimension in varying.items():
        shapes[place][dimension] = example
    return [each.new_zeros(shapes[place]) if place in varying else each for place, each in enumerate(arguments)]


def _stand_in(mode: FakeTensorMode, argument: Tensor, varies: int | None) -> Tensor:
    """Fake tensor for an argument, with one dimension of open size. Equal open sizes of several arguments are one."""
    if varies is None:
        return mode.from_tensor(argument, static_shapes=True)
    sizes = [DimDynamic.DUCK if place == varies else DimDynamic.STATIC for place in range(argument.ndim)]
    return mode.from_tensor(argument, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


@contextmanager
def _solving_open_sizes() -> Iterator[None]:
    """Context in which triangular equations may have an open size: PyTorch's stand-in for their solution takes numbers."""
    operator = torch.ops.aten.linalg_solve_triangular.default

    def stand_in(mode: FakeTensorMode, func: Any, coefficients: Tensor, right: Tensor, **settings: bool) -> Tensor:
        batch = torch.broadcast_shapes(coefficients.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
        return right.new_empty(*batch, right.shape[-1], right.shape[-2]).mT  # by columns, as LAPACK leaves it

    with patch.dict(op_implementations_dict, {operator: stand_in}):
        yield


class _OpenSizes(TorchFunctionMode):
    """Context that writes out functions which take sizes as numbers, in tracing or in compiling.

    They are F.linear with a bias under vmap, torch.polar, F.pad and F.conv1d.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _WRITTEN_OUT.get(func, func)(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found = F.linear(input, weight)
    return found if bias is None else found + bias


def _polar(abs: Tensor, angle: Tensor) -> Tensor:
    return torch.view_as_complex(torch.stack((abs * angle.cos(), abs * angle.sin()), -1))


def _pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    if mode != "constant" or any(isinstance(number, torch.SymInt) or number < 0 for number in pad):
        return F.pad(input, pad, mode, value)
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        shapes = [
            [*input.shape[: input.ndim - place], number, *input.shape[input.ndim - place + 1 :]] for number in (before, after)
        ]
        first, last = (input.new_full(shape, value or 0) for shape in shapes)
        input = torch.cat((first, input, last), -place)
    return input


def _conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    if stride not in (1, (1,)) or isinstance(padding, str):
        return F.conv1d(input, weight, bias, stride, padding, dilation, groups)
    around, apart = (value if isinstance(value, int) else value[0] for value in (padding, dilation))
    padded = _pad(input, (around, around))
    positions = padded.shape[-1] - apart * (weight.shape[-1] - 1)
    features = padded.reshape(*padded.shape[:-2], groups, -1, padded.shape[-1])  # (..., G, C / G, T)
    matrices = weight.reshape(groups, -1, *weight.shape[1:])  # (G, O / G, C / G, taps)
    taps = [matrices[..., tap] @ features[..., apart * tap : apart * tap + positions] for tap in range(weight.shape[-1])]
    found = torch.stack(taps).sum(0).flatten(-3, -2)
    return found if bias is None else found + bias[:, None]


_WRITTEN_OUT: Mapping[Any, Callable[..., Any]] = {
    F.linear: _linear,
    torch.polar: _polar,
    F.pad: _pad,
    F.conv1d: _conv1d,
}
"""Written out functions of :class:`_OpenSizes`."""


CACHE = "LGBENCH_CACHE"
"""Environment variable with another cache folder."""

KEPT_SECONDS = 30 * 24 * 3600.0
"""Time from the latest use of a program to its removal."""

SUFFIX = ".pt2"

SETTINGS = {"aot_inductor.compile_wrapper_opt_level": "O0"}
"""No optimization for the code around the kernels: it takes a third of the C++ compiler's time, for no gain."""

_LATEST: dict[Hashable, dict[Hashable, Graph | None]] = {}
"""Graphs of this process for the latest key, by layout of the arguments and example; None where the sizes are numbers."""


def graph_of(
    function: Function, arguments: Sequence[Tensor], varying: Varying, key: Hashable, example: int = EXAMPLES[0]
) -> Graph | None:
    """Graph of a function for arguments with these shapes, types and device, as of :func:`traced`.

    Functions with equal keys have equal operators, except for constant tensors. So the seeds and learning rates of an entry
    are traced once: tracing takes seconds for an unrolled recurrence. Raises any error if the function cannot be traced (a
    branch on a value).
    """
    layout = (torch.get_num_threads(), example, *_layouts(arguments, varying))
    if key not in _LATEST:
        _LATEST.clear()
    known = _LATEST.setdefault(key, {})
    if layout in known:
        return known[layout]
    graph = traced(lambda *given: (function(*given),), arguments, varying, example)
    if graph is None or not any(_constants(graph.module)):  # which may have been drawn with the seed
        known[layout] = graph
    return graph


def program(graph: Graph, arguments: Sequence[Tensor], report: Callable[[], None]) -> Function:
    """Program of a graph for arguments as those it was traced with, with the same changes in place.

    Calls `report` before compiling, which takes half a minute; a program in the cache needs none. Raises any error if the
    graph cannot be compiled (no C++ compiler).
    """
    if graph.program is None:
        examples = _examples(arguments, graph.varying, graph.example)
        graph.program = _of_graph(graph.module, examples, report, graph.varying)
    return graph.program


def _of_graph(graph: fx.GraphModule, arguments: Sequence[Tensor], report: Callable[[], None], varying: Varying) -> Function:
    """Program of a graph, from the cache or compiled."""
    kept = _folder()
    if kept is None:
        report()
        with _compiled(graph, arguments, varying) as made:
            return _loaded(made)
    path = kept / f"{_name(graph, arguments, varying)}{SUFFIX}"
    with Lock.waited_for(path.with_suffix(".lock")):  # other processes wait instead of compiling the same program
        if not path.exists():
            report()
            _remove_old(kept)
            with replaced(path) as partial, _compiled(graph, arguments, varying) as made:
                shutil.copyfile(made, partial)
    with suppress(OSError):
        os.utime(path)  # as a note of the use
    return _loaded(path)


def _folder() -> Path | None:
    """Folder of programs in the user's cache, or in the folder named by CACHE; None if it cannot be made."""
    named = os.environ.get(CACHE)
    path = (Path(named).resolve() if named else user_cache_path("lgbench", appauthor=False)) / "programs"
    with suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path if os.access(path, os.W_OK | os.X_OK) else None


def _remove_old(folder: Path) -> None:
    """Remove files without a use for KEPT_SECONDS."""
    oldest = time.time() - KEPT_SECONDS
    for file in folder.iterdir():
        with suppress(OSError):  # another process was faster
            if file.stat().st_mtime < oldest:
                file.unlink()


@contextmanager
def _compiled(graph: fx.GraphModule, arguments: Sequence[Tensor], varying: Varying) -> Iterator[Path]:
    """Temporary file with a compiled graph, for torch's current number of threads."""
    open_sizes = _solving_open_sizes() if varying else nullcontext()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad(), open_sizes:
        warnings.simplefilter("ignore")  # of PyTorch's own code
        for talks in ("torch._inductor", "torch.fx.experimental.symbolic_shapes"):  # of operators, and of sizes it cannot print
            logging.getLogger(talks).setLevel(logging.ERROR)
        path = Path(folder) / f"step{SUFFIX}"
        shapes = tuple({varying[place]: Dim.DYNAMIC} if place in varying else {} for place in range(len(arguments)))
        exported = torch.export.export(graph, tuple(arguments), dynamic_shapes=shapes if varying else None, strict=False)
        # Otherwise torch first tries each kind of vector instructions of the processor, for 20 s on a new machine.
        with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=dict(SETTINGS))
        if any(size.is_number for size in _sizes(exported).replacements.values()):
            raise RuntimeError("PyTorch's compiler takes the length of the example for every length")
        yield path


def _sizes(exported: torch.export.ExportedProgram) -> ShapeEnv:
    """What tracing and compiling have found out about the open sizes of a program: another name, or a number, for some."""
    mode = detect_fake_mode([node.meta.get("val") for node in exported.graph.nodes])
    return mode.shape_env if mode and mode.shape_env else ShapeEnv()


def _loaded(path: Path) -> Function:
    run: Any = torch._inductor.aoti_load_package(str(path))
    return lambda *arguments: run(*arguments)[0]


def _name(graph: fx.GraphModule, arguments: Sequence[Tensor], varying: Varying) -> str:
    """Hash of everything that decides a program."""
    parts = [
        graph.code,
        torch.__version__,
        _processor(),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),  # loops are compiled for a number of threads
        SETTINGS,
    ]
    parts += [varying, *_layouts(arguments, NOTHING)]  # with the example, from which kernels are chosen
    for name, constant in _constants(graph):
        parts += [name, _layout(constant), constant.detach().cpu().reshape(-1).tolist()]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def _constants(graph: fx.GraphModule) -> Iterator[tuple[str, Tensor]]:
    """Tensors that a graph holds, by name."""
    yield from graph.named_buffers()
    yield from ((name, value) for name, value in vars(graph).items() if isinstance(value, Tensor))


def _layouts(arguments: Sequence[Tensor], varying: Varying) -> list[tuple[Any, ...]]:
    return [_layout(argument, varying.get(place)) for place, argument in enumerate(arguments)]


def _layout(tensor: Tensor, varies: int | None = None) -> tuple[Any, ...]:
    device = torch.cuda.get_device_name(tensor.device) if tensor.device.type == "cuda" else tensor.device
    if varies is None:
        return tuple(tensor.shape), tensor.stride(), tensor.dtype, str(device)
    return tuple(size for place, size in enumerate(tensor.shape) if place != varies), varies, tensor.dtype, str(device)


@cache
def _processor() -> str:
    """Model and instructions of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags", "Features"))


def captures(device: torch.device) -> bool:
    """Whether a device captures functions of tensors as graphs."""
    return device.type == "cuda"


class Captured:
    """Function of tensors as CUDA graphs, one for each shape of the arguments. A graph launches all kernels at once.

    The function must change tensors in place. The first call for a shape runs without a graph, and lets libraries set up the
    device; the second call is captured. A function that waits for the device cannot be captured and runs without a graph.
    """

    def __init__(self, function: Callable[..., Any], say: Callable[[str], None]) -> None:
        self.function, self.say = function, say
        self.seen: set[Hashable] = set()
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]] = {}
        self.works = True
        self.stream: torch.cuda.Stream | None = None
        self.memory: Any = None
        """Memory pool shared by all graphs, because graphs run one after another."""

    def __call__(self, *arguments: Tensor) -> Any:
        shape = tuple(argument.shape for argument in arguments)
        if not self.works or shape not in self.seen:
            self.seen.add(shape)
            return self._on_side(arguments)
        if shape not in self.graphs:
            try:
                self.graphs[shape] = self._capture(arguments)
            except RuntimeError as error:  # nothing was run: capturing only records
                if lacks_memory(error):
                    raise
                self.works = False
                self.graphs.clear()
                self.say(f"the training step cannot be captured as a CUDA graph and runs as it is: {first_line(error)}")
                return self._on_side(arguments)
        graph, places, result = self.graphs[shape]
        for place, argument in zip(places, arguments, strict=True):
            place.copy_(argument)
        graph.replay()
        return result

    def _on_side(self, arguments: tuple[Tensor, ...]) -> Any:
        """Run on a side stream, as capturing does. Always the same stream, because each stream has separate workspaces."""
        if self.stream is None:
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.function(*arguments)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def _capture(self, arguments: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]:
        places = tuple(argument.clone() for argument in arguments)
        graph = torch.cuda.CUDAGraph()
        self.memory = self.memory or torch.cuda.graph_pool_handle()
        # On our own stream: torch's default stream for capturing belongs to the device of the process's first capture.
        with torch.cuda.graph(graph, pool=self.memory, stream=self.stream):
            result = self.function(*places)
        return graph, places, result
