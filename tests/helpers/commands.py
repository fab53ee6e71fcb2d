"""The command line in this process or in others, on grids of toys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.warm import Process
from lgbench.cli.main import main
from lgbench.extensions.registry import Registry
from lgbench.results import run_files

TOYS = ["run", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "quick", "--no-compile"]
GRID = [*TOYS, "--task", "toy-even,toy-largest", "--set", "train.steps=130", "--set", "train.average_every=5"]
GRID += ["--set", "evaluate.contexts=1000", "--set", "evaluate.strings=1000", "--set", "evaluate.max_length=64"]
SMALL = [*TOYS, "--set", "train.steps=20", "--set", "evaluate.max_length=16"]
TWO_STACKS = [*SMALL, "--task", "toy-even,toy-largest"]


def changing(settings: Mapping[str, object]) -> list[str]:
    """Options of a command that change these settings."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def finished(process: Process) -> tuple[str, str]:
    """Rest of a command's stdout and stderr, when it has ended without an error."""
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return out, error


def invoked(*words: object) -> Result:
    """Result of the command in this interpreter; no traceback is shown and none escapes."""
    result = CliRunner().invoke(main, [str(word) for word in words], prog_name="lgbench")
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def with_plugins(registry: Registry, *words: object) -> Result:
    """Result of the command where these plugins are installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "load", classmethod(lambda cls, files=(), only=None: registry))
        return invoked(*words)


def lgbench(*words: object) -> str:
    """Output of a command that ends well, in this interpreter."""
    result = invoked(*words)
    assert result.exit_code == 0, result.output
    return result.output


def until(process: Process, words: str) -> Iterator[str]:
    """Lines of stderr up to one with these words."""
    for line in process.stderr:
        yield line
        if words in line:
            return


def rows(folder: Path) -> dict[str, str]:
    """Rows of all run files by name. The repr of a float tells all its bits."""
    return {path.name: repr(run_files.read(path).to_pylist()) for path in folder.glob("*.parquet")}


def versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """Identity and time of each run file. Once there, a file stays as it is."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in run_files.find(folder)}


def left(folder: Path) -> list[str]:
    """Names of everything in a results folder except run files."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".parquet")


def trained(said: str) -> int:
    """Number of populations that a process began to train."""
    return len(re.findall(r"^train .*: started$", said, re.MULTILINE))


def written(said: str) -> int:
    """Number of run files that a command wrote."""
    return sum(map(int, re.findall(r"(\d+) runs? written", said)))
