"""Copies of the files of a results folder: whole, checked, weights before their runs, and nothing is ever replaced."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from lgbench.errors import RunFileError, UsageError
from lgbench.results import run_files
from lgbench_remote.folders import Folder

RUNS, WEIGHTS = ".parquet", ".safetensors"
TAIL = 4096
"""Bytes at the end of a run file in which its checksum stands, so two files with equal ends are equal."""
AT_ONCE = 16
"""Files that are copied at the same time."""

Answer = TypeVar("Answer")


@dataclass
class Copied:
    """Outcome of a push or a pull."""

    made: list[str] = field(default_factory=list)
    """Names of the files that were copied."""
    there: int = 0
    """Files that were there before, with the same content."""
    left_out: list[str] = field(default_factory=list)
    """Sentence for each file that is damaged, or that has another content in the target."""


def copied(source: Folder, target: Folder) -> Copied:
    """Copy the run files and weights that the target lacks. Raises UsageError where the source has none."""
    given, there = _results(source), _results(target)
    if not any(name.endswith(RUNS) for name in given):
        raise UsageError(f"no run is in {source}; name a folder in which lgbench wrote runs")
    done = Copied()
    common = [name for name in given if name in there]
    for name, same in _at_once(
        lambda name: given[name] == there[name] and _ends_agree(source, target, name, given[name]), common
    ):
        if same:
            done.there += 1
        else:
            done.left_out.append(_differs(target, name))
    missing = [name for name in given if name not in there]
    for suffix in (WEIGHTS, RUNS):  # whoever sees a run sees its weights
        own = [name for name in missing if name.endswith(suffix)]
        for name, why in _at_once(lambda name: _copy(source, target, name), own):
            done.left_out.append(why) if why else done.made.append(name)
    return done


def _results(folder: Folder) -> dict[str, int]:
    """Sizes of run files and weights by name, without hidden folders other than the one of tuning runs."""
    return {name: size for name, size in folder.sizes().items() if _is_result(name)}


def _is_result(name: str) -> bool:
    """Whether a file of this name belongs to results. Refuses `..`, so no file is ever made outside the folder."""
    parts = PurePosixPath(name).parts  # none of an address that is a file
    hidden = [part for part in parts if part.startswith(".")]
    return name.endswith((RUNS, WEIGHTS)) and (not hidden or (hidden == [run_files.TUNING] and parts[0] == run_files.TUNING))


def _at_once(ask: Callable[[str], Answer], names: Iterable[str]) -> Iterator[tuple[str, Answer]]:
    """Answer for each name, of several names at the same time."""
    with ThreadPoolExecutor(AT_ONCE, "lgbench-remote") as pool:
        asked = [(name, pool.submit(ask, name)) for name in names]
        try:
            for name, answer in asked:
                yield name, answer.result()
        except BaseException:  # an interrupt, too: what waits is cancelled, and the error goes on
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _copy(source: Folder, target: Folder, name: str) -> str | None:
    """Copy one file. Returns a sentence where it is damaged, or where another one has got its name meanwhile."""
    content = source.read(name)
    if why := damage(name, content):
        return f"{source}/{name} {why}"
    if target.make(name, content) or target.read(name) == content:
        return None
    return _differs(target, name)


def _ends_agree(source: Folder, target: Folder, name: str, size: int) -> bool:
    start = max(size - TAIL, 0)
    return source.read(name, start) == target.read(name, start)


def _differs(target: Folder, name: str) -> str:
    return (
        f"{target}/{name} is there with another content, and stays; if two machines made this run, pull to another folder, and "
        "`lgbench merge` compares the numbers"
    )


def damage(name: str, content: bytes) -> str | None:
    """Why the content of a file is not that of its run or weights; None for a sound file.

    The name of weights has the first digits of their SHA-256.
    """
    if name.endswith(WEIGHTS):
        sound = hashlib.sha256(content).hexdigest().startswith(name.split(".")[-2])
        return None if sound else "is damaged: its content is not that of its name"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.parquet")
        path.write_bytes(content)
        try:
            run_files.read(path)
        except RunFileError as error:
            return str(error).removeprefix(str(path)).lstrip(": ")
    return None
