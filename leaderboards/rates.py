"""Moves published runs from the three learning rates of standard/6 to an open grid: `rates.py RESULTS FAMILY [ENTRY,...]`.

The tuning runs of standard/6 are the first ones of standard/7. This script makes the further ones, in RESULTS. Where they leave
the chosen rate as it was, the published run is the run under standard/7, and RESULTS gets it with its rows as they are. Where
the rate moves, `lgbench run --protocol standard --results RESULTS` trains the run again. An interrupted script goes on.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lgbench import RunOptions
from lgbench.contracts import LEARNING_RATE
from lgbench.execution.command import Command, one_of_each
from lgbench.execution.progress import ProgressDisplay
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord, ProtocolUse
from lgbench.experiment.replan import arch_of
from lgbench.experiment.tuning import Tuning, TuningRun, tenths
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA
from lgbench.results.rows import labels_of
from lgbench.results.stored_runs import StoredRun, stored, with_rows

HERE = Path(__file__).parent
CLOSED = ProtocolUse("standard", 6)


def main(results: str, family: str, entries: str = "") -> None:
    published = list(closed(family, entries.split(",") if entries else ()))
    by_averagers = defaultdict(list)
    for run in published:
        by_averagers[run.record.averagers].append(run)
    for averagers, runs in by_averagers.items():
        reopen(runs, averagers, Path(results))


def closed(family: str, entries: Collection[str]) -> Iterable[StoredRun]:
    """Published runs of a family under standard/6, of all entries or of these."""
    for path in sorted((HERE / "runs").glob("*.parquet")):
        for run in stored(path):
            record = run.record
            if (record.protocol, record.family) == (CLOSED, family) and (not entries or record.entry in entries):
                yield run


def reopen(runs: Sequence[StoredRun], averagers: Sequence[str], results: Path) -> None:
    """Tune the entries of these runs further, and write the runs whose rate stays to `results`."""
    options: dict[str, Any] = dict(
        task=sorted({run.record.task for run in runs}),
        arch=sorted({arch_of(run.record) for run in runs}),
        average=list(averagers),
        seeds=sorted({run.record.seed for run in runs}),
        protocol="standard",
        probe="all",
        results=str(results),
        workers=1,
    )
    command = Command.of(RunOptions(**options), Registry.load(), Lines())
    planned, rates = command.plan.experiments, command.rates
    filed = {opened(run.record).run_id: run for run in runs}
    if unknown := filed.keys() - {experiment.run_id for experiment in planned}:
        raise SystemExit(f"{len(unknown)} published runs are others here, such as {filed[unknown.pop()].where}")
    for experiment in one_of_each(planned):
        for run in tuning_of(filed[experiment.run_id].record).runs if experiment.run_id in filed else ():
            write_tuning_run(experiment.tuning_run(run.lr, run.seed), run, rates.folder)
    if failed := command.tune():
        raise failed[0]
    moved_on = {experiment.run_id: experiment.record for experiment in rates.tuned() if experiment.run_id in filed}
    kept = {name: record for name, record in moved_on.items() if record.train.lr == filed[name].record.train.lr}
    write_runs({filed[name].run_id: record for name, record in kept.items()}, {filed[name].path for name in kept}, results)
    print(f"{runs[0].record.family}: {len(kept)} of {len(filed)} published runs keep their rate", flush=True)


class Lines(ProgressDisplay):
    """Display of sentences alone."""

    def say(self, sentence: str) -> None:
        print(sentence, flush=True)


def tuning_of(record: ExperimentRecord) -> Tuning:
    """Tuning of a record under a protocol that tunes."""
    assert record.tuning
    return record.tuning


def opened(record: ExperimentRecord) -> ExperimentRecord:
    """Record of a run under standard/6 as that of a run under standard/7."""
    return replace(record, protocol=replace(record.protocol, version=7), tuning=replace(tuning_of(record), open=True))


def write_tuning_run(experiment: Experiment, run: TuningRun, folder: Path) -> None:
    """Write the file of a tuning run from its outcome. A curve of ten points replaces the training curve."""
    record = experiment.record
    same = labels_of(record, "raw") | {"diverged_step": run.diverged_step, "weights": "raw", "metric": "train_loss", "n": 1}
    points = zip(tenths(record.train.steps), run.losses, strict=True)
    rows = [same | {"step": step, "value": math.nan if loss is None else loss} for step, loss in points]
    how = {"population": run.population, "compiled": run.compiled}
    about = {"experiment": asdict(record), "execution": how}
    run_files.write(run_files.path_for(folder, record), pa.Table.from_pylist(rows, schema=SCHEMA), about)


def write_runs(records: Mapping[str, ExperimentRecord], paths: Collection[Path], results: Path) -> None:
    """Write run files with the rows of published runs, and other records, given by published run id."""
    for path in sorted(paths):
        for published, rows in with_rows(path):
            if (record := records.get(published.run_id)) is None:
                continue
            of_rate = pc.equal(rows["metric"], LEARNING_RATE)
            columns = {
                "run_id": pa.repeat(record.run_id, len(rows)),
                "protocol_version": pa.repeat(pa.scalar(record.protocol.version, pa.int32()), len(rows)),
                "n": pc.if_else(of_rate, pa.scalar(len(tuning_of(record).tried), pa.int32()), rows["n"]),
            }
            for name, column in columns.items():
                rows = rows.set_column(rows.schema.get_field_index(name), SCHEMA.field(name), column)
            about = published.packed.metadata | {"experiment": asdict(record)}
            run_files.write(run_files.path_for(results, record), rows, about)


if __name__ == "__main__":
    main(*sys.argv[1:])
