from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import published
import pytest
import torch
from conftest import CPU
from published import forged, put_right
from toy_registries import METRICS, experiment_of

from lgbench import hookimpl
from lgbench.contracts import Answers
from lgbench.errors import Refused, RunFileError
from lgbench.experiment import replan
from lgbench.experiment.plan import Request, plan
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.expected import expected_scores
from lgbench.results import run_files
from lgbench.submissions import submission
from lgbench.submissions.footer import parse
from lgbench.submissions.inspection import Inspector, inspect_all
from lgbench.submissions.reader import Reader
from lgbench.submissions.rows import RowKey, expected_rows
from lgbench.training.population import Population
from lgbench_optimizers import AdamW


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
    """A function that inspects one file as a submission does."""
    inspector = Inspector(installed, submission.RULES)
    with Reader() as reader:
        yield lambda path: inspector.run(path, reader.read(path))


def test_real_runs_pass_and_are_what_the_file_holds(made, inspect):
    for path in made:
        run = inspect(path)
        assert repr(run.rows.to_pylist()) == repr(run_files.read(path).to_pylist())


def test_expected_rows_are_those_of_a_real_run(made, inspect):
    for path in made:
        experiment = inspect(path).experiment
        expected = expected_rows(experiment)
        rows = run_files.read(path).to_pylist()
        assert {tuple(row[name] for name in RowKey._fields) for row in rows} == set(expected) and len(rows) == len(expected)
        steps = {key.step for key in expected if key.length is None}
        assert steps == set(Population([experiment], CPU).marks)


def test_the_experiment_of_a_file_is_the_one_that_was_run(made, inspect, installed):
    for path in made:
        run = inspect(path)
        record = run.footer.experiment
        asked = Request([record.task], [record.entry], ["toy-mean"], [record.seed])
        (experiment,) = plan(asked, installed).experiments
        assert run.experiment == experiment and run.experiment.measurements == experiment.measurements
        versions = {name: plugin.version for name, plugin in run.footer.took_part.items()}
        assert versions == {**experiment.plugins, **experiment.measured_by}


@dataclass(frozen=True)
class Slow(AdamW):
    """AdamW that remembers more."""

    name: str = "toy-slow"
    beta2: float = 0.99


def test_a_run_with_another_optimizer_is_what_it_says(tmp_path):
    module = ModuleType("slow")
    module.lgbench_optimizers = hookimpl(specname="lgbench_optimizers")(lambda: [Slow()])
    installed = published.registry(slow=module)
    (path,) = published.make(tmp_path, seeds=[3], tasks=["small-even"], installed=installed, optimizer="toy-slow")
    (run,), wrong = inspect_all([path], Inspector(installed, submission.RULES))
    assert not wrong and run.experiment.entry == "toy-table+toy-nothing+toy-slow"
    assert isinstance(run.experiment.optimizer, Slow)
    with pytest.raises(Refused) as refused:
        submission.submit([path], tmp_path, installed)
    assert "--arch toy-table+toy-nothing --optimizer toy-slow --protocol short --seeds 0:5" in refused.value.sentences[0]
    assert "needs the plugin 'lgbench-slow' '1.0'" in inspect_all([path], Inspector(published.registry()))[1][0]


TASKS = ["toy-walk", "toy-largest", "toy-even", "set-complement", "tomita-2", "dictionary-lookup"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("low", "high", "longest"), [(1, 4, 16), (2, 5, 5), (0, 6, 11), (3, 16, 9)])
def test_the_scores_of_a_run_can_be_foretold_without_a_model(registry, toy_registry, name, low, high, longest):
    task = toy_registry.tasks.get(name) or registry.tasks[name]
    every_prefix = task.signature.answers is Answers.EVERY_PREFIX
    low = low if every_prefix else max(1, low)
    training, evaluation = Training(1, 1, 0.1, 0.0, 0.1, 1, low, high), Evaluation(6, 8, longest)

    def model(inputs):
        return torch.zeros(len(inputs), inputs.shape[1] if every_prefix else 1, task.signature.classes)

    found = evaluate(experiment_of(task, training, evaluation), {"raw": model}, CPU)
    expected = {(score.metric, score.length): score for score in expected_scores(task, METRICS, training, evaluation)}
    assert len(expected) == len(expected_scores(task, METRICS, training, evaluation))
    assert {(score.metric, score.length) for score in found} == expected.keys() and len(found) == len(expected)
    for score in found:
        said = expected[score.metric, score.length]
        assert score.n == said.n or (not said.exact and 0 <= score.n < said.n)


