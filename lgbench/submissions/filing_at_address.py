"""Filing runs at an address: each becomes an object where nothing of its name is.

Object storage makes one object at a time, so a submission that is cut short leaves a part. Nothing of it is wrong, since all
runs were checked before the first was filed, and boards say which runs are missing. The same submission again finds its part
filed already, and files the rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.errors import Interrupted, RunFileError, StorageError
from lgbench.results import run_files
from lgbench.results.addresses import Address
from lgbench.results.mirror import mirrored
from lgbench.submissions.inspection import Run

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
    killed: Sequence[Path] = ()
    """None: see above."""

    def file(self, runs: Sequence[Run], folder: Path) -> list[Path]:
        """File runs, written anew from what was checked. Returns where in the copy, `folder`, their next copies will be.

        Raises RunFileError, or Interrupted, with the number of those that were filed.
        """
        filed: list[Path] = []
        again = "; submit the same again, which files the rest"
        try:
            with tempfile.TemporaryDirectory(prefix="lgbench-") as scratch:
                for run in runs:
                    path = run_files.path_for(Path(scratch), run.footer.experiment)
                    run_files.write(path, run.rows, asdict(run.footer))
                    if not self.store.put(path.name, content := path.read_bytes()) and not self._has(path.name, content):
                        there = f"another file is at {self.store.address / path.name} already"
                        raise RunFileError(f"{_part(filed, runs)}: {there}; remove one of the two")
                    filed.append(folder / path.name)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {_part(filed, runs)}{again}") from None
        except (StorageError, OSError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else error
            raise RunFileError(f"{_part(filed, runs)}, since {why}{again}") from error
        return filed

    def _has(self, name: str, content: bytes) -> bool:
        """Whether an object has this content: the server may have made it, and its answer got lost."""
        found = self.store.get(name)
        return found is not None and found[0] == content


def filing(address: Address) -> Filing:
    """Raises StorageError where nothing can be filed at this address."""
    store = address.store()
    store.require_writable()
    return Filing(store, *mirrored(address))


def _part(filed: Sequence[Path], runs: Sequence[Run]) -> str:
    if not filed:
        return "nothing was filed"
    return f"{len(filed)} of {len(runs)} runs were filed" if len(filed) > 1 else f"1 of {len(runs)} runs was filed"
