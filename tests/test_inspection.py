from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import published
import pyarrow.parquet as pq
import pytest
import torch
from conftest import CPU
from published import forged, put_right

from lgbench import runfiles
from lgbench.audit import inspection, submission
from lgbench.audit.footer import parse
from lgbench.audit.inspection import Inspector
from lgbench.audit.rows import expected_rows
from lgbench.audit.untrusted import Reader
from lgbench.contracts import Answers
from lgbench.errors import Refused, RunFileError
from lgbench.evaluate import evaluate, measures
from lgbench.protocols import Evaluation, Training
from lgbench.registry import Registry
from lgbench.running import provenance
from lgbench.training.population import Population


@pytest.fixture(scope="module")
def installed() -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """A run of each task and, of one entry, some that diverged."""
    folder = tmp_path_factory.mktemp("made")
    return published.make(folder, ("toy-table", "toy-fragile"), seeds=[2, 3], tasks=["small", "alone"])


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if path.name.startswith("small-even.toy-table+toy-nothing.seed-3"))


@pytest.fixture(scope="module")
def inspect(installed):
    """What a submission does with one file."""
    inspector = Inspector(installed, submission.RULES)
    with Reader() as reader:
        yield lambda path: inspector.run(path, reader.read(path))


def test_real_runs_pass_and_are_what_the_file_holds(made, inspect):
    for path in made:
        run = inspect(path)
        assert repr(run.rows.to_pylist()) == repr(runfiles.read(path).to_pylist())


def test_expected_rows_are_those_of_a_real_run(made, installed):
    for path in made:
        experiment = parse(pq.read_metadata(path).metadata[b"lgbench"]).experiment
        expected = expected_rows(experiment, installed.tasks[experiment.task])
        rows = runfiles.read(path).to_pylist()
        names = ("weights", "metric", "step", "length")
        assert {tuple(row[name] for name in names) for row in rows} == set(expected) and len(rows) == len(expected)
        steps = {key.step for key in expected if key.length is None}
        assert steps == set(Population([experiment], installed, CPU).marks)


TASKS = ["toy-walk", "toy-largest", "toy-even", "set-complement", "tomita-2", "dictionary-lookup"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("low", "high", "longest"), [(1, 4, 16), (2, 5, 5), (0, 6, 11), (3, 16, 9)])
def test_what_is_measured_can_be_said_without_a_model(registry, toy_registry, name, low, high, longest):
    task = toy_registry.tasks.get(name) or registry.tasks[name]
    every_prefix = task.signature.answers is Answers.EVERY_PREFIX
    low = low if every_prefix else max(1, low)
    training, evaluation = Training(1, 1, 0.1, 0.0, 0.1, 1, low, high), Evaluation(6, 8, longest)

    def model(inputs):
        return torch.zeros(len(inputs), inputs.shape[1] if every_prefix else 1, task.signature.classes)

    found = evaluate(task, {"raw": model}, training, evaluation, 0, CPU)
    said = {(measure.metric, measure.length): measure for measure in measures(task, training, evaluation)}
    assert len(said) == len(measures(task, training, evaluation))
    assert {(score.metric, score.length) for score in found} == said.keys() and len(found) == len(said)
    for score in found:
        measure = said[score.metric, score.length]
        assert score.n == measure.n or (not measure.always and 0 <= score.n < measure.n)


FOOTERS = [
    (lambda f: f.pop("plugins"), "plugins is missing"),
    (lambda f: f.update(extra=1), "extra is no field of a run's footer"),
    (lambda f: f["experiment"].pop("norm"), "experiment.norm is missing"),
    (lambda f: f["experiment"].update(hidden=1), "experiment.hidden is no field"),
    (lambda f: f["experiment"].update(seed="0"), "experiment.seed is '0', expected a whole number"),
    (lambda f: f["experiment"].update(seed=True), "experiment.seed is True, expected a whole number"),
    (lambda f: f["experiment"].update(seed=-1), "experiment.seed is -1"),
    (lambda f: f["experiment"].update(seed=2), "its name says run"),
    (lambda f: f["experiment"].update(averagers="toy-mean"), "experiment.averagers is 'toy-mean', expected a list"),
    (lambda f: f["experiment"].update(model=[["scale"]]), "experiment.model[0] is a list, expected a list of 2"),
    (lambda f: f["experiment"].update(train=[]), "experiment.train is a list, expected an object"),
    (lambda f: f["experiment"]["train"].update(steps=20.0), "experiment.train.steps is 20.0, expected a whole number"),
    (lambda f: f["execution"].update(population=0), "execution.population is 0, expected at least 1"),
    (lambda f: f["execution"].update(compiled=1), "execution.compiled is 1, expected true or false"),
    (lambda f: f["seconds"].update(train=-1), "seconds are negative"),
    (lambda f: f["seconds"].update(total=None), "seconds.total is None, expected a number"),
    (lambda f: f["environment"].update(threads=0), "environment.threads is 0"),
    (lambda f: f["environment"].update(date="yesterday"), "environment.date is 'yesterday', expected one such as"),
    (lambda f: f["environment"].update(git_commit="; rm -rf"), "environment.git_commit is '; rm -rf'"),
    (lambda f: f["environment"].update(device="cpu\x1b[2J"), "expected at most 1000 letters that can be printed"),
    (lambda f: f["environment"].update(device="c" * 2000), "expected at most 1000 letters that can be printed"),
    (lambda f: f["environment"].update(git_commit=published.COMMIT + "+dirty"), "changed checkout of lgbench"),
    (lambda f: f["environment"].update(lgbench="9.9"), "made with lgbench '9.9', and 0.1.0 is installed"),
    (lambda f: f["plugins"].update({"lgbench-small": "2.0"}), "made with lgbench-small '2.0', and 1.0 is installed"),
    (lambda f: f["plugins"].update({"lgbench-other": "1"}), "needs the plugin 'lgbench-other' '1', which is not installed"),
    (lambda f: f["plugins"].pop("lgbench-small"), "says that lgbench-toys 1.2.3 took part, and for this run it is"),
]


