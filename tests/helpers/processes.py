"""Commands in a fresh interpreter, and packages as pip installs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`code` in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | environ, check=False)


def lgbench_command(*arguments: str, then: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line in a fresh interpreter; `then` runs after it, whatever its exit."""
    command = "from lgbench.cli.main import main\ntry:\n    main(prog_name='lgbench')"
    code = f"{command}\nfinally:\n    import sys\n    {then or 'pass'}"
    return python(code, *arguments, **environ)
