"""Claims of papers, read from TOML files: a sentence, its source, required runs, and decisive tests."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

import msgspec
from msgspec import Meta

from lgbench.checkout import ROOT
from lgbench.contracts import METRIC_NAME, NAME, PRIMARY_METRIC
from lgbench.errors import UsageError, first_line, unknown
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.settings import MAX_SEEDS

PACKAGED = Path(__file__).parent / "published"
"""Claims of an installed lgbench: a copy of the folder leaderboards/claims of the repository."""

Line = Annotated[str, Meta(pattern=r"^\S[^\n]*\Z")]  # \Z, because $ lets a line break at the end pass
Name = Annotated[str, Meta(pattern=f"^(?:{NAME.pattern})(?:~[0-9a-f]{{8}})?$")]  # with the hash of a plugin file
Names = Annotated[tuple[Name, ...], Meta(min_length=1)]
Metric = Annotated[str, Meta(pattern=f"^(?:{METRIC_NAME.pattern})$")]
Power = Annotated[float, Meta(gt=-1e6, lt=1e6)]


class ClaimSeeds(tuple[int, ...]):
    """Seeds of the runs; a file has the number of seeds, or a range."""

    alone = False
    """Whether the claim is decided by these seeds only, whichever others were run."""

    @classmethod
    def only(cls, seeds: Iterable[int]) -> Self:
        """Seeds that decide alone."""
        made = cls(seeds)
        made.alone = True
        return made


# The description of a field is its row in the docs.


@dataclass(frozen=True)
class Source:
    """Source of a claim."""

    paper: Annotated[Line, Meta(description="The paper's identifier, such as `arXiv 2510.08341`.")]
    title: Annotated[Line, Meta(description="The paper's title.")]
    place: Annotated[Line | None, Meta(description="The section, figure or table; left out if unknown.")] = None

    def __str__(self) -> str:
        return f"{self.title} ({self.paper}, {self.place or 'table and page unknown'})"


@dataclass(frozen=True)
class Runs:
    """Required runs of a claim."""

    seeds: Annotated[
        ClaimSeeds,
        Meta(
            description="How many seeds every entry needs: they are 0, 1, 2 and so on, and further ones that were run count, "
            'too. A range such as `"5:10"` is decided by these seeds alone: a confirmation of what others have shown.'
        ),
    ]
    protocols: Annotated[
        Names,
        Meta(
            description='Protocols that have to be run; `["standard"]` by default. `--run` takes the first of them. A claim is '
            "decided under every other protocol that was run, too."
        ),
    ] = ("standard",)
    tasks: Annotated[
        tuple[Name, ...],
        Meta(
            description='A list of tasks, or families of tasks, such as `["dyck"]`. Each has a verdict of its own. Required '
            "unless every test has its own."
        ),
    ] = ()
    plugins: Annotated[
        tuple[Line, ...],
        Meta(description='Packages that have to be installed, such as `["lgbench-attention"]`.'),
    ] = ()
    average: Annotated[
        tuple[Name, ...], Meta(description="Averages of the weights to test, as of `lgbench run --average`.")
    ] = ()
    probes: Annotated[
        tuple[Metric, ...],
        Meta(
            description='Probes that the runs need, such as `["logit_gap"]`, as of `lgbench run --probe`: those that tests '
            "have as their metric."
        ),
    ] = ()

    def __post_init__(self) -> None:
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                raise unknown("protocol", protocol, PROTOCOLS)


@dataclass(frozen=True)
class ClaimTest:
    """Test of an entry against another entry, a number, or a power law.

    The number of a seed: with `against`, the difference entry - against between means over the lengths; with `value`, the mean
    over the lengths minus `value`; with `exponent`, the fitted exponent of a power law over the lengths minus `exponent`.
    """

    entry: Annotated[
        Line, Meta(description="The entry that the claim is about, as boards name it, with `@bema` for an average.")
    ]
    against: Annotated[Line | None, Meta(description="The entry that it is compared with, paired by seed.")] = None
    value: Annotated[
        Power | None,
        Meta(description="In place of `against`: a number, such as 0.9, that the mean over the lengths is compared with."),
    ] = None
    exponent: Annotated[
        Power | None,
        Meta(
            description="In place of `against`: a power of the length is fitted to the values of each seed, and this number, "
            "such as -1.0, is the power claimed."
        ),
    ] = None
    metric: Annotated[Metric, Meta(description="The measurement; `tvd` by default.")] = PRIMARY_METRIC
    lengths: Annotated[
        Literal["ID", "OOD", "all"] | Annotated[tuple[Annotated[int, Meta(ge=1, le=2**20)], ...], Meta(min_length=1)],
        Meta(
            description='Over which lengths of the board: `"ID"`, `"OOD"` (the default), `"all"`, or a list such as `[32, 64]`.'
        ),
    ] = "OOD"
    expect: Annotated[
        Literal["better", "worse", "alike"] | None,
        Meta(
            description="`better` (the default): than the other entry or the value, by more than the margin. `worse`: than the "
            "value. `alike`: within the margin either way."
        ),
    ] = None
    margin: Annotated[
        float,
        Meta(
            ge=0,
            lt=1e6,
            description="In units of the metric, or of the exponent, such as 0.02; 0 by default. `alike` and `exponent` need "
            "one above 0.",
        ),
    ] = 0.0
    tasks: Annotated[tuple[Name, ...], Meta(description="The tasks of this test alone, in place of those of the runs.")] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for contradictory keys."""
        if sum(other is not None for other in (self.against, self.value, self.exponent)) != 1:
            raise UsageError("a test needs exactly one of `against` (an entry), `value` (a number) and `exponent` (a number)")
        if self.entry == self.against:
            raise UsageError(f"it compares {self.entry} with itself; name two entries")
        if self.exponent is not None and self.expect in ("better", "worse"):
            raise UsageError(f"it expects {self.expect} of an exponent; leave expect out: it is tested within its margin")
        if self.against is not None and self.expect == "worse":
            raise UsageError(f"it expects worse of two entries; exchange them: {self.against} better than {self.entry}")
        # The class is frozen.
        object.__setattr__(self, "expect", self.expect or ("better" if self.exponent is None else "alike"))
        if self.expect == "alike" and not self.margin:
            raise UsageError("it needs a margin above 0, such as margin = 0.02: nothing is alike within 0")
        if isinstance(self.lengths, tuple):
            if self.exponent is not None and len(self.lengths) == 1:
                raise UsageError("it fits an exponent to one length; name two or more")
            object.__setattr__(self, "lengths", tuple(sorted(self.lengths)))

    @property
    def entries(self) -> tuple[str, ...]:
        return (self.entry,) if self.against is None else (self.entry, self.against)

    def __str__(self) -> str:
        """Expectation, such as "transformer+peri-norm better than transformer+pre-norm"."""
        lengths = (self.lengths,) if isinstance(self.lengths, str) else self.lengths
        at = "" if isinstance(self.lengths, str) else "at length " if len(lengths) == 1 else "at lengths "
        measured = f"{self.metric}, {at}{', '.join(map(str, lengths))}"
        if self.exponent is not None:
            return f"{self.entry} follows length^{self.exponent:g} within {self.margin:g} ({measured})"
        other = self.against or f"{self.value:g}"
        if self.expect == "alike":
            return f"{self.entry} like {other}, within {self.margin:g} ({measured})"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{self.entry} {self.expect} than {other}{by} ({measured})"


