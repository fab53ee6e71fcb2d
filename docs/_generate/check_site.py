"""Look at every page of the built site: links lead somewhere, and nothing is loaded from outside.

    python docs/_generate/check_site.py site

MkDocs checks the links that are written in Markdown. This checks those in the HTML, generated ones included. A link to another
site is allowed and not followed. Scripts, styles and pictures, which a browser would load by itself, must be in the
folder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Tags that make a browser load something, and the attribute that says what."""

NOT_LOADED = {"canonical", "next", "prev", "edit"}
"""Relations of <link> that only name a page."""

OUTSIDE = re.compile(r"""(?:@import\s*|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class PageLinks(HTMLParser):
    """The anchors of a page, the links on it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values and values.get("rel") not in NOT_LOADED:
            self.loads.append(values[LOADED[tag]])


@cache
def found(page: Path) -> PageLinks:
    return PageLinks(page.read_text(encoding="utf-8"))


def problems(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere, and for each thing that would be loaded from outside."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site} has no pages; `make docs` builds them"
    for page in pages:
        for link in found(page).links:
            if not leads_somewhere(link, page, site):
                yield f"{page}: the link {link!r} leads nowhere"
        for load in found(page).loads:
            if urlsplit(load).scheme in ("http", "https") or load.startswith("//"):
                yield f"{page}: {load!r} would be loaded from outside"
            elif not leads_somewhere(load, page, site):
                yield f"{page}: {load!r} is not there"
    for style in sorted(site.rglob("*.css")):
        for outside in OUTSIDE.findall(style.read_text(encoding="utf-8")):
            yield f"{style}: {outside!r} would be loaded from outside"


def leads_somewhere(link: str, page: Path, site: Path) -> bool:
    """Whether the file of a link is there, with its anchor. A link to another site does.

    So does a link into a page that draws itself (`#/...`), as the page of boards.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or link.startswith("#/"):
        return True
    folder = site if parts.path.startswith("/") else page.parent
    target = folder / unquote(parts.path).lstrip("/") if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or anchor == "__top" or target.suffix != ".html" or anchor in found(target).anchors


def main() -> None:
    wrong = list(problems(Path(sys.argv[1])))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
