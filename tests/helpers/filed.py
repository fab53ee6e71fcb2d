"""The check of the published runs: what `submit` would refuse today, and run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.stored_runs import StoredRun, stored_in
from lgbench.submissions.inspection import inspected
from lgbench.submissions.submission import RUNS, duplicates, incomplete, unpublishable


def check_filed(folder: Path, registry: Registry) -> list[str]:
    """A sentence for each fault in `folder`/runs: runs that `submit` would refuse today, and run files.

    Runs under an earlier version of a published protocol, or with an earlier version of a plugin, cannot be planned by what is
    installed. They were inspected at their submission. Checked are only metadata and duplicates.
    """
    every, wrong = stored_in(run_files.find(folder / RUNS))
    installed = {plugin.name: Version(plugin.version) for plugin in registry.loaded()}
    today = [run for run in every if not _is_earlier(run.record.protocol) and not _has_earlier_plugin(run, installed)]
    wrong += [f"{run.where}: {sentence}" for run in today for sentence in unpublishable(run.metadata)]
    sound = {run.run_id for run in inspected(today, registry, wrong)}
    found = [run for run in today if run.run_id in sound]
    return [*wrong, *_run_files(every), *duplicates(every, []), *incomplete(found, registry.tasks, found)]


def _is_earlier(used: ProtocolUse) -> bool:
    """Whether the protocol is an earlier version of a published protocol, without changes."""
    today = PROTOCOLS.get(used.name)
    return today is not None and today.published and used.version < today.version and not used.changes


def _has_earlier_plugin(run: StoredRun, installed: Mapping[str, Version]) -> bool:
    """Whether a plugin that took part is installed in a later version, such as 0.2.0 of a pack with runs of 0.1.0."""
    took_part = run.metadata.took_part.items()
    return any(name in installed and Version(plugin.version) < installed[name] for name, plugin in took_part)


def _run_files(runs: Sequence[StoredRun]) -> Iterator[str]:
    """A sentence for each run file among the submission files."""
    for path in sorted({run.path for run in runs if not run.packed.content}):
        yield f"{path} is a run file, and filed runs are in submission files; file it with `lgbench submit`"
