"""Planning: the names of a command, or of the record of a run, become experiments with every setting resolved."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from torch import nn

from lgbench.checkout import VERSION
from lgbench.contracts import DEFAULT_OPTIMIZER, NO_NORM, PART_KINDS, Answers, Averager, Optimizer
from lgbench.errors import Refused, Unsupported, UsageError, unknown
from lgbench.experiment import tuning
from lgbench.experiment.components import (
    NONE,
    Components,
    chosen_probes,
    experiment_of,
    family_of,
    find_entries,
    find_tasks,
    plugins_used,
    reason,
    undefined,
)
from lgbench.experiment.contexts import board_lengths, context_positions, no_answer_counts
from lgbench.experiment.experiment import Dropout, Experiment, recorded
from lgbench.experiment.protocols import Protocol, protocol_named
from lgbench.experiment.record import PRECISIONS, ExperimentRecord, ProtocolUse, differences
from lgbench.experiment.settings import (
    OPTION_SECTIONS,
    Options,
    all_settings,
    check_settings,
    chosen_options,
    grid,
    is_json_object,
    options_of,
    override,
    setting_label,
)
from lgbench.extensions.function_files import BuiltByFunction
from lgbench.extensions.loading import BUILT_IN
from lgbench.extensions.registry import Found, Registry
from lgbench.options import RunOptions, listed
from lgbench.terminal import counted


@dataclass(frozen=True)
class Plan:
    """Experiments of a command, and a sentence for each impossible pair of entry and task and each undefined probe."""

    experiments: tuple[Experiment, ...]
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about planned pairs."""


def plan(options: RunOptions, registry: Registry) -> Plan:
    """Experiments of a command, with every name and setting resolved before any training.

    Raises UsageError for unknown names, values out of range, or options without a possible pair of task and entry.
    """
    archs, seeds = listed(options.arch), _seeds(options.seeds)
    for kind, named in (("task", listed(options.task)), ("arch", archs), ("seed", seeds)):
        if not named:
            raise UsageError(f"nothing to run: no {kind} was named")
    if options.precision not in PRECISIONS:
        raise unknown("precision", options.precision, PRECISIONS)
    tasks, measured = find_tasks(listed(options.task), registry), list(registry.measurements)
    planner = _Planner(
        registry,
        protocol_named(options.protocol),
        registry.optimizers.found(options.optimizer),
        _averagers(options.average, registry),
        chosen_probes(listed(options.probe), measured),
        seeds[0],
        options.precision,
    )
    if reserved := sorted({*tuning.SEEDS} & {*seeds} if planner.protocol.lr_factors else ()):
        raise UsageError(
            f"--seeds names {', '.join(map(str, reserved))}, and the seeds {' and '.join(map(str, tuning.SEEDS))} choose the "
            f"learning rates of the protocol {planner.protocol.name}: use others, such as --seeds 0:3"
        )
    experiments: dict[Experiment, None] = {}
    notes: dict[str, None] = {}
    refusals = dict.fromkeys(undefined(planner.probes, measured, [task.thing for task in tasks]))
    changed = {key: list(map(str, listed(value))) for key, value in options.set.items()}
    other = "" if planner.optimizer.label == DEFAULT_OPTIMIZER else f"+{planner.optimizer.label}"
    entries = {f"{name}{other}": entry for name, entry in find_entries(archs, registry).items()}
    for (task, name), changes in product(product(tasks, entries), grid(changed)):
        try:
            first = planner.first(name, {"task": task, **entries[name]}, changes)
        except Unsupported as why:
            refusals[f"{name} cannot be run on {task.label}: {why}"] = None
        else:
            experiments |= dict.fromkeys(map(first.with_seed, seeds))
            if first.averagers and (every := first.train.average_every) > first.train.steps:
                steps = counted(first.train.steps, "step")
                notes[f"training has {steps}, and averages, updated every {every}, keep the first weights"] = None
            if first.drops_position_ids:
                lacks = "takes no position code and reads no position ids"
                notes[f"{name} {lacks}, so it gets the tokens of {task.label} alone"] = None
    if not experiments:
        raise UsageError("\n".join(refusals))
    return Plan(tuple(experiments), tuple(refusals), tuple(notes))


