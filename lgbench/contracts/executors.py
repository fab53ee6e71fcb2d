"""Executors: engines that train populations elsewhere, such as the jobs of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, get_type_hints


class Submitted(Protocol):
    """A function that was submitted. Futures of `concurrent.futures` are such objects."""

    def done(self) -> bool:
        """Whether the function has ended. Called several times a second."""

    def result(self) -> Any:
        """Its return value. Raises an exception if the function was lost, for example with its machine."""

    def cancel(self) -> Any:
        """Stop the function, if possible also in the middle."""


@dataclass(frozen=True)
class Pool:
    """An engine that is ready."""

    submit: Callable[[Callable[[], Any]], Submitted]
    """Starts a function without arguments. The function and its return value can be pickled."""
    workers: int
    """Number of functions that are submitted at the same time."""


@dataclass(frozen=True)
class Demand:
    """What a command needs of an engine."""

    workers: int | None
    """Number of populations to train at the same time, from --workers; None for the engine's choice."""
    gpu: bool
    """Whether each function needs a GPU. Otherwise it needs one core, and threads are limited by `environ`."""
    environ: dict[str, str]
    """Environment variables for the processes of the functions."""
    folder: Path
    """Hidden folder for files of the engine, beside the run files. Need not exist."""


class Executor(ABC):
    """An engine. The options of a user are the fields of a frozen dataclass that extends this class.

    A field has a default and the type str, int, float or bool, or one of these or None. `--executor-option jobs=4` sets it.
    `__post_init__` may raise :class:`lgbench.UsageError` for values out of range. Submitted functions train one population
    each, and one process may train one population at a time.
    """

    name: str
    """Lower-case letters, digits and hyphens."""
    about: str = ""
    """One sentence, if the class's docstring does not describe this object."""

    @abstractmethod
    def open(self, demand: Demand) -> AbstractContextManager[Pool]:
        """The engine, until the context ends. The end of the context stops all functions that still run.

        Raises :class:`lgbench.UsageError` with the reason why the engine cannot be used.
        """


def option_types(executor: Executor) -> dict[str, Any]:
    """Types of an executor's options by name."""
    if not is_dataclass(executor):
        return {}
    hints = get_type_hints(type(executor))
    return {field.name: hints[field.name] for field in fields(executor)}
