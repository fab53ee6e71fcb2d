"""Build hook: makes the file of the wheel from the published runs in ../runs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from lgbench.experiment.protocols import BOARDS_PROTOCOL
from lgbench.experiment.record import ProtocolUse
from lgbench.results import file_format
from lgbench.results.stored_runs import stored, with_rows

MOST_BYTES = 5 * 10**6
"""Size limit of the file."""


class PublishedRuns(BuildHookInterface):
    """Adds the file to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.folder = TemporaryDirectory()
        name, content = newest(Path(self.root).parent / "runs")
        if len(content) > MOST_BYTES:
            raise SystemExit(f"the published runs take {len(content) / 1e6:.1f} MB, and the package has room for 5 MB")
        path = Path(self.folder.name, name)
        path.write_bytes(content)
        build_data["force_include"][str(path)] = f"lgbench_published/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.folder.cleanup()


def newest(folder: Path) -> tuple[str, bytes]:
    """Name and content of a submission file: the runs under the protocol of boards.

    Of each entry on each task, the newest version of the task, then of the protocol: some entries lack runs of the newest.
    """
    paths = sorted(folder.glob("*.parquet"))
    records = [run.record for path in paths for run in stored(path)]
    records = [record for record in records if record.protocol == ProtocolUse(BOARDS_PROTOCOL, record.protocol.version)]
    versions: dict[tuple[str, str], tuple[int, int]] = {}
    for record in records:
        of = record.task, record.entry
        versions[of] = max((record.task_version, record.protocol.version), versions.get(of, (0, 0)))
    chosen = {r.run_id for r in records if versions[r.task, r.entry] == (r.task_version, r.protocol.version)}
    runs = (run for path in paths for run in with_rows(path))
    return file_format.submission(
        (run.packed.metadata, at_the_end(rows, run.record.train.steps)) for run, rows in runs if run.run_id in chosen
    )


def at_the_end(rows: pa.Table, steps: int) -> pa.Table:
    """Rows that boards and probes show: those at their lengths after the last step.

    Readings of layers are rounded to float32: they are most of the rows, and the file is a quarter smaller.
    """
    shown = rows.filter(pc.and_(rows["on_boards"], pc.equal(rows["step"], steps)))
    rounded = shown["value"].cast(pa.float32()).cast(pa.float64())
    value = pc.if_else(pc.is_valid(shown["layer"]), rounded, shown["value"])
    return shown.set_column(shown.schema.get_field_index("value"), shown.schema.field("value"), value)
