"""Folders at an address of fsspec, or on this machine, in which files are made once and never replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec

from lgbench.atomic_files import created
from lgbench.errors import LgbenchError, UsageError, first_line

OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"}
"""Protocols by which a file appears whole, and is made only where none of its name is."""


@dataclass(frozen=True)
class Folder:
    """A folder of a file system. Every method raises UsageError or LgbenchError with a sentence where the file system fails."""

    system: Any
    """The file system of fsspec."""
    root: str
    name: str
    """For messages."""

    @classmethod
    def here(cls, path: Path) -> Folder:
        """A folder on this machine, which need not exist."""
        return cls(fsspec.filesystem("file"), str(path.absolute()), str(path))

    @classmethod
    def at(cls, address: str) -> Folder:
        """The folder at an address such as s3://bucket/folder."""
        if "://" not in address:
            raise UsageError(f"{address!r} is no address; use one such as s3://bucket/folder or ssh://machine/folder")
        try:
            system, root = fsspec.url_to_fs(address)
        except Exception as error:  # an unknown protocol; a library to install, which the message names; unreadable settings
            raise UsageError(f"{address} cannot be reached: {first_line(error)}") from error
        return cls(system, root.rstrip("/"), address.rstrip("/"))

    def __str__(self) -> str:
        return self.name

    def sizes(self) -> dict[str, int]:
        """Sizes in bytes of all files by their paths within the folder; none where there is no folder."""
        with self._told(), suppress(FileNotFoundError):
            self.system.invalidate_cache()
            found = self.system.find(self.root, detail=True)
            return {path[len(self.root) :].lstrip("/"): about["size"] for path, about in found.items()}
        return {}

    def read(self, name: str, start: int = 0) -> bytes:
        """Content of a file, from one byte on."""
        with self._told():
            content = self.system.cat_file(self._path(name), start=start or None)
        return bytes(content)

    def make(self, name: str, content: bytes) -> bool:
        """Make a file that appears whole. False where one of its name is, which stays."""
        protocols = {self.system.protocol} if isinstance(self.system.protocol, str) else {*self.system.protocol}
        make = self._linked if "file" in protocols else self._put if protocols & OBJECT_STORES else self._renamed
        with self._told():
            made = make(self._path(name), content)
        return made

    def _linked(self, path: str, content: bytes) -> bool:
        """Make a file of this machine."""
        place = Path(path)
        if place.exists():
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        with created(place) as partial:
            partial.write_bytes(content)
        return True

    def _put(self, path: str, content: bytes) -> bool:
        """Make an object, which the server does only where none of its name is."""
        try:
            self.system.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        return True

    def _renamed(self, path: str, content: bytes) -> bool:
        """Write under another name, and rename."""
        parent, _, last = path.rpartition("/")
        partial = f"{parent}/.{last[:100]}.{uuid4().hex}.partial"
        self.system.makedirs(parent, exist_ok=True)
        self.system.pipe_file(partial, content)
        if self.system.exists(path):
            self.system.rm_file(partial)
            return False
        self.system.mv(partial, path)
        return True

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the file system's library become sentences."""
        try:
            yield
        except Exception as error:  # each library has its own kinds
            raise LgbenchError(f"{self} cannot be used: {first_line(error)}") from error
