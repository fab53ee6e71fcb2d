"""Addresses of folders in object storage, such as `s3://bucket/folder`. Nothing here needs the library that reaches them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lgbench.errors import UsageError

SCHEMES = {"s3": "Amazon S3 or a server like it", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True)
class Address:
    """A folder in a bucket, or one file in it."""

    scheme: str
    bucket: str
    parts: tuple[str, ...] = ()
    """The names of folders from the bucket on."""

    @classmethod
    def of(cls, text: str) -> Address:
        """Raises UsageError where this is the address of nothing that lgbench can reach."""
        found = _ADDRESS.fullmatch(text)
        scheme, rest = (found[1].lower(), found[2]) if found else ("", text)
        known = ", ".join(f"{name}:// for {what}" for name, what in SCHEMES.items())
        if scheme not in SCHEMES:
            raise UsageError(f"{text!r} begins with {scheme}://, which lgbench cannot reach; known: {known}")
        bucket, *parts = rest.split("/")
        parts = [part for part in parts if part]
        if not bucket or not all(_is_name(part) for part in (bucket, *parts)):
            raise UsageError(f"{text!r} names no folder of a bucket; use an address such as {scheme}://bucket/folder")
        return cls(scheme, bucket, tuple(parts))

    def __str__(self) -> str:
        return "/".join([f"{self.scheme}://{self.bucket}", *self.parts])

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, self.bucket, (*self.parts, name))

    @property
    def folder(self) -> Address:
        """The folder that this is in; the bucket itself for the bucket."""
        return Address(self.scheme, self.bucket, self.parts[:-1])

    @property
    def is_file(self) -> bool:
        """Whether it names a run file, and not a folder of them."""
        return bool(self.parts) and self.parts[-1].endswith(".parquet")


Place: TypeAlias = Path | Address
"""Where run files are: a folder or a file on this machine, or an address."""


def place(named: str | Path | Address) -> Place:
    """The place that a user names. Raises UsageError for an address that lgbench cannot reach."""
    if isinstance(named, str):
        return Address.of(named) if _ADDRESS.fullmatch(named) else Path(named)
    return named


def _is_name(part: str) -> bool:
    """Whether a part of an address means itself everywhere."""
    return part not in (".", "..") and not re.search(r"[\\?#*\x00-\x1f\x7f]", part)
