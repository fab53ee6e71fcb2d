"""Files of kept weights: the raw and averaged weights of one run, beside its run file.

A run file says by a hash which weights are its own, and so does the name of their file. So weights are never taken for those of
another training of the same run, and a file, once written, is never replaced. They are written before the run file: whoever
sees a run sees its weights.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lgbench.atomic_files import created, set_aside
from lgbench.errors import RunFileError
from lgbench.experiment.record import ExperimentRecord
from lgbench.results import run_files

SUFFIX = ".safetensors"
KEY = "kept_weights"
"""The field of a footer that says which weights are the run's own. A run that kept none has no such field."""
MAX_BYTES = 2**36
"""Of one file: more than any model has that trains here."""


@dataclass(frozen=True)
class KeptWeights:
    """The weights of a run, as its footer names them."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """Of the file."""
    size: Annotated[int, Meta(ge=1, le=MAX_BYTES)]
    """Of the file, in bytes."""

    @classmethod
    def of(cls, content: bytes) -> KeptWeights:
        """Those with this content."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))

    @property
    def field(self) -> dict[str, Any]:
        """For the footer of the run file."""
        return {KEY: asdict(self)}


def kept_by(footer: Mapping[str, Any]) -> KeptWeights | None:
    """The weights that a run kept, by its footer; None where it kept none."""
    try:
        return msgspec.convert(footer[KEY], KeptWeights)
    except (KeyError, msgspec.ValidationError):
        return None


def name_for(record: ExperimentRecord, kept: KeptWeights) -> str:
    """The name of the file, which stands in the folder of the run file."""
    return _name(run_files.run_name(record), kept)


def name_of(run_file: str, kept: KeptWeights) -> str:
    """The name of the file of weights that a run file of this name kept."""
    return _name(run_file.removesuffix(".parquet"), kept)


def name_beside(path: Path) -> str | None:
    """The name of the file that belongs to a run file; None where the run kept no weights, or the file is no run file."""
    try:
        kept = kept_by(run_files.metadata(path))
    except RunFileError:
        return None
    return _name(path.stem, kept) if kept else None


def of_run(run_file: str, names: Iterable[str]) -> list[str]:
    """Those of these names that a file of weights of this run file can have."""
    stem = run_file.removesuffix(".parquet")
    return [name for name in names if name.startswith(f"{stem}.") and name.endswith(SUFFIX)]


def write(path: Path, content: bytes, scratch: Path | None = None) -> None:
    """Write weights once and whole. The same file, if it is already there, is left as it is; a damaged one is set aside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() != content:
        set_aside(path)
    with created(path, scratch) as partial:
        partial.write_bytes(content)


def read(path: Path, kept: KeptWeights) -> bytes:
    """The content of a file of weights. Raises RunFileError where it is missing, or not what the run kept."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read() if size == kept.size else b""
    except FileNotFoundError:
        raise RunFileError(
            f"the weights of this run are missing: {path} should be there; copy it beside the run file"
        ) from None
    except OSError as error:
        raise RunFileError(f"the weights {path} cannot be read: {error.strerror}") from error
    if size != kept.size:
        raise RunFileError(f"the weights {path} are damaged: the file has {size} bytes, and the run kept {kept.size}")
    if hashlib.sha256(content).hexdigest() != kept.sha256:
        raise RunFileError(f"the weights {path} are damaged, or of another run: their SHA-256 is not the one in the run file")
    return content


def _name(run: str, kept: KeptWeights) -> str:
    return f"{run}.{kept.sha256[:8]}{SUFFIX}"
