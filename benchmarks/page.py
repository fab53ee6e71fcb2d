"""The page over many simulated runs, in submission files: how long it takes to make, and to open in headless Chromium.

The runs are those of leaderboard.py, a submission file for every hundred of them. `made` is the whole of `lgbench site`.
`opened` is the time from the first byte until the table and the curves are there.

    python benchmarks/page.py [--runs 5000] [--rounds 3]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from leaderboard import runs, simulate
from playwright.sync_api import sync_playwright

from lgbench.results import run_files
from lgbench.results.file_format import submission

EACH = 100
"""Runs of a submission."""


def submitted(folder: Path, to: Path, count: int) -> None:
    """Put run files into submission files."""
    every = list(runs(count))
    for part in (every[first : first + EACH] for first in range(0, count, EACH)):
        paths = [folder / f"{task}.{entry}.seed-{seed}.{run_id}.parquet" for _, task, entry, seed, run_id in part]
        name, content = submission((run_files.metadata(path), run_files.read(path)) for path in paths)
        (to / name).write_bytes(content)


def made(folder: Path, out: Path) -> float:
    started = time.perf_counter()
    script = Path(sys.executable).with_name("lgbench")
    subprocess.run([script, "site", "--results", folder, "--out", out], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def opened(page: Path, rounds: int) -> list[float]:
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for _ in range(rounds):
            context = browser.new_context()
            tab = context.new_page()
            started = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("table tbody tr")
            tab.wait_for_selector("svg .series path")
            found.append(time.perf_counter() - started)
            context.close()
        browser.close()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5000)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / own for own in ("files", "submissions", "out")]
        for folder in folders:
            folder.mkdir()
        files, submissions, out = folders
        simulate(files, range(chosen.runs))
        submitted(files, submissions, chosen.runs)
        sizes = [sum(path.stat().st_size for path in folder.iterdir()) / 2**20 for folder in (files, submissions)]
        print(f"{chosen.runs} runs: {sizes[0]:.1f} MB of run files, {sizes[1]:.1f} MB of submission files")
        print(f"made in {made(submissions, out):.1f} s")
        times = opened(out / "index.html", chosen.rounds)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        print(f"{size / 2**20:.1f} MB, opened in {statistics.median(times):.2f} s (median of {len(times)})")


if __name__ == "__main__":
    main()
