"""A function in a file is an architecture: no plugin, the same training, and the file's content in the identity of its runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from helpers.commands import invoked
from helpers.plain_training import CPU
from helpers.planning import plan_of

import lgbench
from lgbench import UsageError
from lgbench.errors import PluginError, Refused, RunFileError
from lgbench.extensions.function_files import take_functions
from lgbench.extensions.registry import Registry
from lgbench.submissions.inspection import found_in, inspected
from lgbench.submissions.submission import submit
from lgbench.training.population import Population

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size, classes, width):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.drop = nn.Dropout(0.5).eval()
        self.out = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.out(self.drop(self.embed(tokens)))

def build(signature, *, width: int = 8, deep: bool = False):
    '''A table of answers.

    It looks at the last token.'''
    return Net(signature.inputs.size, signature.classes, width)
"""
AS_PLUGIN = """
import lgbench

class Table(lgbench.Architecture):
    name = "my-model"

    def build(self, signature, parts, *, width: int = 8, deep: bool = False):
        return build(signature, width=width, deep=deep)

@lgbench.hookimpl
def lgbench_architectures():
    return [Table()]
"""
SETTINGS = {"train.steps": 3, "train.batch": 2, "evaluate.contexts": 4, "evaluate.max_length": 16}
HOW = {"protocol": "quick", "seeds": [0], "average": (), "workers": 1, "compile": False, "device": "cpu"}


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "my_model.py"
    path.write_text(MODEL)
    return path


def trained(arch: str, results: Path, **options):
    return lgbench.run("toy-walk", arch, **(HOW | options), set=SETTINGS, results=results)


def planned(file: Path, function: str = "build", task: str = "toy-walk", **changes: str):
    """The experiments of a request that names a function in a file."""
    names, files = take_functions([f"{file}:{function}"])
    return plan_of(Registry.load(files=files), task, names, set=changes).experiments


