"""Trackio: a database on this machine, or a Space of Hugging Face."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextvars import Context
from typing import Any, TextIO, final

from lgbench import LoggedRun, Logger, OpenRun, RunEnd
from lgbench_loggers.installed import PROJECT, lacking

_SHOWN = warnings.showwarning


@final
class Trackio(Logger):
    """Trackio, in its local database or where TRACKIO_SPACE_ID says. TRACKIO_PROJECT and TRACKIO_DIR name both."""

    name = "trackio"

    def missing(self) -> str | None:
        return lacking("trackio", "trackio")

    def start(self, run: LoggedRun) -> OpenRun:
        return _begun(run, "never")

    def resume(self, run: LoggedRun, handle: str) -> OpenRun | None:
        try:
            again = _begun(run, "must")
        except ValueError:  # somebody has removed it
            return None
        return again if again.handle == handle else None


def _begun(run: LoggedRun, resume: str) -> OpenRun:
    """A run of Trackio beside others that are open: it ends the one that is open in the same context."""
    import trackio

    warned = _warnings()
    opened = Context().run(
        trackio.init,
        project=os.environ.get("TRACKIO_PROJECT", PROJECT),
        name=run.name,
        group=f"{run.tags['task']} {run.tags['entry']}",
        config={**run.tags, **run.config},
        resume=resume,
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return TrackioRun(opened, warned)


class TrackioRun(OpenRun):
    """A run of Trackio. It finds a run by name and goes on with the latest of that name."""

    def __init__(self, run: Any, warned: list[str]) -> None:
        self.handle, self._run, self._warned = str(run.id), run, warned
        self._require()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)
        self._require()

    def end(self, end: RunEnd) -> None:
        self._run.finish()
        self._require()

    def _require(self) -> None:
        """Raise OSError where Trackio has warned that it could not keep something, which it does from its own threads."""
        if self._warned:
            raise OSError(self._warned[0])


def _warnings() -> list[str]:
    """A list that receives Trackio's warnings from now on. Other warnings are shown as before."""
    found: list[str] = []

    def keep(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, UserWarning) and "trackio" in str(message).lower():
            found.append(str(message))
        else:
            _SHOWN(message, category, filename, lineno, file, line)

    warnings.filterwarnings("always", ".*trackio", UserWarning)  # by default a warning is shown once
    warnings.showwarning = keep
    return found
