"""Files of kept weights: the raw and averaged weights of one run, beside its run file.

The metadata of a run file and the name of the weights file contain the hash of the weights. The hash rules out confusion with
the weights of another training of the same run. A weights file, once written, is never replaced. Weights are written before
the run file, so every visible run has its weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lgbench.atomic_files import created, set_aside
from lgbench.errors import RunFileError

SUFFIX = ".safetensors"
KEY = "kept_weights"
"""Field of the metadata with the hash of kept weights; absent for a run without kept weights."""
MAX_BYTES = 2**36
"""Largest size of a weights file, above the size of any model trained by lgbench."""


@dataclass(frozen=True)
class KeptWeights:
    """Kept weights of a run, in its metadata."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """SHA-256 of the file."""
    size: Annotated[int, Meta(ge=1, le=MAX_BYTES)]
    """Size of the file in bytes."""

    @classmethod
    def of(cls, content: bytes) -> KeptWeights:
        """Hash and size of the content of a weights file."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))

    @property
    def field(self) -> dict[str, Any]:
        """Field of the metadata of the run file."""
        return {KEY: asdict(self)}

    def beside(self, run_file: Path) -> Path:
        """Weights file of the run file with these weights."""
        return run_file.with_name(f"{run_file.name.removesuffix('.parquet')}.{self.sha256[:8]}{SUFFIX}")


def kept_by(metadata: Mapping[str, Any]) -> KeptWeights | None:
    """Kept weights in the metadata of a run; None for a run without kept weights."""
    try:
        return msgspec.convert(metadata[KEY], KeptWeights)
    except (KeyError, msgspec.ValidationError):
        return None


def write(path: Path, content: bytes, scratch: Path | None = None) -> None:
    """Write weights once and whole. An equal existing file stays; a damaged existing file is set aside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() != content:
        set_aside(path)
    with created(path, scratch) as partial:
        partial.write_bytes(content)


def read(path: Path, kept: KeptWeights) -> bytes:
    """Content of a weights file. Raises RunFileError for a missing file, or a wrong hash."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunFileError(
            f"the weights of this run are missing: {path} should be there; copy it beside the run file"
        ) from None
    except OSError as error:
        raise RunFileError(f"the weights {path} cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != kept.sha256:
        raise RunFileError(f"the weights {path} are damaged, or of another run: their SHA-256 is not the one in the run file")
    return content
