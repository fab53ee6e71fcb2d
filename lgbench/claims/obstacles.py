"""Why a test cannot be run here, whatever time there is: something that it names is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from lgbench.claims.claim import Claim, ClaimTest
from lgbench.claims.verdicts import Verdict
from lgbench.errors import LgbenchError, UsageError, unknown
from lgbench.experiment.names import find_entries, find_tasks
from lgbench.extensions.registry import Registry


def obstacle(claim: Claim, task: str, test: ClaimTest, registry: Registry) -> str | None:
    """A sentence, or None where everything is there."""
    try:
        find_tasks([task], registry)
        for entry in test.entries:
            _require_entry(entry, registry)
        if test.metric not in registry.measurements:
            return f"nothing that is installed measures it: {unknown('metric', test.metric, registry.measurements.names())}"
    except LgbenchError as error:
        lacking = [name for name in claim.runs.plugins if not _is_installed(name)]
        return f"it needs {' and '.join(lacking)}, which is not installed" if lacking else str(error)
    return None


def _require_entry(name: str, registry: Registry) -> None:
    """Raise UsageError for an entry that nothing installed provides, or that boards name otherwise."""
    arch, _, weights = name.partition("@")
    (entry,) = find_entries([arch], registry)
    if entry.label != arch:
        raise LgbenchError(f"boards name the entry {arch} {entry.label}; the claim has to name it so")
    if weights and weights not in registry.averagers:
        raise unknown("averager", weights, registry.averagers.names())


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def with_obstacles(claim: Claim, verdicts: Sequence[Verdict], registry: Registry) -> list[Verdict]:
    """The verdicts; those on what was not run, and cannot be run here, have the obstacle as their reason, and no command."""
    found = {(v.task, v.test): obstacle(claim, v.task, v.test, registry) for v in verdicts if v.state == "not run"}
    return [
        replace(verdict, reason=reason, wanted=())
        if verdict.state == "not run" and (reason := found[verdict.task, verdict.test])
        else verdict
        for verdict in verdicts
    ]


def require_possible(claim: Claim, registry: Registry) -> None:
    """Raise UsageError for the first test that cannot be run here."""
    for task in claim.runs.tasks:
        for test in claim.tests:
            if reason := obstacle(claim, task, test, registry):
                raise UsageError(f"the claim {claim.name} cannot be run: {reason}")
