"""A griffe extension: docstrings of this repository as Markdown.

They are plain text with the roles of reStructuredText (:class:`lgbench.Task`). Roles become links where the reference has
their target. Asterisks and brackets stay as they are: p* is no emphasis, and state["ema"]["weight"] is no link.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|mod|data):`~?([\w.]+)`")
CODE = re.compile(r"(`[^`]*`|<autoref.*?</autoref>)")
DOCTEST = re.compile(r"(?:^|(?<=\n\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


def as_markdown(text: str) -> str:
    """One docstring as Markdown.

    >>> as_markdown("See :class:`lgbench.Task` about p*.")
    'See <autoref identifier="lgbench.Task" optional><code>Task</code></autoref> about p\\\\*.'
    """
    linked = ROLE.sub(_link, DOCTEST.sub(r"```pycon\n\1\n```", text))
    if "```" in linked:
        return linked
    parts = CODE.split(linked)
    return "".join(part if place % 2 else re.sub(r"([*\[\]])", r"\\\1", part) for place, part in enumerate(parts))


def _link(match: re.Match[str]) -> str:
    target = match[1]
    if not target.startswith("lgbench"):
        return f"`{target}`"
    public = re.sub(r"^lgbench\.contracts\.\w+\.", "lgbench.", target)
    name = target.rsplit(".", 1)[-1] if target.count(".") else target
    return f'<autoref identifier="{public}" optional><code>{name}</code></autoref>'


class Docstrings(griffe.Extension):
    """Rewrite every docstring once, when its object has been loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Show the default alone of a field that also has its help for the command line."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) in ("option", "field"):
            attr.value = attr.value.arguments[0] if str(attr.value.function) == "option" else None
