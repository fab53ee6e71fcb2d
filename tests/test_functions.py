"""The Python functions: populations that another engine runs are those of the command, to the bit."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import toys
from helpers.made_runs import made

import lgbench
from lgbench import PlannedPopulation, UsageError
from lgbench.execution.work_queue import UNFINISHED
from lgbench.extensions.registry import Registry

SETTINGS = {"train.steps": 3, "train.batch": 2, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 16}
GRID = {"task": ["toy-walk", "toy-even"], "arch": "toy-table", "seeds": (0, 1, 2), "protocol": "quick", "set": SETTINGS}
HOW = {"population": 2, "workers": 1, "compile": False, "device": "cpu"}


pytestmark = pytest.mark.usefixtures("toys_alone")


@pytest.fixture
def alone(tmp_path) -> dict[str, str]:
    """The run files that one call of `lgbench.run` makes."""
    lgbench.run(**GRID, **HOW, results=tmp_path / "alone")
    return made(tmp_path / "alone")


def test_populations_run_by_hand_give_the_run_files_of_run_to_the_bit(tmp_path, alone):
    planned = lgbench.plan(**GRID, **HOW)
    assert sorted(len(population.runs) for population in planned) == [1, 1, 2, 2] or len(planned) == 3
    results = tmp_path / "by hand"
    results.mkdir()
    for population in reversed(planned):
        again = PlannedPopulation.from_json(pickle.loads(pickle.dumps(population)).to_json())
        assert again == population
        for name, content in lgbench.run_population(again).items():
            (results / name).write_bytes(content)
    assert made(results) == alone


@pytest.mark.slow
def test_populations_in_a_shared_folder_are_claimed_and_made_once(tmp_path, alone, monkeypatch):
    results = tmp_path / "shared"
    planned = lgbench.plan(**GRID, **HOW)
    files = {}
    for population in planned:
        files |= lgbench.run_population(population, results=results)
    assert made(results) == alone and not (results / UNFINISHED).exists()
    assert files == {path.name: path.read_bytes() for path in results.glob("*.parquet")}
    assert lgbench.plan(**GRID, **HOW, results=results) == []

    def never(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("lgbench.execution.runner.train", never)
    assert lgbench.run_population(planned[0], results=results).items() <= files.items()


def test_a_population_that_breaks_in_a_shared_folder_gives_its_runs_back(tmp_path):
    broken = GRID | {"task": "toy-walk", "arch": "toy-broken", "set": SETTINGS | {"train.steps": 5}}
    (population, *_) = lgbench.plan(**broken, **HOW)
    with pytest.raises(RuntimeError, match="the toy is broken"):
        lgbench.run_population(population, results=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_plan_leaves_out_what_a_folder_has_and_writes_nothing(tmp_path, alone):
    some = tmp_path / "some"
    lgbench.run(**GRID | {"seeds": (1,)}, **HOW, results=some)
    before = made(some)
    left = lgbench.plan(**GRID, **HOW, results=some)
    assert {run.seed for population in left for run in population.runs} == {0, 2}
    assert made(some) == before and not (some / UNFINISHED).exists()
    assert not lgbench.plan(**GRID, **HOW, results=tmp_path / "none")[0].compile
    assert not (tmp_path / "none").exists()


def test_the_text_of_a_population_is_json_and_other_text_is_refused():
    (population, *_) = lgbench.plan(**GRID, **HOW)
    assert json.loads(population.to_json())["runs"][0]["task"] in GRID["task"]
    with pytest.raises(UsageError, match="no population as to_json writes it"):
        PlannedPopulation.from_json("[1]")


@pytest.mark.slow
def test_plugin_files_are_loaded_for_a_plan_a_population_and_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_measurements,lgbench_optimizers")
    monkeypatch.setattr(toys, "__name__", "toys_of_a_test")
    file = tmp_path / "own_toys.py"
    file.write_text(Path(toys.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    asked = GRID | HOW | {"plugins": [file], "seeds": (0,)}
    table = lgbench.run(**asked, checkpoint=0.0, results=tmp_path / "run")
    files = {}
    for population in lgbench.plan(**asked):
        files |= lgbench.run_population(population, plugins=[str(file)])
    assert set(files) == {path.name for path in (tmp_path / "run").glob("*.parquet")} and table.num_rows
    with pytest.raises(UsageError):
        Registry.load(files=[tmp_path / "nowhere.py"])


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
