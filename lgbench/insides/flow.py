"""The flow through one decoder layer: which modules ran, and where its residual stream was between its two sublayers.

Layers of `transformers` are code, and say nothing of how they are built. But a module's input is the very tensor that another
one returned, or that the layer was given. From that follows where the norms stand:

- pre-norm: a norm reads the stream, and attention reads the norm.
- norm on the output: attention reads the stream, and a norm reads what it returns. Peri-norm has both.
- post-norm: attention reads the stream, and the MLP reads a norm.
- parallel sublayers: attention and the MLP both read the stream that the layer was given, each through a norm or not.

Shapes: n contexts, T positions, W the width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from lgbench.contracts import SublayerInside


@dataclass(eq=False)
class Call:
    """A call of a module, by the first tensor that it was given and the first that it returned."""

    module: nn.Module
    given: Tensor
    answer: Tensor | None = None
    """None until it has returned one."""


@dataclass(eq=False)
class Flow:
    """A layer while it reads contexts. Holds tensors of the layer, (n, T, W) and the like, until the next one begins."""

    layer: nn.Module
    number: int
    """Counted from 1."""
    before: Tensor
    """(n, T, W)."""
    calls: list[Call] = field(default_factory=list)
    """Of all modules within the layer, in the order in which they began."""
    attended: nn.Module | None = None
    """The module in which attention was seen."""

    def sublayers(self, after: Tensor) -> list[SublayerInside]:
        """The layer's sublayers at the last position. `after` is the output of the layer, (n, T, W)."""
        mixer = self._mixer()
        if mixer is None:
            return []
        mlp, norms = self._mlp(mixer), self._norms(mixer)
        reads, returns = _norm_that_gave(mixer.given, norms), _norm_that_took(self._whole(mixer).answer, norms)
        if mlp is None:
            norm = returns or reads
            return [self._seen("attention", self.before, after, norm)]
        second = _norm_that_gave(mlp.given, norms)
        is_post = second is not None and _same(mixer.given, self.before)
        middle = mlp.given if second is None or is_post else second.given
        norm = second if is_post else returns or reads
        if _same(middle, self.before):
            update = self._whole(mixer).answer if returns is None else returns.answer
            assert update is not None
            middle = self.before + update
        last = _norm_that_gave(after, norms) if is_post else _norm_that_took(self._whole(mlp).answer, norms) or second
        return [
            self._seen("attention", self.before, middle, norm),
            self._seen("mlp", middle, after, last),
        ]

    def _mixer(self) -> Call | None:
        """The call that mixes positions: attention where it was seen, else the first part of the layer with weights."""
        if self.attended is not None:
            return next((call for call in self.calls if call.module is self.attended), None)
        return next(iter(self._parts()), None)

    def _mlp(self, mixer: Call) -> Call | None:
        """The first part with weights that began after the mixer."""
        later = self.calls[self.calls.index(mixer) + 1 :]
        return next((call for call in self._parts() if call in later), None)

    def _parts(self) -> list[Call]:
        """Calls of the layer's own parts that have weights and are no norms."""
        own = [each for each in self.layer.children() if not is_norm(each) and any(True for _ in each.parameters())]
        return [call for call in self.calls if any(call.module is each for each in own)]

    def _whole(self, call: Call) -> Call:
        """The call of the layer's part that a module is in."""
        for other in self.calls:
            is_part = any(other.module is child for child in self.layer.children())
            if is_part and not _has_norm_outside(other.module, call.module) and _is_in(call.module, other.module):
                return other
        return call

    def _norms(self, mixer: Call) -> list[Call]:
        """Calls of norms, without those in attention itself, such as of its queries."""
        return [call for call in self.calls if is_norm(call.module) and not _is_in(call.module, mixer.module)]

    def _seen(self, role: Any, before: Tensor, after: Tensor, norm: Call | None) -> SublayerInside:
        known = None if norm is None else self.last(norm.given)
        return SublayerInside(role, self.number, self.last(before), self.last(after), known)

    def last(self, x: Tensor) -> Tensor:
        """(n, W) float64, the last position of (n, T, W), or of (n * T, W)."""
        return x.detach().reshape(len(self.before), -1, x.shape[-1])[:, -1].double()


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm, as its class says."""
    return "norm" in type(module).__name__.lower() and next(module.children(), None) is None


def _norm_that_gave(x: Tensor, norms: Sequence[Call]) -> Call | None:
    return next((call for call in norms if call.answer is not None and _same(call.answer, x)), None)


def _norm_that_took(x: Tensor | None, norms: Sequence[Call]) -> Call | None:
    return None if x is None else next((call for call in norms if _same(call.given, x)), None)


def _has_norm_outside(part: nn.Module, module: nn.Module) -> bool:
    """Whether a part has norms beside a module in it: then what it returns is not what the module returns."""
    return any(is_norm(each) and not _is_in(each, module) for each in part.modules())


def _is_in(module: nn.Module, whole: nn.Module) -> bool:
    return any(module is each for each in whole.modules())


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are the same memory, as a tensor and a view of all of it are."""
    return x.data_ptr() == y.data_ptr() and x.numel() == y.numel()
