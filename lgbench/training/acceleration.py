"""Acceleration of the training step: compiled programs and CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch
from torch import Tensor

from lgbench.errors import first_line, lacks_memory
from lgbench.training.population import Population


class Compiled:
    """A compiled training step. Without a C++ compiler, or with a model that cannot be traced, it runs as it is."""

    def __init__(self, population: Population, say: Callable[[str], None]) -> None:
        self.say = say
        self.advance, self.plain = population.compiled(self._begin, self._ran), population.advance
        self.works = False
        """Whether a program has run."""
        self._began: float | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        try:
            losses = self.advance(*batch)
        except Exception as error:  # tracing and compiling may raise anything, before a tensor is changed
            if self.works or self.advance is self.plain or lacks_memory(error):
                raise
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.say(f"the training step cannot be compiled here and runs as it is: {reason}")
            self.advance = self.plain
            return self.advance(*batch)
        if self._began is not None:
            self.say(f"compiled the training step in {time.monotonic() - self._began:.0f} s")
            self._began = None
        return losses

    def _ran(self) -> None:
        self.works = True

    @property
    def compiles(self) -> bool:
        """Whether steps are compiled, as far as is known: nobody knows before a program has run."""
        return self.advance is not self.plain

    def _begin(self) -> None:
        self._began = time.monotonic()


def captures(device: torch.device) -> bool:
    """Whether functions of tensors are captured on a device."""
    return device.type == "cuda"


class Graph(Protocol):
    """A captured function, such as a `torch.cuda.CUDAGraph`."""

    def replay(self) -> None:
        """Do it again, on the same memory."""


class Captured:
    """A function of tensors as CUDA graphs, one for each shape of its arguments. A graph launches all its kernels at once.

    The function must change tensors in place. Its first call for a shape runs as it is, which lets libraries set up the device;
    the second call is captured. A function that cannot be captured, since it waits for the device, runs as it is.
    """

    def __init__(self, function: Callable[..., Any], say: Callable[[str], None]) -> None:
        self.function, self.say = function, say
        self.seen: set[Hashable] = set()
        self.graphs: dict[Hashable, tuple[Graph, tuple[Tensor, ...], Any]] = {}
        self.works = True
        self.stream: torch.cuda.Stream | None = None
        self.memory: Any = None
        """The pool of memory that all graphs share, for they run one after the other."""

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
        """Run on a stream that is not the default one, as capturing does; always the same, which has workspaces of its own."""
        if self.stream is None:
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.function(*arguments)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def _capture(self, arguments: tuple[Tensor, ...]) -> tuple[Graph, tuple[Tensor, ...], Any]:
        places = tuple(argument.clone() for argument in arguments)
        graph = torch.cuda.CUDAGraph()
        self.memory = self.memory or torch.cuda.graph_pool_handle()
        # On our own stream: torch's default one for capturing is of the device on which the process first captured anything.
        with torch.cuda.graph(graph, pool=self.memory, stream=self.stream):
            result = self.function(*places)
        return graph, places, result
