"""Whether others can install the plugins that a run was made with: their releases, and nothing that lies on one machine."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from lgbench.experiment.record import LoadedPlugin
from lgbench.extensions.loading import BUILT_IN
from lgbench.submissions.footer import Footer, shown

RELEASED = ("index", "wheel")
"""How a plugin is installed from a release: from a package index, or from a wheel, which has one content for ever."""

RECORDED_SINCE = "2026-11-22T12:00:00+00:00"
"""Runs from before do not say how their plugins were installed, nor have they the hashes of their sources."""

_HOW = {
    "editable": "was installed editable, from a folder that may change",
    "folder": "was installed from a folder",
    "version control": "was installed from version control",
    "archive": "was installed from an archive of sources",
    "unknown": "was installed in a way that the run does not say",
}


def unreleased_plugins(footer: Footer) -> Iterator[str]:
    """A sentence for each plugin that took part and is no release. For lgbench itself, the commit says which one it is."""
    for plugin in footer.took_part.values():
        if plugin.name != BUILT_IN and (why := _unreleased(plugin)):
            yield why


def unreleased_plugins_since_recorded(footer: Footer) -> Iterator[str]:
    """The same for runs that are filed already: an early one cannot say how its plugins were installed."""
    early = footer.environment.date < RECORDED_SINCE and footer.environment.date.endswith("+00:00")
    if not (early and all(plugin.installed == "unknown" for plugin in footer.plugins)):
        yield from unreleased_plugins(footer)


def _unreleased(plugin: LoadedPlugin) -> str | None:
    name, version = shown(plugin.name), shown(plugin.version)[1:-1]
    if plugin.installed == "file":
        return f"the plugin file {name} took part in it, which nobody else has; make it a package, and run it again"
    remedy = "install its release, or a wheel of its release (pip install NAME-VERSION-py3-none-any.whl), and run it again"
    if plugin.installed not in RELEASED:
        how = f"{_HOW[plugin.installed]}, so others may have another one"
        return f"the plugin {name} {version} took part in it and {how}; {remedy}"
    try:
        release = Version(plugin.version)
    except InvalidVersion:
        return f"the plugin {name} took part in it, and its version {version} is none of a release; {remedy}"
    if release.is_devrelease or release.local:
        return f"the plugin {name} took part in it, and its version {version} is not released; {remedy}"
    return None
