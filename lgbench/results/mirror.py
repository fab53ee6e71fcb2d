"""The kept copy of an address: its run files in the user's cache folder, brought up to date before anything reads them.

A file of the copy carries in its time of change which object it is a copy of. So content and origin change together, at one
moment, and commands that copy at the same time need no lock: the worst that they do to each other is to copy a file again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lgbench import user_cache
from lgbench.atomic_files import created, replaced
from lgbench.errors import UsageError
from lgbench.results import checked_files, run_files
from lgbench.results.addresses import Address
from lgbench.results.stores import store_of

if TYPE_CHECKING:
    from lgbench.results.objects import Object, Store

COPIES = "copies"
"""The folder of all copies in the user's cache folder."""
AT_ONCE = 16
"""Objects that are copied at the same time."""
SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT")
"""Variables that decide which server an address is at: another one has other objects."""
_STAMPS = 1_700_000_000 * 10**9
"""Times of change that copies have, in nanoseconds since 1970: up to the year 2023."""
_NAME_ERRORS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ}
"""The errors of the system for names that a bucket can have and a disk cannot."""


class Copy(NamedTuple):
    """A kept copy, as it is now."""

    folder: Path
    left_out: list[str]
    """A sentence for each object that may be a run file and was not copied."""


def place_of(address: Address, kind: str = COPIES) -> Path:
    """Where something of an address is kept; it may not exist yet."""
    servers = [f"{name}={os.environ.get(name)}" for name in SERVERS]
    digest = hashlib.sha256("\n".join([str(address), *servers]).encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", "-".join([address.bucket, *address.parts]))[:60].strip("-")
    return user_cache.root() / kind / f"{readable}-{digest}"


def made(address: Address, kind: str) -> Path:
    """The same, as a folder that exists. Raises UsageError where it cannot be made."""
    place = place_of(address, kind)
    if not (user_cache.root().is_absolute() and (folder := user_cache.folder(f"{kind}/{place.name}"))):
        raise UsageError(
            f"the cache folder {str(user_cache.root())!r} cannot be written to, and {address} needs it; "
            f"{user_cache.VARIABLE} names another one"
        )
    return folder


def mirrored(address: Address) -> Copy:
    """Bring the copy of an address up to date. Raises StorageError where the server does not say what is there."""
    store, begun = store_of(address), time.time_ns()
    objects = {name: about for name, about in store.list().items() if _may_be_run(name)}
    folder = made(address, COPIES)
    left_out = bring(store, objects, folder)
    for path in [*run_files.find(folder)]:
        if path.relative_to(folder).as_posix() not in objects:
            _remove_older(path, begun)
    os.utime(folder)
    _remove_unused(folder)
    return Copy(folder, left_out)


def _remove_older(path: Path, begun: int) -> None:
    """Remove a copy, unless another process has made it since `begun`: it may have listed what came after."""
    with suppress(FileNotFoundError):
        if path.stat().st_atime_ns < begun:
            path.unlink()


def fetched(address: Address) -> Path:
    """The copy of a folder, or of a single file, which need not exist."""
    return fetched_file(address.folder, address.parts[-1]) if address.is_file else mirrored(address).folder


def fetched_file(address: Address, name: str) -> Path:
    """The copy of one object in a folder, which need not exist."""
    folder, store = made(address, COPIES), store_of(address)
    if found := store.get(name):
        content, about = found
        _write(folder / name, content, about)
    else:
        (folder / name).unlink(missing_ok=True)
    return folder / name


def bring(store: Store, objects: Mapping[str, Object], folder: Path) -> list[str]:
    """Copy objects into a folder, those that are not there as they are now. Returns a sentence for each that cannot be."""
    missing = [(name, about) for name, about in objects.items() if not is_copy(folder / name, about)]
    with ThreadPoolExecutor(AT_ONCE, "copy") as pool:
        try:
            return [said for said in pool.map(lambda own: _copied(store, folder, *own), missing) if said]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def is_copy(path: Path, about: Object) -> bool:
    """Whether a file is a copy of this object."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return (status.st_size, status.st_mtime_ns) == (about.size, stamp(about))


def stamp(about: Object) -> int:
    """The time of change, in nanoseconds, of copies of this object: no time, but what tells this content from other."""
    return int.from_bytes(hashlib.sha256(f"{about.size} {about.tag}".encode()).digest()[:8]) % _STAMPS


def _copied(store: Store, folder: Path, name: str, about: Object) -> str | None:
    """Copy one object. Returns a sentence where it can be no run file."""
    if about.size > checked_files.MAX_BYTES:
        return f"{store.address}/{name} is not a run of lgbench: it is larger than {checked_files.MAX_BYTES // 2**20} MB"
    try:
        if found := store.get(name):  # else somebody has removed it
            _write(folder / name, *found)
    except OSError as error:
        if error.errno not in _NAME_ERRORS:
            raise
        return f"{store.address}/{name} cannot be copied, since no file can have its name here: {error.strerror}"
    except ValueError:
        return f"{store.address}/{name} cannot be copied, since no file can have its name here"
    return None


def _write(path: Path, content: bytes, about: Object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (replaced if path.exists() else created)(path) as partial:
        partial.write_bytes(content)
        os.utime(partial, ns=(time.time_ns(), stamp(about)))


def _may_be_run(name: str) -> bool:
    """Whether a local folder's file of that name would be read as a run file; see :func:`lgbench.results.run_files.find`."""
    return name.endswith(".parquet") and not any(part.startswith(".") for part in name.split("/"))


def _remove_unused(own: Path) -> None:
    """Remove copies of other addresses that nobody has read for long."""
    for other in own.parent.iterdir():
        with suppress(OSError):
            if other != own and own.stat().st_mtime - other.stat().st_mtime > user_cache.KEPT_SECONDS:
                shutil.rmtree(other)
