"""Errors that users see. Each message says what was wrong, what was expected and what would work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class LgbenchError(Exception):
    """An error that the command line shows as its message alone, without a traceback."""

    exit_code = 1


class UsageError(LgbenchError, ValueError):
    """The request itself is wrong: an unknown name, a value out of range, an impossible pair."""

    exit_code = 2


class Unsupported(UsageError):
    """An architecture, a part or an optimizer cannot do what it is asked for. The message is the reason."""


class RunFailed(LgbenchError):
    """A run that stopped with an error, in a plugin's code or for lack of memory or disk space. `__cause__` is that error."""


class DrawingFailed(LgbenchError):
    """The drawing library failed, or its process died."""


class Interrupted(LgbenchError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class PluginError(LgbenchError):
    """A plugin that violates the contracts."""


class RunFileError(LgbenchError):
    """A file in a results folder that cannot be read as a run file."""


class Refused(RunFileError):
    """Run files that violate the rules. There is one sentence for each thing that is wrong."""

    def __init__(self, sentences: Sequence[str], heading: str = "") -> None:
        super().__init__("\n  ".join([heading, *sentences] if heading else sentences))
        self.sentences = tuple(sentences)


class Unverified(LgbenchError):
    """Results that a second run did not confirm."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none. Torch appends a C++ stack, which helps no user."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice. Torch's are RuntimeErrors, and on a CPU have no type of their own."""
    torch_says = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and torch_says)


NAMES = 40
"""An error lists so many known names at most. Commands that list things show them all."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that nothing has, with the nearest known name.

    >>> print(unknown("task", "tomta", ["dyck", "tomita"]))
    no task 'tomta'; did you mean 'tomita'? known: dyck, tomita
    >>> print(unknown("seed", "x", map(str, range(1000, 1042))).args[0][-17:])
    1039 and 2 others
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    guess = f" did you mean {close[0]!r}?" if close else ""
    shown = ", ".join(names[:NAMES]) or "none"
    others = f" and {len(names) - NAMES} others" if len(names) > NAMES else ""
    return UsageError(f"no {kind} {name!r};{guess} known: {shown}{others}")
