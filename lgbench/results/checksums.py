"""The checksum in a file's footer: the SHA-256 of all its bytes, where the digits of the checksum itself count as zeros.

So a change of any bit of rows or footer is found for the price of reading the bytes, before Parquet is.
"""

from __future__ import annotations

import hashlib
import re

CHECKSUM = "checksum"
ZEROS = "0" * 64
_SEAL = re.compile(rb'"checksum": "([0-9a-f]{64})"')
_SEAL_BEGINS = b'"checksum": "'


def sealed(content: bytes) -> bytes:
    """The bytes of a file with its checksum in place of the zeros."""
    place = _stated(content)
    assert place
    start, end = place.span(1)
    return content[:start] + hashlib.sha256(content).hexdigest().encode() + content[end:]


def is_sealed(content: bytes) -> bool | None:
    """Whether these bytes of a file are those that were written; None if there is no checksum that could tell."""
    stated = _stated(content)
    if stated is None:
        return None
    start, end = stated.span(1)
    digest = hashlib.sha256(memoryview(content)[:start])
    digest.update(ZEROS.encode())
    digest.update(memoryview(content)[end:])
    return digest.hexdigest().encode() == stated[1]


def _stated(content: bytes) -> re.Match[bytes] | None:
    """The last checksum in a file, which is near its end."""
    place = len(content)
    while (place := content.rfind(_SEAL_BEGINS, 0, place)) >= 0:
        if stated := _SEAL.match(content, place):
            return stated
    return None