def refusal(file: Path, function: str, **options: str) -> str:
    with pytest.raises((UsageError, PluginError)) as refused:
        planned(file, function, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_function_trains_as_the_same_model_from_a_plugin_does(toys_alone, file, tmp_path):
    rows = trained(f"{file}:build", tmp_path / "results")
    file.write_text(MODEL + AS_PLUGIN)
    same = trained("my-model", tmp_path / "others", plugins=[file])
    columns = ["weights", "metric", "length", "step", "value", "n"]
    assert rows.select(columns).equals(same.select(columns))


def test_the_hash_of_the_file_is_in_the_entry_and_in_the_identity_of_its_runs(toys_alone, file):
    digits = hashlib.sha256(file.read_bytes()).hexdigest()
    (experiment,) = planned(file)
    assert experiment.entry == f"my-model~{digits[:8]}"
    (used,) = (plugin for plugin in experiment.record.plugins if plugin.name == "my_model.py:build")
    assert (used.version, used.source, used.provides) == (f"sha256:{digits}", digits[:16], ("architecture",))
    assert planned(file)[0].run_id == experiment.run_id
    file.write_text(MODEL + "# another\n")
    assert planned(file)[0].run_id != experiment.run_id


def test_its_keyword_parameters_are_options_of_the_model(toys_alone, file):
    (plain,), (wide,) = planned(file), planned(file, **{"model.width": "12", "model.deep": "on"})
    assert {"model.width": 8, "model.deep": False}.items() <= dict(plain.record.options).items()
    assert {"model.width": 12, "model.deep": True}.items() <= dict(wide.record.options).items()
    assert wide.build().out.in_features == 12
    assert "did you mean 'model.width'" in refusal(file, "build", **{"model.widht": "3"})


def test_a_class_without_a_docstring_is_not_described_by_that_of_torch(toys_alone, file):
    file.write_text(MODEL + "class TinyNet(Net):\n    def __init__(self, signature):\n        super().__init__(3, 3, 2)\n")
    assert planned(file, "TinyNet")[0].architecture.about == "A model that my_model.py:TinyNet builds."


def test_a_model_whose_class_is_made_where_it_is_built_trains_with_several_seeds(toys_alone, file):
    body = "def f(signature):\n    class Own(Net):\n        pass\n    return Own(3, 3, 2)\n"
    file.write_text(f"{MODEL}\n{body}")
    (first,) = planned(file, "f")
    population = Population([first, first.with_seed(1)], CPU)
    for seed in (0, 1):
        of_one = Population([first.with_seed(seed)], CPU)
        assert torch.equal(population.state.weights[seed], of_one.state.weights[0])


def test_a_file_without_the_name_of_a_function_is_told_in_a_sentence():
    with pytest.raises(UsageError, match=r"'\./my_model\.py' is a file: name a function .* as in \./my_model\.py:build"):
        take_functions(["pre-norm", "./my_model.py"])


def test_a_function_may_have_any_name_and_may_be_a_class(toys_alone, file):
    file.write_text(MODEL + "class TinyNet(Net):\n    def __init__(self, signature):\n        super().__init__(3, 3, 2)\n")
    assert planned(file, "TinyNet")[0].record.architecture.startswith("my-model-tiny-net~")


@pytest.mark.parametrize(
    ("function", "body", "said"),
    [
        ("biuld", "", "no function 'biuld'; did you mean 'build'? known: Net, build"),
        ("f", "def f(signature): return {}", "my_model.py:f returned dict, expected a torch.nn.Module"),
        (
            "f",
            "def f(signature): return Net(3, 4, 2)",
            r"logits of the shape (2, 6, 4), expected floats of the shape (2, 6, 3)",
        ),
        (
            "f",
            "class f(Net):\n def __init__(self, s): super().__init__(3, 3, 2)\n"
            " def forward(self, x): return super().forward(x).long()",
            "the type torch.int64",
        ),
        ("f", "def f(signature): return nn.LSTM(3, 3)", "the model of my_model.py:f fails on inputs of the shape (2, 6): "),
        ("f", "def f(signature): raise RuntimeError('no luck')", "building the model failed with RuntimeError: no luck ("),
        ("f", "from lgbench import Unsupported\ndef f(s): raise Unsupported('too odd')", "cannot be run on toy-walk: too odd"),
        ("f", "def f(signature, *, width): pass", "the option width of my-model-f has no default"),
        ("f", "def f(: pass", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_sentence(toys_alone, file, function, body, said):
    file.write_text(f"{MODEL}\n{body}\n")
    assert said in refusal(file, function)


SHORT = """
class f(Net):
    def __init__(self, signature):
        super().__init__(3, 3, 2)
        self.place = nn.Embedding(16, 2)

    def forward(self, tokens):
        return self.out(self.embed(tokens) + self.place(torch.arange(tokens.shape[1])))
"""


def test_a_model_with_too_few_positions_is_refused_before_its_training(toys_alone, file):
    file.write_text(MODEL + SHORT)
    said = refusal(file, "f", **{"evaluate.max_length": "17"})
    assert "my_model.py:f fails on inputs of the shape (1, 17): IndexError" in said and "the longest that is tested" in said
    assert planned(file, "f", **{"evaluate.max_length": "16"})


def test_a_model_with_fewer_answers_on_long_inputs_is_refused_before_its_training(toys_alone, file):
    file.write_text(MODEL + SHORT.replace("self.embed(tokens)", "self.embed(tokens)[:, :16]").replace("tokens.shape[1]", "1"))
    assert "logits of the shape (1, 16, 3), expected floats of the shape (1, 17, 3)" in refusal(
        file, "f", **{"evaluate.max_length": "17"}
    )


@pytest.mark.parametrize("arch", [torch.nn.Linear(1, 1), len, ["pre-norm", torch.nn.Linear]])
def test_a_model_or_a_function_in_place_of_a_name_is_told_what_to_name(arch):
    with pytest.raises(UsageError, match=r"name a function in a file, such as ./file.py:build, or .* lgbench.evaluate_model"):
        lgbench.run("toy-walk", arch)


def test_check_and_show_take_a_function_in_a_file(toys_alone, file):
    shown = invoked("show", f"{file}:build")
    assert shown.exit_code == 0 and "A table of answers." in shown.output and "model.deep" in shown.output
    checked = invoked("check", f"{file}:build")
    assert "architecture my-model" in checked.output and "AttributeError" not in checked.output


def test_a_file_that_is_not_there_and_parts_that_nobody_takes_are_errors_of_use(toys_alone, file):
    assert "name a Python file, as in --arch ./my_model.py:build" in refusal(file.with_name("nowhere.py"), "build")
    done = invoked("run", "--task", "toy-walk", "--arch", f"{file}:build+toy-nothing", "--protocol", "quick")
    assert done.exit_code == 2 and "takes no norm" in done.output
    with pytest.raises(UsageError, match="gives an architecture no name"):
        take_functions([str(file.rename(file.with_name("__.py"))) + ":build"])


def test_a_file_with_the_name_of_something_installed_is_meant_by_its_path(toys_alone, file):
    other = file.rename(file.with_name("toy_table.py"))
    assert planned(other)[0].record.architecture.startswith("toy-table~")
    registry = Registry.load(files=[Path(f"{other}:build")])
    assert not registry.problems()
    assert registry.architectures.found("toy-table").label == "toy-table"
    assert "toy-table" in registry.architectures.names()


def test_its_runs_are_read_with_the_file_and_never_published(toys_alone, file, tmp_path):
    results = tmp_path / "results"
    trained(f"{file}:build", results, save_weights=True)
    stored, wrong = found_in([results])
    with_file = Registry.load(files=[Path(f"{file}:build")])
    assert len(list(inspected(stored, with_file, wrong))) == 1 and not wrong
    assert not list(inspected(stored, Registry.load(), wrong))
    assert "it was made with the plugin file 'my_model.py:build'" in wrong[0] and "name that file with --plugin" in wrong[0]
    boards = tmp_path / "boards"
    boards.mkdir()
    with pytest.raises(Refused, match="the plugin my_model.py:build .* took part in it and is a file"):
        submit([results], boards, with_file)
    with pytest.raises(RunFileError, match="my_model.py:build"):
        lgbench.load(stored[0].path)
    model = lgbench.load(stored[0].path, plugins=[f"{file}:build"])
    assert model(torch.tensor([[0, 1, 2]])).shape == (1, 3, 3)


@pytest.mark.slow  # it starts two processes
def test_worker_processes_have_the_function(worker_processes, toys_alone, file, tmp_path):
    results = tmp_path / "results"
    rows = trained(f"{file}:build", results, seeds=[0, 1], population=1, workers=2, save_weights=True)
    assert len(set(rows["seed"].to_pylist())) == 2
    (path,) = results.glob("*.seed-1.*.parquet")
    model = lgbench.load(path, plugins=[f"{file}:build"])
    assert model.record.entry.startswith("my-model~")
