"""Models that lgbench did not train: measured as its own are, and never taken for one of these."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow.compute as pc
import pytest
import torch
import toys
from helpers.commands import invoked
from helpers.toy_registries import toys_and
from torch import nn
from toys import WALK

import lgbench
from lgbench.errors import PluginError, RunFailed, RunFileError, Unsupported, UsageError
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench.results.stored_runs import RunMetadata

FEW = {"evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 16}


class Perfect(nn.Module):
    """p* of toy-walk."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter((WALK + 1e-9).log())
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens):
        return self.drop(self.logits[tokens])


def uniform(tokens):
    return np.zeros((*tokens.shape, 3))


def walk(model, results=None, **options):
    return lgbench.evaluate_model(model, "toy-walk", results=results, **({"set": FEW} | options))


def values(rows, metric: str, weights: str = "raw") -> dict[int, float]:
    chosen = rows.filter(pc.and_(pc.equal(rows["metric"], metric), pc.equal(rows["weights"], weights)))
    return dict(zip(chosen["length"].to_pylist(), chosen["value"].to_pylist(), strict=True))


def shown(rows) -> set[int]:
    return set(rows.filter(rows["on_boards"])["length"].to_pylist())


def test_a_model_that_lgbench_trained_has_the_numbers_of_its_run_to_the_bit(saved_runs):
    kinds = ["metric", "metric_version", "length", "value", "n", "on_boards", "in_distribution"]
    for path, task in ((saved_runs.language, "dyck-1-2"), (saved_runs.vectors, "max-retrieval")):
        settings = run_files.metadata(path)["experiment"]["evaluate"]
        changes = {f"evaluate.{name}": settings[name] for name in ("contexts", "strings", "max_length")}
        rows = lgbench.evaluate_model(lgbench.load(path), task, set=changes)
        own = run_files.read(path)
        at_the_end = pc.and_(pc.equal(own["step"], pc.max(own["step"])), pc.is_null(own["layer"]))
        own = own.filter(pc.and_(at_the_end, pc.and_(pc.equal(own["weights"], "raw"), pc.is_valid(own["length"]))))
        own = own.filter(pc.is_in(own["metric"], rows["metric"].combine_chunks()))
        assert rows.filter(pc.equal(rows["weights"], "raw")).select(kinds).equals(own.select(kinds))


def test_perfect_and_uniform_answers_have_the_distances_that_follow_from_p(toys_alone):
    perfect, flat = walk(Perfect().train()), walk(uniform)
    assert set(values(perfect, "accuracy").values()) == {1.0}
    assert all(value == pytest.approx(0, abs=1e-6) for value in values(perfect, "tvd").values())
    distances = (WALK - 1 / 3).abs().sum(-1) / 2
    assert len(values(flat, "tvd")) == 16
    for value in values(flat, "tvd").values():  # a mean of four answers, each after one of three tokens
        counts = [(a, b, 4 - a - b) for a in range(5) for b in range(5 - a)]
        assert any(value == pytest.approx(float(distances @ torch.tensor(c).float()) / 4, abs=1e-6) for c in counts)


def test_a_module_is_measured_in_evaluation_mode_and_is_afterwards_as_it_was(toys_alone):
    model = Perfect().train()
    model.logits.requires_grad_()
    walk(model)
    assert model.training and model.drop.training and model.logits.requires_grad
    model.drop.eval()
    with pytest.raises(RunFailed):
        walk(nn.Sequential(model, nn.Linear(7, 7)))
    assert model.training and not model.drop.training


def test_a_task_that_asks_once_gets_one_answer(toys_alone):
    def largest(vectors):
        return 50 * nn.functional.one_hot(vectors.sum(1).argmax(-1), 3)[:, None].float()

    rows = lgbench.evaluate_model(largest, "toy-largest", lengths=[3, 9])
    assert shown(rows) == {3, 9} and set(values(rows, "accuracy").values()) == {1.0}
    with pytest.raises(
        Unsupported, match=r"the model linear returned logits of the shape .*, expected floats of the shape .*, 1, 3\)"
    ):
        lgbench.evaluate_model(nn.Linear(3, 3), "toy-largest", lengths=[3])


