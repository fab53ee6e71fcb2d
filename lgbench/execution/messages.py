"""The messages between a command and its worker processes: one JSON object a line, through the worker's input and output."""

from __future__ import annotations

import msgspec

from lgbench.execution.progress import Phase
from lgbench.experiment.record import ExperimentRecord


class Setup(msgspec.Struct, tag=True):
    """First to a worker: what stays the same for all its populations."""

    results: str
    device: str
    checkpoint: float
    plugins: list[str]
    """Plugin files."""
    keep_weights: bool = False
    trackers: tuple[str, ...] = ()
    """Names of the trackers that follow the runs."""


class Train(msgspec.Struct, tag=True):
    """To a worker: a population to train and test."""

    records: list[ExperimentRecord]
    folder: str
    models: int
    compile: bool
    probes: tuple[str, ...] = ()
    """Names of those that the runs have."""


class Say(msgspec.Struct, tag=True):
    """From a worker: a sentence for the user."""

    sentence: str


class Begin(msgspec.Struct, tag=True):
    """From a worker: a phase begins."""

    phase: Phase


class Progress(msgspec.Struct, tag=True):
    """From a worker: so many steps of its phase are done. Of training, with the mean loss of the latest."""

    done: int
    loss: float | None


class End(msgspec.Struct, tag=True):
    """From a worker: its phase is over."""


class Written(msgspec.Struct, tag=True):
    """From a worker: a run file is there."""

    path: str


class Finished(msgspec.Struct, tag=True):
    """From a worker: its population is done, or was stopped by an error."""

    error: str | None = None
    lost: bool = False
    """Whether another command has the population."""
    memory: bool = False
    """Whether memory did not suffice."""


ToWorker = Setup | Train
FromWorker = Say | Begin | Progress | End | Written | Finished


def to_worker(line: str) -> ToWorker:
    message: ToWorker = msgspec.json.decode(line, type=ToWorker)
    return message


def from_worker(line: str) -> FromWorker:
    message: FromWorker = msgspec.json.decode(line, type=FromWorker)
    return message
