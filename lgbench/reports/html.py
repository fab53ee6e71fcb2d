"""HTML of the page: template, scripts and style in a single text without external resources."""

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
"""Scripts in order of execution: later scripts use earlier scripts."""


def filled(documents: Mapping[str, Any], summary: str) -> str:
    """HTML of the whole page. Hashes in the security policy allow only the page's own scripts and style, and no requests."""
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    libraries = _libraries()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_hash(script)} {_hash(libraries)}; style-src {_hash(style)}"
    )
    rules = MarkdownIt("commonmark", {"html": False}).enable("table").render(_packaged("rules.md"))
    # The template escapes all foreign text, and writes JSON without characters of HTML markup.
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
    """Vega, Vega-Lite and Vega-Embed as one script, without text that could end the script element. Bundling takes seconds."""
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
