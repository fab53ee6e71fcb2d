"""Whether a norm scheme changes anything in a model: an architecture may have no place for any of its norms."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lgbench.contracts import Matrix, NormScheme, SublayerSpec

_IDLE = (nn.Identity.forward, nn.Sequential.forward)
"""A module that is made of these alone gives back what it gets."""


class _Placed(Exception):
    """The scheme placed something."""


class _Watched(NormScheme):
    """A norm scheme that stops the building of a model where it places something."""

    def __init__(self, scheme: NormScheme) -> None:
        self.scheme, self.name, self.about = scheme, scheme.name, scheme.about

    def embed(self, width: int) -> nn.Module:
        return _empty(self.scheme.embed(width))

    def residual(self, spec: SublayerSpec, sublayer: object) -> nn.Module:
        raise _Placed  # the residual connection itself is the scheme's

    def output(self, spec: SublayerSpec) -> nn.Module:
        return _empty(self.scheme.output(spec))

    def final(self, width: int) -> nn.Module:
        return _empty(self.scheme.final(width))

    def query(self, spec: SublayerSpec) -> None:
        _empty(self.scheme.query(spec))

    def key(self, spec: SublayerSpec) -> None:
        _empty(self.scheme.key(spec))

    def head(self, spec: SublayerSpec) -> None:
        _empty(self.scheme.head(spec))

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        if self.scheme.gain(spec, matrix) != 1:
            raise _Placed
        return 1.0


def places_nothing(scheme: NormScheme, build: Callable[[NormScheme], object]) -> bool:
    """Whether the model that `build` makes with the scheme has nothing of it.

    Where a model cannot be built with another object in the scheme's place, nobody knows, and it counts as having something.
    """
    try:
        build(_Watched(scheme))
    except Exception:  # the code of an architecture may raise anything
        return False
    return True


def _empty(module: object) -> nn.Module:
    """The module that does nothing. Raises _Placed if `module` does something."""
    if module is None:
        return nn.Identity()
    if isinstance(module, nn.Module) and all(type(each).forward in _IDLE for each in module.modules()):
        return module
    raise _Placed
