"""Commands in a fresh interpreter, and packages as pip installs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = "from lgbench.cli.main import main; main(prog_name='lgbench')"


def install(
    folder: Path, module: str, source: str | None = None, version: str = "1.0", distribution: str | None = None
) -> None:
    """Write the files that pip leaves behind: a module (if `source` is given) and the folder that names its entry point."""
    name = distribution or module
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[lgbench]\n{module} = {module}\n")
    if source is not None:
        (folder / f"{module}.py").write_text(source)


@contextmanager
def visible(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Context in which this interpreter finds the packages of a folder. Their modules are forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield patch
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            del sys.modules[name]


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`code` in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | environ, check=False)


def lgbench_command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line in a fresh interpreter."""
    return python(COMMAND, *arguments, **environ)
