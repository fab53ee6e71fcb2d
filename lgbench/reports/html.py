"""The page as HTML: its template, scripts and style in one text that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt

import lgbench
from lgbench.reports.drawing import drawn

SCRIPTS = (
    "data.js",
    "elements.js",
    "charts.js",
    "steps.js",
    "board.js",
    "entry.js",
    "compare.js",
    "overall.js",
    "claims.js",
    "start.js",
    "main.js",
)
"""Run as one, in this order: the later ones use the earlier ones."""


def filled(documents: Mapping[str, Any], summary: str) -> str:
    """The page's HTML with everything in its place. Scripts and style run by their hashes alone, and nothing is fetched."""
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    libraries = _libraries()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_hash(script)} {_hash(libraries)}; style-src {_hash(style)}"
    )
    rules = MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md"))
    # The template escapes everything but our own text. It writes JSON so that no HTML parser takes it for anything else.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(_text("page.html")).render(
        policy=policy,
        generator=f"lgbench {lgbench.__version__}",
        style=style,
        summary=summary,
        rules=rules,
        documents=documents,
        script=script,
        libraries=libraries,
    )


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, without what would end its element. Bundling takes seconds."""
    bundle = drawn(
        "javascript_bundle", "window.vegaEmbed = vegaEmbed;", ways_out="more memory helps, or a higher `ulimit -v`"
    ).decode()
    return re.sub(r"<(?=/?script|!--)", r"\\x3c", bundle, flags=re.IGNORECASE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return _packaged(f"page/{name}")


def _packaged(name: str) -> str:
    return files("lgbench.reports").joinpath(*name.split("/")).read_text(encoding="utf-8")
