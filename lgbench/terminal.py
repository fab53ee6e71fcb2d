"""Text of strangers on a terminal: names, versions, notes and errors of plugins and files."""

from __future__ import annotations

import unicodedata

MAX_SENTENCE = 2000
"""Characters of a stranger's text that a sentence has at most."""


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text without anything that moves a cursor, colours a terminal, or turns the order of letters round.

    Every such character is written as Python writes it in a string. With `lines`, ends of lines stay.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    if text.isprintable():
        return text
    kept = {"\n"} if lines else set[str]()
    return "".join(letter if letter in kept or _is_harmless(letter) else _escaped(letter) for letter in text)


def sentence(text: str) -> str:
    """A stranger's text as a part of a sentence: printable, on one line, and cut where it is very long."""
    text = printable(" ".join(text[: 2 * MAX_SENTENCE].splitlines()))
    return text if len(text) <= MAX_SENTENCE else f"{text[:MAX_SENTENCE]} ..."


def _is_harmless(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"  # spaces of all widths


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
