"""Errors for users. Each message contains the problem, the expectation and a remedy."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path


class LgbenchError(Exception):
    """Error shown by the command line as a message without a traceback."""

    exit_code = 1


class UsageError(LgbenchError, ValueError):
    """Invalid request: an unknown name, a value out of range, an impossible pair."""

    exit_code = 2


class Unsupported(UsageError):
    """Request beyond the abilities of an architecture, a part or an optimizer. The message is the reason."""


class RunFailed(LgbenchError):
    """Run stopped by an error in a plugin's code or by a lack of memory or disk space. `__cause__` is the error."""


class Interrupted(LgbenchError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class PluginError(LgbenchError):
    """Violation of the contracts by a plugin."""


class RunFileError(LgbenchError):
    """Unreadable run file in a results folder."""


class Refused(RunFileError):
    """Invalid run files, with one sentence for each flaw."""

    def __init__(self, sentences: Sequence[str], heading: str = "") -> None:
        super().__init__("\n  ".join([heading, *sentences] if heading else sentences))
        self.sentences = tuple(sentences)


class WorkerError(Exception):
    """Error in another process, as a sentence with type, file and line."""


class WorkerKilled(WorkerError):
    """Death of a worker process in the middle of a population, most often for lack of memory."""


def first_line(error: BaseException) -> str:
    """First line of an error's message, or the error's type without a message. Cuts the C++ stack appended by torch."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def message_of(error: BaseException) -> str:
    """Type and first line of an error; the whole message of an error of lgbench, which is a sentence already."""
    return str(error) if isinstance(error, LgbenchError) else f"{type(error).__name__}: {first_line(error)}"


def lacks_memory(error: BaseException) -> bool:
    """Whether an error reports a lack of memory. Torch raises a RuntimeError, on a CPU without a type of its own."""
    # By name: errors are raised without torch, too.
    torch_says = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError | WorkerKilled) or (isinstance(error, RuntimeError) and torch_says)


def located(error: BaseException) -> str:
    """Message of an error with the last file and line outside torch, for the plugin's author, without torch's C++ stack."""
    if isinstance(error, WorkerError | LgbenchError):  # the message is a sentence already
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith("<frozen")]  # an import ends in frames of Python's own
    frame = next((each for each in reversed(own) if "torch" not in Path(each.filename).parts), own[-1])
    said = str(error).partition("\nException raised from ")[0]
    return f"{type(error).__name__}: {said} ({frame.filename}:{frame.lineno})"


NAMES = 20
"""Largest number of known names in an error. Commands such as `lgbench list` show all names."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Error for an unknown name, with the nearest known name. Names with the same first word stand first.

    >>> print(unknown("task", "tomta", ["dyck", "tomita"]))
    no task 'tomta'; did you mean 'tomita'? known: dyck, tomita
    >>> print(unknown("task", "copy~6dc4adf0", ["dyck", "tomita"]))
    no task 'copy~6dc4adf0'; --plugin FILE loads the plugin file that it comes from; known: dyck, tomita
    >>> print(unknown("task", "tomita-9", ["dyck", "tomita", "tomita-1"]))
    no task 'tomita-9'; did you mean 'tomita-1'? known: tomita, tomita-1, dyck
    >>> print(unknown("seed", "x", map(str, range(1000, 1022))).args[0][-17:])
    1019 and 2 others
    """
    first = name.partition("-")[0]
    names = sorted(known, key=lambda each: (each.partition("-")[0] != first, each))
    close = get_close_matches(name, names, n=1)
    guess = f" did you mean {close[0]!r}?" if close else ""
    if "~" in name:  # and the hash of a file
        guess = " --plugin FILE loads the plugin file that it comes from;"
    shown = ", ".join(names[:NAMES]) or "none"
    others = f" and {len(names) - NAMES} others" if len(names) > NAMES else ""
    return UsageError(f"no {kind} {name!r};{guess} known: {shown}{others}")