def small(footer):
    """A footer's entry for the plugin of the tasks."""
    return next(plugin for plugin in footer["plugins"] if plugin["name"] == "lgbench-small")


FOOTERS = [
    (lambda f: f.pop("plugins"), "required field `plugins`"),
    (lambda f: f.update(extra=1), "extra is no field of a run's footer"),
    (lambda f: f.update(extra={}), "extra is no field of a run's footer"),
    (lambda f: f["experiment"].pop("norm"), "required field `norm` - at `$.experiment`"),
    (lambda f: f["experiment"].update(hidden=1), "experiment.hidden is no field"),
    (lambda f: f["experiment"].update({"train.steps": 1}), "experiment.train.steps is no field"),
    (lambda f: f["measurements"][0].update(hidden=1), "measurements.0.hidden is no field"),
    (lambda f: f["experiment"].update(seed="0"), "Expected `int`, got `str` - at `$.experiment.seed`"),
    (lambda f: f["experiment"].update(seed=True), "Expected `int`, got `bool` - at `$.experiment.seed`"),
    (lambda f: f["experiment"].update(seed=-1), "experiment.seed is -1"),
    (lambda f: f["experiment"].update(seed=2**63), "is no number of 64 bits"),
    (lambda f: f["experiment"].update(seed=2), "its name says run"),
    (lambda f: f["experiment"].update(averagers="toy-mean"), "Expected `array`, got `str` - at `$.experiment.averagers`"),
    (
        lambda f: f["experiment"].update(options=[["scale"]]),
        "Expected `array` of length 2, got 1 - at `$.experiment.options[0]`",
    ),
    (lambda f: f["experiment"].update(options=[["scale", [1]]]), "the option 'scale' is a list, expected a number"),
    (lambda f: f["experiment"].update(options=[["scale", None]]), "the option 'scale' is None, expected a number"),
    (lambda f: f["experiment"].update(train=[]), "Expected `object`, got `array` - at `$.experiment.train`"),
    (lambda f: f["experiment"].update(protocol="short/1"), "Expected `object`, got `str` - at `$.experiment.protocol`"),
    (lambda f: f["experiment"]["train"].update(steps=20.0), "Expected `int`, got `float` - at `$.experiment.train.steps`"),
    (lambda f: f["execution"].update(population=0), "Expected `int` >= 1 - at `$.execution.population`"),
    (lambda f: f["execution"].update(compiled=1), "Expected `bool`, got `int` - at `$.execution.compiled`"),
    (lambda f: f["seconds"].update(train=-1), "Expected `float` >= 0.0 - at `$.seconds.train`"),
    (lambda f: f["seconds"].update(total=None), "Expected `float`, got `null` - at `$.seconds.total`"),
    (lambda f: f["environment"].update(threads=0), "Expected `int` >= 1 - at `$.environment.threads`"),
    (lambda f: f["environment"].update(date="yesterday"), "environment.date is 'yesterday', expected one such as"),
    (lambda f: f["environment"].update(git_commit="; rm -rf"), "at `$.environment.git_commit`"),
    (lambda f: f["environment"].update(git_commit=published.COMMIT + "\n"), "at `$.environment.git_commit`"),
    (lambda f: f["environment"].update(device="cpu\x1b[2J"), "environment.device is 'cpu\\x1b[2J', expected at most 1000"),
    (lambda f: f["environment"].update(device="c" * 2000), "expected at most 1000 printable letters"),
    (lambda f: f["plugins"][1].update(name="x\x1b"), "plugins.1.name is 'x\\x1b', expected at most 1000"),
    (lambda f: f["plugins"][1].update({"x\x1b": "1"}), "a name in plugins.1 is 'x\\x1b', expected at most 1000"),
    (lambda f: f["plugins"][1].update(version="1" * 2000), "expected at most 1000 printable letters"),
    (lambda f: f["plugins"][1].update(installed="by hand"), "is installed 'by hand', expected index, wheel, archive, folder"),
    (lambda f: f["environment"].update(git_commit=published.COMMIT + "+dirty"), "changed checkout of lgbench"),
    (lambda f: f["environment"].update(lgbench="9.9"), "made with lgbench '9.9', and 0.1.0 is installed"),
    (lambda f: small(f).update(version="2.0"), "made with lgbench-small '2.0', and 1.0 is installed"),
    (lambda f: small(f).update(name="lgbench-other"), "needs the plugin 'lgbench-other' '1.0', which is not installed"),
    (
        lambda f: small(f).update(takes_part=False),
        "says that lgbench 0.1.0, lgbench-toys 1.2.3 took part, and for this run it is",
    ),
    (lambda f: small(f).update(source="0" * 16), "experiment.plugins has 'lgbench-small' '1.0' 'unknown', and plugins has not"),
    (lambda f: small(f).update(installed="editable"), "was installed editable, from a folder that may change"),
    (lambda f: small(f).update(installed="folder"), "was installed from a folder, so others may have another one"),
    (lambda f: small(f).update(installed="version control"), "was installed from version control"),
    (lambda f: small(f).update(installed="archive"), "was installed from an archive of sources"),
    (lambda f: small(f).update(installed="unknown"), "was installed in a way that the run does not say"),
    (lambda f: small(f).update(version="0.1.dev3"), "its version 0.1.dev3 is not released; install its release, or a wheel"),
    (lambda f: small(f).update(version="1.0+local"), "its version 1.0+local is not released"),
    (lambda f: small(f).update(version="newest"), "its version newest is none of a release"),
]


