"""A claim: a sentence, where it was said, the runs that it needs, and the tests that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lgbench.contracts import PRIMARY_METRIC

LENGTH_SETS = ("ID", "OOD", "all")
"""The lengths of a board that a test can name together: in distribution, out of distribution, both."""

EXPECTATIONS = ("better", "alike")


@dataclass(frozen=True)
class Source:
    """Where a claim was made."""

    paper: str
    """Such as "arXiv 2510.08341"."""
    title: str
    place: str | None = None
    """A section, figure or table; None where it is not known."""

    def __str__(self) -> str:
        return f"{self.title} ({self.paper}{f', {self.place}' if self.place else ''})"


@dataclass(frozen=True)
class Runs:
    """The runs that a claim needs."""

    tasks: tuple[str, ...]
    """Tasks, or families of them. Each has a verdict of its own."""
    seeds: tuple[int, ...]
    """Each entry needs these."""
    protocols: tuple[str, ...] = ("standard",)
    """Those that have to be run. A claim is also decided under every other protocol that was."""
    plugins: tuple[str, ...] = ()
    """Packages that provide what does not come with lgbench."""
    average: tuple[str, ...] = ()
    """Averagers to test; empty for those that come with lgbench."""
    probes: tuple[str, ...] = ()
    """Probes to read, for tests of them."""


@dataclass(frozen=True)
class ClaimTest:
    """One entry against another, or against a power law.

    With `against`, the numbers of a seed are the differences entry - against of the means over the lengths. With `exponent`,
    they are the exponents of the power law that fits the values at the lengths, minus this one.
    """

    entry: str
    """As boards name it: transformer+peri-norm, transformer+peri-norm@bema."""
    against: str | None = None
    exponent: float | None = None
    metric: str = PRIMARY_METRIC
    lengths: Literal["ID", "OOD", "all"] | tuple[int, ...] = "OOD"
    expect: Literal["better", "alike"] = "better"
    margin: float = 0.0
    """Better by more than this, or alike within this, in units of the metric or of the exponent."""

    @property
    def entries(self) -> tuple[str, ...]:
        return (self.entry,) if self.against is None else (self.entry, self.against)

    def __str__(self) -> str:
        """The expectation, such as "transformer+peri-norm better than transformer+pre-norm"."""
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
    """A file of claims/. Every pair of a task and a test has a verdict, under every protocol."""

    name: str
    """The name of the file, without its ending."""
    claim: str
    source: Source
    runs: Runs
    tests: tuple[ClaimTest, ...]
    note: str | None = None
    """A note for readers on the choice of tests and tasks."""
