"""Probes on kept weights: the readings of `lgbench run --probe` at the end of training, without training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch

from lgbench.errors import UsageError
from lgbench.execution.device import choose_device, full_float32, threads
from lgbench.experiment.probes import ALL, NONE, chosen_probes, undefined
from lgbench.extensions.registry import Registry
from lgbench.kept.loading import find, restore
from lgbench.measurement.probing import probe as probed
from lgbench.results import run_files
from lgbench.results.rows import Measured, rows_of
from lgbench.results.stored_runs import StoredRun
from lgbench.training.models import NO_CURVE


def probe(
    run: str | Path,
    probe: str | Sequence[str] = "all",
    *,
    results: str | Path = "results",
    plugins: Sequence[str | Path] = (),
    device: str = "cpu",
) -> pa.Table:
    """Readings of probes on a run with kept weights, as rows in the format of `lgbench run --probe`.

    `probe` has names of probes, or is "all" for all of lgbench and of the plugins of the run. All variants of the weights are
    read. Further parameters as in :func:`lgbench.load`.
    """
    names = [probe] if isinstance(probe, str) else list(probe)
    files = [Path(path) for path in plugins]
    return probe_run(find(run, results), names, lambda only: Registry.load(files=files, only=only), choose_device(device))


def probe_run(
    run: StoredRun,
    names: Sequence[str],
    load: Callable[[Collection[str] | None], Registry],
    device: torch.device,
    say: Callable[[str], None] = lambda sentence: None,
) -> pa.Table:
    """Readings of probes on a run. Calls `say` with a sentence for each reading that fails.

    `load` makes the registry of the plugins with these names, or of all plugins for None: only for a probe from none of the
    plugins of the run. Raises UsageError without a probe by name, or without a probe defined for the task.
    """
    registry = load(run.metadata.took_part)
    if not {*registry.measurements.names(), ALL, NONE} >= {*names}:
        registry = load(None)  # the plugin of a probe is known after its import alone
    known = list(registry.measurements)
    chosen = chosen_probes(names, known)
    if not chosen:
        raise UsageError(f"--probe {NONE} reads nothing: name probes, or leave it out for all")
    whole = restore(run, registry, device, sorted(chosen))
    experiment = whole.experiment
    missing = undefined(chosen, known, [experiment.task])
    if not experiment.probes:
        raise UsageError("; ".join(missing))
    for sentence in missing if names != [ALL] else []:
        say(sentence)
    with threads(1), full_float32():
        found = probed(experiment, lambda skeleton: whole.models.on(skeleton).models(0), device)
    for sentence in found.sentences:
        say(sentence)
    rows = rows_of(experiment, Measured(found.scores, {}, (), NO_CURVE, 0, _diverged(run)))
    return rows.filter(pc.is_in(rows["metric"], value_set=pa.array(experiment.probes, pa.string())))


def _diverged(run: StoredRun) -> int | None:
    """Step of divergence, from the rows of the run; None without divergence."""
    rows = run_files.read(run.path)
    steps = rows.filter(pc.equal(rows["run_id"], run.run_id))["diverged_step"]
    step: int | None = steps[0].as_py() if len(steps) else None
    return step
