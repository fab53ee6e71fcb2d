"""Combinations of everything that is installed in which every two things meet that can meet. Not every product of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from helpers.planning import plan_of
from lgbench.errors import LgbenchError
from lgbench.experiment.experiment import Experiment
from lgbench.extensions.registry import Registry

SMALL = {
    "model.width": "16",
    "train.steps": "9",
    "train.batch": "3",
    "train.average_every": "2",
    "train.min_length": "4",
    "train.max_length": "5",
    "evaluate.contexts": "4",
    "evaluate.strings": "4",
    "evaluate.max_length": "16",
}
MODELS = 2

Row = Mapping[str, str]
"""By factor, such as "task" or "norm", a name."""
Pair = frozenset[tuple[str, str]]


def pairwise(registry: Registry) -> Iterator[tuple[Experiment, ...]]:
    """Populations in which every possible pair of architecture, task, optimizer and parts comes at least once.

    Each is tested with every averager. One task stands for its family, whose others have the same operators.
    """
    met: set[Pair] = set()
    for architecture in sorted(registry.architectures.names(), key=lambda name: -len(registry.architectures[name].defaults)):
        known = _factors(registry, architecture)
        left = {frozenset(pair) for a, b in combinations(known, 2) for pair in product(_values(known, a), _values(known, b))}
        left -= met
        while left:
            wanted = min(left, key=sorted)
            found = next(filter(None, (population(registry, row) for row in _rows(known, dict(wanted), left))), None)
            left.discard(wanted)
            if found:
                row = _row_of(found[0], known)
                met |= {frozenset(pair) for pair in combinations(row.items(), 2)}
                left -= met
                yield found


def population(registry: Registry, row: Row) -> tuple[Experiment, ...]:
    """The models of a row; none where they are refused."""
    entry = "+".join(name for factor, name in row.items() if factor not in ("task", "optimizer"))
    averagers, seeds = registry.averagers.names(), range(MODELS)
    asked = {"average": averagers, "seeds": seeds, "set": SMALL, "optimizer": row.get("optimizer", "adamw")}
    try:
        return plan_of(registry, row["task"], entry, **asked).experiments
    except LgbenchError:
        return ()


def _factors(registry: Registry, architecture: str) -> dict[str, Sequence[str]]:
    families = {task.family: task.name for task in registry.tasks}
    parts = {"norm": registry.norms, "attention": registry.attentions, "position": registry.positions}
    return {
        "architecture": [architecture],
        "task": sorted(families.values(), reverse=True),
        "optimizer": registry.optimizers.names(),
        **{kind: parts[kind].names() for kind in registry.architectures[architecture].defaults},
    }


def _values(known: Mapping[str, Sequence[str]], factor: str) -> list[tuple[str, str]]:
    return [(factor, value) for value in known[factor]]


def _rows(known: Mapping[str, Sequence[str]], fixed: Row, left: set[Pair]) -> Iterator[Row]:
    """Rows with the values of `fixed`, one for each task, for most refusals are of a task. First those with most pairs left."""

    def gain(row: Row, value: tuple[str, str]) -> int:
        return sum(frozenset([value, other]) in left for other in row.items())

    tasks = [fixed["task"]] if "task" in fixed else known["task"]
    for task in sorted(tasks, key=lambda task: -gain(fixed, ("task", task))):
        row = {**fixed, "task": task}
        for factor in sorted(set(known) - set(row), key=lambda factor: (-len(known[factor]), factor)):
            row[factor] = max(known[factor], key=lambda value: gain(row, (factor, value)))  # noqa: B023
        yield {factor: row[factor] for factor in known}


def _row_of(experiment: Experiment, known: Mapping[str, Sequence[str]]) -> Row:
    return {factor: str(getattr(experiment.record, factor)) for factor in known}
