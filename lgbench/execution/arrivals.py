"""Run files that come back from another machine as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lgbench.atomic_files import created
from lgbench.errors import RunFailed
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Work, path_of
from lgbench.results import run_files, weights_files
from lgbench.results.weights_files import KeptWeights, kept_by


def filed(work: Work, files: Mapping[str, bytes], display: ProgressDisplay) -> list[Path]:
    """Write the run files of a population, each once and whole, with the weights that they kept; returns the run files' paths.

    Call it while its claim is held.

    Raises LeaseLost where another command has the population now, and RunFailed where a file is no run of it.
    """
    results, written = work.claim.results, []
    for experiment in work.claim.experiments:
        path = path_of(experiment, results)
        if run_files.is_run(path, experiment.run_id) or path.name not in files:
            continue
        work.claim.lease.require()
        if said := run_files.make_room(path, experiment.run_id):
            display.say(said)
        with created(path, work.claim.folder) as partial:
            partial.write_bytes(files[path.name])
            if not run_files.is_run(partial, experiment.run_id):
                raise RunFailed(f"{path.name} came back damaged")
            if own := kept_by(run_files.metadata(partial)):
                name = weights_files.name_for(experiment.record, own)
                if KeptWeights.of(files.get(name, b"")) != own:
                    raise RunFailed(f"{name} came back damaged")
                weights_files.write(results / name, files[name], work.claim.folder)
        written.append(path)
    return written
