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
from lgbench.results import submission_files
from lgbench.results.stored_runs import stored, with_rows
from lgbench.results.submission_files import SubmittedRun

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
    """Name and content of a submission file: of each family, the runs under the newest version of the protocol of boards."""
    paths = sorted(folder.glob("*.parquet"))
    records = [run.record for path in paths for run in stored(path)]
    versions: dict[str, int] = {}
    for record in records:
        if record.protocol == ProtocolUse(BOARDS_PROTOCOL, record.protocol.version):
            versions[record.family] = max(record.protocol.version, versions.get(record.family, 0))
    protocols = {family: ProtocolUse(BOARDS_PROTOCOL, version) for family, version in versions.items()}
    chosen = {record.run_id for record in records if record.protocol == protocols.get(record.family)}
    return submission_files.written(
        [
            SubmittedRun(run.record, run.about, at_the_end(rows, run.record.train.steps))
            for path in paths
            for run, rows in with_rows(path, chosen)
        ]
    )


def at_the_end(rows: pa.Table, steps: int) -> pa.Table:
    """Rows that boards and probes show: those at their lengths after the last step."""
    return rows.filter(pc.and_(rows["on_boards"], pc.equal(rows["step"], steps)))
