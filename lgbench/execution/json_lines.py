"""Messages between processes: one JSON object a line."""

from __future__ import annotations

from typing import IO

import msgspec


def send(stream: IO[str], message: msgspec.Struct) -> None:
    """Raises OSError where nobody reads any more."""
    stream.write(msgspec.json.encode(message).decode() + "\n")
    stream.flush()