def _seeds(asked: object) -> tuple[int, ...]:
    """Seeds of a request, each once. Raises UsageError except for whole numbers from 0 on: Python may pass any object."""
    seeds = [*dict.fromkeys(asked)] if isinstance(asked, Iterable) else None
    if seeds is None or not all(isinstance(seed, int) and 0 <= seed < 2**63 for seed in seeds):
        raise UsageError(f"seeds is {asked!r:.100}, expected a list of whole numbers from 0 on, such as range(3)")
    return tuple(seeds)


@dataclass(frozen=True)
class _Planner:
    """Planner of experiments, with the objects and settings common to all of a command."""

    registry: Registry
    protocol: Protocol
    optimizer: Found[Optimizer]
    averagers: tuple[Found[Averager], ...]
    probes: frozenset[str]
    """Names of the requested probes."""
    seed: int
    precision: str
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    """`Experiment.positions` by task."""
    unanswered: dict[Hashable, str | None] = field(default_factory=dict)
    """Results of :func:`no_answer_counts` by task, shortest length in training, and lengths on boards."""

    def first(self, entry: str, components: Components, changes: Mapping[str, str]) -> Experiment:
        """Experiment with the first seed and its tuning run. Raises Unsupported for an impossible pair."""
        found = self._experiment(entry, components, changes)
        if found.record.tuning:
            found = replace(found, first_tuning_run=self._tuning_run(found, components, changes))
        self._require_answers(found)
        _require_model(found)
        return found

    def _experiment(self, entry: str, components: Components, changes: Mapping[str, str]) -> Experiment:
        """Experiment of a task and an entry. Raises Unsupported if a part or the optimizer rejects its options."""
        task = components["task"]
        averagers = {f"averager:{averager.label}": averager for averager in self.averagers}
        components = {**components, "optimizer": self.optimizer, **averagers}
        plain = self.protocol.settings(task.thing)
        train, evaluate = override("train", plain[0], changes), override("evaluate", plain[1], changes)
        check_settings(task.thing, train, evaluate)
        options = _options(components, changes)
        before, after = all_settings(*plain, _options(components, {})), all_settings(train, evaluate, options)
        precision = [("precision", self.precision)] if self.precision != PRECISIONS[0] else []  # the default changes no run id
        to_choose = None if "train.lr" in changes else self.protocol.tuning(train)
        if self.protocol.lr_factors and not to_choose:
            before["train.lr"] = None  # the protocol has no rate of its own, so a rate that the user sets is always a change
        labels = {kind: each.label for kind, each in components.items()}
        record = ExperimentRecord(
            task=task.label,
            family=family_of(task),
            task_version=task.thing.version,
            entry=entry,
            architecture=labels["architecture"],
            norm=labels.get("norm"),
            attention=labels.get("attention"),
            position=labels.get("position"),
            optimizer=labels["optimizer"],
            options=tuple(sorted(options.items())),
            averagers=tuple(averager.label for averager in self.averagers),
            protocol=ProtocolUse(
                self.protocol.name,
                self.protocol.version,
                (*precision, *sorted((key, setting_label(value)) for key, value in after.items() if value != before[key])),
            ),
            train=train,
            evaluate=evaluate,
            plugins=plugins_used(components, self.registry.loaded()),
            seed=self.seed,
            tuning=to_choose,
        )
        measurements = map(self.registry.measurements.found, self.registry.measurements.names())
        return experiment_of(record, components, measurements, self.probes, self.positions.setdefault(task.label, {}))

    def _tuning_run(self, experiment: Experiment, components: Components, changes: Mapping[str, str]) -> Experiment:
        """First tuning run: an ordinary run at one learning rate, with fewer steps and a minimal test."""
        asked = experiment.record.tuning
        assert asked
        # A run needs a length that boards show.
        longest = max(experiment.train.max_length, min(experiment.task.lengths or (1,)))
        settings = {"train.steps": asked.steps, "evaluate.max_length": longest, "train.lr": asked.grid[0]}
        alone = replace(self, averagers=(), probes=frozenset(), seed=asked.seeds[0])
        common = {**changes, **tuning.TEST, **{key: str(value) for key, value in settings.items()}}
        return alone._experiment(experiment.entry, components, common)

    def _require_answers(self, experiment: Experiment) -> None:
        """Raise Unsupported for a task without a context of the shortest length in training, or without an answer on boards.

        Draws from each task once.
        """
        task, train, evaluate = experiment.task, experiment.train, experiment.evaluate
        key = (experiment.record.task, train.min_length, *board_lengths(task, train, evaluate))
        if key not in self.unanswered:
            doing = f"drawing a context of length {train.min_length} (train.min_length)"
            try:
                if task.signature.answers is not Answers.EVERY_PREFIX:  # such a task trains on the longest contexts alone
                    context_positions(task, train.min_length)
                doing = "drawing contexts"
                self.unanswered[key] = no_answer_counts(task, train, evaluate)
            except Exception as error:  # the code of a task may raise anything
                self.unanswered[key] = reason(error, doing)
        if why := self.unanswered[key]:
            raise Unsupported(why)


