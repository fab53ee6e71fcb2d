"""Messages between processes: one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, TypeVar

import msgspec

Message = TypeVar("Message")


def send(stream: IO[str], message: msgspec.Struct) -> None:
    """Raises OSError where nobody reads any more."""
    stream.write(msgspec.json.encode(message).decode() + "\n")
    stream.flush()


def received(stream: IO[str], decode: Callable[[str], Message]) -> Iterator[Message]:
    """The messages of another process until it ends. One that is killed may leave half a line, or half a character."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        yield from map(decode, stream)
