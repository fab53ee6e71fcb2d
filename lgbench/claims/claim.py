"""Claims of papers, read from TOML files: a sentence, its source, required runs, and decisive tests."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from lgbench.checkout import ROOT
from lgbench.contracts import METRIC_NAME, NAME, PRIMARY_METRIC
from lgbench.errors import UsageError, unknown
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.settings import MAX_SEEDS
from lgbench.terminal import printable

PACKAGED = Path(__file__).parent / "published"
"""Claims of an installed lgbench: a copy of the folder leaderboards/claims of the repository."""

MAX_BYTES = 2**20
"""Largest size of a file."""

LINE, NAMES = "a line of text", 'a list of names such as ["dyck"], each once'

Names = tuple[Annotated[str, Meta(pattern=f"^(?:{NAME.pattern})$")], ...]
Metric = Annotated[str, Meta(pattern=f"^(?:{METRIC_NAME.pattern})$")]


class ClaimSeeds(tuple[int, ...]):
    """Seeds of the runs; a file has the number of seeds."""


def _key(expected: str, meaning: str, in_file: Any = None) -> Meta:
    """Metadata of a key: the expected value, for errors, the meaning, for the docs, and the type in the file, if different."""
    return Meta(description=meaning, extra={"expected": expected, "in_file": in_file})


@dataclass(frozen=True)
class Source:
    """Source of a claim."""

    paper: Annotated[str, _key(LINE, "The paper's identifier, such as `arXiv 2510.08341`.")]
    title: Annotated[str, _key(LINE, "The paper's title.")]
    place: Annotated[str | None, _key(LINE, "The section, figure or table. Leave it out where you do not know it.")] = None

    def __str__(self) -> str:
        return f"{self.title} ({self.paper}{f', {self.place}' if self.place else ''})"


@dataclass(frozen=True)
class Runs:
    """Required runs of a claim."""

    tasks: Annotated[Names, _key(NAMES, "Tasks, or families of tasks. Each has a verdict of its own.")]
    seeds: Annotated[
        ClaimSeeds,
        _key(f"a whole number from 1 to {MAX_SEEDS}", "How many seeds every entry needs: they are 0, 1, 2 and so on."),
    ]
    protocols: Annotated[
        Names,
        _key(
            NAMES,
            'Protocols that have to be run; `["standard"]` by default. `--run` takes the first of them. A claim is decided '
            "under every other protocol that was run, too.",
        ),
    ] = ("standard",)
    plugins: Annotated[
        tuple[str, ...],
        _key('a list of packages such as ["lgbench-attention"]', "Packages that have to be installed."),
    ] = ()
    average: Annotated[Names, _key(NAMES, "Averages of the weights to test, as of `lgbench run --average`.")] = ()
    probes: Annotated[
        tuple[Metric, ...],
        _key(
            'a list of probes such as ["logit_gap"], each once',
            "Probes that the runs need, as of `lgbench run --probe`: those that tests have as their metric.",
        ),
    ] = ()

    def __post_init__(self) -> None:
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                raise UsageError(f"in [runs], {unknown('protocol', protocol, PROTOCOLS)}")


@dataclass(frozen=True)
class ClaimTest:
    """Test of an entry against another entry, or against a power law.

    With `against`, the number of a seed is the difference entry - against between means over the lengths. With `exponent`, the
    number is the fitted exponent of a power law over the lengths, minus `exponent`.
    """

    entry: Annotated[str, _key(LINE, "The entry that the claim is about, as boards name it, with `@bema` for an average.")]
    against: Annotated[str | None, _key(LINE, "The entry that it is compared with, paired by seed.")] = None
    exponent: Annotated[
        Annotated[float, Meta(gt=-1e6, lt=1e6)] | None,
        _key(
            "a number such as -1.0",
            "In place of `against`: a power of the length is fitted to the values of each seed, and this is the power claimed.",
        ),
    ] = None
    metric: Annotated[Metric, _key("the name of a metric such as tvd", "The measurement; `tvd` by default.")] = PRIMARY_METRIC
    lengths: Annotated[
        Literal["ID", "OOD", "all"] | tuple[Annotated[int, Meta(ge=1, le=2**20)], ...],
        _key(
            '"ID", "OOD", "all", or a list of whole numbers such as [32, 64], each once',
            'Over which lengths of the board: `"ID"`, `"OOD"` (the default), `"all"`, or a list such as `[32, 64]`.',
        ),
    ] = "OOD"
    expect: Annotated[
        Literal["better", "alike"] | None,
        _key(
            "better or alike",
            "`better` (the default): than the other entry, by more than the margin. `alike`: within the margin either way.",
        ),
    ] = None
    margin: Annotated[
        Annotated[float, Meta(ge=0, lt=1e6)],
        _key(
            "a number such as 0.02, at least 0",
            "In units of the metric, or of the exponent; 0 by default. `alike` and `exponent` need one above 0.",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        """Raise UsageError for contradictory keys."""
        if (self.against is None) == (self.exponent is None):
            raise UsageError("one of [[tests]] needs against, an entry, or exponent, a number, and not both")
        if self.entry == self.against:
            raise UsageError(f"one of [[tests]] compares {self.entry} with itself; name two entries")
        if self.exponent is not None and self.expect == "better":
            raise UsageError(
                "one of [[tests]] expects better of an exponent; leave expect out: an exponent is tested within its margin"
            )
        object.__setattr__(self, "expect", self.expect or ("better" if self.exponent is None else "alike"))
        if self.expect == "alike" and not self.margin:
            raise UsageError("one of [[tests]] needs a margin above 0, such as margin = 0.02: nothing is alike within 0")
        if isinstance(self.lengths, tuple):
            if self.exponent is not None and len(self.lengths) == 1:
                raise UsageError("one of [[tests]] fits an exponent to one length; name two or more")
            object.__setattr__(self, "lengths", tuple(sorted(self.lengths)))

    @property
    def entries(self) -> tuple[str, ...]:
        return (self.entry,) if self.against is None else (self.entry, self.against)

    def __str__(self) -> str:
        """Expectation, such as "transformer+peri-norm better than transformer+pre-norm"."""
        where = f"at lengths {', '.join(map(str, self.lengths))}" if isinstance(self.lengths, tuple) else str(self.lengths)
        measured = f"{self.metric}, {where}"
        if self.exponent is not None:
            return f"{self.entry} follows length^{self.exponent:g} within {self.margin:g} ({measured})"
        if self.expect == "alike":
            return f"{self.entry} like {self.against}, within {self.margin:g} ({measured})"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{self.entry} better than {self.against}{by} ({measured})"


@dataclass(frozen=True)
class Claim:
    """A file of claims/. Every pair of a task and a test has a verdict under every protocol."""

    name: str
    """Name of the file, without its ending."""
    claim: Annotated[str, _key(LINE, "The sentence, in plain words.")]
    source: Annotated[Source, _key("a table that begins with [source]", "Where it was said.", dict)]
    runs: Annotated[Runs, _key("a table that begins with [runs]", "What has to be run.", dict)]
    tests: Annotated[
        tuple[ClaimTest, ...],
        _key(
            "tables that begin with [[tests]], each once",
            "The tests that decide it, one or more. Each has a verdict on each task.",
            list[dict[str, Any]],
        ),
    ]
    note: Annotated[str | None, _key(LINE, "What a reader should know about the choice of tasks and tests.")] = None

    def __post_init__(self) -> None:
        if len(set(self.tests)) < len(self.tests):
            raise UsageError("two of [[tests]] are the same; leave one out")


TABLES: Mapping[str, type] = {"it": Claim, "[source]": Source, "[runs]": Runs, "one of [[tests]]": ClaimTest}
"""Tables of a file, by their names in error messages; "it" is the top of the file."""


@dataclass(frozen=True)
class ClaimKey:
    """A key of a claim's file."""

    expected: str
    """Expected value in words, such as "a line of text"."""
    meaning: str
    required: bool
    type: Any
    """Type of the value, for msgspec.convert."""


