"""Brings the runs of a results folder into runs/, in one submission file: python leaderboards/inside/pack.py RESULTS.

`lgbench submit` takes runs of whole families under a published protocol, and these change settings. They are checked in the
same way otherwise. Runs that are there already are left out.
"""

import sys
from pathlib import Path

from lgbench.extensions.registry import Registry
from lgbench.results import file_format, run_files
from lgbench.results.stored_runs import stored_in
from lgbench.submissions.inspection import inspected

RUNS = Path(__file__).parent / "runs"

PLUGINS = [RUNS.with_name(name) for name in ("ablations.py", "exact_parts.py", "ungated.py")]
"""Files with the entries of this folder."""


def main(results: Path, folder: Path = RUNS) -> None:
    there = {run for path in run_files.find(folder) for run in run_files.metadata_of_runs(path)}
    stored, wrong = stored_in(run_files.find(results))
    runs = list(inspected(stored, Registry.load(files=PLUGINS), wrong))
    if wrong:
        raise SystemExit("\n".join(wrong))
    new = [*{run.run_id: run for run in runs if run.run_id not in there}.values()]
    if new:
        name, content = file_format.submission((run.packed.metadata, run.rows) for run in new)
        (folder / name).write_bytes(content)
    print(f"{len(new)} runs written to {folder}, {len(runs) - len(new)} there before")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
