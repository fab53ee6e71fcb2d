"""Files that are made again, such as a figure or a page."""

from __future__ import annotations

from pathlib import Path

from lgbench.atomic_files import replaced
from lgbench.errors import UsageError


def replace(path: Path, content: bytes) -> None:
    """Put a whole file in place of one that may be there. Raises UsageError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; name another place") from error
