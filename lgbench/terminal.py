"""Text for a terminal: names of others may hold characters that a terminal obeys instead of showing them."""

from __future__ import annotations

import re

# Control characters, C1 among them; marks that turn the direction of the text; separators of lines; lone surrogates.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""The text with each character that is unsafe on a terminal as a visible escape; those in `keep` stay.

    >>> print(printable("a\x1b[31mb\nc\u202e"))
    a\x1b[31mb\nc\u202e
    >>> printable("two\nlines\t", keep="\n")
    'two\nlines\\t'
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
    )
