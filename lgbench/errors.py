"""What can go wrong in a user's hands, each with a sentence that says what would work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class LgbenchError(Exception):
    """Base of every error that is shown to a user as one sentence, without a traceback."""

    exit_code = 1


class UsageError(LgbenchError, ValueError):
    """The request itself is wrong: an unknown name, a value out of range, an impossible pair."""

    exit_code = 2


class Unsupported(UsageError):
    """Raised by an architecture, or a part of one, that cannot stand where it is asked to; the message is the reason."""


class RunFailed(LgbenchError):
    """A run that broke, in a plugin's code or for want of memory or disk; its cause is kept."""


class Interrupted(LgbenchError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class PluginError(LgbenchError):
    """A plugin that does not keep to the contracts."""


class RunFileError(LgbenchError):
    """A file in a results folder that is not a readable run file."""


class Refused(RunFileError):
    """Run files that do not keep to the rules, with a sentence for each thing that is wrong."""

    def __init__(self, sentences: Sequence[str], heading: str = "") -> None:
        super().__init__("\n  ".join([heading, *sentences] if heading else sentences))
        self.sentences = tuple(sentences)


class Unverified(LgbenchError):
    """Results that a rerun did not confirm."""


def first_line(error: BaseException) -> str:
    """As much of what an error says as a sentence can hold: torch's own go on with where in C++ they were raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name nobody provides, with the nearest known names.

    >>> print(unknown("task", "tomta", ["dyck", "tomita"]))
    no task 'tomta'; did you mean 'tomita'? known: dyck, tomita
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    guess = f" did you mean {close[0]!r}?" if close else ""
    return UsageError(f"no {kind} {name!r};{guess} known: {', '.join(names) or 'none'}")