def test_a_length_without_a_context_is_a_wrong_request(toys_alone, monkeypatch):
    whole = toys.Largest.sample

    def sample(task, length, random):
        if length == 8:
            raise ValueError("toy-largest has no context of length 8: give another")
        return whole(task, length, random)

    monkeypatch.setattr(toys.Largest, "sample", sample)
    with pytest.raises(UsageError, match="^toy-largest has no context of length 8: give another$"):
        lgbench.evaluate_model(nn.Linear(3, 3), "toy-largest", lengths=[3, 8])


def test_lengths_are_those_that_boards_show_and_are_part_of_what_was_tested(toys_alone):
    rows = walk(uniform, lengths=[12, 6, 12], set={"evaluate.contexts": 4})
    assert shown(rows) == {6, 12} and max(rows["length"].to_pylist()) == 12
    assert dict(rows["changes"][0].as_py()) == {"evaluate.contexts": "4", "evaluate.lengths": "6 12"}
    in_distribution = rows.filter(rows["in_distribution"])["length"].to_pylist()
    assert max(in_distribution) == 6
    known = walk(uniform, set={"train.max_length": 9, **FEW})
    assert max(known.filter(known["in_distribution"])["length"].to_pylist()) == 9
    plain = walk(uniform, set={})
    assert walk(uniform, set={}, lengths=sorted(shown(plain)))["run_id"][0] == plain["run_id"][0]


def test_the_same_again_leaves_the_file_and_another_model_of_the_name_is_refused(toys_alone, tmp_path):
    rows = walk(Perfect(), tmp_path)
    (path,) = run_files.find(tmp_path)
    assert path.name == f"toy-walk.perfect.seed-0.{rows['run_id'][0]}.parquet" and run_files.read(path).equals(rows)
    before = path.read_bytes()
    assert walk(Perfect(), tmp_path).equals(rows) and path.read_bytes() == before
    with pytest.raises(UsageError, match="other numbers of a model with the name perfect and the seed 0 on toy-walk"):
        walk(uniform, tmp_path, name="perfect")
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    walk(uniform, tmp_path, name="perfect", seed=1)
    assert len(list(run_files.find(tmp_path))) == 2


def test_the_footer_says_what_was_measured_and_that_nobody_trained_it_here(toys_alone, tmp_path):
    model = Perfect()
    walk(model, tmp_path / "module")
    walk(uniform, tmp_path / "function")
    (module,), (function,) = (run_files.find(tmp_path / kind) for kind in ("module", "function"))
    metadata = msgspec.convert(run_files.metadata(module), RunMetadata)
    assert metadata.external.kind == "module" and metadata.external.made_of.endswith("test_external.Perfect")
    assert metadata.external.parameters == 9
    record = metadata.experiment
    assert (record.entry, record.optimizer, record.train.steps, record.averagers) == ("perfect", "none", 0, ())
    assert [plugin.name for plugin in record.plugins if plugin.provides == ("task",)] == ["lgbench-toys"]
    with torch.no_grad():
        model.logits[0, 0] += 1
    walk(model, tmp_path / "moved")
    (moved,) = run_files.find(tmp_path / "moved")
    assert run_files.metadata(moved)["external"]["sha256"] != metadata.external.sha256
    about = run_files.metadata(function)["external"]
    assert about | {"made_of": ""} == {"kind": "function", "made_of": "", "parameters": None, "sha256": None}


def test_submit_verify_and_load_refuse_it_in_one_sentence(toys_alone, tmp_path):
    results, boards = tmp_path / "results", tmp_path / "boards"
    boards.mkdir()
    walk(uniform, results)
    (path,) = run_files.find(results)
    said = f"{path}: lgbench did not train its model: nobody can run it again, to verify or submit it"
    submitted, verified = invoked("submit", results, "--out", boards), invoked("verify", results)
    assert submitted.exit_code != 0 and submitted.output.count("lgbench did not train") == 1 and said in submitted.output
    assert verified.exit_code != 0 and verified.output.count("lgbench did not train") == 1 and said in verified.output
    assert not list(boards.rglob("*.parquet"))
    with pytest.raises(RunFileError, match="has no weights: lgbench did not train its model"):
        lgbench.load(path)


