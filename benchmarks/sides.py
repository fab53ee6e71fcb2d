"""Shared by all benchmarks: sides that take turns, the table of their rates, and a registry with one task.

Every round runs each side once, one after the other, so that a machine whose speed drifts hurts all of them. A first round
warms up and is dropped. A side is a function that returns a rate: the more, the better.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

import lgbench_measurements
import lgbench_norms
import lgbench_optimizers
import lgbench_transformer
from lgbench import Task
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry

WIDTH = 110
"""Columns of a printed table."""

Side = Callable[[], float]
Cell = Callable[[str, float], str]
"""From a side's name and its median rate to the text of an extra column."""

HERE = Distribution("benchmark", "0")


@dataclass(frozen=True)
class Result:
    """One side over all rounds: its median rate, and its ratio to the first side in the same round."""

    rate: float
    ratio: float
    lowest: float
    highest: float


def take_turns(sides: Mapping[str, Side], rounds: int) -> dict[str, Result]:
    """Run all sides in turn, `rounds` times after a round to warm up."""
    first = next(iter(sides))
    measured = [{name: side() for name, side in sides.items()} for _ in range(rounds + 1)][1:]
    results = {}
    for name in sides:
        ratios = [rates[name] / rates[first] for rates in measured]
        rate = statistics.median(rates[name] for rates in measured)
        results[name] = Result(rate, statistics.median(ratios), min(ratios), max(ratios))
    return results


def table(rounds: int, *headings: str, device: str | None = None) -> Table:
    """An empty table; its title names the machine's settings, its first column is for names."""
    where = device or f"{torch.get_num_threads()} threads"
    made = Table(title=f"torch {torch.__version__}, {where}, median of {rounds} rounds")
    for heading in ("", *headings):
        made.add_column(heading, justify="right" if heading else "left")
    return made


def number(value: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def ratios(result: Result) -> tuple[str, str, str]:
    """The cells of the median ratio, the lowest and the highest."""
    return f"{result.ratio:.2f}", f"{result.lowest:.2f}", f"{result.highest:.2f}"


def show(results: Mapping[str, Result], rounds: int, unit: str, reference: str, more: Mapping[str, Cell] | None = None) -> None:
    """Print a row for each side; `more` adds columns by their heading."""
    more = more or {}
    rows = table(rounds, unit, f"ratio to {reference}", "min", "max", *more)
    for name, result in results.items():
        rows.add_row(name, number(result.rate), *ratios(result), *(cell(name, result.rate) for cell in more.values()))
    Console(width=WIDTH).print(rows)


def compare(sides: Mapping[str, Side], rounds: int, unit: str, reference: str, more: Mapping[str, Cell] | None = None) -> None:
    """Run all sides in turn and print their rates; the first side is the one called `reference`."""
    show(take_turns(sides, rounds), rounds, unit, reference, more)


def registry_with(task: Task) -> Registry:
    """This task, and the built-in models, norms, optimizer and measurements."""
    made = Registry()
    for module in (lgbench_measurements, lgbench_norms, lgbench_optimizers, lgbench_transformer):
        made.add(module, module.__name__, HERE)
    made.tasks.add(task, HERE)
    return made
