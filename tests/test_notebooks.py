"""Notebooks of the documentation are run, and print what they show."""

from __future__ import annotations

import importlib.util
import re

import pytest
from helpers.folders import ROOT

DOCS = ROOT / "docs"


def printed(notebook) -> list[set[str]]:
    """The words that each cell of code prints. Numbers and bars may differ by rounding."""
    texts = ("".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    return [set(re.findall("[a-z][a-z_-]{2,}", text)) for text in texts]


@pytest.mark.slow  # a kernel is started, which starts commands
@pytest.mark.filterwarnings("default")  # of the kernel's own client
@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_from_the_first_cell_to_the_last_and_prints_what_it_shows(path, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "_generate" / "notebooks.py")
    notebooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebooks)
    done = notebooks.executed(path, tmp_path)
    assert printed(done) == printed(nbformat.read(path, as_version=4))
    text = "".join(output.get("text", "") for cell in done.cells for output in cell.get("outputs", []))
    assert "lgbench: " not in text and "Error" not in text
