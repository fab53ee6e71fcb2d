"""Filing a submission at an address: one object, which is made where nothing of its name is.

Object storage has no turns. Two submissions at the same moment may have runs in common, which each of them sees as soon as its
own object is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.errors import RunFileError, StorageError
from lgbench.results.addresses import Address
from lgbench.results.mirror import mirrored
from lgbench.results.stores import store_of

if TYPE_CHECKING:
    from lgbench.results.objects import Store


@dataclass(frozen=True)
class Filing:
    """The filed runs of an address, as they are now, and the way to file more."""

    store: Store
    folder: Path
    """A copy of the filed runs."""
    left_out: Sequence[str]
    """A sentence for each filed object that no file can be a copy of."""

    def file(self, name: str, content: bytes, folder: Path, weights: Iterable[tuple[str, bytes]] = ()) -> Path:
        """Make the object, after those of weights, which stay if it fails.

        Returns where in the copy, `folder`, its next copy will be. Raises RunFileError if it cannot.
        """
        for own in weights:
            self.add(*own, folder)
        try:
            # The server may have made it, and its answer got lost.
            if not self.store.put(name, content) and not self._has(name, content):
                raise RunFileError(f"nothing was filed: another file is at {self.store.address / name} already; remove it")
        except StorageError as error:
            raise RunFileError(f"nothing was filed, or the answer got lost, since {error}; submit the same again") from error
        return folder / name

    def add(self, name: str, content: bytes, folder: Path) -> None:
        """Make an object of weights where there is none. Raises RunFileError if it cannot."""
        try:
            if not self.store.put(name, content) and not self._has(name, content):
                raise RunFileError(f"nothing was filed: something else is at {self.store.address / name} already; remove it")
        except StorageError as error:
            raise RunFileError(f"nothing was filed, since {error}; submit the same again") from error

    def _has(self, name: str, content: bytes) -> bool:
        found = self.store.get(name)
        return found is not None and found[0] == content


def filing(address: Address) -> Filing:
    """Raises StorageError where nothing can be filed at this address."""
    store = store_of(address)
    store.require_writable()
    return Filing(store, *mirrored(address))
