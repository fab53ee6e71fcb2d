"""The installed plugins as requirements of pip, and the way back from there. None is imported: a broken one is told as well."""

from __future__ import annotations

import codecs
import importlib
import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lgbench.errors import Interrupted, LgbenchError, UsageError
from lgbench.registry import GROUP

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NO_REQUIREMENT = re.compile(r"\s*($|#|-(?!e|-editable|r|-requirement))")


def frozen() -> list[str]:
    """A line for every distribution that provides plugins, lgbench aside, whether they can be imported or not."""
    return sorted(map(requirement, _distributions()), key=str.lower)


def requirement(distribution: Distribution) -> str:
    """The line from which pip installs a distribution again: from an index, or from where it came (PEP 610)."""
    direct = _direct_url(distribution)
    url = direct.get("url")
    if not url:
        return f"{distribution.name}=={distribution.version}"
    if (direct.get("dir_info") or {}).get("editable"):
        path = local_path(url)
        # pip splits what follows -e as a shell does, so a path with anything odd in it stays a URL.
        return f"-e {path if path and shlex.quote(path) == path else url}"
    if version_control := direct.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    hashes = [f"{algorithm}={digits}" for algorithm, digits in direct.get("archive_info", {}).get("hashes", {}).items()]
    folder = [f"subdirectory={direct['subdirectory']}"] if "subdirectory" in direct else []
    fragment = "&".join(hashes[:1] + folder)
    # With a name before it, git+file: is no requirement to older releases of pip, which find the name themselves.
    name = "" if re.match(r"\w+\+file:", url) else f"{distribution.name} @ "
    return f"{name}{url}" + (f"#{fragment}" if fragment else "")


def restore(path: Path) -> list[Distribution]:
    """Let pip install what the file asks for, its output on standard error; the plugins there now that the file names.

    Raises UsageError for a file without requirements, LgbenchError where there is no pip or it failed.
    """
    lines = _requirements(path)
    if find_spec("pip") is None:
        raise LgbenchError(
            f"{sys.executable} has no pip: install it with `{sys.executable} -m ensurepip`, or let another installer read the "
            f"file, as in `uv pip install --python {sys.executable} --requirement {path}`"
        )
    if _pip_install(path) != 0:
        raise LgbenchError(f"pip could not install what {path} asks for; its output above says why")
    importlib.invalidate_caches()  # the folders that were looked into before have changed
    names = {canonical(found[0]) for line in lines if (found := _NAME.match(line))}
    return [found for found in _distributions() if canonical(found.name) in names or requirement(found) in lines]


def local_path(url: str) -> str | None:
    """The path that a file: URL names."""
    parts = urlsplit(url)
    return url2pathname(parts.path) if parts.scheme == "file" else None


def _distributions() -> list[Distribution]:
    """Those that provide plugins, lgbench aside, by name."""
    origins = (entry_point.dist for entry_point in entry_points(group=GROUP))
    # What has lost its metadata has no name, and nothing to be installed by.
    found = {canonical(origin.name): origin for origin in origins if origin and origin.name}
    return [found[name] for name in sorted(found) if name != "lgbench"]


def _direct_url(distribution: Distribution) -> dict[str, Any]:
    """Where it came from, empty where that was an index or cannot be read."""
    try:
        direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return direct if isinstance(direct, dict) else {}


def _requirements(path: Path) -> list[str]:
    """The lines of the file that ask for something."""
    freeze = f"`lgbench plugins freeze > {path}` writes one"
    try:
        content = path.read_bytes()
        # Some shells redirect into UTF-16, with a mark that says so; pip reads that as well.
        marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r} to restore plugins from; {freeze}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a file of requirements, {freeze}") from None
    except UnicodeError:
        raise UsageError(f"cannot read {path}: it is no text; name a file of requirements, {freeze}") from None
    lines = [line.strip() for line in text.splitlines() if not _NO_REQUIREMENT.match(line)]
    if not lines:
        raise UsageError(f"{path} has no requirement in it, such as my-plugin==1.0; {freeze} where plugins are installed")
    return lines


def _pip_install(path: Path) -> int:
    """The exit code of pip."""
    pip = subprocess.Popen([sys.executable, "-m", "pip", "install", "--requirement", str(path)], stdout=2)
    try:
        return pip.wait()
    except KeyboardInterrupt:
        pip.wait()  # it was interrupted as well, and takes back what it had half installed
        raise Interrupted("interrupted; `lgbench plugins` shows what is installed now, and the same command goes on") from None


def canonical(name: str) -> str:
    """The one spelling of a distribution's name.

    >>> canonical("My_Plugin.two")
    'my-plugin-two'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
