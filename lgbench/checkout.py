"""Version and checkout of the imported lgbench: its commit and the hash of uncommitted sources."""

from __future__ import annotations

import ast
import hashlib
import subprocess
import tokenize
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = version("lgbench")

_SOURCES = ("lgbench", "plugins/lgbench_*")
_DECIDE_NOTHING = ("lgbench/claims", "lgbench/cli", "lgbench/reports", "lgbench/submissions")
"""Packages without an effect on numbers."""


def git_commit() -> str | None:
    """Commit of the imported lgbench, with "+dirty" for uncommitted changes; None outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        # Untracked files do not count: a results folder in the checkout would make every run dirty.
        return commit + ("+dirty" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def changed_sources() -> str:
    """First 16 hexadecimal digits of the hash of changed code with an effect on numbers; empty without changes.

    Comments, docstrings and blank lines do not count. Outside a checkout the hash covers all sources. The result is cached at
    the first call, soon after the import of these sources.
    """
    exclude = [f":(exclude){folder}" for folder in _DECIDE_NOTHING]
    try:
        # --no-renames: with -z, a rename would be two names in one place.
        asked = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *_SOURCES, *exclude)
        named = [line[3:] for line in _git(*asked).split("\0") if line.endswith(".py")]
        names = [name for name in named if _code_at_commit(name) != _code_of(ROOT / name)]
    except (OSError, subprocess.SubprocessError):
        names = [path.relative_to(ROOT).as_posix() for pattern in _SOURCES for path in ROOT.glob(f"{pattern}/**/*.py")]
    return digest((name, ROOT / name) for name in names) if names else ""


def digest(files: Iterable[tuple[str, Path]]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the names and the :func:`code` of Python files."""
    total = hashlib.sha256()
    for name, path in sorted(files):
        code = _code_of(path)
        total.update(f"{name}\n{len(code)}\n".encode() + code)  # the length keeps one file's end from being another's beginning
    return total.hexdigest()[:16]


def code(source: bytes) -> bytes:
    """Python source without comments, docstrings and blank lines, so that edits of words keep the identity of runs.

    An unparsable source stays unchanged. The text is cut by position: a printed syntax tree would differ between versions of
    Python.

    >>> code(b"x = 1  # why\\n\\n")
    b'x = 1\\n'
    """
    try:
        tree, tokens = ast.parse(source), list(tokenize.tokenize(BytesIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return source
    gone: list[tuple[int, int, int, int]] = []  # first row and column in bytes, and the end
    kept: set[int] = set()  # rows within string literals other than docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            # the docstring of a module, function, class or field
            gone.append((node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            kept.update(range(node.lineno, node.end_lineno or node.lineno))
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, begin = token.start[0], len(token.line[: token.start[1]].encode())  # tokens count letters, the tree bytes
            gone.append((row, begin, row, begin + len(token.string.encode())))
    lines = source.splitlines(keepends=True)
    for first, begin, last, end in sorted(gone, reverse=True):  # backwards, so that places before a cut stay valid
        lines[first - 1 : last] = [lines[first - 1][:begin] + lines[last - 1][end:], *[b""] * (last - first)]
        kept.difference_update(range(first, last))
    return b"".join(
        line if row in kept else line.rstrip() + b"\n" for row, line in enumerate(lines, 1) if row in kept or line.strip()
    )


def _code_of(path: Path) -> bytes:
    return code(path.read_bytes()) if path.is_file() else b"gone"


def _code_at_commit(name: str) -> bytes:
    """Code of a file in the commit; b"gone" for a new file."""
    if not _git("ls-tree", "HEAD", "--", name):
        return b"gone"
    return code(_git("show", f"HEAD:{name}").encode())


def _git(*words: str) -> str:
    """Raises OSError where this is no checkout, or git is missing, and SubprocessError where git fails."""
    if not (ROOT / ".git").exists():  # git would find a repository around an installed lgbench
        raise FileNotFoundError(ROOT / ".git")
    # Else `git status` takes a lock, and a commit at the same time fails.
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
