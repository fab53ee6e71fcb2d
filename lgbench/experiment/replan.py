"""Planning again: the record of a run becomes the experiment that `lgbench run` plans with the plugins installed here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from lgbench.checkout import VERSION
from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.errors import Refused, UsageError
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.experiment.protocols import protocol_named
from lgbench.experiment.record import ExperimentRecord, differences, flat
from lgbench.experiment.settings import is_json_object
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions


class Replanner:
    """Planner of experiments from records, with the plugins installed here. Plans each kind of run once, for all seeds."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._planned: dict[Hashable, Experiment] = {}

    def experiment(self, record: ExperimentRecord, probes: Sequence[str] = ()) -> Experiment:
        """Experiment of `lgbench run` with the names in a record. Its run id may differ from the record's.

        `probes` are the names of the run's probes; undefined probes are dropped. The outcome of a tuning is taken from the
        record. Raises UsageError for unknown names and impossible pairs.
        """
        # The protocol's changes contain only the hash of a JSON object, so the object itself comes from the options.
        objects = {key: value for key, value in record.options if isinstance(value, str) and is_json_object(value)}
        same = (record.task, record.entry, record.optimizer, record.averagers, record.protocol, *objects.items(), tuple(probes))
        if same not in self._planned:
            name, precision = record.protocol.name, record.precision
            changes = {key: objects.get(key, value) for key, value in record.protocol.changes if key != "precision"}
            options = RunOptions(
                record.task,
                arch_of(record),
                average=record.averagers,
                seeds=(0,),
                protocol=name,
                set=changes,
                optimizer=record.optimizer,
                precision=precision,
                probe=probes,
            )
            found = {each.record.task: each for each in plan(options, self.registry).experiments}
            if record.task not in found:
                raise UsageError(f"{record.task} is a family, and no task of it has that name")
            self._planned[same] = found[record.task]
        planned = self._planned[same].with_seed(record.seed)
        if (asked := planned.record.tuning) and (said := record.tuning):
            planned = planned.tuned(replace(asked, runs=said.runs, chosen=said.chosen))
        return planned

    def rebuilt(
        self, record: ExperimentRecord, made_with: Mapping[str, str], commit: str | None, probes: Sequence[str] = ()
    ) -> Experiment:
        """Experiment of a record, if it is the same run here. Raises Refused, with a sentence for each difference, if not.

        `made_with` has the required versions of packages, and `commit` is that of the run's lgbench.
        """
        if wrong := [*self._other_packages(made_with)]:
            raise Refused(wrong)
        if other := _other_protocol(record, commit):
            raise Refused([other])
        planned = self.experiment(record, probes)
        if made := [plugin for plugin in record.plugins if plugin.name == BUILT_IN]:
            if made != [plugin for plugin in planned.record.plugins if plugin.name == BUILT_IN]:
                raise Refused(
                    ["it was made by a checkout of lgbench with changes that this lgbench does not have; run it again"]
                )
        else:
            # Changes in the checkout of a developer or a reviewer do not make a run of a clean checkout another one.
            released = tuple(plugin for plugin in planned.record.plugins if plugin.name != BUILT_IN)
            planned = replace(planned, record=replace(planned.record, plugins=released))
        if planned.run_id != record.run_id:
            remedy = "run it again, or install the packages that made it"
            found = [f"{what}; {remedy}" for what in differences(flat(planned.record.identity), flat(record.identity))]
            raise Refused(found or [f"it is run {record.run_id}, and its names and settings make {planned.run_id} here"])
        return planned

    def _other_packages(self, made_with: Mapping[str, str]) -> Iterator[str]:
        """A sentence for each package without the required version."""
        here = {plugin.distribution.name: plugin.distribution.version for plugin in self.registry.plugins}
        here["lgbench"] = VERSION
        for name, version in made_with.items():
            if here.get(name) == version:
                continue
            if version.startswith("sha256:"):
                # !a, because a stranger's file may have control characters.
                yield f"it was made with the plugin file {name!a} ({version[:15]!a}); name that file with --plugin"
            elif name in here:
                yield f"it was made with {name} {version!a}, and {here[name]} is installed; install that version"
            else:
                yield f"it needs the plugin {name!a} {version!a}, which is not installed here; install that version"


def _other_protocol(record: ExperimentRecord, commit: str | None) -> str | None:
    """A sentence for a protocol in another version. Raises UsageError for an unknown protocol."""
    used = record.protocol
    today = protocol_named(used.name).version
    if used.version == today:
        return None
    at = f" (commit {commit!a})" if commit else ""
    label = f"{used.name}/{used.version}"
    return f"its protocol {label} is {used.name}/{today} in this lgbench; run it again, or use its lgbench{at}"


def arch_of(record: ExperimentRecord) -> str:
    """Value of --arch for an entry: the entry without its optimizer, the value of --optimizer."""
    return record.entry if record.optimizer == DEFAULT_OPTIMIZER else record.entry.removesuffix(f"+{record.optimizer}")
