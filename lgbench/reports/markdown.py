"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def pipes(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a GitHub table."""
    return ["| " + " | ".join(line) + " |" for line in lines]
