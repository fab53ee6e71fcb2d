"""Files that are made again, such as a figure or a page: whole or not at all, in place of the one before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lgbench.errors import UsageError


def replace(path: Path, content: bytes) -> None:
    """Write a file under another name, and give it its own once it is whole. UsageError where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        partial = Path(name)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; --out names another place") from error
