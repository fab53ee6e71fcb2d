"""Writes README.md, the list of known plugins, from directory.toml. With --check it only says whether README.md is stale."""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lgbench.contracts import METRIC_NAME, NAME
from lgbench.extensions.registry import Registry

HERE = Path(__file__).parent
DATA, PAGE = HERE.parent / "lgbench" / "extensions" / "directory.toml", HERE / "README.md"
KINDS = (*Registry().catalogs(), "command")
FIELDS = ("name", "about", "url", "license")

HEADER = """# Known plugins

`make directory` writes this page from [directory.toml](../lgbench/extensions/directory.toml). Anybody may
[add a plugin](../docs/how-to/publish-a-plugin.md#let-others-find-it). Plugins are code, and nobody has reviewed those listed
here: install only plugins that you trust. `pip install ./plugins/contrib/NAME` in a checkout
installs one of this repository.

The built-in plugins come with lgbench: {built_in}.

| plugin | about | provides | license |
| :-- | :-- | :-- | :-- |
"""


def page(text: str) -> str:
    """The page from the text of its data. Raises ValueError with the fault of an entry."""
    plugins = listed(tomllib.loads(text))
    for plugin in plugins:
        check(plugin)
    names = [plugin["name"] for plugin in plugins]
    if names != sorted(set(names)):
        raise ValueError(f"plugins must be listed once, in the order of their names: {', '.join(names)}")
    built_in = ", ".join(f"[{folder.name}]({folder.name})" for folder in sorted(HERE.glob("lgbench_*")) if folder.is_dir())
    return HEADER.format(built_in=built_in) + "".join(line(plugin) for plugin in plugins)


def listed(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries that the data hold. Raises ValueError where they hold anything else."""
    for key in data:
        if key != "plugin":
            raise ValueError(f"{key!r} is no key of the directory: every plugin is a table that begins with [[plugin]]")
    plugins = data.get("plugin", [])
    if not (isinstance(plugins, list) and all(isinstance(plugin, dict) for plugin in plugins)):
        raise ValueError(f"plugin is {plugins!r}, expected a list of tables, each of which begins with [[plugin]]")
    return plugins


def check(plugin: Mapping[str, Any]) -> None:
    """Raise ValueError where an entry lacks a field, or has a value that would break the page."""
    name = plugin.get("name", "a plugin without a name")
    for field in FIELDS:
        value = plugin.get(field)
        if not (isinstance(value, str) and value and "\n" not in value and "|" not in value):
            raise ValueError(f"{name}: {field} is {value!r}, expected a line of text without bars")
    for field in plugin:
        if field not in (*FIELDS, *KINDS):
            raise ValueError(f"{name}: {field!r} is no field; known: {', '.join((*FIELDS, *KINDS))}")
    if not re.match(r"https://|contrib/", plugin["url"]):
        raise ValueError(f"{name}: url is {plugin['url']!r}, expected one that begins with https://")
    provided = {kind: plugin[kind] for kind in KINDS if kind in plugin}
    if not provided:
        raise ValueError(f'{name}: name what it provides, by kind, as in norm = ["my-norm"]')
    for kind, names in provided.items():
        check_names(names, f"{name}: {kind}", kind)


def check_names(names: object, where: str, kind: str) -> None:
    """Raise ValueError where the entry's names of one kind are no list of names that plugins may give."""
    pattern, joint = (METRIC_NAME, "underscore") if kind == "measurement" else (NAME, "hyphen")
    if not (isinstance(names, list) and names and all(isinstance(each, str) and pattern.fullmatch(each) for each in names)):
        example = f"my_{kind}" if kind == "measurement" else f"my-{kind}"
        raise ValueError(
            f"{where} is {names!r}, expected a list of names of lower-case letters, digits and single {joint}s, "
            f'at most 100 each, as in {kind} = ["{example}"]'
        )


def line(plugin: Mapping[str, Any]) -> str:
    """A row of the table."""
    provides = [f"{kind}: {', '.join(f'`{each}`' for each in plugin[kind])}" for kind in KINDS if kind in plugin]
    return f"| [{plugin['name']}]({plugin['url']}) | {plugin['about']} | {'<br>'.join(provides)} | {plugin['license']} |\n"


def main() -> None:
    try:
        found = page(DATA.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(f"{DATA}: {error}") from None
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != found:
            raise SystemExit(f"{PAGE} is not what {DATA} says; run `make directory`")
        return
    PAGE.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
