"""Whether a training and its tests fit into the memory, known before either begins."""

from __future__ import annotations

from operator import itemgetter

from lgbench.contracts import Language
from lgbench.errors import UsageError
from lgbench.experiment.building import gigabytes
from lgbench.experiment.contexts import draw
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.lengths import context_lengths
from lgbench.experiment.protocols import Evaluation
from lgbench.measurement.evaluate import AT_ONCE, DRAWN_POSITIONS
from lgbench.measurement.extent import by_source
from lgbench.randomness import Random
from lgbench.training import estimate
from lgbench.training.cost import Cost
from lgbench.training.data import CHUNK

NUMBER = 8
"""Bytes of a float64 or an int64."""


def require_memory(experiment: Experiment, each: Cost, free: int) -> None:
    """Raise UsageError, with what would work, if not even one model can be trained, or tested, in `free` bytes.

    `each` is the cost of a training step of one model.
    """
    train, evaluate = experiment.train, experiment.evaluate
    needed = training_memory(experiment, each)
    _require(experiment, "training it", needed, free, "train", batch=train.batch, length=train.max_length)
    tested = testing_memory(experiment)
    counts = [max(_counts(evaluate, kind).items(), key=itemgetter(1)) for kind in ("contexts", "strings")]
    _require(experiment, "testing it", tested, free, "evaluate", **dict(counts), length=evaluate.max_length)


def training_memory(experiment: Experiment, each: Cost) -> int:
    """Bytes that training one model takes: a step, what stays between steps, and drawing the contexts of several steps."""
    train = experiment.train
    inputs, answers = _context(experiment, train.max_length)
    drawn = min(train.steps, CHUNK) * train.batch * (inputs + answers)
    return each.kept + max(each.peak, drawn)


def testing_memory(experiment: Experiment) -> int:
    """Bytes that testing one model takes at the longest length: weights, contexts, a pass, and the values of all answers."""
    task, evaluate = experiment.task, experiment.evaluate
    longest = max(context_lengths(task, experiment.train, evaluate), default=evaluate.max_length)
    inputs, answers = _context(experiment, longest)
    batch = draw(task, longest, Random(1))
    positions, answered = batch.inputs.shape[1], batch.distribution.shape[1]
    variants = 1 + len(experiment.averagers)
    on_contexts, on_strings = by_source(task, experiment.measurements)
    contexts = _most(evaluate, "contexts")
    drawn = min(contexts, max(1, DRAWN_POSITIONS // (longest + 1))) * (inputs + answers)
    values = 2 * contexts * answered * NUMBER * variants * max(1, len(on_contexts))  # kept, and put together
    strings = 0
    if isinstance(task, Language) and on_strings:  # symbols, and the probability of each
        strings = _most(evaluate, "strings") * (task.testable_length(longest) + 1) * 3 * NUMBER
    at_once = min(max(contexts, 1), max(1, AT_ONCE["cpu"] // positions))
    return drawn + max(values, strings) + estimate.pass_memory(experiment, positions, at_once)


def _counts(evaluate: Evaluation, kind: str) -> dict[str, int]:
    """Contexts or strings of one length, by setting: at the end of the training, and at its points. Either may be more."""
    at_end, at_points = getattr(evaluate, kind), getattr(evaluate, f"point_{kind}")
    return {kind: at_end, f"point_{kind}": at_points if evaluate.points else 0}


def _most(evaluate: Evaluation, kind: str) -> int:
    return max(_counts(evaluate, kind).values())


def _context(experiment: Experiment, length: int) -> tuple[int, int]:
    """Bytes of the inputs of one context, and of p* and the targets that are drawn from it."""
    one = draw(experiment.task, length, Random(1))
    return one.inputs.nbytes, one.distribution.nbytes + 2 * NUMBER * one.distribution.shape[1]


def _require(experiment: Experiment, doing: str, needed: int, free: int, section: str, **settings: int) -> None:
    if needed <= free:
        return
    named = {"length": "max_length"}
    shown = ", ".join(f"{section}.{named.get(name, name)}={value}" for name, value in settings.items())
    sizes = ", ".join(f"{key}={value}" for key, value in experiment.record.protocol.changes if key.startswith("model."))
    raise UsageError(
        f"{experiment.record.title} does not fit into memory: {doing} takes about {gigabytes(needed)}, and {gigabytes(free)} "
        f"are free, with {shown}{f', {sizes}' if sizes else ''}; "
        f"lower one of these by a factor of {_factor(needed, free)} or more"
    )


def _factor(needed: int, free: int) -> int:
    """The power of two by which something must shrink to fit, if it shrinks in proportion."""
    factor = 2
    while factor * free < needed:
        factor *= 2
    return factor
