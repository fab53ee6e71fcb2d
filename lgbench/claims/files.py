"""Reads claims from TOML files and checks every key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lgbench.checkout import ROOT
from lgbench.claims.claim import Claim, ClaimTest, Runs, Source
from lgbench.claims.keys import KEYS
from lgbench.contracts import NAME
from lgbench.errors import UsageError, unknown
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.terminal import printable

PACKAGED = Path(__file__).parent / "published"
"""The claims of an installed lgbench: a copy of those in the repository's leaderboards/claims."""

MAX_BYTES = 2**20
"""Of one file."""


def default_folder() -> Path:
    """The claims of the checkout that lgbench is imported from; where it is installed otherwise, those that came with it."""
    own = ROOT / "leaderboards" / "claims"
    return own if own.is_dir() else PACKAGED


def read_claims(folder: Path, names: Iterable[str] = ()) -> list[Claim]:
    """The claims of a folder by name, all or those that are named. UsageError for the first that is unknown or unsound."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {printable(str(folder))!r} of claims; name one that has TOML files")
    paths = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if not paths:
        raise UsageError(f"the folder {printable(str(folder))!r} has no claim; a claim is a file that ends with .toml")
    wanted = list(dict.fromkeys(names)) or list(paths)
    for name in wanted:
        if name not in paths:
            raise unknown("claim", printable(name), paths)
    return [read_claim(paths[name]) for name in wanted]


def read_claim(path: Path) -> Claim:
    """Raises UsageError, which names the file, for anything that is wrong."""
    where = printable(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"it has more than {MAX_BYTES} bytes; a claim is a short file")
        return _claim(path.stem, tomllib.loads(content.decode()))
    except UnicodeDecodeError:
        raise UsageError(f"{where}: it is not UTF-8 text, as TOML has to be") from None
    except OSError as error:
        raise UsageError(f"{where}: it cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: it is no TOML: {printable(str(error))}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _claim(name: str, content: Mapping[str, Any]) -> Claim:
    if not NAME.fullmatch(name):
        raise UsageError(f"{printable(name)!r} cannot be its name: use lower-case letters, digits and single hyphens")
    _check("", content)
    source, runs = content["source"], content["runs"]
    _check("source", source)
    _check("runs", runs)
    for protocol in runs.get("protocols", ()):
        if protocol not in PROTOCOLS:
            raise UsageError(f"in [runs], {unknown('protocol', protocol, PROTOCOLS)}")
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in runs.items()}
    lists["seeds"] = tuple(range(runs["seeds"]))
    tests = tuple(map(_test, content["tests"]))
    if len(set(tests)) < len(tests):
        raise UsageError("two of [[tests]] are the same; leave one out")
    return Claim(name, content["claim"], Source(**source), Runs(**lists), tests, content.get("note"))


def _test(content: Mapping[str, Any]) -> ClaimTest:
    """Raises UsageError for keys that do not go together."""
    _check("tests", content)
    if ("against" in content) == ("exponent" in content):
        raise UsageError("one of [[tests]] needs against, an entry, or exponent, a number, and not both")
    if content["entry"] == content.get("against"):
        raise UsageError(f"one of [[tests]] compares {content['entry']} with itself; name two entries")
    expect = "alike" if "exponent" in content else content.get("expect", "better")
    if content.get("expect", expect) != expect:
        raise UsageError(
            "one of [[tests]] expects better of an exponent; leave expect out: an exponent is tested within its margin"
        )
    margin = float(content.get("margin", 0))
    if expect == "alike" and not margin:
        raise UsageError("one of [[tests]] needs a margin above 0, such as margin = 0.02: nothing is alike within 0")
    lengths = content.get("lengths", "OOD")
    if "exponent" in content and isinstance(lengths, list) and len(lengths) < 2:
        raise UsageError("one of [[tests]] fits an exponent to one length; name two or more")
    if isinstance(lengths, list):
        lengths = tuple(sorted(lengths))
    return ClaimTest(**{**content, "lengths": lengths, "expect": expect, "margin": margin})


def _check(table: str, content: Mapping[str, Any]) -> None:
    """Raise UsageError for a key that is unknown, missing, or holds what it cannot."""
    keys = KEYS[table]
    shown = {"": "it", "tests": "one of [[tests]]"}.get(table, f"[{table}]")
    for key, value in content.items():
        if key not in keys:
            raise UsageError(f"{shown} has a key that claims do not have: {unknown('key', printable(key), keys)}")
        if not keys[key].holds(value):
            raise UsageError(f"{key} of {shown} is {_shown(value)}, expected {keys[key].expected}".replace(" of it ", " "))
    for key, own in keys.items():
        if own.required and key not in content:
            raise UsageError(f"{shown} lacks the key {key}: {own.expected}")


def _shown(value: Any) -> str:
    text = printable(repr(value))
    return text if len(text) <= 100 else f"{text[:100]}..."
