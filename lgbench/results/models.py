"""Models of runs under their names on boards, from the metadata of the runs alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lgbench.experiment.record import ProtocolUse, deciding
from lgbench.results.entries import Use, suffixes
from lgbench.results.run_files import RunLabels

CONTEXT_FREE = "chance"
"""Weights of the context-free baseline, which has no entry and no seed."""


class ModelRow(NamedTuple):
    """Weights of a run: a row of the table `models`."""

    run_id: str
    weights: str
    family: str
    task: str
    task_version: int
    protocol: int
    """Number of the protocol with version and changes."""
    entry: str | None
    seed: int | None
    last_step: int
    """Number of steps of the training. Models are also tested before the end."""
    train_length: int
    """Length of the longest training inputs."""
    own: bool
    """Whether the run is in the results folder, not among the reference runs alone."""


def protocols(labels: Iterable[RunLabels]) -> dict[ProtocolUse, int]:
    """Numbers of protocols with version and changes, from 1, in the order of :func:`most_telling_first`."""
    return {use: number for number, use in enumerate(most_telling_first({_protocol(each) for each in labels}), 1)}


MOST_TELLING = ("standard", "paper", "long", "short", "quick")
"""Protocols in the order in which reports show their runs. Other names follow."""


def most_telling_first(uses: Iterable[ProtocolUse]) -> list[ProtocolUse]:
    """Protocols as reports order them: by name, the newest version first; then those with changes, then external models.

    >>> uses = [ProtocolUse("quick", 5), ProtocolUse("standard", 7, (("train.lr", "0.1"),)), ProtocolUse("standard", 6)]
    >>> [str(use) for use in most_telling_first([*uses, ProtocolUse("standard", 7)])]
    ['standard/7', 'standard/6', 'quick/5', 'standard/7 train.lr=0.1']
    """

    def place(use: ProtocolUse) -> tuple[object, ...]:
        rank = MOST_TELLING.index(use.name) if use.name in MOST_TELLING else len(MOST_TELLING)
        return use.is_external, bool(use.changes), rank, use.name, -use.version, use.changes

    return sorted(uses, key=place)


def models(
    labels: Mapping[str, RunLabels], numbers: Mapping[ProtocolUse, int], own: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Columns of the table `models`, from labels by run id, and the ids of own runs."""
    used = {run_id: dict(_uses(each)) for run_id, each in labels.items()}
    named = suffixes({use for own in used.values() for use in own.values()})
    found = []
    for run_id, each in labels.items():
        place = each.family, each.task, each.task_version, numbers[_protocol(each)]
        trained = each.train.steps, each.train.max_length, run_id in own
        for weights, use in used[run_id].items():
            entry = each.entry + named[use.entry, use.protocol, use.plugins] + ("" if weights == "raw" else f"@{weights}")
            found.append(ModelRow(run_id, weights, *place, entry, each.seed, *trained))
        found.append(ModelRow(run_id, CONTEXT_FREE, *place, None, None, *trained))
    # Objects, so that None becomes null.
    return {name: np.array(own, dtype=object) for name, own in zip(ModelRow._fields, zip(*found, strict=True), strict=True)}


def _uses(labels: RunLabels) -> Iterator[tuple[str, Use[tuple[str, str]]]]:
    """Packages behind the numbers of a run, by weights."""
    protocol = labels.protocol.name, labels.protocol.version
    for weights in ("raw", *labels.averagers):
        plugins = tuple(sorted(deciding(labels.plugins, weights)))
        yield weights, Use((labels.entry, weights), labels.task, protocol, plugins)


def _protocol(labels: RunLabels) -> ProtocolUse:
    """Protocol of a run. The order in which changes are written means nothing."""
    use = labels.protocol
    changes = tuple(sorted(use.changes))
    return use if changes == use.changes else replace(use, changes=changes)  # a copy takes longer than all else of a run