@pytest.mark.parametrize(("change", "said"), FOOTERS, ids=[said for _, said in FOOTERS])
def test_a_footer_that_no_run_writes_is_refused_with_the_field(honest, tmp_path, inspect, change, said):
    with pytest.raises(RunFileError) as refused:
        inspect(forged(honest, tmp_path / honest.name, footer=change))
    assert said in str(refused.value) and str(tmp_path / honest.name) in str(refused.value)


def under(name="short", version=1, **changes):
    """The protocol of a footer."""
    return {
        "protocol": {"name": name, "version": version, "changes": [[k.replace("_", ".", 1), v] for k, v in changes.items()]}
    }


OPTIONS = [["optimizer.beta1", 0.9], ["optimizer.beta2", 0.999], ["optimizer.epsilon", 1e-08]]
EXPERIMENTS = [
    ({"task": "../../etc/x"}, "'../../etc/x' is no valid name"),
    ({"task": "small-even\n"}, "'small-even\\n' is no valid name"),
    ({"task": ""}, "'' is no valid name"),
    ({"averagers": ["../toy-mean"]}, "'../toy-mean' is no valid name"),
    ({"norm": "__import__('os')"}, "is no valid name"),
    ({"architecture": "x" * 300}, "is no valid name"),
    ({"optimizer": "../adamw"}, "'../adamw' is no valid name"),
    ({"task": "nobodys-task"}, "no task 'nobodys-task'"),
    ({"norm": "nobodys-norm"}, "no norm, attention or position 'nobodys-norm'"),
    ({"averagers": ["nobodys"]}, "no averager 'nobodys'"),
    ({"optimizer": "nobodys"}, "no optimizer 'nobodys'"),
    ({"family": "other"}, "under short/1 family is 'small', and the file says 'other'"),
    ({"task_version": 2}, "task_version is 1, and the file says 2"),
    ({"attention": "softmax"}, "under short/1 attention is None, and the file says 'softmax'"),
    (under(version=2), "its protocol short/2 is short/1 in this lgbench"),
    (under("quick"), "only runs under short/1 or standard/6 or long/1 or paper/5 are published"),
    (under(train_steps="21"), "changes its protocol (short/1 train.steps=21)"),
    (under(train_steps="; drop table"), "changes its protocol (short/1 train.steps=; drop table)"),
    (under(train_steps="21,22"), "the change 'train.steps' has several values, '21,22', expected one"),
    (under("short; drop"), "no protocol 'short; drop'"),
    (under("nobodys"), "no protocol 'nobodys'"),
    ({"options": [["model.scale", 2.0], ["model.wide", False], *OPTIONS]}, "model.scale is 1.0, and the file says 2.0"),
    ({"options": [["model.wide", False], ["model.scale", 1.0], *OPTIONS]}, "it is run"),
    ({"options": [["model.scale", 1.0], ["model.wide", 0], *OPTIONS]}, "model.wide is False, and the file says 0"),
    ({"options": [["model.scale", 1.0], *OPTIONS]}, "model.wide is False, and the file says None"),
    ({"train": {"steps": 40}}, "under short/1 train.steps is 20, and the file says 40"),
    ({"train": {"lr": 0.5}}, "train.lr is 0.02, and the file says 0.5"),
    ({"train": {"targets": "exact"}}, "train.targets is 'sampled', and the file says 'exact'"),
    ({"evaluate": {"contexts": 1}}, "evaluate.contexts is 128, and the file says 1"),
]