@dataclass(frozen=True)
class Claim:
    """A file of claims/. Every test has a verdict on each of its tasks, under every protocol."""

    name: str
    """Name of the file, without its ending."""
    claim: Annotated[Line, Meta(description="The sentence, in plain words.")]
    source: Annotated[Source, Meta(description="Where it was said: a table that begins with `[source]`.")]
    runs: Annotated[Runs, Meta(description="What has to be run: a table that begins with `[runs]`.")]
    tests: Annotated[
        tuple[ClaimTest, ...],
        Meta(
            min_length=1,
            description="The tests that decide it, one or more tables that begin with `[[tests]]`. Each has a verdict on each "
            "task.",
        ),
    ]
    note: Annotated[Line | None, Meta(description="What a reader should know about the choice of tasks and tests.")] = None

    def __post_init__(self) -> None:
        """Raise UsageError for a test without tasks."""
        for test in self.tests:
            if not self._tasks(test):
                raise UsageError(f"it names no task for {test.entry}; name some as tasks of its runs, or of this test")

    @property
    def parts(self) -> list[tuple[str, ClaimTest]]:
        """Every task with each of its tests."""
        tasks = dict.fromkeys(task for test in self.tests for task in self._tasks(test))
        return [(task, test) for task in tasks for test in self.tests if task in self._tasks(test)]

    def _tasks(self, test: ClaimTest) -> tuple[str, ...]:
        return test.tasks or self.runs.tasks


