"""From a footer back to its experiment, with what is installed here: refused where that is not what made the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lgbench.errors import Refused
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.experiment.replan import Replanner
from lgbench.extensions.registry import Registry
from lgbench.submissions.disagreements import other_protocol, other_settings, other_sources, other_versions
from lgbench.submissions.footer import Footer


def rebuilt(footer: Footer, registry: Registry, probes: Sequence[str] = ()) -> Experiment:
    """The experiment of a run, with the measurements that are installed here and these probes, whichever the run had.

    Raises Refused with a sentence for each package that decided the numbers and is another one here.
    """
    versions = list(other_versions(footer, registry, deciding=True)) or list(other_sources(footer, registry))
    refuse(versions, other_protocol(footer))
    planned = as_recorded(Replanner(registry).experiment(footer.experiment, probes), footer.experiment)
    require_same(planned, footer.experiment)
    return planned


def as_recorded(planned: Experiment, record: ExperimentRecord) -> Experiment:
    """The same plugins, but a source that nobody knows, and a changed checkout of lgbench, are not here as they were there."""
    return replace(planned, record=replace(planned.record, plugins=record.plugins))


def require_same(planned: Experiment, record: ExperimentRecord) -> None:
    """Raise Refused where what is planned here is another run."""
    if planned.run_id != record.run_id:
        refuse(other_settings(record, planned.record))


def refuse(*kinds: Iterable[str]) -> None:
    """Raise Refused with all sentences, if there are any."""
    sentences = [sentence for kind in kinds for sentence in kind]
    if sentences:
        raise Refused(sentences)
