"""The messages between a command and its process of trackers: one JSON object a line, through its input and output."""

from __future__ import annotations

import msgspec

from lgbench.contracts import RunEnd, TrackedRun

HANDLES = "tracking.json"
"""The file in the folder of a population by which a later process finds the runs of trackers again."""


class Kept(msgspec.Struct):
    """A run in one tracker, as it is kept beside the checkpoint."""

    handle: str
    steps: dict[str, int] = {}
    """The latest step of each kind of values that the tracker has."""


Handles = dict[str, dict[str, Kept]]
"""By the name of the tracker and the id of the run."""


class Setup(msgspec.Struct, tag=True):
    """First to the process."""

    trackers: list[str]
    plugins: list[str]
    """Plugin files."""


class Begin(msgspec.Struct, tag=True):
    """To the process: a population is trained now."""

    runs: dict[str, TrackedRun]
    """By id."""
    folder: str
    """Where handles are kept as long as it is there."""
    before: Handles
    """Those that an earlier process kept."""


class Log(msgspec.Struct, tag=True):
    """To the process: numbers of one run."""

    run: str
    kind: str
    step: int
    values: dict[str, float]


class End(msgspec.Struct, tag=True):
    """To the process: a run has ended."""

    run: str
    end: RunEnd


class Say(msgspec.Struct, tag=True):
    """From the process: a sentence for the user."""

    sentence: str


Order = Setup | Begin | Log | End


def order(line: str) -> Order:
    message: Order = msgspec.json.decode(line, type=Order)
    return message


def said(line: str) -> Say:
    return msgspec.json.decode(line, type=Say)