@pytest.fixture
def mixed(toys_alone, tmp_path) -> Path:
    """Trained runs, and two external models with two seeds each, tested in two ways."""
    settings = {"train.steps": 3, "train.batch": 2, **FEW}
    how = {"protocol": "quick", "average": (), "workers": 1, "compile": False, "device": "cpu"}
    lgbench.run("toy-walk", "toy-table", seeds=[0, 1], set=settings, **how, results=tmp_path)
    for seed in (0, 1):
        walk(Perfect(), tmp_path, seed=seed)
        walk(uniform, tmp_path, seed=seed)
    walk(uniform, tmp_path, lengths=[5, 7], set={"evaluate.contexts": 4})
    return tmp_path


def test_boards_show_external_models_apart_and_last(mixed):
    results = Results(mixed)
    boards = results.boards("tvd")
    assert [board.protocol.name for board in boards] == ["quick", "external", "external"]
    entries = [[row.entry for row in board.rows] for board in boards]
    assert entries == [["toy-table"], ["perfect", "uniform"], ["uniform"]] or entries[1:] == [
        ["uniform"],
        ["perfect", "uniform"],
    ]
    assert [board.protocol.name for board in results.boards("tvd", protocol="external")] == ["external", "external"]
    assert all(len(row.seeds) == 2 for board in boards for row in board.rows if board.lengths[-1] == 16)
    shown = invoked("leaderboard", "--results", mixed, "--protocol", "external")
    assert shown.exit_code == 0 and shown.output.count("lgbench did not train these models") == 2
    assert "in distribution to length 6" in shown.output and "toy-table" not in shown.output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"task": "toy-wlak"}, "did you mean 'toy-walk'"),
        ({"task": "all"}, "all is 3 tasks, and a model is for one: name one of them"),
        ({"lengths": []}, r"lengths is \[\], expected 1 to 100 whole numbers from 1 on"),
        ({"lengths": [0, 4]}, "whole numbers from 1 on"),
        ({"lengths": [4, "a"]}, "whole numbers from 1 on"),
        ({"lengths": 40}, "lengths is 40, expected 1 to 100 whole numbers from 1 on"),
        ({"lengths": [65], "set": {}}, "lengths go to 65, and contexts of toy-walk to 64"),
        ({"lengths": [4], "set": {"evaluate.max_length": 8}}, "both say how long inputs get"),
        ({"set": {"train.steps": 5}}, "no setting of a model that lgbench does not train 'train.steps'"),
        ({"set": {"evaluate.contexts": 0}}, "evaluate.contexts=0 is out of range"),
        ({"name": "My Model"}, "a model cannot have the name 'My Model': use lower-case letters"),
        ({"name": "raw"}, "a model cannot have the name 'raw'"),
        ({"model": None}, "the model is None, expected a module or a function"),
        ({"seed": -1}, "the seed is -1, expected a whole number"),
        ({"device": "warp"}, "device 'warp' cannot be used here"),
        ({"plugins": ["nowhere.py"]}, "no plugin file"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(toys_alone, tmp_path, asked, said):
    with pytest.raises(UsageError, match=said) as refused:
        lgbench.evaluate_model(**({"model": uniform, "task": "toy-walk", "set": FEW, "results": tmp_path} | asked))
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


SEQUENCES = """
from lgbench_measurements import ExactMatch, hookimpl

class Everywhere(ExactMatch):
    "Exact match, also where each answer has a length of its own."

    name = "everywhere"

    def source(self, task):
        return "sequences"

@hookimpl
def lgbench_measurements():
    return [Everywhere()]
"""


def test_a_measurement_of_sequences_is_refused_where_each_answer_has_its_own_length(tmp_path):
    file = tmp_path / "everywhere.py"
    file.write_text(SEQUENCES)
    with pytest.raises(PluginError, match="the source of everywhere on tomita-4 is sequences"):
        lgbench.evaluate_model(uniform, "tomita-4", plugins=[file], set=FEW)


def test_a_model_that_fails_is_named_with_its_error(toys_alone, tmp_path):
    def broken(tokens):
        raise ValueError("no luck")

    with pytest.raises(RunFailed, match="broken on toy-walk seed 0 failed: ValueError: no luck .*test_external.py") as failed:
        walk(broken, tmp_path)
    assert isinstance(failed.value.__cause__, ValueError) and not list(tmp_path.iterdir())
    with pytest.raises(Unsupported, match="logits of the shape"):
        walk(lambda tokens: torch.zeros(*tokens.shape, 4))
    with pytest.raises(Unsupported, match="^the model returned dict, expected a tensor of logits of the shape"):
        walk(lambda tokens: {"logits": tokens})
    with pytest.raises(Unsupported, match="returned SimpleNamespace, expected a tensor .*: return its .logits$"):
        walk(lambda tokens: SimpleNamespace(logits=uniform(tokens)))


def vocabulary(tokens, classes):
    return nn.Sequential(nn.Embedding(tokens, 4), nn.Linear(4, classes))


def test_a_model_of_another_vocabulary_is_told_that_of_the_task(toys_alone):
    for model in (vocabulary(2, 3), lambda inputs: nn.functional.one_hot(inputs, 2).float()):
        with pytest.raises(Unsupported, match="cannot read the token 2: toy-walk has 3 input tokens, from 0 to 2; build"):
            walk(model)
    walk(vocabulary(9, 3))


def test_answers_that_are_not_sound_are_said_and_not_ranked(toys_alone, tmp_path):
    with pytest.warns(UserWarning, match="its answers change with what comes after them"):
        walk(lambda tokens: tokens.sum(-1)[:, None, None] * torch.ones(*tokens.shape, 3), tmp_path, name="looking")
    with pytest.warns(UserWarning, match="some of its answers are not finite"):
        walk(lambda tokens: torch.full((*tokens.shape, 3), math.nan), tmp_path, name="nothing")
    assert all(row.tier is None for board in Results(tmp_path).boards("tvd") for row in board.rows)


def test_a_function_around_a_model_in_training_mode_is_told_to_call_eval(toys_alone):
    model = Perfect().train()
    with pytest.raises(
        Unsupported, match=r"the model gives other answers to the same context .*by model.eval\(\) for a model inside"
    ):
        walk(lambda tokens: model(tokens))
    model.eval()
    walk(lambda tokens: model(tokens))


def test_a_module_that_draws_in_evaluation_too_is_refused(toys_alone):
    class Drawing(Perfect):
        def forward(self, tokens):
            return nn.functional.dropout(self.logits[tokens])

    with pytest.raises(Unsupported, match="the model drawing gives other answers to the same context the second time"):
        walk(Drawing())


def test_lengths_of_a_task_that_has_them_as_a_property_can_be_changed(toys_alone, monkeypatch):
    class Own(toys.Walk):
        name = "toy-own"
        lengths = property(lambda self: (6, 8))

    monkeypatch.setattr(Registry, "load", classmethod(lambda cls, files=(): toys_and(task=Own())))
    settings = {key: value for key, value in FEW.items() if key != "evaluate.max_length"}
    assert shown(lgbench.evaluate_model(uniform, "toy-own", lengths=[7, 9], set=settings)) == {7, 9}


def test_arguments_of_the_wrong_type_are_refused(toys_alone):
    with pytest.raises(UsageError, match="is no name of the kind task: name one as text"):
        lgbench.evaluate_model(uniform, ["toy-walk"])
    with pytest.raises(UsageError, match="the seed is True, expected a whole number"):
        walk(uniform, seed=True)
    with pytest.raises(UsageError, match="the name 'raw', which is reserved: pass another, as in name='my-raw'"):
        walk(uniform, name="raw")
    with pytest.raises(UsageError, match="my_norm.py"):
        walk(uniform, plugins="./my_norm.py")


def test_the_protocol_is_no_training(toys_alone):
    done = invoked("run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "external")
    assert (
        done.exit_code == 2 and "external is for models that were trained elsewhere: use lgbench.evaluate_model" in done.output
    )
