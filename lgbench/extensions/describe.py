"""Descriptions of installed objects for `lgbench list`, `lgbench show` and the reference pages."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lgbench.contracts import (
    Answers,
    Architecture,
    Configurable,
    Executor,
    Facts,
    Language,
    Logger,
    Measurement,
    Position,
    Task,
    Tokens,
)
from lgbench.errors import UsageError, message_of
from lgbench.experiment.protocols import PROTOCOLS, Protocol
from lgbench.experiment.record import Training
from lgbench.experiment.settings import OPTION_SECTIONS, all_settings, options_of

if TYPE_CHECKING:
    from lgbench.extensions.registry import Registry

Described = Task | Architecture | Configurable | Measurement | Protocol | Logger | Executor

KINDS = {
    "tasks": "task",
    "archs": "architecture",
    "norms": "norm",
    "attentions": "attention",
    "positions": "position",
    "optimizers": "optimizer",
    "averagers": "averager",
    "metrics": "measurement",
    "loggers": "logger",
    "executors": "executor",
    "protocols": "protocol",
}
"""Kinds of objects from plugins, and protocols, by the user's plural."""

METRIC_COLUMNS = {"name": 0, "title": 0, "better": 0, "range": 2, "threshold": 1, "computed from": 3}
"""Columns of metrics, with the group of :class:`lgbench.reports.tables.Column`."""

SAMPLE_LENGTH = 8
SAMPLES = 3
MAX_ANSWERS = 6
"""Largest number of answers to show after a context."""


class Sample(NamedTuple):
    """A context, with p* after the context."""

    context: str
    answers: Sequence[tuple[str, float]]
    """First legal answers, with their probabilities."""
    left_out: int
    """Number of further legal answers."""


def summaries(kind: str, registry: Registry) -> list[tuple[str, str]]:
    """Name and first paragraph of each object of one kind."""
    items: Iterable[Any] = PROTOCOLS.values() if kind == "protocols" else registry.catalogs()[KINDS[kind]]
    return [(item.name, about(item).partition("\n")[0]) for item in items]


def metric_table(registry: Registry) -> list[tuple[str, ...]]:
    """One row per metric, with the columns METRIC_COLUMNS."""
    return [
        (m.name, m.title, direction(m), value_range(m), _number(m.threshold, "none"), _computed_from(m, registry.tasks))
        for m in registry.measurements
    ]


def about(item: Described) -> str:
    """The item's `about`, or else its docstring."""
    return item.about or documentation(item)


def documentation(item: Described) -> str:
    """Docstring of the item's class, without doctests. Each paragraph is one line."""
    paragraphs = [p for p in docstring(item).split("\n\n") if not p.lstrip().startswith(">>>")]
    lines = (" ".join(p.split()) for p in paragraphs)  # a reader's terminal has its own width
    return "\n\n".join(f"{p[:-1]}." if p.endswith(":") else p for p in lines)  # a doctest stood behind the colon


def docstring(item: Described) -> str:
    """Docstring of the item's class."""
    return inspect.cleandoc(type(item).__doc__ or "")


def reads(task: Task) -> str:
    """Number of tokens or features of a task's inputs."""
    inputs = task.signature.inputs
    if not isinstance(inputs, Tokens):
        return f"{inputs.width} features"
    return f"{inputs.size} tokens" + (f" with one of {inputs.positions} position ids each" if inputs.positions else "")


def trained_lengths(task: Task) -> str:
    """Training lengths as text. With an answer at every prefix, the longest context covers all shorter lengths."""
    low, high = task.train_lengths
    return f"up to {high}" if task.signature.answers is Answers.EVERY_PREFIX else f"{low} to {high}"


def samples(task: Task) -> list[Sample]:
    """Contexts up to an answer, drawn with seed 0: up to the last, or to one in the middle where marked positions answer.

    Raises UsageError for a failed draw, and for an invalid batch.
    """
    try:
        return _samples(task)
    except Exception as error:  # a plugin's code may raise anything
        failed = f"{task.name} cannot be shown, since drawing contexts fails: {message_of(error)}"
        raise UsageError(f"{failed}; `lgbench check` with the name of its plugin says more") from error


