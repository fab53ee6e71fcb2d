"""Code of plugins runs inside, and whatever it changed for others is named and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lgbench.errors import PluginError
from lgbench.process.fingerprint import CannotPutBack, Fingerprint, named, put_back
from lgbench.terminal import sentence


@contextmanager
def unchanged(plugins: Mapping[str, str]) -> Iterator[Callable[..., None]]:
    """Inside, the code of these plugins, versions by name, may change nothing that others' numbers depend on.

    Yields a function that asks at once, for use before a result is written; the end asks again. It may be given the plugins
    whose code ran since it asked last. When the changes are put back, PluginError names them and the plugins.
    """
    before = Fingerprint()

    def require(plugins: Mapping[str, str] = plugins) -> None:
        changes = [change for change in before.changes() if change.harmful]
        if changes:
            try:
                put_back(before, changes)
            except CannotPutBack as error:
                raise CannotPutBack(f"{_who(plugins)} {error}") from None
            what = f"{_who(plugins)} changed {named(change.what for change in changes)}"
            raise PluginError(f"{what}, and everybody's numbers depend on that; lgbench has put it back")

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


def _who(plugins: Mapping[str, str]) -> str:
    """The plugins that could have done it. The built-in ones change nothing, which the tests show."""
    strangers = {name: version for name, version in plugins.items() if name != "lgbench"} or plugins
    return sentence(named([f"{name} {version[:15]}" for name, version in strangers.items()], most=len(strangers)))
