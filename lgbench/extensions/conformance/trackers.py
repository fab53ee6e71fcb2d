"""Checks of trackers. None of them begins a run, for that would be seen where the user keeps theirs."""

from __future__ import annotations

import sys

from lgbench.contracts import Tracker
from lgbench.extensions.conformance.check import Checks, Outcome, expect


def checks(tracker: Tracker) -> Checks:
    return {"it says in a sentence whether it can be used, and imports nothing for that": lambda: _says_whether(tracker)}


def _says_whether(tracker: Tracker) -> Outcome:
    before = set(sys.modules)
    why = tracker.missing()
    new = sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
    expect(why is None or isinstance(why, str), f"`missing` returned {why!r}, expected a sentence or None")
    expect(
        why is None or bool(why.strip()) and "\n" not in why.strip(), f"`missing` returned {why!r}, expected one line or None"
    )
    expect(
        not new, f"`missing` imports {', '.join(new)}, which `--track` waits for: look for modules by importlib.util.find_spec"
    )
    return f"it cannot be used here: {why}" if why else None
