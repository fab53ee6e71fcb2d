"""Run the notebooks of the documentation from the first cell to the last, and keep what they print.

    python docs/_generate/notebooks.py      runs all of them, and writes their outputs into them

A test runs them, too, and writes nothing.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parent.parent
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
SECONDS = 600
"""For one cell."""
STYLES = re.compile(r"\x1b\[[\d;]*m")
"""Codes of a terminal for bold and dim text, which a page would show as they are."""


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of its cells, which are run in a folder. Raises CellExecutionError at the first that fails.

    Its commands are those of this Python, and on one thread: a reader's machine may be busy.
    """
    notebook = nbformat.read(path, as_version=4)
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "COLUMNS": "150"}
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=SECONDS, resources=where, record_timing=False, coalesce_streams=True)
    client.execute(env=os.environ | own)
    return notebook


def as_markdown(path: Path) -> str:
    """A notebook as a page: its text, its code, what the code printed, and a link to the file itself."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        printed = STYLES.sub("", "".join(output.get("text", "") for output in cell.get("outputs", ()))).rstrip()
        parts += [f"```text\n{printed}\n```"] if printed else []
    download = f'<a href="{path.name}" download>This page as a notebook</a>, to run it yourself.'
    return "\n\n".join([*parts, download]) + "\n"


def main() -> None:
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory(prefix="lgbench-notebook-") as folder:
            nbformat.write(executed(path, Path(folder)), path)


if __name__ == "__main__":
    main()
