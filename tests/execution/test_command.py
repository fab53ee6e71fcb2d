"""Wrong choices and plugin files of `lgbench.run`."""

from __future__ import annotations

import pytest

import lgbench
from lgbench import UsageError

SETTINGS = {"train.steps": 3, "train.batch": 2, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 16}
GRID = {"task": ["toy-walk", "toy-even"], "arch": "toy-table", "protocol": "quick", "set": SETTINGS, "device": "cpu"}

pytestmark = pytest.mark.usefixtures("toys_alone")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": "locale"}, "no executor 'locale'; did you mean 'local'"),
        ({"executor_options": {"jobs": 2}}, "--executor-option jobs needs another executor: local has no options"),
        ({"checkpoint": -1.0}, "--checkpoint is -1.0, expected seconds, at least 0"),
    ],
)
def test_a_wrong_choice_of_executor_is_a_sentence_and_nothing_is_written(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        lgbench.run(**GRID, **options, results=tmp_path / "results")
    assert not (tmp_path / "results").exists()
