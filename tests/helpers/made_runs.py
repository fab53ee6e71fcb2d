"""Content of run files, for comparisons to the bit."""

from __future__ import annotations

import time
from pathlib import Path

from lgbench.results import run_files


def made(folder: Path) -> dict[str, str]:
    """Rows and metadata of each run file by its name, without dates and durations; a float's repr tells all its bits."""
    found = {}
    for path in run_files.find(folder):
        about = run_files.metadata(path)
        about.pop("seconds"), about.pop("checksum"), about["environment"].pop("date")
        found[path.name] = repr((run_files.read(path).to_pylist(), about))
    return found


def rows_of(files: dict[str, str]) -> dict[str, str]:
    """The rows alone: metadata say that a training was continued."""
    return {name: content.partition("}], {")[0] for name, content in files.items()}


def wait_until(condition, seconds: float = 120) -> None:
    """A bound for a machine that hangs, not a measure of time."""
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.05)
