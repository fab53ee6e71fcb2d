"""Protocols: named, versioned settings, equal for all entries of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lgbench.contracts import Answers, Budget, Task
from lgbench.errors import UsageError, unknown
from lgbench.experiment import tuning
from lgbench.experiment.tuning import Tuning, rates


@dataclass(frozen=True)
class Training:
    """Training settings of one model, fully resolved. Lengths are those of :class:`lgbench.Task`; a batch counts contexts."""

    steps: int
    batch: int
    lr: float
    """Peak learning rate, reached after the warmup and then decayed linearly to 0."""
    weight_decay: float
    """Decoupled weight decay, on matrices only."""
    warmup: float
    """Share of the steps in which the learning rate rises linearly from 0."""
    average_every: int
    """Steps between two updates of the averagers (phi in BEMA)."""
    min_length: int
    max_length: int
    targets: str = "sampled"
    """The training targets at every position: one token "sampled" from p*, or p* itself, "exact"."""


@dataclass(frozen=True)
class Evaluation:
    """Test settings of one model, fully resolved."""

    contexts: int
    """Contexts per length, for TVD, accuracy and the ROC AUC of tasks that are not languages."""
    strings: int
    """Strings per length, half of them members, for the ROC AUC of languages."""
    max_length: int
    points: int = 0
    """Largest number of tests during training; see :func:`lgbench.experiment.contexts.point_steps` for the steps."""
    point_contexts: int = 1
    """Contexts per length in a test during training."""
    point_strings: int = 0
    """Strings per length in a test during training; 0 for none."""
    point_max_length: int = 1
    """Longest length in a test during training."""


@dataclass(frozen=True)
class Protocol:
    """Settings shared by all tasks; a task may bring its own budget under the protocol's name."""

    name: str
    version: int
    about: str
    steps: int
    batch: int
    lr: float
    weight_decay: float
    warmup: float
    average_every: int
    contexts: int
    strings: int
    longest_prefix: int
    """Longest tested context of tasks that answer at many positions."""
    longest_set: int
    """Longest tested context of tasks that answer once."""
    points: int
    """Largest number of tests during training."""
    point_contexts: int
    point_strings: int
    point_reach: int
    """Longest length in a test during training, as a multiple of the training length."""
    submitted_seeds: int
    """Smallest number of seeds per task in a submission; 0 for a protocol without submissions."""
    lr_factors: tuple[float, ...] = ()
    """Grid of learning rates for tuning, as multiples of `lr` or of a task's own; empty for a fixed learning rate."""
    lr_open: bool = False
    """Whether the grid goes on where its best rate is at an end."""

    @property
    def published(self) -> bool:
        """Whether the leaderboards accept results of the protocol."""
        return self.submitted_seeds > 0

    def tuning(self, training: Training) -> Tuning | None:
        """Tuning for a training; None for a protocol with a fixed learning rate."""
        if not self.lr_factors:
            return None
        steps = max(1, training.steps // tuning.SHARE)
        return Tuning(rates(training.lr, self.lr_factors), tuning.SEEDS, steps, open=self.lr_open)

    def settings(self, task: Task) -> tuple[Training, Evaluation]:
        """Training and test settings for one task."""
        budget = task.budgets.get(self.name, Budget())
        longest = self.longest_set if task.signature.answers is Answers.LAST else self.longest_prefix
        max_length = budget.max_length or longest
        if task.max_length is not None:
            max_length = min(max_length, task.max_length)
        training = Training(
            steps=budget.steps or self.steps,
            batch=budget.batch or self.batch,
            lr=float(budget.lr or self.lr),
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            average_every=self.average_every,
            min_length=task.train_lengths[0],
            max_length=task.train_lengths[1],
        )
        evaluation = Evaluation(
            contexts=self.contexts,
            strings=self.strings,
            max_length=max_length,
            points=self.points,
            point_contexts=self.point_contexts,
            point_strings=self.point_strings,
            point_max_length=min(max_length, self.point_reach * training.max_length),
        )
        return training, evaluation


QUICK = Protocol(
    name="quick",
    version=5,
    about="seconds: for tests and first contact; nothing is learned well",
    steps=100,
    batch=16,
    lr=3e-3,
    weight_decay=0.01,
    warmup=0.1,
    average_every=2,
    contexts=32,
    strings=32,
    longest_prefix=128,
    longest_set=512,
    points=3,
    point_contexts=8,
    point_strings=0,
    point_reach=2,
    submitted_seeds=0,
)

SHORT = Protocol(
    name="short",
    version=1,
    about="minutes on two CPU cores: which entries learn fast",
    steps=1000,
    batch=24,
    lr=3e-3,
    weight_decay=0.01,
    warmup=0.1,
    average_every=10,
    contexts=128,
    strings=128,
    longest_prefix=512,
    longest_set=2**14,
    points=10,
    point_contexts=12,
    point_strings=0,
    point_reach=4,
    submitted_seeds=5,
)

STANDARD = replace(
    SHORT,
    name="standard",
    version=6,
    about="as long as about 40 seconds of a core allow, with the best of three learning rates: the published leaderboards",
    steps=6000,
    point_contexts=48,
    point_strings=48,
    lr_factors=(1 / 3, 1.0, 3.0),
)

LONG = replace(
    SHORT,
    name="long",
    version=2,
    about="100,000 steps: five to seven minutes of a core for each model, and half as long for each learning rate tried",
    lr_factors=STANDARD.lr_factors,
    lr_open=True,
    steps=100_000,
    warmup=0.01,
    average_every=40,
    contexts=512,
    strings=512,
    point_contexts=128,
    point_strings=128,
    point_reach=8,
    submitted_seeds=3,
)

PAPER = Protocol(
    name="paper",
    version=5,
    about="1 M steps, the published training of the source papers where they say it; for a GPU",
    steps=1_000_000,
    batch=128,
    lr=1e-3,
    weight_decay=1e-3,
    warmup=0.01,
    average_every=400,
    contexts=1024,
    strings=1024,
    longest_prefix=4096,
    longest_set=2**14,
    points=10,
    point_contexts=256,
    point_strings=256,
    point_reach=8,
    submitted_seeds=3,
)

PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in (QUICK, SHORT, STANDARD, LONG, PAPER)}

DEFAULT_PROTOCOL = "short"
"""Default protocol of commands and functions."""

BOARDS_PROTOCOL = "standard"
"""Protocol of the published leaderboards."""


EXTERNAL, EXTERNAL_VERSION = "external", 1
"""Protocol of models trained elsewhere and measured by :func:`lgbench.evaluate_model`. The test settings are those of
BOARDS_PROTOCOL. Raise the version whenever a number changes."""


def protocol_named(name: str) -> Protocol:
    """Protocol by name. Raises UsageError with the known names."""
    if name == EXTERNAL:
        known = ", ".join(sorted(PROTOCOLS))
        raise UsageError(f"{name} is for models that were trained elsewhere: use lgbench.evaluate_model; to train: {known}")
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise unknown("protocol", name, PROTOCOLS) from None


TARGETS = ("sampled", "exact")

PRECISIONS = ("float32", "bfloat16")
"""Floating-point precisions of models. Each protocol has the first."""

MULTIPLES = (1, 2, 4, 8)
"""Multiples of the training length, tested during training if a task answers at every prefix: they cost no extra context."""
