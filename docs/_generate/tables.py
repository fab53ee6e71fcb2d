"""Plain text and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

CODE = re.compile(r"(`[^`]*`)")


def prose(text: str) -> str:
    """Plain text of a docstring as Markdown: p* is no emphasis, a comparison is no tag, and a doctest is a block of code."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in text.split("\n\n"))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    parts = CODE.split(re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text))
    return "".join(part if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([*_|\[\]])", r"\\\1", re.sub(r"\*(\w+)\*(?!\w)", r"\1", text))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, [":--"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("\n", " ") for cell in line) + " |" for line in lines)