def _samples(task: Task) -> list[Sample]:
    from lgbench.experiment.contexts import problem  # imports torch
    from lgbench.randomness import Random, key_of

    length = max(SAMPLE_LENGTH, task.train_lengths[0])
    length = min(length, task.max_length or length)
    batch = task.sample(length, Random.stacked([key_of(0, "show", task.name)], SAMPLES))
    if flaw := problem(task, batch, SAMPLES):
        raise UsageError(flaw)
    answers, marked = batch.distribution.shape[1], task.signature.answers is Answers.MARKED
    found = []
    for index, context in enumerate(batch.inputs):
        counted = range(answers) if batch.weights is None else batch.weights[index].nonzero().flatten().tolist()
        counted = counted or [answers - 1]
        at = counted[len(counted) // 2 if marked else -1]  # the last of marked answers is mostly the end, which says little
        shown = context[: len(context) - (answers - 1 - at)]
        p = batch.distribution[index, at].tolist()
        legal = [(name, p) for name, p in zip(task.answers, p, strict=True) if p > 0]
        found.append(Sample(task.text(shown), legal[:MAX_ANSWERS], max(0, len(legal) - MAX_ANSWERS)))
    return found


def options(kind: str, item: Described) -> dict[str, str]:
    """Options of an object with their defaults, in the notation of `--set`."""
    if isinstance(item, Architecture):
        section, found = "model", options_of(item.build, item.name)
    elif isinstance(item, Configurable) and kind in OPTION_SECTIONS:
        section, found = kind, options_of(item.configured, item.name)
    else:
        return {}
    return {f"{section}.{name}": setting(value) for name, value in found.items()}


def setting(value: object) -> str:
    """Value of an option in the notation of `--set`."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def direction(metric: Measurement) -> str:
    """Direction of better values: lower, higher or neither."""
    return "neither" if metric.lower_is_better is None else "lower" if metric.lower_is_better else "higher"


def value_range(metric: Measurement) -> str:
    """Least and greatest possible value, as text."""
    low, high = metric.range
    return f"{_number(low, '-infinity')} to {_number(high, 'infinity')}"


def page(name: str, registry: Registry) -> str:
    """Description of the objects with a name; for a family, of each of its tasks. Raises UsageError for an unknown name."""
    members = [task for task in registry.tasks if task.family == name]
    pages = [_task_page(task) for task in members] or [_page(kind, item, registry) for kind, item in _found(name, registry)]
    if not pages:
        from lgbench.extensions.registry import ANYTHING, not_installed

        known = {task.family for task in registry.tasks}
        for kind in KINDS:
            known |= {name for name, _ in summaries(kind, registry)}
        raise not_installed(ANYTHING, name, known)
    return "\n\n".join("\n".join(lines) for lines in pages)


def _found(name: str, registry: Registry) -> Iterator[tuple[str, Described]]:
    """Objects with this name, each with its kind."""
    for kind, catalog in registry.catalogs().items():
        item = catalog.get(name)
        if item is not None:
            yield kind, item
    if name in PROTOCOLS:
        yield "protocol", PROTOCOLS[name]


def _page(kind: str, item: Described, registry: Registry) -> Iterator[str]:
    match item:
        case Task():
            yield from _task_page(item)
        case Measurement():
            yield from _metric_page(item, registry)
        case Protocol():
            yield from (item.name, item.about, "")
            yield from (f"{name}: {_listed(value)}" for name, value in protocol_settings(item).items())
            yield "a task may have a budget of its own: see `lgbench show TASK`"
        case _:
            yield from (item.name, about(item))
            if item.about and documentation(item):
                yield from ("", documentation(item))
            if isinstance(item, Executor) and is_dataclass(item):
                own = [f"{f.name}={getattr(item, f.name)}" for f in fields(item)]
                yield from ("", f"options: {', '.join(own) or 'none'}")
            if isinstance(item, Architecture) or kind in OPTION_SECTIONS:
                own = [f"{name}={value}" for name, value in options(kind, item).items()]
                yield from ("", f"options: {', '.join(own) or 'none'}")
            if isinstance(item, Architecture):
                yield from [f"{part} by default: {name}" for part, name in item.defaults.items()] or ["takes no parts"]
            if isinstance(item, Architecture | Position) and item.reads_positions:
                yield "reads the position ids of a task"


def protocol_settings(protocol: Protocol) -> dict[str, object]:
    """Settings of a protocol by name, such as "train.steps", without lengths, which follow from the task."""
    own = all_settings(protocol.train, protocol.evaluate, {})
    settings = {name: value for name, value in own.items() if not name.endswith("_length")}
    others = [field.name for field in fields(protocol) if field.name not in ("name", "about", "train", "evaluate")]
    return settings | {name: getattr(protocol, name) for name in others}


def learning_rate(protocol: Protocol, train: Training) -> str:
    """Learning rate of a task under a protocol, or the grid of its tuning."""
    tuning = protocol.tuning(train)
    rates = ", ".join(f"{lr:g}" for lr in (tuning.grid if tuning else [train.lr]))
    return f"{rates} or beyond" if tuning else rates


def _listed(value: object) -> object:
    """Value of a protocol's setting, as text."""
    return (", ".join(f"{each:g}" for each in value) or "none") if isinstance(value, tuple) else value


def _metric_page(metric: Measurement, registry: Registry) -> Iterator[str]:
    yield metric.name
    yield f"{about(metric)}\n"
    side = "no value" if metric.lower_is_better is None else direction(metric)
    yield f"{metric.label}: {metric.title}, {side} is better; version {metric.version}"
    worst = f"; {metric.worst:g} for a model whose output is not finite" if metric.worst is not None else ""
    yield f"range: {value_range(metric)}{worst}"
    if metric.threshold is not None:
        side = "below" if metric.lower_is_better else "above"
        yield f"effective length: the longest length up to which the mean is {side} {metric.threshold:g}"
    if metric.landmark is not None:
        yield f"landmark: {metric.landmark[0]:g} ({metric.landmark[1]})"
    yield f"computed from: {_computed_from(metric, registry.tasks)}"


def _number(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:g}"


def _computed_from(metric: Measurement, tasks: Iterable[Task]) -> str:
    """Source of a metric's data, with the kind of task where sources differ."""
    sources: dict[str, set[str | None]] = defaultdict(set)
    for task in tasks:
        try:
            sources["languages" if isinstance(task, Language) else "tasks other than languages"].add(metric.source(task))
        except Exception as error:  # a plugin's code may raise anything
            return f"unknown, since its `source` failed on {task.name} with {message_of(error)}"
    said = {kind: " or ".join(sorted(filter(None, own))) for kind, own in sources.items()}
    if len({*said.values()}) > 1:
        some = {kind: "some " if None in own else "" for kind, own in sources.items()}
        return ", ".join(f"{source} of {some[kind]}{kind}" for kind, source in said.items() if source)
    (source,) = {*said.values()} or {""}
    some_tasks = " of some tasks" if any(None in own for own in sources.values()) else ""
    return f"{source}{some_tasks}" if source else "no installed task"


def _task_page(task: Task) -> Iterator[str]:
    from lgbench.experiment.contexts import context_lengths  # imports torch

    signature = task.signature
    yield task.name
    if task.about:
        yield f"{task.about}\n"
    yield f"{documentation(task)}\n"
    yield f"reads {reads(task)}, answers with one of {signature.classes}, {signature.answers.value}; version {task.version}"
    yield f"trained on lengths {trained_lengths(task)}"
    if task.facts is not None:
        yield f"published: {_facts(task.facts)}"
    if task.lengths is not None:
        yield f"boards show the lengths {', '.join(map(str, task.lengths))}"
    for protocol in PROTOCOLS.values():
        train, evaluate = protocol.settings(task)
        lr = learning_rate(protocol, train)
        longest = max(context_lengths(task, train, evaluate), default=evaluate.max_length)
        yield f"  {protocol.name}: {train.steps} steps of {train.batch}, lr {lr}, tested to {longest}"
    yield "\nsample contexts, and p* after them:"
    for sample in samples(task):
        legal = [f"{name}: {p:.3g}" for name, p in sample.answers]
        more = f", and {sample.left_out} more" if sample.left_out else ""
        yield f"  {sample.context}\n    {', '.join(legal)}{more}"


def task_documents(registry: Registry, names: Iterable[str], say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Descriptions of installed tasks for the page, by name. `say` gets a sentence for each task that cannot be described."""
    found = {}
    for name in sorted(names):
        if (task := registry.tasks.get(name)) is not None:
            try:
                found[name] = task_document(task)
            except UsageError as error:
                say(f"warning: {error}")
    return found


def task_document(task: Task) -> dict[str, Any]:
    """Description of a task for the page, as in :func:`page`. Raises UsageError as :func:`samples`."""
    return {
        "about": about(task).partition("\n")[0],
        "rule": documentation(task).split("\n\n"),
        "reads": f"reads {reads(task)}, answers with one of {task.signature.classes}, {task.signature.answers.value}",
        "trained": f"trained on lengths {trained_lengths(task)}",
        "class": task.facts.kind if task.facts else None,
        "published": _facts(task.facts) if task.facts else None,
        "samples": [
            sample._asdict() | {"answers": [(name, float(f"{p:.3g}")) for name, p in sample.answers]}
            for sample in samples(task)
        ],
    }


def _facts(facts: Facts) -> str:
    """One line for published facts, such as "star-free; regular; C-RASP: yes"."""
    said = {True: "yes", False: "no"}
    named = {"C-RASP": facts.c_rasp, "C-RASP with positions": facts.c_rasp_positions}
    named |= {} if facts.kind == "star-free" else {"star-free": facts.star_free}
    parts = [facts.kind, facts.chomsky, facts.group and f"group {facts.group}"]
    parts += [f"{name}: {said[value]}" for name, value in named.items() if value is not None]
    sources = f" ({', '.join(facts.sources)})" if facts.sources else ""
    return "; ".join(part for part in dict.fromkeys(parts) if part) + sources
