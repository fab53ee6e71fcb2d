"""Ends of the process that a plugin's code asks for, which would end a command with nothing said."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

_ENDING: dict[str, ModuleType] = {
    **dict.fromkeys(("_exit", "abort", "execv", "execve", "kill", "killpg"), os),
    "raise_signal": signal,
}
"""Functions that end this process, or replace it by another program; Python's other functions of that kind call these."""
_OWN = {"lgbench", "multiprocessing", "concurrent", "torch"}
"""Packages that end processes for a reason."""


class Ended(BaseException):
    """A plugin asked for the end of the process. No `except Exception` of the plugin catches it."""


@contextmanager
def prevented() -> Iterator[list[str]]:
    """Inside, `os._exit` and its like raise :class:`Ended`. Yields a list, to which such calls are added.

    Processes that the code starts end as they like, and may be sent signals.
    """
    calls: list[str] = []
    real = {name: getattr(module, name) for name, module in _ENDING.items() if hasattr(module, name)}
    for name, function in real.items():
        setattr(_ENDING[name], name, partial(_refuse, name, function, os.getpid(), calls))
    try:
        yield calls
    finally:
        for name, function in real.items():
            setattr(_ENDING[name], name, function)


def announce() -> None:
    """From now on `os._exit` names the file that calls it, and never ends this process with exit code 0.

    Threads and models of plugins run after their import, when nobody waits for them.
    """
    os._exit = partial(_exit_loudly, os._exit, os.getpid())


def _refuse(name: str, real: Callable[..., Any], process: int, calls: list[str], *given: Any, **named: Any) -> Any:
    if os.getpid() != process or not _ends(name, process, *given, **named):
        return real(*given, **named)
    calls.append(f"{_ENDING[name].__name__}.{name}")
    raise Ended(calls[-1])


def _ends(name: str, process: int, target: int = 0, signal: int = 0, *more: Any, **named: Any) -> bool:
    """Whether a call of that function ends the process. Signal 0 asks whether a process is there."""
    if name == "kill":
        return bool(signal) and target in (process, 0, -1, -os.getpgrp())
    if name == "killpg":
        return bool(signal) and target in (0, os.getpgrp())
    return True


def _exit_loudly(real: Callable[[int], NoReturn], process: int, status: int) -> NoReturn:
    caller = sys._getframe(1)
    if os.getpid() == process and str(caller.f_globals.get("__name__")).partition(".")[0] not in _OWN:
        where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        os.write(2, f"lgbench: os._exit({status!r}) in {where} ended the process\n".encode(errors="backslashreplace"))
        real(status or 1)
    real(status)
