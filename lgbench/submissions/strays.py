"""Things among the filed runs that are neither submission files nor weights. Nobody checked them, so each must be reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from lgbench.results.weights_files import SUFFIX
from lgbench.submissions.footer import shown

MAX_NAMES = 3
"""How many of the things in a folder are named."""


def sorted_out(folder: Path) -> tuple[list[Path], list[Path], list[str]]:
    """The files in the folder of filed runs that may be runs, those that may be weights, and a sentence for each other thing.

    Nothing but their names and kinds is looked at.
    """
    if not os.path.lexists(folder):
        return [], [], []
    if folder.is_symlink() or not folder.is_dir():
        return [], [], [f"{folder} is no folder of filed runs; put a folder of that name there"]
    runs: list[Path] = []
    weights: list[Path] = []
    strays: list[str] = []
    for path in sorted(folder.iterdir()):
        if reason := _stray(path):
            what = f"{folder / shown(path.name)[1:-1]} {reason}"
            strays.append(f"{what}; this folder has submission files and weights of their runs alone: remove it")
        else:
            (weights if path.name.endswith(SUFFIX) else runs).append(path)
    return runs, weights, strays


def _stray(path: Path) -> str | None:
    """Why this is neither a filed run nor weights; None where it may be."""
    mode = path.lstat().st_mode
    hidden = "hidden " if path.name.startswith(".") else ""
    if stat.S_ISLNK(mode):
        return f"is a {hidden}link"
    if stat.S_ISDIR(mode):
        return f"is a {hidden}folder with {_contents(path)} in it"
    if not stat.S_ISREG(mode):
        return f"is no {hidden}regular file"
    if hidden:
        return "is a hidden file"
    if any(f"{suffix}.damaged-" in path.name for suffix in (".parquet", SUFFIX)):
        return "is a damaged file that was set aside"
    return None if path.name.endswith((".parquet", SUFFIX)) else "is a file of another kind"


def _contents(folder: Path) -> str:
    """How many things are anywhere in a folder, and the names of the first."""
    names = sorted(_names(folder))
    named = ", ".join(shown(name)[1:-1] for name in names[:MAX_NAMES])
    more = ", ..." if len(names) > MAX_NAMES else ""
    count = "1 thing" if len(names) == 1 else f"{len(names)} things"
    return f"{count} ({named}{more})" if names else "nothing"


def _names(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(parent, name), folder) for name in (*folders, *files))