@pytest.mark.parametrize(("change", "said"), FOOTERS, ids=[said for _, said in FOOTERS])
def test_a_footer_that_no_run_writes_is_refused_with_the_field(honest, tmp_path, inspect, change, said):
    with pytest.raises(RunFileError) as refused:
        inspect(forged(honest, tmp_path / honest.name, footer=change))
    assert said in str(refused.value) and str(tmp_path / honest.name) in str(refused.value)


EXPERIMENTS = [
    ({"task": "../../etc/x"}, "'../../etc/x' cannot be a name"),
    ({"task": "small-even\n"}, "letters that can be printed"),
    ({"task": ""}, "'' cannot be a name"),
    ({"averagers": ["../toy-mean"]}, "'../toy-mean' cannot be a name"),
    ({"norm": "__import__('os')"}, "cannot be a name"),
    ({"architecture": "x" * 300}, "cannot be a name"),
    ({"task": "nobodys-task"}, "no task 'nobodys-task'"),
    ({"norm": "nobodys-norm"}, "no norm, attention or position 'nobodys-norm'"),
    ({"averagers": ["nobodys"]}, "no averager 'nobodys'"),
    ({"family": "other"}, "under standard/3 family is 'small', and the file says 'other'"),
    ({"task_version": 2}, "task_version is 1, and the file says 2"),
    ({"protocol": "standard/2"}, "its protocol standard/2 is standard/3 in this lgbench"),
    ({"protocol": "quick/3"}, "only runs under standard/3 or paper/3 are published"),
    ({"protocol": "standard/3 train.steps=21"}, "changes its protocol (standard/3 train.steps=21)"),
    ({"protocol": "standard/3;drop"}, "its protocol is 'standard/3;drop', expected one of quick/3"),
    ({"protocol": "standard"}, "its protocol is 'standard', expected one of quick/3"),
    ({"protocol": "standard/3; drop table"}, "changes its protocol (standard/3; drop table)"),
    ({"protocol": "nobodys/1"}, "no protocol 'nobodys'"),
    ({"model": [["scale", 2.0], ["wide", False]]}, "model.scale is 1.0, and the file says 2.0"),
    ({"model": [["wide", False], ["scale", 1.0]]}, "it is run"),
    ({"model": [["scale", 1.0], ["wide", 0]]}, "model.wide is False, and the file says 0"),
    ({"train": {"steps": 40}}, "under standard/3 train.steps is 20, and the file says 40"),
    ({"train": {"lr": 0.5}}, "train.lr is 0.02, and the file says 0.5"),
    ({"evaluate": {"contexts": 1}}, "evaluate.contexts is 128, and the file says 1"),
]


@pytest.mark.parametrize(("fields", "said"), EXPERIMENTS, ids=[said for _, said in EXPERIMENTS])
def test_an_experiment_that_is_not_the_protocols_is_refused(honest, tmp_path, inspect, fields, said):
    def change(about):
        for name, value in fields.items():
            about["experiment"].update({name: about["experiment"][name] | value if isinstance(value, dict) else value})

    with pytest.raises(RunFileError) as refused:
        inspect(put_right(honest, tmp_path / "run.parquet", change))
    assert said in str(refused.value)


def test_a_strangers_settings_are_not_tried_where_none_are_allowed(honest, tmp_path, inspect, monkeypatch):
    def tried(*arguments):
        raise AssertionError("a model of a stranger's sizes was built")

    monkeypatch.setattr(inspection, "plan", tried)
    huge = "standard/3 model.scale=1e300"
    with pytest.raises(Refused, match="changes its protocol") as refused:
        inspect(put_right(honest, tmp_path / "run.parquet", lambda about: about["experiment"].update(protocol=huge)))
    assert len(refused.value.sentences) == 1


def every(**columns):
    return lambda rows: [row.update(columns) for row in rows]


def at(index, **columns):
    return lambda rows: rows[index].update(columns)


def first(metric, **columns):
    return lambda rows: next(row for row in rows if row["metric"] == metric).update(columns)