def default_folder() -> Path:
    """Folder of claims: of the checkout with the imported lgbench, or else of the installed package."""
    own = ROOT / "leaderboards" / "claims"
    return own if own.is_dir() else PACKAGED


def read_claims(folder: Path, names: Iterable[str] = ()) -> list[Claim]:
    """Claims of a folder, all or by name. Raises UsageError for the first unknown or broken claim."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} of claims; name one that has TOML files")
    paths = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if not paths:
        raise UsageError(f"the folder {str(folder)!r} has no claim; a claim is a file that ends with .toml")
    wanted = list(dict.fromkeys(names)) or list(paths)
    for name in wanted:
        if name not in paths:
            raise unknown("claim", name, paths)
    return [read_claim(paths[name]) for name in wanted]


def read_claim(path: Path) -> Claim:
    """Claim of a file. Raises UsageError with the path for a broken file."""
    try:
        if not NAME.fullmatch(path.stem):
            raise UsageError(f"{path.stem!r} cannot be its name: use lower-case letters, digits and single hyphens")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        _require_known_keys(content, {"claim", "source", "runs", "tests", "note"})
        for table, kind in (("source", Source), ("runs", Runs), ("tests", ClaimTest)):
            for own in content[table] if isinstance(content.get(table), list) else [content.get(table)]:
                _require_known_keys(own, {field.name for field in fields(kind)})
        return msgspec.convert(content | {"name": path.stem}, Claim, dec_hook=_seeds)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: it is no TOML: {first_line(error)}") from None
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}{_remedy(str(error), content)}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _remedy(message: str, content: Mapping[str, Any]) -> str:
    """Remedy for an error of msgspec, which names types of JSON and the place; empty where the message is enough."""
    if not (place := re.search(r" - at `\$\.([\w.\[\]]+)`$", message)):
        return ""
    key, value = "", content
    for key in re.findall(r"\w+", place[1]):
        value = value[int(key) if isinstance(value, list) else key]
    if message.startswith("Invalid enum value"):  # only tests have keys with a choice of words
        return f": {get_type_hints(ClaimTest, include_extras=True)[key].__metadata__[0].description}"
    if message.startswith("Expected `array`, "):
        return "; write [[tests]], with two brackets" if key == "tests" else f'; write {key} = ["{value}"]'
    if message.startswith("Expected `object`, ") and key in content:
        return f"; write [{key}], with one bracket"
    return ""


def _require_known_keys(table: Any, known: Iterable[str]) -> None:
    """Raise UsageError for an unknown key. msgspec ignores unknown keys of a dataclass."""
    for key in table if isinstance(table, Mapping) else ():
        if key not in known:
            raise unknown("key", key, known)


def _seeds(kind: type, value: Any) -> ClaimSeeds:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
        return ClaimSeeds(range(value))
    if isinstance(value, str) and (ends := re.fullmatch(r"(\d{1,6}):(\d{1,6})", value)):
        seeds = range(int(ends[1]), int(ends[2]))
        if 1 <= len(seeds) <= MAX_SEEDS:
            return ClaimSeeds.only(seeds)
    raise ValueError(f'Expected a number of seeds from 1 to {MAX_SEEDS}, or a range such as "5:10", got {value!r}')
