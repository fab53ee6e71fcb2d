"""The tunings of runs, for the page: each once, since all seeds of an entry on a task share one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_tuning(about: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The tuning in a footer, and the footer without it. Footers are strangers' files: nothing is sure of them."""
    experiment = about.get("experiment")
    if not isinstance(experiment, dict):
        return None, dict(about)
    left = {key: value for key, value in experiment.items() if key != "tuning"}
    return experiment.get("tuning"), {**about, "experiment": left}


def each_tuning_once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of an entry, of which only the first with a tuning keeps it."""
    seen: set[str] = set()
    for run in runs:
        said = repr((run["protocol"], run["task"], run["task_version"], run["tuning"]))
        if said in seen:
            run["tuning"] = None
        seen.add(said)
    return runs
