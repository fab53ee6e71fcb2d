"""Trackio: a database on this machine, or a Space of Hugging Face."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any, final

from lgbench import OpenRun, RunEnd, TrackedRun, Tracker
from lgbench_trackers.installed import PROJECT, lacking


@final
class Trackio(Tracker):
    """Trackio, in its local database or where TRACKIO_SPACE_ID says. TRACKIO_PROJECT and TRACKIO_DIR name both."""

    name = "trackio"

    def missing(self) -> str | None:
        return lacking("trackio", "trackio")

    def start(self, run: TrackedRun) -> OpenRun:
        return _begun(run, "never")

    def resume(self, run: TrackedRun, handle: str) -> OpenRun | None:
        try:
            again = _begun(run, "must")
        except ValueError:  # somebody has removed it
            return None
        return again if again.handle == handle else None


def _begun(run: TrackedRun, resume: str) -> OpenRun:
    """A run of Trackio beside others that are open: it ends the one that is open in the same context."""
    import trackio

    with _warnings_are_errors():
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
    return TrackioRun(opened)


class TrackioRun(OpenRun):
    """A run of Trackio. It finds a run by name and goes on with the latest of that name."""

    def __init__(self, run: Any) -> None:
        self.handle, self._run = str(run.id), run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with _warnings_are_errors():
            self._run.log(dict(values), step=step)

    def end(self, end: RunEnd) -> None:
        with _warnings_are_errors():
            self._run.finish()


@contextmanager
def _warnings_are_errors() -> Iterator[None]:
    """Trackio warns where it could not keep something, and goes on as if it had."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield
