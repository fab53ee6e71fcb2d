"""Reads claims from TOML files and checks every key."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from lgbench.checkout import ROOT
from lgbench.claims.claim import EXPECTATIONS, LENGTH_SETS, Claim, ClaimTest, Runs, Source
from lgbench.contracts import METRIC_NAME, NAME
from lgbench.errors import UsageError, unknown
from lgbench.experiment.protocols import MAX_SEEDS, PROTOCOLS
from lgbench.terminal import printable

PACKAGED = Path(__file__).parent / "published"
"""The claims of an installed lgbench: a copy of those in the repository's leaderboards/claims."""

MAX_BYTES = 2**20
"""Of one file."""


@dataclass(frozen=True)
class Key:
    """What a key of a claim's file may hold."""

    expected: str
    """For people, such as "a line of text"."""
    holds: Callable[[Any], bool]
    meaning: str
    required: bool = False


def _line(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != "" and value.isprintable()


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6 and isfinite(value)


def _whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def every(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(map(holds, value)) and len(set(value)) == len(value)

    return every


def _named(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _lengths(value: Any) -> bool:
    return value in LENGTH_SETS if isinstance(value, str) else _list_of(lambda length: _whole(length, 2**20))(value)


LINE, NAMES, NUMBER = "a line of text", 'a list of names such as ["dyck"], each once', "a number such as 0.02"

KEYS: Mapping[str, Mapping[str, Key]] = {
    "": {
        "claim": Key(LINE, _line, "The sentence, in plain words.", True),
        "note": Key(LINE, _line, "What a reader should know about the choice of tasks and tests."),
        "source": Key("a table that begins with [source]", lambda v: isinstance(v, dict), "Where it was said.", True),
        "runs": Key("a table that begins with [runs]", lambda v: isinstance(v, dict), "What has to be run.", True),
        "tests": Key(
            "tables that begin with [[tests]], each once",
            lambda v: isinstance(v, list) and bool(v) and all(isinstance(each, dict) for each in v),
            "The tests that decide it, one or more. Each has a verdict on each task.",
            True,
        ),
    },
    "source": {
        "paper": Key(LINE, _line, "The paper's identifier, such as `arXiv 2510.08341`.", True),
        "title": Key(LINE, _line, "The paper's title.", True),
        "place": Key(LINE, _line, "The section, figure or table. Leave it out where you do not know it."),
    },
    "runs": {
        "tasks": Key(NAMES, _list_of(_named), "Tasks, or families of tasks. Each has a verdict of its own.", True),
        "seeds": Key(
            f"a whole number from 1 to {MAX_SEEDS}",
            lambda v: _whole(v, MAX_SEEDS),
            "How many seeds every entry needs: they are 0, 1, 2 and so on.",
            True,
        ),
        "protocols": Key(
            NAMES,
            _list_of(_named),
            'Protocols that have to be run; `["standard"]` by default. `--run` takes the first of them. A claim is decided '
            "under every other protocol that was run, too.",
        ),
        "plugins": Key(
            'a list of packages such as ["lgbench-attention"]', _list_of(_line), "Packages that have to be installed."
        ),
        "average": Key(NAMES, _list_of(_named), "Averages of the weights to test, as of `lgbench run --average`."),
    },
    "tests": {
        "entry": Key(LINE, _line, "The entry that the claim is about, as boards name it, with `@bema` for an average.", True),
        "against": Key(LINE, _line, "The entry that it is compared with, paired by seed."),
        "exponent": Key(
            "a number such as -1.0",
            _number,
            "In place of `against`: the values of each seed are fitted by a power of the length, and this is the power claimed.",
        ),
        "metric": Key(
            "the name of a metric such as tvd",
            lambda v: isinstance(v, str) and METRIC_NAME.fullmatch(v) is not None,
            "The measurement; `tvd` by default.",
        ),
        "lengths": Key(
            '"ID", "OOD", "all", or a list of whole numbers such as [32, 64], each once',
            _lengths,
            'Over which lengths of the board: `"ID"`, `"OOD"` (the default), `"all"`, or a list such as `[32, 64]`.',
        ),
        "expect": Key(
            "better or alike",
            lambda v: v in EXPECTATIONS,
            "`better` (the default): better than the other entry by more than the margin. `alike`: within the margin either way.",
        ),
        "margin": Key(
            "a number such as 0.02, at least 0",
            lambda v: _number(v) and v >= 0,
            "In units of the metric, or of the exponent; 0 by default. `alike` and `exponent` need one above 0.",
        ),
    },
}
"""Every key, by table."""


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
    if not _named(name):
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
