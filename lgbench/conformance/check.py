"""A check of one rule of the contracts, and how it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from torch import Tensor

from lgbench.errors import LgbenchError

Outcome = str | None
"""A note about something that is allowed and worth knowing; None where there is nothing to say."""

Checks = Mapping[str, Callable[[], Outcome]]
"""The functions that check a thing, by the rule that each checks."""


class CheckFailed(AssertionError):
    """A rule of the contract is broken. The message says what was expected, and what was found."""


class NotChecked(Exception):
    """The check does not apply. The message is the reason."""


def not_checked(reason: NotChecked) -> str:
    """The note of a check that does not apply."""
    return f"not checked: {reason}"


@dataclass(frozen=True)
class Check:
    """A check of one rule for one thing. A call raises :class:`CheckFailed`, or returns a note or None."""

    thing: str
    """Kind and name: "norm my-norm"."""
    name: str
    """The rule: "shape and dtype stay"."""
    examine: Callable[[], Outcome]

    @property
    def __name__(self) -> str:
        """pytest names a parametrized test by it."""
        return f"{self.thing}: {self.name}"

    def __call__(self) -> Outcome:
        __tracebackhide__ = True  # readers of a failure want its sentence
        try:
            return self.examine()
        except CheckFailed as failed:
            raise CheckFailed(f"{self.thing}: {failed}") from None
        except NotChecked as reason:
            return not_checked(reason)
        except LgbenchError as error:  # its message is a sentence already
            raise CheckFailed(f"{self.thing}: {error}") from None
        except Exception as error:  # a plugin's code may raise anything
            frames = _own_frames(error)
            cause = error.with_traceback(frames[0] if frames else None)  # the traceback starts in the plugin
            raise CheckFailed(f"{self.thing}: {_explained(error, frames)}") from cause


def _own_frames(error: Exception) -> list[TracebackType]:
    """The frames of an error's traceback that are in the plugin, the outermost first. Ours and torch's help no author."""
    others, found, frame = {"lgbench", "numpy", "torch", *sys.stdlib_module_names}, [], error.__traceback__
    while frame:
        if str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0] not in others:
            found.append(frame)
        frame = frame.tb_next
    return found


def _explained(error: Exception, frames: Sequence[TracebackType]) -> str:
    if not frames:
        return f"its result cannot be used: {type(error).__name__}: {error}"
    where = f"{frames[-1].tb_frame.f_code.co_filename}:{frames[-1].tb_lineno}"
    return f"it raised {type(error).__name__}: {error} ({where})"


def expect(holds: bool, sentence: str) -> None:
    """Raise :class:`CheckFailed` with the sentence unless the rule holds."""
    if not holds:
        raise CheckFailed(sentence)


def expect_close(found: Tensor, expected: Tensor, sentence: str, tolerance: float = 1e-4) -> None:
    """Raise :class:`CheckFailed`, with the difference, unless all numbers agree relative to the largest of them."""
    expect(found.shape == expected.shape, f"{sentence}: the shapes are {tuple(found.shape)} and {tuple(expected.shape)}")
    largest = max(1.0, expected.nan_to_num(0, 0, 0).abs().max().item())
    apart = (found.double() - expected.double()).abs()
    same = (apart <= tolerance * largest) | (found == expected) | (found.isnan() & expected.isnan())
    if not same.all():
        raise CheckFailed(f"{sentence}: they differ by {apart[~same].max().item():.2g}")
