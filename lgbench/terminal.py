"""Untrusted text on a terminal: names, versions, notes and errors from plugins and files. Counts and sizes as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from math import ceil
from textwrap import wrap

MAX_SENTENCE = 2000
"""Largest number of characters of an untrusted text in a sentence."""


def printable(text: str, *, lines: bool = False) -> str:
    r"""Text without control characters for cursor, colours or the direction of letters.

    Such characters are replaced by their Python escapes. With `lines`, line ends stay.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    if text.isprintable():
        return text
    kept = {"\n"} if lines else set[str]()
    harmless = (x in kept or x.isprintable() or unicodedata.category(x) == "Zs" for x in text)  # spaces of all widths
    return "".join(x if ok else x.encode("unicode_escape").decode("ascii") for x, ok in zip(text, harmless, strict=True))


def sentence(text: str) -> str:
    """Untrusted text as a part of a sentence: printable, on one line, cut after MAX_SENTENCE characters."""
    text = printable(" ".join(text[: 2 * MAX_SENTENCE].splitlines()))  # cut twice: a huge text is slow to escape
    return text if len(text) <= MAX_SENTENCE else f"{text[:MAX_SENTENCE]} ..."


def wrapped(text: str, width: int, hang: int = 0) -> str:
    """Text with lines of at most `width` columns, broken between words; a longer word, such as a path, stays whole.

    Further lines of a line are indented as the line itself, plus `hang`.

    >>> print(wrapped("  one two three", 9, hang=2))
      one two
        three
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width, hang))


def _parts(line: str, width: int, hang: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + hang)
    return wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [line]


def counted(number: int, thing: str, one: str = "", several: str = "") -> str:
    """Number with its noun in singular or plural, and with the verb for either, if given.

    >>> counted(1, "run"), counted(2, "entry"), counted(1, "file", "is", "are"), counted(2, "file", "is", "are")
    ('1 run', '2 entries', '1 file is', '2 files are')
    """
    things = f"{thing[:-1]}ies" if thing.endswith("ry") else f"{thing}s"
    return f"{number} {thing if number == 1 else things} {one if number == 1 else several}".rstrip()


def named_seeds(seeds: Sequence[int]) -> str:
    """Sorted seeds for a reader.

    >>> named_seeds([1, 3, 4, 5]), named_seeds([0])
    ('seeds 1 and 3 to 5', 'seed 0')
    """
    known = set(seeds)
    starts, ends = [n for n in seeds if n - 1 not in known], [n for n in seeds if n + 1 not in known]
    parts = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return ("seed " if len(seeds) == 1 else "seeds ") + " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def memory(size: float) -> str:
    """Size in bytes as decimal gigabytes or megabytes.

    >>> memory(123_456_789_000), memory(2_340_000_000), memory(12_300_000)
    ('123 GB', '2.3 GB', '13 MB')
    """
    if size < 1e9:
        return f"{ceil(size / 1e6)} MB"
    return f"{size / 1e9:.0f} GB" if size >= 10e9 else f"{size / 1e9:.1f} GB"


def duration(seconds: float) -> str:
    """Duration in at most two units.

    >>> [duration(seconds) for seconds in (37.2, 372, 3723, 12_000, 180_000)]
    ['37 s', '6 min', '62 min', '3 h 20 min', '2 d 2 h']
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    hours = round(seconds / 3600)
    return f"{hours // 24} d" + (f" {hours % 24} h" if hours % 24 else "")
