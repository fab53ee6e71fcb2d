"""Run every block of code of the site's pages, as a reader would: page by page, in an empty folder, block after block.

- A block with a title is a file of that name.
- `python` is run; `sh` is run line by line; `sql` is asked of the results in the folder; `toml` must be readable.
- `text` is what something prints, and is not run.

Trainings are made small. Commands that would train for hours, change the repository or need a server are only read: `lgbench`
must accept their options, and `make` must have their targets. Commands of lgbench run in this process, which saves imports,
until a page installs something.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
SMALL = (
    "--set train.steps=2 --set evaluate.contexts=4 --set evaluate.strings=4 --set evaluate.max_length=80 --no-compile --seeds 0"
)
TOGETHER = (("tutorial/first-board.md", "tutorial/your-norm.md"),)
"""Pages that a reader follows in one folder."""

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LANGUAGES = ("bash", "python", "sh", "sql", "text", "toml")


class Block(NamedTuple):
    """A fenced block of code. `file` is its title: the name of the file that a reader saves it as."""

    page: str
    language: str
    file: str | None
    text: str


class Failed(Exception):
    """Code that does not work; the message has what it printed."""


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [Block(page, *match.groups()) for match in BLOCK.finditer((DOCS / page).read_text(encoding="utf-8"))]


def sessions() -> list[tuple[str, ...]]:
    """Pages with blocks, in groups that share a folder."""
    every = [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md"))]
    alone = [(page,) for page in every if blocks(page) and not any(page in group for group in TOGETHER)]
    return [*TOGETHER, *alone]


class Session:
    """A reader in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / ".site"
        """Where pip installs to. It is there once something is installed."""
        self.names: dict[str, object] = {"__name__": "block"}
        """The names that blocks of Python have defined, for the blocks that follow."""

    def read(self, pages: Sequence[str]) -> None:
        """Run all blocks of these pages. Raises Failed at the first that does not work."""
        for block in (block for page in pages for block in blocks(page)):
            try:
                self.run(block)
            except Failed as failure:
                raise Failed(f"{block.page}, in this block:\n\n{block.text}\n{failure}") from None

    def run(self, block: Block) -> None:
        """Run one block."""
        if block.language not in LANGUAGES:
            raise Failed(f"its language is {block.language!r}; known: {', '.join(LANGUAGES)}")
        if block.file:
            text = re.sub(r"^(lgbench run .*)$", rf"\1 {SMALL}", block.text, flags=re.MULTILINE)
            (self.folder / block.file).write_text(text, encoding="utf-8")
        elif block.language == "python":
            self.python(block.text)
        elif block.language == "sql":
            self.lgbench(["sql", block.text], self.folder)
        elif block.language == "sh":
            self.shell(block.text.splitlines())
        if block.language == "toml":
            tomllib.loads(block.text)

    def python(self, code: str) -> None:
        """Run a block of Python."""
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "block", "exec"), self.names)

    def shell(self, lines: Sequence[str]) -> None:
        """Run a block of shell line by line: small, offline, and without effects outside the folder."""
        folder = self.folder
        for line in lines:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            if words[0] == "cd":
                folder = folder / words[1]
            elif words[0] == "make":
                self.system(["make", "--silent", "--dry-run", "-C", str(ROOT), words[1]], folder)
            elif words[0] == "pip":
                self.pip(line, folder)
            elif words[0] == "pytest":
                self.system([sys.executable, "-m", "pytest", "-q"], folder)
            elif words[0] == "lgbench" and not {">", "|"} & set(words):
                self.lgbench(words[1:], folder)
            else:
                self.system(["bash", "-ec", line], folder)

    def lgbench(self, words: Sequence[str], folder: Path) -> None:
        """Run a command of lgbench; one that would take hours or needs a server is only read."""
        from click.testing import CliRunner

        from lgbench.cli.main import main

        if words[0] == "submit" or (words[0] == "run" and "standard" in words) or any("://" in word for word in words):
            (folder / "results").mkdir(exist_ok=True)  # where the trainings would be
            command = main.get_command(main.make_context("lgbench", [words[0]]), words[0])
            assert command is not None
            with contextlib.chdir(folder):
                command.make_context(words[0], list(words[1:]))
            return
        words = [*words, *SMALL.split()] if words[0] == "run" else list(words)
        if self.site.exists():
            self.system(["lgbench", *words], folder)
            return
        with contextlib.chdir(folder):
            result = CliRunner().invoke(main, words)
        if result.exit_code:
            raise Failed(f"lgbench {shlex.join(words)}\n{result.output}") from result.exception

    def pip(self, line: str, folder: Path) -> None:
        """Run a line of pip, which installs from what is here into a folder of its own."""
        if line == "pip install ." and not (folder / "pyproject.toml").exists():
            return  # it is lgbench itself
        pip = f"{shlex.quote(sys.executable)} -m pip"
        install = f"{pip} install --quiet --no-deps --no-build-isolation --upgrade --target {shlex.quote(str(self.site))} "
        line = re.sub(r"^pip install (-\S+ )*", install, line)  # without -e, too, which takes no folder
        self.system(["bash", "-ec", re.sub(r"^pip wheel", f"{pip} wheel --quiet --no-build-isolation", line)], folder)

    def system(self, command: Sequence[str], folder: Path) -> None:
        """Run a program, for which the commands of this Python, and of what is installed, come first."""
        paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(self.site)}
        done = subprocess.run(command, cwd=folder, env=os.environ | paths, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
