"""Writes the tuning runs of published runs, from their metadata: `tuned.py RESULTS FAMILY [ENTRY,...]`.

Further seeds of these entries then need no tuning: `lgbench run --protocol standard --seeds 5:10 --results RESULTS` takes the
learning rates that the published runs have.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from factors import PROTOCOL

from lgbench import RunOptions
from lgbench.execution.command import Command, one_of_each
from lgbench.execution.progress import ProgressDisplay
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import arch_of
from lgbench.experiment.record import ExperimentRecord, deciding
from lgbench.experiment.tuning import TuningRun, ends_of_parts
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA
from lgbench.results.rows import labels_of
from lgbench.results.stored_runs import StoredRun, stored

RUNS = Path(__file__).parent / "runs"


def main(results: str, family: str, entries: str = "") -> None:
    published = list(published_runs(family, entries.split(",") if entries else ()))
    if not published:
        raise SystemExit(f"no published run of {family} under {PROTOCOL}" + (f" has an entry of {entries}" if entries else ""))
    records = [run.record for run in published]
    options = RunOptions(
        task=sorted({record.task for record in records}),
        arch=sorted({arch_of(record) for record in records}),
        seeds=sorted({record.seed for record in records}),
        average=(),
        protocol="standard",
        results=Path(results),
    )
    command = Command.of(options, Registry.load(), ProgressDisplay())
    tuned = {_key(record): record.tuning for record in records}
    written = 0
    for experiment in one_of_each(command.plan.experiments):
        if (key := _key(experiment.record)) not in tuned:
            here = ", ".join(" ".join(plugin) for plugin in key[2])
            raise SystemExit(f"{experiment.record.title} has no published run with {here}")
        for run in tuned[key].runs if tuned[key] else ():
            write(experiment.tuning_run(run.lr, run.seed), run, command.rates.folder)
            written += 1
    print(f"{written} tuning runs written to {command.rates.folder}")


def _key(record: ExperimentRecord) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return record.task, record.entry, tuple(deciding(record.plugins, "raw"))


def published_runs(family: str, entries: Collection[str]) -> Iterable[StoredRun]:
    """Published runs of a family, of all entries or of these."""
    for path in sorted(RUNS.glob("*.parquet")):
        for run in stored(path):
            record = run.record
            if (str(record.protocol), record.family) == (PROTOCOL, family) and (not entries or record.entry in entries):
                yield run


def write(experiment: Experiment, run: TuningRun, folder: Path) -> None:
    """Write the file of a tuning run from its outcome. A curve of ten points replaces the training curve."""
    record = experiment.record
    same = labels_of(record, "raw") | {"diverged_step": run.diverged_step, "weights": "raw", "metric": "train_loss", "n": 1}
    points = zip(ends_of_parts(record.train.steps), run.losses, strict=True)
    rows = [same | {"step": step, "value": math.nan if loss is None else loss} for step, loss in points]
    how = {"population": run.population, "compiled": run.compiled}
    about = {"experiment": asdict(record), "execution": how}
    run_files.write(run_files.path_for(folder, record), pa.Table.from_pylist(rows, schema=SCHEMA), about)


if __name__ == "__main__":
    main(*sys.argv[1:])