def _options(components: Components, changes: Mapping[str, str]) -> Options:
    """Options of all components of an experiment, by full name. Raises UsageError for an unknown option."""
    task, architecture = components["task"].thing, components["architecture"].thing
    configured = {kind: components[kind].thing for kind in (*PART_KINDS, "optimizer") if kind in components}
    owners = {"model": (architecture.build, architecture)} | {kind: (own.configured, own) for kind, own in configured.items()}
    for key in changes:
        section = key.partition(".")[0]
        if section in OPTION_SECTIONS and section not in owners:
            raise UsageError(f"{key} cannot be set: {architecture.name} takes no {section}")
    return {
        f"{section}.{name}": value
        for section, (function, owner) in owners.items()
        for name, value in chosen_options(
            section, owner.name, options_of(function, owner.name), owner.ranges, task, changes
        ).items()
    }


def _averagers(asked: str | Sequence[str] | None, registry: Registry) -> tuple[Found[Averager], ...]:
    """Averagers, sorted by label. Raises UsageError for an unknown name."""
    named = None if asked is None else listed(asked)
    if named and NONE in named:
        if others := [name for name in named if name != NONE]:
            raise UsageError(f"--average names {NONE} and {', '.join(others)}: use {NONE} alone, or leave it out")
        named = []
    every = map(registry.averagers.found, registry.averagers.names() if named is None else named)
    chosen = {each.label: each for each in every if named is not None or each.origin.name == BUILT_IN}
    return tuple(chosen[label] for label in sorted(chosen))


def _require_model(experiment: Experiment) -> None:
    """Raise Unsupported if the model cannot be built, or if its norm scheme or its dropout has no effect.

    A model from a function must also read the longest input.
    """
    norm, architecture = experiment.parts.get("norm"), experiment.architecture
    made: list[object] = []

    def keep(result: object, *given: object, **named: object) -> None:
        made.append(result)

    parts = {**experiment.parts, "norm": recorded(norm, **dict.fromkeys(_PLACES, keep))} if norm else experiment.parts
    try:
        model = replace(experiment, parts=parts).build()
    except Exception as error:  # the code of an architecture or a part may raise anything
        raise Unsupported(reason(error, "building the model")) from error
    if experiment.train.dropout and not any(isinstance(each, Dropout) for each in model.modules()):
        raise Unsupported(
            f"train.dropout={experiment.train.dropout} has no effect in {architecture.name}, which lets no norm scheme place "
            "its sublayers: train it without dropout, or with an option of its own"
        )
    if norm and norm.name not in (NO_NORM, architecture.defaults["norm"]) and not any(map(_acts, made)):
        raise Unsupported(
            f"{norm.name} places no norm in {architecture.name}: leave it out, or name a norm scheme that places one there"
        )
    if isinstance(architecture, BuiltByFunction):  # others passed `lgbench check`, and quadratic attention takes seconds here
        architecture.require_length(model, experiment.task.signature, experiment.parts_to_build().test_positions)


_PLACES = ("embed", "residual", "output", "final", "query", "key", "head", "gain")
"""Methods of a norm scheme."""

_IDLE = (nn.Identity.forward, nn.Sequential.forward)
"""`forward` methods of modules without an effect of their own."""


def _acts(made: object) -> bool:
    """Whether a module is more than an identity, or a gain other than 1. A residual connection is more."""
    if isinstance(made, nn.Module):
        return not all(type(each).forward in _IDLE for each in made.modules())
    return made not in (None, 1)


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
            found = [f"{what}; {remedy}" for what in differences(planned.record.identity, record.identity)]
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
                file = f"the plugin file {name!a} ({version[:15]!a})"
                yield f"it was made with {file}; name that file with --plugin, or make it a package to submit"
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
