"""Acceleration of the training step: compiled programs and CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from lgbench.training.population import Population


class Compiled:
    """A compiled training step. Without a C++ compiler, or with a model that is not one graph, it runs as it is."""

    def __init__(self, population: Population, say: Callable[[str], None]) -> None:
        torch.compiler.reset()  # programs of earlier populations count against the limit
        self.advance, self.plain = population.compiled(), population.advance
        self.say = say
        self.tried = False

    @property
    def works(self) -> bool:
        return self.tried and self.advance is not self.plain

    def __call__(self, *batch: Tensor) -> Tensor:
        if self.tried:
            return self.advance(*batch)
        self.tried = True
        started = time.monotonic()
        try:
            losses = self.advance(*batch)
        except RuntimeError as error:  # raised before anything was changed
            reason = " ".join(str(error).split("\n")[:2]).strip()
            self.say(f"the training step cannot be compiled here and runs as it is: {type(error).__name__}: {reason}")
            self.advance = self.plain
            return self.advance(*batch)
        self.say(f"compiled the training step in {time.monotonic() - started:.0f} s")
        return losses


class Captured:
    """A function of tensors as CUDA graphs, one for each shape of its arguments. A graph launches all its kernels at once.

    The function must change tensors in place. Its first call for a shape runs as it is, which lets libraries set up the device;
    the second call is captured.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seen: set[Hashable] = set()
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]] = {}

    def __call__(self, *arguments: Tensor) -> Any:
        shape = tuple(argument.shape for argument in arguments)
        if shape not in self.seen:
            self.seen.add(shape)
            return self._on_side(arguments)
        if shape not in self.graphs:
            self.graphs[shape] = self._capture(arguments)
        graph, places, result = self.graphs[shape]
        for place, argument in zip(places, arguments, strict=True):
            place.copy_(argument)
        graph.replay()
        return result

    def _on_side(self, arguments: tuple[Tensor, ...]) -> Any:
        """Run on a stream that is not the default one, as capturing does."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self.function(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self, arguments: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]:
        places = tuple(argument.clone() for argument in arguments)
        graph = torch.cuda.CUDAGraph()
        memory = next((known.pool() for known, _, _ in self.graphs.values()), None)
        with torch.cuda.graph(graph, pool=memory):
            result = self.function(*places)
        return graph, places, result


def room_for(programs: int) -> AbstractContextManager[object]:
    """Inside, torch compiles a function for so many shapes of its arguments before it gives up."""
    limits = ("recompile_limit", "accumulated_recompile_limit")
    patched: AbstractContextManager[object] = torch._dynamo.config.patch(
        {name: max(programs, getattr(torch._dynamo.config, name)) for name in limits}
    )
    return patched
