"""Records that were planned in one process are the same experiments in another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.plain_training import initial

from lgbench.errors import UsageError
from lgbench.execution.work_queue import PlannedPopulation
from lgbench.experiment.components import experiments_of
from lgbench.experiment.plan import Request, plan

CHANGES = {"train.steps": "7", "model.layers": "1,2"}


def test_an_experiment_is_rebuilt_from_names_and_numbers_to_the_bit(registry):
    asked = Request(["tomita-1", "dyck-2-3"], ["peri-norm", "transformer+no-norm"], None, (0, 3), "quick", CHANGES)
    planned = plan(asked, registry).experiments
    sent = PlannedPopulation.of(planned, len(planned), False)
    again = list(experiments_of(sent.runs, sent.measurements, registry))
    assert [each.run_id for each in again] == [each.run_id for each in planned]
    for one, other in zip(planned, again, strict=True):
        assert one.record == other.record and one.population_key == other.population_key
        assert (one.plugins, one.measured_by, one.measurements) == (other.plugins, other.measured_by, other.measurements)
        weights = zip(initial(one).parameters(), initial(other).parameters(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in weights)


def test_an_entry_with_a_learning_rate_that_was_chosen_keeps_it(registry):
    (planned,) = plan(Request(["tomita-1"], ["pre-norm"], [], (0,), "standard"), registry).experiments
    asked = planned.record.tuning
    chosen = planned.tuned(replace(asked, chosen=asked.grid[0]))
    (again,) = experiments_of([chosen.record], ["tvd"], registry)
    assert again.train.lr == asked.grid[0] and again.run_id == planned.run_id


@pytest.mark.parametrize("change", [{"task_version": 99}, {"family": "other"}, {"plugins": ()}], ids=str)
def test_a_record_that_other_plugins_made_is_refused(toy_registry, change):
    (planned,) = plan(Request(["toy-walk"], ["toy-table"], [], (0,), "quick"), toy_registry).experiments
    with pytest.raises(UsageError, match="toy-table.* on toy-walk seed 0 would be another run here than where it was planned"):
        list(experiments_of([replace(planned.record, **change)], ["tvd"], toy_registry))


def test_a_part_that_rejects_an_option_is_named_with_what_the_user_changed(registry):
    (planned,) = plan(Request(["tomita-1"], ["pre-norm"], [], (0,), "quick"), registry).experiments
    with pytest.raises(UsageError, match="no norm 'gone'"):
        list(experiments_of([replace(planned.record, norm="gone")], ["tvd"], registry))
