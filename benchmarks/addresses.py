"""Seconds until a board is there: from a folder, and from the same run files at an address of a local server.

    python benchmarks/addresses.py [leaderboards/runs]

It takes moto, which is among the development requirements, in the place of S3. So these are the costs of our side and of a
server in Python on the same machine, without a network between. The two kinds of reading take turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import psutil

SERVE = """
import logging, time
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
time.sleep(1e6)
"""
READ = """
import sys, time
import duckdb, pyarrow.parquet
from lgbench.results.leaderboard import Results
start = time.perf_counter()
Results(sys.argv[1]).boards("tvd")
print(time.perf_counter() - start)
"""
AGAIN = 5
"""How often boards are read again."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server like S3."""
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def put(url: str, content: bytes = b"") -> None:
    headers = {"Content-Type": "application/octet-stream"}
    urlopen(Request(url, data=content, method="PUT", headers=headers), timeout=60).close()


def seconds(results: str, environ: dict[str, str]) -> float:
    """Until all boards by TVD are made, in a process that has imported what it needs."""
    done = subprocess.run(
        [sys.executable, "-c", READ, results], capture_output=True, text=True, check=True, env=os.environ | environ
    )
    return float(done.stdout.split()[-1])  # after the progress of DuckDB


def compared(files: Sequence[Path], url: str, work: Path) -> None:
    """Print the first and the later readings of the same run files."""
    folder, bucket = work / "runs", f"runs-{len(files)}"
    folder.mkdir(parents=True)
    put(f"{url}/{bucket}")
    for path in files:
        shutil.copy(path, folder)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: put(f"{url}/{bucket}/runs/{path.name}", path.read_bytes()), files))
    own = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine"}
    places = {"folder": str(folder), "address": f"s3://{bucket}/runs"}
    found: dict[str, list[float]] = {kind: [] for kind in places}
    for _ in range(1 + AGAIN):
        for kind, place in places.items():
            found[kind].append(seconds(place, own | {"LGBENCH_CACHE": str(work / f"cache of {kind}")}))
    for kind, (first, *later) in found.items():
        print(f"{len(files)} run files, {kind}: first {first:.2f} s, again {statistics.median(later):.3f} s", flush=True)
    ratio = statistics.median(found["address"][1:]) / statistics.median(found["folder"][1:])
    print(f"{len(files)} run files: the address takes {ratio:.2f} times as long as the folder, from the second board on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("leaderboards/runs"))
    files = sorted(parser.parse_args().runs.glob("*.parquet"))
    print(f"{psutil.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}")
    with tempfile.TemporaryDirectory() as work, server() as url:
        for number, some in enumerate((files[:72], files)):
            compared(some, url, Path(work) / str(number))


if __name__ == "__main__":
    main()
