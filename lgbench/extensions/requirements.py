"""The installed plugins as requirements of pip, and how to install them again. No plugin is imported: broken ones count too."""

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

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lgbench.errors import Interrupted, LgbenchError, UsageError
from lgbench.extensions.loading import GROUP

_NO_REQUIREMENT = re.compile(r"\s*($|#|-(?!e|-editable|r|-requirement))")
_REST = re.compile(r"\s+(#|--)")
"""Where a comment or an option of pip begins, after a requirement."""


def frozen() -> list[str]:
    """A line for every distribution that provides plugins, except lgbench."""
    return sorted(map(requirement, _distributions()), key=str.lower)


def requirement(distribution: Distribution) -> str:
    """The line by which pip installs a distribution again, from an index or from its own source (PEP 610)."""
    direct = _direct_url(distribution)
    url = direct.get("url")
    if not url:
        return f"{distribution.name}=={distribution.version}"
    if (direct.get("dir_info") or {}).get("editable"):
        path = local_path(url)
        # pip splits the text after -e as a shell does, so a path that a shell would split stays a URL.
        return f"-e {path if path and shlex.quote(path) == path else url}"
    if version_control := direct.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    hashes = [f"{algorithm}={digits}" for algorithm, digits in direct.get("archive_info", {}).get("hashes", {}).items()]
    folder = [f"subdirectory={direct['subdirectory']}"] if "subdirectory" in direct else []
    fragment = "&".join(hashes[:1] + folder)
    # Older releases of pip refuse a name before git+file:, and find the name themselves.
    name = "" if re.match(r"\w+\+file:", url) else f"{distribution.name} @ "
    return f"{name}{url}" + (f"#{fragment}" if fragment else "")


def restore(path: Path) -> list[Distribution]:
    """Let pip install the requirements in a file, with its output on standard error. Returns the plugins that the file names.

    Raises UsageError for a file without requirements, and LgbenchError if pip is missing or fails.
    """
    lines = _requirements(path)
    if find_spec("pip") is None:
        raise LgbenchError(
            f"{sys.executable} has no pip: install it with `{sys.executable} -m ensurepip`, or use another installer, "
            f"as in `uv pip install --python {sys.executable} --requirement {path}`"
        )
    if _pip_install(path) != 0:
        raise LgbenchError(f"pip could not install the requirements in {path}; its output above says why")
    importlib.invalidate_caches()  # pip has changed folders that were read before
    names = {_named(line) for line in lines}
    return [found for found in _distributions() if canonicalize_name(found.name) in names or requirement(found) in lines]


def local_path(url: str) -> str | None:
    """The path that a file: URL names."""
    parts = urlsplit(url)
    return url2pathname(parts.path) if parts.scheme == "file" else None


def _distributions() -> list[Distribution]:
    """All that provide plugins, except lgbench, by name."""
    origins = (entry_point.dist for entry_point in entry_points(group=GROUP))
    # A distribution that lost its metadata has no name.
    found = {canonicalize_name(origin.name): origin for origin in origins if origin and origin.name}
    return [found[name] for name in sorted(found) if name != "lgbench"]


def _direct_url(distribution: Distribution) -> dict[str, Any]:
    """The source of a distribution, as its installer wrote it; empty for an index, or if it cannot be read."""
    try:
        direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return direct if isinstance(direct, dict) else {}


def _requirements(path: Path) -> list[str]:
    """The lines of a file that are requirements."""
    freeze = f"`lgbench plugins freeze > {path}` writes one"
    try:
        content = path.read_bytes()
        # Some shells redirect output as UTF-16, with a byte-order mark. pip reads that too.
        marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r} to restore plugins from; {freeze}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a file of requirements, {freeze}") from None
    except UnicodeError:
        raise UsageError(f"cannot read {path}: it is not a text file; name a file of requirements, {freeze}") from None
    lines = [line.strip() for line in text.splitlines() if not _NO_REQUIREMENT.match(line)]
    if not lines:
        raise UsageError(f"{path} has no requirement in it, such as my-plugin==1.0; {freeze} on a machine that has the plugins")
    return lines


def _named(line: str) -> str | None:
    """The distribution that a line names, in its canonical spelling; None for a path or a URL alone."""
    try:
        return canonicalize_name(Requirement(_REST.split(line)[0]).name)
    except InvalidRequirement:
        return None


def _pip_install(path: Path) -> int:
    """The exit code of pip."""
    pip = subprocess.Popen([sys.executable, "-m", "pip", "install", "--requirement", str(path)], stdout=2)
    try:
        return pip.wait()
    except KeyboardInterrupt:
        pip.wait()  # it was interrupted too, and removes what it had half installed
        raise Interrupted("interrupted; `lgbench plugins` shows what is installed, and the same command continues") from None
