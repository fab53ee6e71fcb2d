"""Probes: closed forms, weights found in other ways, every attention, and runs that no probe changes."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from helpers.commands import changing, invoked
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.registries import BUILT_IN_METRICS, with_model
from helpers.toy_registries import Marked, Weighted, toys_and
from torch import nn

import lgbench
from lgbench import AttentionSpec, Need, Random
from lgbench.attending import masked_logits, needed_inputs
from lgbench.extensions.registry import Registry
from lgbench.internals.sight import PartsSight, Sight, attention_weights
from lgbench.measurement import probing
from lgbench.measurement.probing import probe
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench_measurements import of_attention, of_stream

INSTALLED = Registry.load()
QUICK = {"train.steps": "2", "train.batch": "4", "evaluate.contexts": "6", "evaluate.strings": "4", "evaluate.max_length": "48"}


def experiment(task, arch, probes=("all",), registry=INSTALLED, **changes):
    settings = QUICK | {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    return plan_of(registry, task, arch, set=settings, probe=probes).experiments[0]


def probed(experiment, change=lambda model: None):
    """The readings of probes on a model with fresh weights, by metric, length, layer and head; and the whole result."""

    def fresh(model):
        change(model)
        return {"raw": model}

    found = probe(experiment, fresh, CPU)
    return {(s.metric, s.length, s.layer, s.head): s.value for s in found.scores}, found


def look_everywhere(model):
    """Queries are zero, so all keys have the same weight."""
    with torch.no_grad():
        model.blocks[0].sublayer.query.weight.zero_()


# Closed forms


def test_constant_attention_has_the_entropy_of_all_its_keys():
    found, _ = probed(experiment("tomita-1", "no-norm", model_layers=1), look_everywhere)
    for length in (1, 8, 32, 40, 48):  # and the begin token
        assert found["attention_entropy", length, 1, 1] == pytest.approx(math.log(length + 1), abs=1e-6)
        assert found["attention_max", length, 1, 1] == pytest.approx(1 / (length + 1), rel=1e-5)
        assert found["effective_keys", length, 1, 1] == pytest.approx(1, abs=1e-6)


def test_a_query_that_looks_at_one_key_has_no_entropy():
    weights = torch.eye(5, dtype=torch.float64)[None]
    assert of_attention.entropy(weights).tolist() == [[0.0] * 5]
    assert of_attention.effective_share(weights).tolist() == [[0.2] * 5]
    sources = torch.tensor([[False, True, False, False, False]])
    assert of_attention.on_source(weights, sources).tolist() == [[0.0, 1.0, 0.0, 0.0, 0.0]]
    assert of_attention.on_source(weights, ~sources & False).isnan().all()


def test_weights_that_are_no_distribution_have_no_entropy():
    found = of_attention.entropy(torch.tensor([[0.5, 0.25], [1.5, -0.5], [0.0, 0.0]], dtype=torch.float64))
    assert found[0].item() == pytest.approx(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))
    assert found[1:].isnan().all()


def test_the_spread_of_a_mean_of_independent_tokens_falls_like_one_over_the_root_of_n(monkeypatch):
    monkeypatch.setattr(probing, "CONTEXTS", 2000)
    asked = experiment("max-retrieval", "no-norm", ("output_std",), model_mlp="off", evaluate_contexts=2000)
    values = {}

    def spread(model):
        look_everywhere(model)
        inputs = asked.task.sample(1, Random(4000)).inputs[:, :1]
        values["one"] = model.blocks[0].sublayer.value(model.embedding(inputs)).std((0, 1)).mean().item()

    found, _ = probed(asked, spread)
    for length in (8, 16, 32, 48):  # and the query, which is another kind of item
        assert found["output_std", length, 1, 1] == pytest.approx(values["one"] / math.sqrt(length), rel=0.12)
    slope = np.polyfit(np.log([8, 16, 32, 48]), np.log([found["output_std", n, 1, 1] for n in (8, 16, 32, 48)]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.06)


def test_gap_and_separation_are_between_extreme_and_between_mean_legal_and_illegal_logits():
    logits = torch.tensor([[3.0, 1.0, -2.0], [0.0, 5.0, 4.0], [1.0, 2.0, 3.0]])
    legal = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    for found, expected in ((of_stream.gap, [3.0, -5.0]), (of_stream.separation, [4.0, -4.5])):
        values = found(logits, legal)
        assert values[:2].tolist() == expected and values[2].isnan()


def test_streams_are_those_of_the_equations():
    """Peri-norm: x + N(F(N(x))), so the root mean square of the update is that of the norm's gain, which begins at 1."""
    asked = experiment("tomita-1", "peri-norm", model_layers=1)
    found, _ = probed(asked)
    width = dict(asked.record.options)["model.width"]
    for length in (1, 48):
        assert found["output_var_global", length, 1, None] + found["output_mean_global", length, 1, None] ** 2 <= 1.001
        ratio = found["update_ratio", length, 1, None]
        assert ratio > 0 and found["norm_input_rms", length, 1, None] > 0
    sight = seen(asked)
    (attention, mlp) = sight.at(0).sublayers
    torch.testing.assert_close(attention.update.square().mean(-1), torch.ones(6, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mlp.before, attention.after)
    assert attention.after.shape == (6, width) and torch.equal(sight.at(0).final, mlp.after)


def seen(asked, inputs=None, places=(0,)):
    """The sight of a fresh model that has read contexts of the longest length."""
    inputs = asked.task.sample(asked.evaluate.max_length, Random(6, seed=3)).inputs if inputs is None else inputs
    sight = unread(asked)
    sight.begin(places)
    with sight.watching(), torch.no_grad():
        sight.model(inputs)
    return sight


def unread(asked):
    sight = PartsSight(asked.parts, lambda parts: replace(asked, parts=parts).build(), CPU, 1e-3)
    sight.model.eval()
    return sight


# Weights


@pytest.mark.parametrize("position", ["nope", "rope", "alibi"])
def test_weights_of_softmax_are_the_softmax_of_queries_and_keys(position):
    asked = experiment("dyck-2-3", f"pre-norm+{position}", model_heads=2)
    sight = unread(asked)
    given = {}
    for module, spec in sight.attentions.items():
        module.register_forward_hook(lambda module, args, answer, layer=spec.layer: given.update({layer: args}))
    sight.begin((0, 7))
    with sight.watching(), torch.no_grad():
        sight.model(asked.task.sample(30, Random(4)).inputs)
    for place in (0, 7):
        for attention in sight.at(place).attentions:
            q, k, _, bias = given[attention.layer]
            by_hand = masked_logits(q.double(), k.double(), bias, q.shape[-1] ** -0.5).softmax(-1)[:, :, -1 - place]
            torch.testing.assert_close(attention.weights, by_hand[..., : attention.weights.shape[-1]], rtol=1e-4, atol=1e-6)


KEYS, WIDTH = 7, 6
VALUES, OTHER_VALUES = torch.randn(2, 3, 2, KEYS, WIDTH, generator=torch.Generator().manual_seed(2))


def taken(name):
    """The output of the last query of a fresh attention, as a function of the values."""
    attention = INSTALLED.attentions[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = attention.build(AttentionSpec(1, 2, 2 * WIDTH, 2, 5)).eval()
    draw = torch.Generator().manual_seed(1)
    q, k, x = (torch.randn(3, 2, KEYS, WIDTH, generator=draw) for _ in range(3))
    x = x.transpose(1, 2).flatten(2)
    asked = q if Need.ALL_QUERIES in attention.needs else q[..., -1:, :]
    return lambda values: module(asked, k, values, None, **needed_inputs(attention.needs, x[:, -1:], x))[..., -1:, :]


@cache
def is_linear(name):
    take = taken(name)
    return torch.allclose(take(VALUES + 2 * OTHER_VALUES), take(VALUES) + 2 * take(OTHER_VALUES), rtol=1e-3, atol=1e-4)


FEW = {"softmax": True, "differential": False, "nap": False, "stick-breaking": True, "selective": True}
"""Attentions of each kind, and whether they are linear in the values: not where they norm what a query takes."""
NAMES = [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in INSTALLED.attentions.names()]


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_what_a_query_takes_of_the_identity(name):
    assert is_linear(name) == FEW.get(name, is_linear(name))
    found = attention_weights(taken(name), VALUES, 1e-3)
    assert (found is not None) == is_linear(name)
    if found is not None:
        identity = torch.eye(KEYS).expand(3, 2, KEYS, KEYS)
        torch.testing.assert_close(found, taken(name)(identity)[..., 0, :], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda taken: taken + 1,
        lambda taken: taken.relu(),
        lambda taken: taken / taken.norm(dim=-1, keepdim=True),
        lambda taken: taken.flip(-1),
        lambda taken: taken.detach(),
    ],
)
def test_what_is_not_linear_in_the_values_has_no_weights(change):
    weights = torch.rand(2, 3, 1, 5).softmax(-1)
    v = torch.randn(2, 3, 5, 4)
    torch.testing.assert_close(attention_weights(lambda values: weights @ values, v, 1e-3), weights[..., 0, :])
    assert attention_weights(lambda values: change(weights @ values), v, 1e-3) is None


def test_weights_of_a_model_that_diverged_are_not_numbers():
    found = attention_weights(lambda values: values.sum(-2, keepdim=True) * torch.nan, torch.ones(2, 1, 3, 4), 1e-3)
    assert found.isnan().all() and found.shape == (2, 1, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_place_in_a_long_context_is_as_the_end_of_a_short_one(name):
    asked = experiment("dyck-2-3", f"peri-norm+{name}")
    inputs = asked.task.sample(40, Random(4)).inputs
    long, short = seen(asked, inputs, (0, 17)), seen(asked, inputs[:, :-17])
    for there, here in zip(long.at(17).attentions, short.at(0).attentions, strict=True):
        torch.testing.assert_close(there.output, here.output, rtol=1e-3, atol=1e-5)
        if there.weights is not None:
            torch.testing.assert_close(there.weights, here.weights, rtol=1e-3, atol=1e-5)
    for there, here in zip(long.at(17).sublayers, short.at(0).sublayers, strict=True):
        torch.testing.assert_close(there.after, here.after, rtol=1e-3, atol=1e-5)


def test_a_model_that_runs_its_layers_several_times_is_seen_in_the_last_pass():
    asked = experiment("dyck-1-2", "peri-norm", model_layers=2)
    first, last = (asked.task.sample(20, Random(4, seed=seed)).inputs for seed in (1, 2))
    sight, once = unread(asked), seen(asked, last)
    sight.begin()
    with sight.watching(), torch.no_grad():
        for inputs in (first, first, last):
            sight.model(inputs)
    for there, here in ((sight.at(0).attentions, once.at(0).attentions), (sight.at(0).sublayers, once.at(0).sublayers)):
        assert len(there) == len(here) > 1
        for own, other in zip(there, here, strict=True):
            assert all(map(torch.equal, tensors_of(own), tensors_of(other)))


def tensors_of(internals):
    return [value for value in vars(internals).values() if isinstance(value, torch.Tensor)]


# Every attention and architecture

WRAPPED = [each.name for each in INSTALLED.architectures if not each.defaults and each.name not in ("hf", "lstm", "gru")]
"""Models of other libraries. `hf` is none before it has a configuration."""
WITHOUT_ATTENTION = ("lstm", "gru", "mamba", "mamba2", "falcon-mamba", "rwkv", "xlstm", "diffllama")
"""Models without attention, and DiffLlama, whose attention is a difference of two and has no weights to read."""


@pytest.mark.parametrize(
    ("arch", "task"),
    [
        *(pytest.param(f"peri-norm+{each.values[0]}", "dyck-1-2", marks=each.marks) for each in NAMES),
        ("set-attention", "dictionary-lookup"),
        ("attention-layer-norm", "max-retrieval"),
        ("lstm", "dyck-1-2"),
        ("gru", "dyck-1-2"),
        *(pytest.param(name, "dyck-1-2", marks=pytest.mark.slow) for name in WRAPPED),
    ],
)
def test_every_attention_and_architecture_goes_through_every_probe(arch, task):
    found, whole = probed(experiment(task, arch))
    metrics = {metric for metric, *_ in found}
    assert "logit_gap" in metrics and all(value is None or math.isfinite(value) for value in found.values())
    assert ("output_std" in metrics) == (arch not in WITHOUT_ATTENTION)
    is_a_sum = arch not in (*WITHOUT_ATTENTION, "xt-hyper-connections")  # whose stream is several
    assert ({"output_mean_global", "output_var_global"} <= metrics) == is_a_sum
    attention = arch.split("+")[-1]
    has_no_weights = arch == "diffllama" or (attention in INSTALLED.attentions.names() and not is_linear(attention))
    assert len(whole.sentences) == has_no_weights
    assert ("attention_entropy" in metrics) == ("output_std" in metrics and not whole.sentences)
    for (metric, length, *_), value in found.items():
        if metric == "attention_entropy" and value is not None:
            assert -1e-9 <= value <= math.log(length + 1) + 1e-9


class OfTable(Sight):
    """Sees a table of logits as an attention with a single key."""

    @contextmanager
    def watching(self):
        def see(module, given, answer):
            for place in self._places:
                self._see_query(1, place, answer[:, -1 - place, None], lambda try_others: torch.ones(len(answer), 1, 1))

        with self.model.register_forward_hook(see):
            yield


def failing(*given, **named):
    raise AttributeError("the library has changed")


class FailingHooks(OfTable):
    _see_query = failing


OF_WHOLE_MODELS = {"logit_gap", "logit_separation"}
SEEN = OF_WHOLE_MODELS | {"attention_entropy", "attention_max", "effective_keys", "output_std"}
BLIND = "nothing can be seen inside it, since looking failed with AttributeError: the library has changed"


@pytest.mark.parametrize(
    ("sight_of", "metrics", "sentences"),
    [
        (OfTable, SEEN, []),
        (lambda *given: None, OF_WHOLE_MODELS, []),
        (failing, OF_WHOLE_MODELS, [f"toy-own+toy-nothing: {BLIND}"]),
        (FailingHooks, OF_WHOLE_MODELS, [f"toy-own+toy-nothing: {BLIND}"]),
    ],
    ids=["sees it", "does not see it", "fails", "fails in its hooks"],
)
def test_a_pack_sees_the_models_of_its_library_and_costs_no_run_where_it_fails(sight_of, metrics, sentences, monkeypatch):
    """The library is torch here. The pack of another one is not even loaded."""
    packs = [SimpleNamespace(name="other"), SimpleNamespace(name="torch", load=lambda: sight_of)]
    monkeypatch.setattr("lgbench.internals.sight.entry_points", lambda group: packs)
    found, whole = probed(experiment("toy-walk", "toy-own", registry=with_model(lambda: nn.Embedding(3, 3))))
    assert {metric for metric, *_ in found} == metrics and whole.sentences == sentences
    assert {value for (metric, *_), value in found.items() if metric == "attention_max"} <= {1.0}


WEIGHTED = [(Weighted(), {1: False, 2: True, 4: True, 6: True}), (Marked(), {4: True, 6: True})]


@pytest.mark.parametrize(("task", "lengths"), WEIGHTED)
def test_answers_that_do_not_count_are_not_probed(task, lengths):
    registry = toys_and(task=task)
    _, whole = probed(experiment(task.name, "toy-table", registry=registry, evaluate_max_length=6))
    read = {score.length: score.value is not None for score in whole.scores if score.metric == "logit_gap"}
    assert lengths.items() <= read.items()


# Sources


def test_sources_are_the_positions_that_decide_the_answer():
    task = INSTALLED.tasks["max-retrieval"]
    inputs = task.sample(9, Random(20)).inputs
    found = task.sources(inputs)
    assert found.int().argmax(1).tolist() == [max(range(9), key=lambda i: own[i][0]) for own in inputs.tolist()]
    assert found.sum(1).tolist() == [1] * 20 and not found[:, -1].any()
    task = INSTALLED.tasks["dictionary-lookup"]
    inputs, distribution, _ = task.sample(9, Random(20))
    found = task.sources(inputs)
    assert found.sum(1).tolist() == [1] * 20
    assert torch.equal(inputs[found][:, 32:], distribution[:, 0])


@pytest.mark.parametrize("length", [0, 1, 2, 7, 40])
def test_the_source_of_dyck_is_the_bracket_that_a_stack_has_on_top(length):
    task = INSTALLED.tasks["dyck-2-3"]
    inputs = task.sample(length, Random(50)).inputs
    found = task.sources(inputs)
    for context, own in zip(inputs.tolist(), found.tolist(), strict=True):
        stack = []
        for place, symbol in enumerate(context):
            if place > 0 and symbol < task.kinds:
                stack.append(place)
            elif place:
                stack.pop()
        assert [place for place, source in enumerate(own) if source] == stack[-1:]


# Runs


PLUGIN = '''
import torch
from lgbench import Measurement, Reading, hookimpl


class FinalNorm(Measurement):
    """Norm of the final hidden state."""

    name = label = "final_norm"
    title = "norm of the final hidden state"
    lower_is_better = None
    range = (0.0, None)

    def source(self, task):
        return "internals"

    def of_internals(self, internals):
        if internals.final is not None:
            yield Reading(torch.linalg.vector_norm(internals.final, dim=-1))


@hookimpl
def lgbench_measurements():
    return [FinalNorm()]
'''
ASKED = {"average": [], "protocol": "quick", "seeds": [0, 1], "device": "cpu", "workers": 1, "compile": False, "set": QUICK}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders with the same two runs, without and with all probes, of which one is a plugin's."""
    folder = tmp_path_factory.mktemp("probes")
    plugin = folder / "final_norm.py"
    plugin.write_text(PLUGIN)
    for name, probes in (("without", ()), ("with", "all")):
        lgbench.run("max-retrieval", "peri-norm", **ASKED, plugins=[plugin], probe=probes, results=folder / name)
    return folder


def test_probes_change_no_bit_of_a_run(runs):
    without, with_probes = (sorted(run_files.find(runs / name)) for name in ("without", "with"))
    assert [path.name for path in without] == [path.name for path in with_probes]
    for plain, probed_path in zip(without, with_probes, strict=True):
        names = {m["name"] for m in run_files.metadata(plain)["measurements"]}
        assert names == BUILT_IN_METRICS
        rows = run_files.read(probed_path)
        probes = pa.array([m["name"] for m in run_files.metadata(probed_path)["measurements"] if m["name"] not in names])
        others = rows.filter(pc.invert(pc.is_in(rows["metric"], value_set=probes)))
        assert others.equals(run_files.read(plain)) and rows.num_rows > others.num_rows
        assert others["layer"].null_count == others.num_rows


def test_a_plugin_adds_a_probe_in_one_file(runs):
    names, rows = Results(runs / "with").ask(
        "select distinct length, layer, head from final where metric = 'final_norm' order by 1"
    )
    assert names == ["length", "layer", "head"] and rows == [(length, None, None) for length in (8, 16, 32, 48)]
    (path, *_) = run_files.find(runs / "with")
    assert "final_norm.py" in {plugin["name"] for plugin in run_files.metadata(path)["plugins"] if plugin["takes_part"]}
    (path, *_) = run_files.find(runs / "without")
    assert "final_norm.py" not in {plugin["name"] for plugin in run_files.metadata(path)["plugins"] if plugin["takes_part"]}


def test_no_board_ranks_by_a_probe(runs):
    results = Results(runs / "with")
    assert {*results.ranking_names} == BUILT_IN_METRICS and "attention_entropy" in results.metric_names
    unranked = "no value of attention_entropy is better than another, so no board ranks"
    for words, why in (
        (["leaderboard"], unranked),
        (["compare", "peri-norm", "pre-norm"], unranked),
        (["plot", "--x", "step", "--out", "x.json"], "attention_entropy is a probe, which is read when a model is trained"),
    ):
        done = invoked(*words, "--metric", "attention_entropy", "--results", runs / "with")
        assert done.exit_code == 2 and why in done.output


def test_a_plot_draws_the_mean_over_layers_and_heads_with_its_exponent(runs, tmp_path):
    out = tmp_path / "std.json"
    asked = ("plot", "--metric", "output_std", "--loglog", "--fit", "--results", runs / "with", "--out", out)
    assert invoked(*asked).exit_code == 0
    spec = json.loads(out.read_text())
    (cells,) = (rows for name, rows in spec["datasets"].items() if name.startswith("cells"))
    _, rows = Results(runs / "with").ask(
        "select seed, length, avg(value) from final where metric = 'output_std' and weights = 'raw' group by all order by all"
    )
    means = {length: np.mean([value for _, n, value in rows if n == length]) for _, length, _ in rows}
    assert {cell["length"]: cell["mean"] for cell in cells} == pytest.approx(means, rel=1e-5)
    slopes = [np.polyfit(*np.log([(n, v) for own, n, v in rows if own == seed]).T, 1)[0] for seed in (0, 1)]
    assert f"N^{np.mean(slopes):.2f} [" in cells[0]["label"] and '"type": "log"' in json.dumps(spec)


def test_a_map_has_a_row_for_each_layer(runs, tmp_path):
    out = tmp_path / "map.json"
    asked = ("plot", "--metric", "attention_entropy", "--heatmap", "--head", 1, "--results", runs / "with", "--out", out)
    assert invoked(*asked).exit_code == 0
    assert '"layer": 1' in out.read_text()
    for words, said in (
        (["--metric", "logit_gap", "--heatmap"], "is of whole models, which have no layers"),
        (["--metric", "tvd", "--layer", "1"], "--heatmap are for probes, and tvd is measured of whole models"),
        (["--metric", "output_std", "--heatmap", "--fit"], "--heatmap draws all layers"),
        (["--metric", "output_std", "--layer", "99"], "no run has layer 99 of output_std; layers that were read: 1"),
        (["--metric", "attention_entropy", "--head", "99"], "no run has head 99 of attention_entropy; heads that were read: 1"),
    ):
        done = invoked("plot", *words, "--results", runs / "with", "--out", out)
        assert done.exit_code == 2 and said in done.output


def test_names_of_probes_are_checked_before_anything_is_trained():
    with pytest.raises(lgbench.UsageError, match="no probe 'atention_max'; did you mean 'attention_max'"):
        experiment("tomita-1", "pre-norm", ["atention_max"])
    found = plan_of(INSTALLED, "tomita-1", "pre-norm", probe=["attention_on_source"])
    assert found.refusals == ("the probe attention_on_source is not defined for tomita-1",)
    assert {m.name for m in found.experiments[0].measurements} == BUILT_IN_METRICS


def test_a_run_that_is_there_without_a_probe_is_named(runs):
    asked = "run --task max-retrieval --arch peri-norm --average none --protocol quick --seeds 0:2 --device cpu --workers 1"
    words = [*asked.split(), *changing(QUICK), "--no-compile", "--probe", "attention_max", "--results", runs / "without"]
    done = invoked(*words)
    assert done.exit_code == 0 and "2 runs were done before and not run again" in done.output
    assert "2 runs lack the probe attention_max (version 1): run again with another --results folder" in done.output
