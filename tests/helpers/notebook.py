"""Plugin file with a logger that writes all calls as lines of JSON, in the folder of the variable NOTEBOOK."""

import json
import os
from pathlib import Path

from lgbench import Logger, OpenRun, hookimpl


class Page(OpenRun):
    def __init__(self, path):
        self.handle = str(path)
        self.path = path
        self.write("opened")

    def write(self, *words):
        with self.path.open("a") as file:
            file.write(json.dumps(words) + "\n")

    def log(self, step, values):
        self.write("log", step, dict(values))

    def end(self, end):
        self.write("end", end.status, end.reason, end.diverged_step)


class Notebook(Logger):
    """Lines of JSON."""

    name = "notebook"

    def start(self, run):
        folder = Path(os.environ["NOTEBOOK"])
        folder.mkdir(exist_ok=True)
        page = Page(folder / f"{run.name}.jsonl")
        page.write("run", run.name, dict(run.tags), dict(run.config))
        return page

    def resume(self, run, handle):
        return Page(Path(handle)) if Path(handle).exists() else None


@hookimpl
def lgbench_loggers():
    return [Notebook()]


def read(folder):
    """Of each run, by the name of its file: what was written."""
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in Path(folder).glob("*.jsonl")}
