"""The checkout that lgbench is imported from: its commit, and the sources in it that nobody has committed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

_SOURCES = ("lgbench", "plugins/lgbench_*")
_DECIDE_NOTHING = ("lgbench/claims", "lgbench/cli", "lgbench/reports", "lgbench/submissions")
"""Packages that show numbers and make none."""


def git_commit() -> str | None:
    """Commit of the checkout that lgbench is imported from, with "+dirty" if files differ; None if it is no checkout."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        return commit + ("+dirty" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def changed_sources() -> str:
    """16 hexadecimal digits of the sources that decide numbers and are not as in the commit; empty if all of them are.

    A copy of the sources that is no checkout has no commit: there the digits are of all of them. The answer is that of the
    first call, when these sources were just imported.
    """
    exclude = [f":(exclude){folder}" for folder in _DECIDE_NOTHING]
    try:
        asked = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *_SOURCES, *exclude)
        names = [line[3:] for line in _git(*asked).split("\0") if line.endswith(".py")]
    except (OSError, subprocess.SubprocessError):
        names = [path.relative_to(ROOT).as_posix() for pattern in _SOURCES for path in ROOT.glob(f"{pattern}/**/*.py")]
    return digest((name, ROOT / name) for name in names) if names else ""


def digest(files: Iterable[tuple[str, Path]]) -> str:
    """16 hexadecimal digits that change with the name and the content of any of these files, and with nothing else."""
    total = hashlib.sha256()
    for name, path in sorted(files):
        content = path.read_bytes() if path.is_file() else b"gone"
        total.update(f"{name}\n{len(content)}\n".encode() + content)
    return total.hexdigest()[:16]


def _git(*words: str) -> str:
    """Raises OSError where this is no checkout, or git is missing, and SubprocessError where git fails."""
    if not (ROOT / ".git").exists():
        raise FileNotFoundError(ROOT / ".git")
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
