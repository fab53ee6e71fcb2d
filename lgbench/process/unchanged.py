"""Code of plugins runs inside, and whatever it changed for others is named and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lgbench.errors import PluginError
from lgbench.process.fingerprint import Fingerprint, named, put_back


@contextmanager
def unchanged(who: str) -> Iterator[Callable[[], None]]:
    """Inside, `who` may change nothing that other plugins' numbers depend on.

    Yields a function that asks at once, for use before a result is written; the end asks again. Raises PluginError, which names
    `who` and the changes, when they are put back.
    """
    before = Fingerprint()

    def require() -> None:
        changes = [change for change in before.changes() if change.harmful]
        if changes:
            put_back(before, changes)
            whats = named(change.what for change in changes)
            raise PluginError(f"{who} changed {whats}, and everybody's numbers depend on that; lgbench has put it back")

    try:
        yield require
    except BaseException as error:
        try:
            require()
        except PluginError as changed:
            if changed is error or not isinstance(error, Exception):
                raise error from None
            raise changed from error  # which may be why the code failed
        raise
    require()
