"""Brings the runs of a results folder into runs/, in one submission file: python leaderboards/inside/pack.py RESULTS.

`lgbench submit` takes runs of whole families under a published protocol, and these change settings. They are checked in the
same way otherwise. Runs that are there already are left out.
"""

import sys
from pathlib import Path

from lgbench.extensions.registry import Registry
from lgbench.results import run_files, submission_files
from lgbench.results.submission_files import SubmittedRun
from lgbench.submissions.inspection import inspected

RUNS = Path(__file__).parent / "runs"


def main(results: Path, folder: Path = RUNS) -> None:
    there = {run for path in run_files.find(folder) for run in run_files.metadata_of_runs(path)}
    wrong: list[str] = []
    runs = list(inspected(dict.fromkeys(run_files.find(results)), Registry.load(), wrong, whole=True))
    if wrong:
        raise SystemExit("\n".join(wrong))
    new = [SubmittedRun(run.stored.record, run.stored.about, run.rows) for run in runs if run.run_id not in there]
    if new:
        name, content = submission_files.written(new)
        (folder / name).write_bytes(content)
    print(f"{len(new)} runs written to {folder}, {len(runs) - len(new)} there before")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