@pytest.mark.parametrize(("fields", "said"), EXPERIMENTS, ids=[said for _, said in EXPERIMENTS])
def test_an_experiment_that_is_not_the_protocols_is_refused(honest, tmp_path, inspect, fields, said):
    def change(about):
        for name, value in fields.items():
            kept = about["experiment"][name] if name in ("train", "evaluate") else None
            about["experiment"][name] = kept | value if kept else value

    with pytest.raises(RunFileError) as refused:
        inspect(put_right(honest, tmp_path / "run.parquet", change))
    assert said in str(refused.value)


def test_a_strangers_settings_are_not_tried_where_none_are_allowed(honest, tmp_path, inspect, monkeypatch):
    def tried(*arguments):
        raise AssertionError("a model of a stranger's sizes was built")

    monkeypatch.setattr(replan, "plan", tried)
    huge = under(model_scale="1e300")
    with pytest.raises(Refused, match="changes its protocol") as refused:
        inspect(put_right(honest, tmp_path / "run.parquet", lambda about: about["experiment"].update(huge)))
    assert len(refused.value.sentences) == 1


def test_a_footer_is_what_a_run_writes(made):
    for path in made:
        about = run_files.metadata(path)
        assert json.loads(json.dumps(parse(json.dumps(about).encode()).content)) == about


def test_the_longest_name_may_be_a_files(made):
    about = run_files.metadata(made[0])
    about["experiment"]["norm"] = "n" * 100 + "~0123abcd"
    assert parse(json.dumps(about).encode()).experiment.norm == about["experiment"]["norm"]
    about["experiment"]["norm"] = "n" * 101 + "~0123abcd"
    with pytest.raises(ValueError, match="is no valid name"):
        parse(json.dumps(about).encode())


@pytest.mark.parametrize("name", ["KL", "k-l", "kl divergence", "", "kl" * 100])
def test_a_measurement_has_a_name_that_sql_takes(made, name):
    about = run_files.metadata(made[0])
    about["measurements"][0]["name"] = name
    with pytest.raises(ValueError, match="is no valid name of a measurement"):
        parse(json.dumps(about).encode())