@cache
def keys_of(kind: type) -> dict[str, ClaimKey]:
    """Keys of a table by name."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, ClaimKey] = {}
    for own in fields(kind):
        for meta in getattr(hints[own.name], "__metadata__", ()):
            if meta.extra:  # other metadata are limits of the type
                in_file = meta.extra["in_file"] or hints[own.name]
                found[own.name] = ClaimKey(meta.extra["expected"], meta.description, own.default is MISSING, in_file)
    return found


def default_folder() -> Path:
    """Folder of claims: of the checkout with the imported lgbench, or else of the installed package."""
    own = ROOT / "leaderboards" / "claims"
    return own if own.is_dir() else PACKAGED


def read_claims(folder: Path, names: Iterable[str] = ()) -> list[Claim]:
    """Claims of a folder, all or by name. Raises UsageError for the first unknown or broken claim."""
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
    """Claim of a file. Raises UsageError with the path for a broken file."""
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
    top = _values("it", content)
    source, runs = Source(**_values("[source]", content["source"])), Runs(**_values("[runs]", content["runs"]))
    tests = tuple(ClaimTest(**_values("one of [[tests]]", own)) for own in content["tests"])
    return Claim(name=name, **top | {"source": source, "runs": runs, "tests": tests})


def _values(table: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a table. Raises UsageError for an unknown key, a missing key, or a wrong value."""
    keys = keys_of(TABLES[table])
    for key in content:
        if key not in keys:
            raise UsageError(f"{table} has a key that claims do not have: {unknown('key', printable(key), keys)}")
    for key, own in keys.items():
        if own.required and key not in content:
            raise UsageError(f"{table} lacks the key {key}: {own.expected}")
    return {key: _value(table, key, keys[key], value) for key, value in content.items()}


def _value(table: str, key: str, own: ClaimKey, value: Any) -> Any:
    try:
        if _is_sound(value):
            return msgspec.convert(value, own.type, dec_hook=_seeds)
    except msgspec.ValidationError:
        pass
    text = printable(repr(value))
    place = "" if table == "it" else f" of {table}"
    raise UsageError(f"{key}{place} is {text if len(text) <= 100 else f'{text[:100]}...'}, expected {own.expected}")


def _is_sound(value: Any) -> bool:
    """Whether text is one line, a number finite, and a list without duplicates: rules beyond types."""
    if isinstance(value, str):
        return value.strip() != "" and value.isprintable()
    if isinstance(value, list):
        each_once = len({repr(each) for each in value}) == len(value) or isinstance(value[0], dict)
        return bool(value) and all(map(_is_sound, value)) and each_once
    return not isinstance(value, float) or isfinite(value)


def _seeds(kind: type, value: Any) -> ClaimSeeds:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
        return ClaimSeeds(range(value))
    raise ValueError(value)
