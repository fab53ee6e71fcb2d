from __future__ import annotations

import pyarrow as pa
import pytest
import torch

import lgbench
from lgbench.execution import runner
from lgbench.results import run_files

SETTINGS = {"train.steps": 2, "train.batch": 2, "evaluate.contexts": 4, "evaluate.max_length": 16}


def toy_run(folder, task="toy-walk", arch="toy-table", **options):
    return lgbench.run(task, arch, **{"seeds": (0, 1), "protocol": "quick", "set": SETTINGS, "results": folder} | options)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_a_run_returns_the_rows_of_its_files_and_a_second_call_trains_nothing(tmp_path, toys_alone, monkeypatch):
    first = toy_run(tmp_path)
    files = list(run_files.find(tmp_path))
    assert len(files) == 2
    assert rows(first) == rows(pa.concat_tables([run_files.read(path) for path in files]))

    def never(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(runner, "train", never)
    assert rows(toy_run(tmp_path)) == rows(first)
    assert list(run_files.find(tmp_path)) == files


def test_a_combination_that_a_plugin_refuses_is_warned_of_where_others_run(tmp_path, toys_alone):
    with pytest.warns(UserWarning, match="toy-fragile.* cannot be run on toy-largest: .*the task has vectors"):
        table = toy_run(tmp_path, task=["toy-walk", "toy-largest"], arch="toy-fragile", seeds=(0,))
    assert set(table["task"].to_pylist()) == {"toy-walk"}


@pytest.mark.parametrize("seeds", [3, "0:2", [0, 0.5], [-1], None])
def test_seeds_other_than_whole_numbers_are_refused_before_any_training(tmp_path, toys_alone, seeds):
    with pytest.raises(
        lgbench.UsageError, match=r"^seeds is .*, expected a list of whole numbers from 0 on, such as range\(3\)"
    ):
        toy_run(tmp_path, seeds=seeds)
    assert not list(tmp_path.iterdir())


def test_models_run_in_full_float32_whatever_the_process_had_set(tmp_path, toys_alone, monkeypatch):
    def precision():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    seen = []
    train, evaluate = runner.train, runner.evaluate
    monkeypatch.setattr(runner, "train", lambda *a, **k: (seen.append(precision()), train(*a, **k))[1])
    monkeypatch.setattr(runner, "evaluate", lambda *a, **k: (seen.append(precision()), evaluate(*a, **k))[1])
    before = precision()
    torch.set_float32_matmul_precision("medium")
    try:
        toy_run(tmp_path, seeds=(0,))
        assert set(seen) == {("highest", False)}
        assert precision() == ("medium", before[1])
    finally:
        torch.set_float32_matmul_precision(before[0])


def test_everything_a_plugin_author_needs_is_importable_from_the_package():
    assert all(getattr(lgbench, name) is not None for name in lgbench.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        lgbench.no_such_name  # noqa: B018
