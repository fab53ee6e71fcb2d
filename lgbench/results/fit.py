"""Which seeds have not fitted a task: they did not even learn the lengths that they were trained on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lgbench.results.columns import Models, mean_of_known
from lgbench.results.metrics import Metric
from lgbench.results.statistics import Floats

NotFitted = Mapping[str, Mapping[str, set[int]]]
"""By entry and task, the seeds that have not fitted the task."""


def threshold(metric: Metric, chance: float | None = None) -> float | None:
    """The value that the ID mean of a seed must be better than, or else the seed has not fitted the task; None for none.

    It is the metric's threshold. Where the task's chance level is known, it must also be better than the value halfway between
    chance and a perfect answer, for there are tasks on which a model that knows nothing passes the threshold: on flip-flop the
    chance level is TVD 0.05, and the threshold 0.1. A perfect chance level says nothing about a model: the length alone decides
    the answer, as on Tomita 1 and 2. There the metric's threshold stands alone.
    """
    if chance is None or metric.perfect is None or chance == metric.perfect:
        return metric.threshold
    halfway = (metric.perfect + chance) / 2
    if metric.threshold is None:
        return halfway
    return min(metric.threshold, halfway) if metric.lower_is_better else max(metric.threshold, halfway)


def not_fitted(models: Models, metric: Metric, chance: Models) -> dict[tuple[str, str, int], bool]:
    """Of each entry, task and seed with ID lengths, whether the seed has not fitted the task.

    A seed for which the metric is not defined at any ID length has not fitted the task.
    """
    ran = (models.measured & models.in_distribution).any(-1)
    means = id_means(models)
    levels = dict(zip(chance.tasks, id_means(chance)[0, 0].tolist(), strict=True)) if chance.tasks else {}
    found = {}
    for e, s, t in np.argwhere(ran):
        task = models.tasks[t]
        limit = threshold(metric, levels.get(task))
        if limit is not None:
            found[models.entries[e], task, models.seeds[s]] = not metric.sign * means[e, s, t] < metric.sign * limit
    return found


def id_means(models: Models) -> Floats:
    """(E, S, T): the mean over the lengths of each task that models are trained on; NaN where there is no value."""
    return mean_of_known(np.where(models.in_distribution, models.values, np.nan)).round(12)
