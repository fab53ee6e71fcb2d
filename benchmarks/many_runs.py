"""Opening 10^5 runs in submission files, and one board of them, against a query by hand on the same files.

The submission files are copies of a published one, under other tasks, entries and run ids: 50 tasks, each with the seeds of the
published entries under as many names as it takes. `open` is Results(folder), `board` that and the TVD board of one task,
`command` all of `lgbench leaderboard` for that task. `query` is the reference: DuckDB's read_parquet with the mean TVD of each
entry and length of that task. Every side is a process of its own, and all take turns. Seconds are of processor time, which
other work on the machine changes least.

    python benchmarks/many_runs.py [--runs 100000] [--rounds 3] [--published FILE]
"""

import argparse
import base64
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lgbench.results import file_format, run_files
from lgbench.results.file_format import METADATA_KEY, SCHEMA, ZEROS, sealed
from lgbench.results.leaderboard import Results

PUBLISHED = next(Path(__file__).parents[1].glob("leaderboards/runs/max-retrieval.13-entries.*.parquet"))
TASKS = 50
LABELS = ("run_id", "entry", "task", "family")


def copies(published: Path, folder: Path, count: int) -> None:
    """Write copies of a submission file until they have `count` runs."""
    file = run_files.checked(published)
    rows = file.rows().replace_schema_metadata(None)
    coded = {name: rows[name].combine_chunks().dictionary_encode() for name in LABELS}
    lines = file_format.run_lines(file.parquet.metadata[file_format.RUNS_KEY])
    for copy in track(range(-(-count // len(lines))), f"writing {count:,} runs", transient=True):
        for name, column in coded.items():
            values = pa.array([renamed(copy, name, value) for value in column.dictionary.to_pylist()])
            own = pa.DictionaryArray.from_arrays(column.indices, values).cast(pa.string())
            rows = rows.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), own)
        write(folder / f"{copy}.parquet", rows, [relabelled(copy, line) for line in lines])


def renamed(copy: int, name: str, value: str) -> str:
    """A label of a run in a copy."""
    if name == "run_id":
        return f"{copy:06x}{value[6:]}"
    return f"{value}-{copy // TASKS}" if name == "entry" else f"task-{copy % TASKS}"


def relabelled(copy: int, line: bytes) -> bytes:
    """A line of the table of runs in a copy."""
    label = re.compile(rf'"({"|".join(LABELS)})":"([^"]*)"')
    return label.sub(lambda found: f'"{found[1]}":"{renamed(copy, found[1], found[2])}"', line.decode()).encode()


def write(path: Path, rows: pa.Table, lines: list[bytes]) -> None:
    """A submission file as :mod:`lgbench.results.file_format` writes it, compressed in less time."""
    text, out = b"\n".join(lines), pa.BufferOutputStream()
    table = base64.b64encode(len(text).to_bytes(4, "big") + pa.Codec("zstd").compress(text, asbytes=True))
    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
        writer.write_table(rows)
        about = json.dumps({"runs": len(lines), "checksum": ZEROS}).encode()
        writer.add_key_value_metadata({file_format.RUNS_KEY: table, METADATA_KEY: about})
    path.write_bytes(sealed(out.getvalue().to_pybytes()))


def query(folder: Path) -> int:
    sql = """select entry, length, avg(value) from read_parquet($files)
    where task = 'task-0' and metric = 'tvd' and on_boards group by all"""
    return len(duckdb.connect().execute(sql, {"files": f"{folder}/*.parquet"}).fetchall())


def board(folder: Path) -> int:
    return len(Results(folder).boards("tvd", "task-0"))


def command(folder: Path) -> int:
    script = Path(sys.executable).with_name("lgbench")
    return subprocess.run([script, "leaderboard", "--task", "task-0", "--results", folder], capture_output=True).returncode


SIDES: dict[str, Callable[[Path], object]] = {"query": query, "open": Results, "board": board, "command": command}


def timed(side: str, folder: Path) -> float:
    """Seconds of processor time of a side."""
    before = processor_time()
    SIDES[side](folder)
    return processor_time() - before


def processor_time() -> float:
    """Seconds of processor time of this process and of ended processes that it started."""
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of all sides in each round, in new processes: this script with --side."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in [*SIDES] * rounds:
        process = [sys.executable, __file__, "--side", side, "--folder", folder]
        found[side].append(float(subprocess.run(process, check=True, capture_output=True).stdout))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--published", type=Path, default=PUBLISHED)
    options.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.side:
        print(timed(chosen.side, chosen.folder))
        return
    with tempfile.TemporaryDirectory() as name:
        copies(chosen.published, Path(name), chosen.runs)
        found = measured(Path(name), chosen.rounds)
        size = sum(path.stat().st_size for path in Path(name).iterdir())
    table = Table(
        "", "processor seconds", "ratio", title=f"{chosen.runs:,} runs, {size / 1e6:.0f} MB, DuckDB {duckdb.__version__}"
    )
    for side, own in found.items():
        ratio = statistics.median(a / b for a, b in zip(own, found["query"], strict=True))
        table.add_row(side, f"{statistics.median(own):.2f}", f"{ratio:.2f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
