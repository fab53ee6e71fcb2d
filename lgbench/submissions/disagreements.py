"""Where a footer disagrees with the lgbench and the plugins that are installed here, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import lgbench
from lgbench.experiment.protocols import protocol_named
from lgbench.experiment.record import ExperimentRecord
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.extensions.sources import UNKNOWN
from lgbench.results.metrics import Metric
from lgbench.submissions.footer import Footer, shown


def other_versions(footer: Footer, registry: Registry, deciding: bool = False) -> Iterator[str]:
    """Distributions that took part and are not installed in the same version; only those `deciding` numbers, not measuring."""
    installed = _installed(registry)
    decide = {plugin.name for plugin in footer.experiment.plugins}
    filed = {name: plugin.version for name, plugin in footer.took_part.items() if name in decide or not deciding}
    for name, version in {**filed, "lgbench": footer.environment.lgbench}.items():
        is_file = version.startswith("sha256:")
        if name not in installed and is_file:
            yield f"it needs the plugin file {shown(name)} ({shown(version)[1:16]}); name that file with --plugin"
        elif name not in installed:
            yield f"it needs the plugin {shown(name)} {shown(version)}, which is not installed here; install that version"
        elif installed[name] != version and is_file:
            yield f"it was made with another {shown(name)} ({shown(version)[1:16]}); name that file with --plugin"
        elif installed[name] != version:
            yield f"it was made with {name} {shown(version)}, and {installed[name]} is installed; install that version"


def other_sources(footer: Footer, registry: Registry) -> Iterator[str]:
    """Distributions of the same version whose sources here are not those that decided the numbers."""
    here = {plugin.distribution.name: plugin.distribution for plugin in registry.plugins}
    for plugin in footer.experiment.plugins:
        found = here.get(plugin.name)
        if found is None or UNKNOWN in (plugin.source, found.source) or plugin.source == found.source:
            continue
        sources = shown(plugin.source)[1:-1]
        if plugin.name == BUILT_IN:
            yield f"it was made by a checkout of lgbench with uncommitted changes ({sources}), and the installed one has others"
        elif found.version == plugin.version:
            yield (
                f"it was made with {plugin.name} {plugin.version} of other sources ({sources}) than the installed ones "
                f"({found.source}); install the package that it was made with"
            )


def other_protocol(footer: Footer) -> Iterator[str]:
    """A protocol that has another version today. Raises UsageError for one that does not exist."""
    used = footer.experiment.protocol
    today = protocol_named(used.name).version
    if used.version != today:
        commit = f" (commit {footer.environment.git_commit})" if footer.environment.git_commit else ""
        label = f"{used.name}/{used.version}"
        yield f"its protocol {label} is {used.name}/{today} in this lgbench; run it again, or use its lgbench{commit}"


def other_measurements(footer: Footer, registry: Registry) -> Iterator[str]:
    """Measurements that are not installed, or that the file describes otherwise. A file need not have every installed one."""
    names = [metric.name for metric in footer.measurements]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"it describes the measurement {name} more than once"
    for metric in footer.measurements:
        if registry.measurements.get(metric.name) is None:
            yield f"no installed plugin provides its measurement {metric.name}; {_remedy(footer, registry)}"
        else:
            yield from _other_description(metric, Metric.of(registry.measurements[metric.name]))


def other_settings(filed: ExperimentRecord, planned: ExperimentRecord) -> Iterator[str]:
    """Fields of a record that `lgbench run` would not write."""
    here, there = _flat(planned), _flat(filed)
    differ = [name for name in here | there if shown(here.get(name)) != shown(there.get(name))]
    for name in differ:
        yield f"under {planned.protocol} {name} is {shown(here.get(name))}, and the file says {shown(there.get(name))}"
    if not differ:
        yield f"it is run {filed.run_id}, and {planned.run_id} under {planned.protocol}"


def other_plugins(footer: Footer, planned: ExperimentRecord, needed: Mapping[str, str]) -> Iterator[str]:
    """Other plugins than those that take part in the experiment, or other ones in one place of the footer than in another."""
    took_part = footer.took_part
    filed = {name: plugin.version for name, plugin in took_part.items()}
    if filed != needed:
        yield f"its footer says that {_listed(filed)} took part, and for this run it is {_listed(needed)}"
        return
    decide = {plugin.name: plugin for plugin in footer.experiment.plugins}
    for name, source in {name: plugin.source for name, plugin in decide.items()}.items():
        if name not in took_part or (took_part[name].version, took_part[name].source) != (decide[name].version, source):
            yield f"experiment.plugins has {shown(name)} {shown(decide[name].version)} {shown(source)}, and plugins has not"
    provided = {plugin.name: plugin.provides for plugin in planned.plugins if plugin.name != BUILT_IN}
    stated = {plugin.name: plugin.provides for plugin in footer.experiment.plugins if plugin.name != BUILT_IN}
    if provided != stated:
        yield f"experiment.plugins says that {_listed_things(stated)}, and for this run {_listed_things(provided)}"


def _installed(registry: Registry) -> dict[str, str]:
    """Versions by distribution."""
    versions = {plugin.distribution.name: plugin.distribution.version for plugin in registry.plugins}
    return versions | {"lgbench": lgbench.__version__}


def _remedy(footer: Footer, registry: Registry) -> str:
    """Names the plugins that are not installed: one of them has the measurement."""
    lacking = {plugin.name: plugin.version for plugin in footer.plugins if plugin.name not in _installed(registry)}
    if not lacking:
        return "install the plugin that does, or name its file with --plugin"
    return f"install {_listed(lacking)}, or name its file with --plugin"


def _other_description(filed: Metric, installed: Metric) -> Iterator[str]:
    for name, here in asdict(installed).items():
        there = getattr(filed, name)
        if there != here:
            yield (
                f"its measurement {filed.name} has the {name} {shown(there)}, and the installed one has {shown(here)}; "
                "run it again, or install the version of the plugin that it was made with"
            )


def _flat(record: ExperimentRecord) -> dict[str, object]:
    """Every field under one name, such as train.steps and model.layers."""
    found: dict[str, object] = {}
    for name, value in asdict(record).items():
        if name in ("train", "evaluate"):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        elif name == "options":
            found |= dict(value)
        elif name == "tuning":  # what it found is the file's
            found |= {f"tuning.{key}": value and str(value[key]) for key in ("grid", "seeds", "steps")}
        else:
            found[name] = str(record.protocol) if name == "protocol" else value
    return found


def _listed_things(provided: Mapping[str, tuple[str, ...]]) -> str:
    found = (f"{shown(name)[1:-1]} provides {shown(', '.join(kinds))[1:-1]}" for name, kinds in sorted(provided.items()))
    return " and ".join(found) or "no package provides anything"


def _listed(plugins: Mapping[str, str]) -> str:
    return ", ".join(f"{shown(name)[1:-1]} {shown(version)[1:-1]}" for name, version in sorted(plugins.items())) or "nothing"
