"""Protocols: named, versioned settings, equal for all entries of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lgbench.contracts import Answers, Budget, Task
from lgbench.errors import UsageError, unknown
from lgbench.experiment import tuning
from lgbench.experiment.record import EXTERNAL, Evaluation, Training
from lgbench.experiment.tuning import Tuning, rates


@dataclass(frozen=True)
class Protocol:
    """Settings shared by all tasks; a task may bring its own budget under the protocol's name."""

    name: str
    version: int
    about: str
    train: Training
    """Settings of training, except lengths, which are those of the task."""
    evaluate: Evaluation
    """Settings of tests, except largest lengths."""
    longest_prefix: int
    """Longest tested context of tasks that answer at many positions."""
    longest_set: int
    """Longest tested context of tasks that answer once."""
    eval_step_reach: int
    """Longest length in a test at an eval step, as a multiple of the training length."""
    submitted_seeds: int
    """Smallest number of seeds per task in a submission; 0 for a protocol without submissions."""
    lr_factors: tuple[float, ...] = ()
    """Grid of learning rates for tuning, as multiples of `train.lr` or of a task's own; empty for a fixed learning rate."""
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
        training = replace(
            self.train,
            steps=budget.steps or self.train.steps,
            batch=budget.batch or self.train.batch,
            lr=float(budget.lr or self.train.lr),  # 1 and 1.0 would have two run ids
            min_length=task.train_lengths[0],
            max_length=task.train_lengths[1],
        )
        reach = max(self.eval_step_reach * training.max_length, min(task.lengths or (1,)))  # at least one of the task's lengths
        point_max_length = min(max_length, reach)
        return training, replace(self.evaluate, max_length=max_length, point_max_length=point_max_length)


QUICK = Protocol(
    name="quick",
    version=5,
    about="seconds: for tests and first contact; nothing is learned well",
    train=Training(steps=100, batch=16, lr=3e-3, weight_decay=0.01, warmup=0.1, average_every=2),
    evaluate=Evaluation(contexts=32, strings=32, points=3, point_contexts=8),
    longest_prefix=128,
    longest_set=512,
    eval_step_reach=2,
    submitted_seeds=0,
)

SHORT = Protocol(
    name="short",
    version=1,
    about="minutes on two CPU cores: which entries learn fast",
    train=Training(steps=1000, batch=24, lr=3e-3, weight_decay=0.01, warmup=0.1, average_every=10),
    evaluate=Evaluation(contexts=128, strings=128, points=10, point_contexts=12),
    longest_prefix=512,
    longest_set=2**14,
    eval_step_reach=4,
    submitted_seeds=5,
)

STANDARD = replace(
    SHORT,
    name="standard",
    version=7,
    about="40 seconds to two minutes of a core a run, with a tuned learning rate: the published leaderboards",
    train=replace(SHORT.train, steps=6000),
    evaluate=replace(SHORT.evaluate, point_contexts=48, point_strings=48),
    lr_factors=(1 / 3, 1.0, 3.0),
    lr_open=True,
)

LONG = replace(
    SHORT,
    name="long",
    version=2,
    about="100,000 steps: four to twenty minutes of a core for each model, and half as long for each learning rate tried",
    train=replace(SHORT.train, steps=100_000, warmup=0.01, average_every=40),
    evaluate=Evaluation(contexts=512, strings=512, points=10, point_contexts=128, point_strings=128),
    eval_step_reach=8,
    submitted_seeds=3,
    lr_factors=STANDARD.lr_factors,
    lr_open=True,
)

PAPER = Protocol(
    name="paper",
    version=5,
    about="1 M steps, the published training of the source papers where they say it; for a GPU",
    train=Training(steps=1_000_000, batch=128, lr=1e-3, weight_decay=1e-3, warmup=0.01, average_every=400),
    evaluate=Evaluation(contexts=1024, strings=1024, points=10, point_contexts=256, point_strings=256),
    longest_prefix=4096,
    longest_set=2**14,
    eval_step_reach=8,
    submitted_seeds=3,
)

PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in (QUICK, SHORT, STANDARD, LONG, PAPER)}

DEFAULT_PROTOCOL = "short"
"""Default protocol of commands and functions."""

BOARDS_PROTOCOL = "standard"
"""Protocol of the published leaderboards."""

ALL_PROTOCOLS = "all"
"""Choice of all protocols with runs, among names of protocols."""


def protocol_named(name: str) -> Protocol:
    """Protocol by name. Raises UsageError with the known names."""
    if name == EXTERNAL:
        known = ", ".join(sorted(PROTOCOLS))
        raise UsageError(f"{name} is for models that were trained elsewhere: use lgbench.evaluate_model; to train: {known}")
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise unknown("protocol", name, PROTOCOLS) from None