ROWS = [
    (every(run_id="0" * 16), "run_id is '0000000000000000' in its rows"),
    (every(seed=4), "seed is 4 in its rows, and 3 by its footer"),
    (at(5, seed=4), "seed is 4 in its rows"),
    (every(entry="toy-table+better"), "entry is 'toy-table+better' in its rows"),
    (every(task="small-walk"), "task is 'small-walk' in its rows"),
    (every(family="large"), "family is 'large'"),
    (every(task_version=7), "task_version is 7"),
    (every(protocol="paper/3"), "protocol is 'paper/3'"),
    (at(0, entry=None), "entry is None in its rows"),
    (at(3, diverged_step=5), "diverged_step is "),
    (every(diverged_step=21), "diverged_step is 21, expected one for the whole file: null, or a step from 1 to 20"),
    (every(diverged_step=0), "diverged_step is 0"),
    (lambda rows: rows.pop(0), "it lacks tvd (raw) at length 0, which this run has"),
    (lambda rows: rows.clear() or rows.append({"value": 0.5}), "it lacks"),
    (lambda rows: rows.append(dict(rows[4])), "it has tvd (raw) at length 4 more than once"),
    (lambda rows: rows.extend(dict(row) for row in list(rows) * 3), "rows, and this run has"),
    (at(0, length=64), "it has weights='raw' metric='tvd' step=20 length=64, which this run does not have"),
    (at(0, weights="best"), "weights='best'"),
    (at(0, metric="beauty"), "metric='beauty'"),
    (at(0, metric=None), "metric=None"),
    (at(0, step=19), "step=19"),
    (first("tvd", value=math.nan), "tvd (raw) at length 0 is nan, expected a number from 0 to 1"),
    (first("tvd", value=math.inf), "is inf, expected a number from 0 to 1"),
    (first("accuracy", value=-0.01), "accuracy (raw) at length 0 is -0.01"),
    (first("accuracy", value=1.01), "accuracy (raw) at length 0 is 1.01"),
    (first("roc_auc", value=7.0), "roc_auc (raw) at length 1 is 7.0"),
    (first("tvd", value=None), "is None, expected a number from 0 to 1"),
    (first("roc_auc", value=None), "is None, expected a number from 0 to 1"),
    (first("roc_auc", value=None, n=0), "n of roc_auc (raw) at length 1 is 0, expected 128"),
    (first("tvd", n=1), "n of tvd (raw) at length 0 is 1, expected 128"),
    (first("tvd", n=None), "n of tvd (raw) at length 0 is None"),
    (first("tvd", in_training_range=False), "in_training_range of tvd (raw) at length 0 is False, expected True"),
    (first("train_loss", value=math.nan), "train_loss at step 1 is nan, expected a finite number, not negative"),
    (first("train_loss", value=None), "train_loss at step 1 is None"),
    (first("gradient_norm", value=-1.0), "gradient_norm at step 1 is -1.0"),
    (first("gradient_norm", n=9), "n of gradient_norm at step 1 is 9, expected 1"),
    (first("train_loss", in_training_range=True), "in_training_range of train_loss at step 1 is True, expected None"),
    (lambda rows: [row.update(value=3.0) for row in rows], "more wrong rows"),
]


@pytest.mark.parametrize(("change", "said"), ROWS, ids=[said for _, said in ROWS])
def test_rows_that_are_not_those_of_the_experiment_are_refused(honest, tmp_path, inspect, change, said):
    path = forged(honest, tmp_path / honest.name, rows=change)
    with pytest.raises(RunFileError) as refused:
        inspect(path)
    assert said in str(refused.value)


def test_an_auc_may_be_undefined_where_every_token_is_legal(made, tmp_path, inspect):
    path = next(path for path in made if path.name.startswith("small-walk.toy-table"))
    assert inspect(forged(path, tmp_path / "a.parquet", rows=first("roc_auc", value=None, n=0)))
    for wrong in ({"value": None, "n": 5}, {"value": 0.5, "n": 0}, {"value": 0.5, "n": 129}):
        with pytest.raises(Refused, match=r"roc_auc \(raw\) at length 1"):
            inspect(forged(path, tmp_path / f"{wrong}.parquet", rows=first("roc_auc", **wrong)))


def test_a_footer_is_what_a_run_writes(made, installed):
    about = runfiles.metadata(made[0])
    footer = parse(json.dumps(about).encode())
    assert json.loads(json.dumps(asdict(footer))) == about
    assert footer.plugins == provenance.plugins_of(replace(footer.experiment, seed=9), installed)


def test_the_longest_name_may_be_a_files(made):
    about = runfiles.metadata(made[0])
    about["experiment"]["norm"] = "n" * 100 + "~0123abcd"
    assert parse(json.dumps(about).encode()).experiment.norm == about["experiment"]["norm"]
    about["experiment"]["norm"] = "n" * 101 + "~0123abcd"
    with pytest.raises(ValueError, match="cannot be a name"):
        parse(json.dumps(about).encode())
