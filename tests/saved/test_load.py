"""Loading models from saved weights: every number of the run again, to the bit, or a refusal with the reason."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from helpers import published
from helpers.commands import invoked
from helpers.plain_training import CPU
from helpers.processes import install
from helpers.run_files import resealed
from helpers.saved_runs import HOW, SMALL, run_id, scores_at_the_end, weights_of
from safetensors.torch import load_file, save_file

import lgbench
from lgbench import UsageError
from lgbench.errors import RunFileError
from lgbench.execution.device import threads
from lgbench.experiment.plan import Replanner
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.results import run_files
from lgbench.results.run_files import SavedWeights
from lgbench.saved import find


def experiment_of(path: Path):
    return Replanner(Registry.load()).experiment(find(path, "").record)


def scores_of_loaded(path: Path, *variants: str):
    """The scores of loaded models in an evaluation, by the keys of :func:`scores_at_the_end`."""
    with threads(1):
        models = {variant: lgbench.load(path, weights=variant) for variant in variants}
        found = evaluate(experiment_of(path), models, CPU)
    return {(s.weights, s.metric, s.length, s.layer, s.head): s.value for s in found}


def require_same(path: Path, *variants: str) -> None:
    here = scores_of_loaded(path, *variants)
    there = {key: value for key, value in scores_at_the_end(path).items() if key[3:] == (None, None) and key in here}
    assert here == there and len(here) > 10
    of_whole_models = {key[1] for key in scores_at_the_end(path) if key[3] is None and key[0] in variants}
    assert of_whole_models - {key[1] for key in here} <= {"logit_gap", "logit_separation"}  # a probe


@pytest.mark.slow
@pytest.mark.usefixtures("all_plugins")
@pytest.mark.parametrize(
    ("arch", "precision"),
    [*((arch, "float32") for arch in ("pre-norm+rope", "lstm", "mamba-2", "randomised-learned", "fire")), ("gru", "bfloat16")],
)
def test_a_loaded_model_of_any_kind_gives_every_score_of_its_run_to_the_bit_in_each_precision(tmp_path, arch, precision):
    changes = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
    asked = {"seeds": [0, 1], "set": changes, "average": "bema", "precision": precision, "save_weights": True}
    lgbench.run("tomita-3", arch, **asked, **HOW, results=tmp_path)
    files = list(tmp_path.glob("*.parquet"))
    assert len(files) == 2
    for path in files:
        require_same(path, "raw", "bema")


def test_its_weights_are_those_that_anybody_can_read_from_the_file(saved_runs):
    """Without lgbench's reader: the architecture's own module and plain state dicts."""
    for path in saved_runs.files:
        experiment, tensors = experiment_of(path), load_file(weights_of(path))
        inputs = experiment.task.sample(5, lgbench.Random(3)).inputs
        for variant in ("raw", "ema"):
            plain = experiment.build().eval().requires_grad_(False)
            own = {name.partition("/")[2]: t for name, t in tensors.items() if name.split("/")[0] in (variant, "_shared")}
            plain.load_state_dict(own, strict=False)
            model = lgbench.load(path, weights=variant)
            assert own.keys() >= {name for name, _ in plain.named_parameters()}
            assert torch.equal(model(inputs), plain(inputs))
        assert any(not torch.equal(t, tensors[f"ema/{n[4:]}"]) for n, t in tensors.items() if n.startswith("raw/"))


def test_a_run_is_named_by_file_folder_or_id(saved_runs, tmp_path):
    ways = [
        (saved_runs.vectors, "results"),
        (str(saved_runs.vectors), "results"),
        (run_id(saved_runs.vectors), saved_runs.folder),
    ]
    for path in (saved_runs.vectors, weights_of(saved_runs.vectors)):
        shutil.copy(path, tmp_path)
    (tmp_path / saved_runs.vectors.name).rename(tmp_path / "renamed.parquet")
    ways += [(tmp_path, "results"), (tmp_path / "renamed.parquet", "results"), (run_id(saved_runs.vectors), tmp_path)]
    inputs = torch.rand(2, 6, 11)
    answers = [lgbench.load(run, results=results)(inputs) for run, results in ways]
    (tmp_path / "damaged.parquet").write_bytes(b"x")  # another file, which the id does not name
    answers.append(lgbench.load(run_id(saved_runs.vectors), results=tmp_path)(inputs))
    assert all(torch.equal(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("0123456789abcdef", "no run 0123456789abcdef in {folder}"),
        ("{folder}", "{folder} has 2 runs: name one by its file, or by its id, such as"),
        ("nothing.parquet", "no run file 'nothing.parquet': name one that `lgbench run --save-weights` wrote"),
        ("{empty}", "no run file is in '{empty}'"),
    ],
)
def test_a_name_of_no_run_is_told_in_a_sentence(saved_runs, tmp_path, run, said):
    names = {"folder": saved_runs.folder, "empty": tmp_path}
    with pytest.raises(UsageError) as refused:
        lgbench.load(run.format(**names), results=saved_runs.folder)
    assert said.format(**names) in str(refused.value)


# Refused.


def refused(run: Path, **how: object) -> str:
    with pytest.raises(RunFileError) as error:
        lgbench.load(run, **how)
    return str(error.value)


@pytest.fixture
def copy(saved_runs, tmp_path) -> Path:
    """A run of its own, which a test may damage."""
    shutil.copy(weights_of(saved_runs.language), tmp_path)
    return Path(shutil.copy(saved_runs.language, tmp_path))


def test_a_run_that_saved_no_weights_is_refused(saved_runs, tmp_path):
    path = published.forged(saved_runs.language, tmp_path / "bare.parquet", lambda about: about.pop("kept_weights"))
    assert refused(path) == f"{path} saved no weights; make the run with --save-weights, in a folder that lacks it"


def test_weights_that_are_missing_truncated_or_flipped_are_refused(copy):
    weights, run = weights_of(copy), find(copy, "")
    content = weights.read_bytes()
    assert run.weights() == content
    others = [content[:size] for size in (0, 1, 8, len(content) // 2, len(content) - 1)]
    for place in (0, 9, 200, len(content) // 2, len(content) - 1):
        others.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    for other in others:
        weights.write_bytes(other)
        with pytest.raises(RunFileError, match="their SHA-256 is not the one in the run file"):
            run.weights()
    assert f"{weights} are damaged, or of another run" in refused(copy)
    weights.unlink()
    assert refused(copy) == f"the weights of this run are missing: {weights} should be there; copy it beside the run file"


def test_weights_of_another_model_are_refused_even_where_the_hash_fits(copy):
    """As somebody makes them who means harm, or a plugin does that changed without saying so."""
    tensors = load_file(weights_of(copy))
    name = next(name for name in tensors if name.startswith("raw/"))
    others = {
        "is missing": {key: t for key, t in tensors.items() if key != name},
        "'raw/more' is no tensor of it": tensors | {"raw/more": torch.zeros(1)},
        "is (1, 2) of torch.float32, and in this model": tensors | {name: torch.zeros(1, 2)},
        "of torch.float64, and in this model": tensors | {name: tensors[name].double()},
    }
    for said, other in others.items():
        save_file(other, copy.parent / "forged")
        assert said in refused(forged(copy, (copy.parent / "forged").read_bytes()))
    assert "not in the safetensors format" in refused(forged(copy, b"not tensors"))


def forged(path: Path, content: bytes) -> Path:
    """A run file that names these bytes as its weights."""
    folder = path.parent / "other"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    own = SavedWeights.of(content)
    about = run_files.metadata(path)["kept_weights"]
    text = path.read_bytes()
    old, new = (json.dumps(each).encode() for each in (about, own.field["kept_weights"]))
    new = new + b" " * (len(old) - len(new)) if len(new) <= len(old) else new
    assert len(new) == len(old) and text.count(old) == 1
    to = folder / path.name
    to.write_bytes(resealed(text.replace(old, new)))
    (folder / weights_of(path).name.replace(about["sha256"][:8], own.sha256[:8])).write_bytes(content)
    return to


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory) -> Path:
    """Of a registry whose packages have sources."""
    (path,) = published.make(
        tmp_path_factory.mktemp("toys"), seeds=[0], task="small-even", installed=with_source("0" * 16), save_weights=True
    )
    return path


def with_source(source: str, version: str = "1.0") -> Registry:
    found = published.registry(version)
    for plugin in found.plugins:
        if plugin.distribution.name == "lgbench-toys":
            vars(plugin.distribution)["source"] = source
    return found


@pytest.mark.parametrize(
    ("registry", "said"),
    [
        (lambda: with_source("0" * 16), None),
        (lambda: with_source("1" * 16), "lgbench-toys.source is '0000000000000000' in the file and '1111111111111111' here"),
        (lambda: with_source("0" * 16, "1.1"), "it was made with lgbench-small '1.0', and 1.1 is installed; install that"),
    ],
)
def test_other_versions_or_sources_of_plugins_are_refused(toy_run, monkeypatch, registry, said):
    monkeypatch.setattr(Registry, "load", classmethod(lambda cls, files=(), only=None: registry()))
    if said is None:
        assert lgbench.load(toy_run)(torch.tensor([[2, 1]])).shape == (1, 2, 3)
    else:
        assert said in refused(toy_run) and f"{toy_run} cannot be loaded here: " in refused(toy_run)


def test_another_lgbench_is_refused(toy_run, tmp_path):
    shutil.copy(weights_of(toy_run), tmp_path)
    other = published.forged(toy_run, tmp_path / toy_run.name, lambda about: about["environment"].update(lgbench="0.0.9"))
    assert "it was made with lgbench '0.0.9', and" in refused(other)


@pytest.mark.usefixtures("all_plugins")
def test_plugins_that_took_no_part_in_a_run_are_not_imported_for_its_weights(saved_runs, tmp_path, monkeypatch):
    """One that patches softmax would change what the model answers."""
    install(tmp_path, "patches_softmax", "import torch\ntorch.softmax = lambda x, *given: x * 0 + 0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    lgbench.load(saved_runs.language)
    lgbench.probe(saved_runs.language, ["output_std", "logit_gap"])
    done = invoked("verify", saved_runs.language)
    assert "1 of 1 runs verified" in done.stdout and "patches_softmax" not in done.stderr
    with monkeypatch.context() as patch:
        patch.setattr(torch, "softmax", torch.softmax)  # put back afterwards
        with pytest.raises(UsageError, match="no probe 'nobodys'"):
            lgbench.probe(saved_runs.language, "nobodys")  # any plugin might have it
        assert sys.modules.pop("patches_softmax")
