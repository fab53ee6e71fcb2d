"""Plots against a setting: which runs are on a line, what is drawn, and what real runs give."""

from __future__ import annotations

import ast
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from helpers.commands import invoked
from helpers.run_files import measured_by_all, simulated, write_rows

import lgbench_measurements
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.reports.panel_figures import axis
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions
from lgbench.results.sweeps import SweepRequest, settings_in, sweeps

ENTRIES = ("transformer+pre-norm", "transformer+peri-norm")
TASKS = ("alpha-1", "alpha-2")
WIDTHS = (16, 32, 64)
OWN = 32
"""The width of the protocol as it is."""
LENGTHS = (8, 16, 32)
TRAINED = 8
EXPERIMENT = {
    "options": [["model.heads", 1], ["model.width", OWN], ["norm.affine", True]],
    "train": {"lr": 0.003, "targets": "sampled"},
    "evaluate": {"max_length": 64},
}


def value(entry: str, task: str, seed: int, width: int, length: int) -> float:
    """Apart for every model and length, so that no mistake can hide."""
    return round(0.2 + 0.1 * ENTRIES.index(entry) + 0.01 * seed + width / 500 + length / 300 + 0.003 * int(task[-1]), 9)


def columns_of(entry: str, task: str, seed: int, width: int, **changes: str) -> dict:
    """A run under the protocol as it is has no change that says its width."""
    changed = changes | ({} if width == OWN else {"model.width": str(width)})
    run_id = f"{ENTRIES.index(entry)}{task}{seed}{width}{len(changes)}"
    return {"entry": entry, "task": task, "family": "alpha", "seed": seed, "run_id": run_id, "changes": list(changed.items())}


def settings(changes, experiment=EXPERIMENT) -> dict:
    """The settings in the metadata of a run with changes of its protocol."""
    options, train = dict(experiment["options"]), dict(experiment.get("train", {}))
    for name, text in changes:
        own, key = (train, name.removeprefix("train.")) if name.startswith("train.") else (options, name)
        own[key] = ast.literal_eval(text)
    return experiment | {"options": list(options.items()), "train": train}


def write_run(folder, entry, task, seed, width, extra=(), diverged=None, experiment=EXPERIMENT, **changes) -> None:
    same = columns_of(entry, task, seed, width, **changes)
    rows = simulated({n: value(entry, task, seed, width, n) for n in LENGTHS}, TRAINED, **same)
    rows += simulated({n: 0.5 + n / 100 for n in LENGTHS}, TRAINED, weights="chance", **same)
    rows += [row | same for row in extra]
    described = descriptions(lgbench_measurements.lgbench_measurements())
    about = {"experiment": settings(same["changes"], experiment), "measurements": described}
    write_rows(folder / f"{same['run_id']}.parquet", [row | {"diverged_step": diverged} for row in rows], **about)


def curve(losses, norms, steps=100):
    """Rows of a training curve."""
    (empty,) = simulated({8: None}, length=None, metric_version=None)
    empty |= {"length": None, "on_boards": None, "in_distribution": None}
    at = [steps * (i + 1) // len(losses) for i in range(len(losses))]
    return [
        empty | {"metric": metric, "step": step, "value": own}
        for metric, values in (("train_loss", losses), ("gradient_norm", norms))
        for step, own in zip(at, values, strict=True)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every width, and all of them but the middle one again with another learning rate."""
    folder = tmp_path_factory.mktemp("sweeps")
    for entry, task, seed, width in itertools.product(ENTRIES, TASKS, range(3), WIDTHS):
        write_run(folder, entry, task, seed, width)
        if width != OWN and entry == ENTRIES[0]:
            write_run(folder, entry, task, seed, width, **{"train.lr": "0.01"})
    return folder


def found(folder, metric="tvd", setting="model.width", **asked):
    return sweeps(Results(folder), SweepRequest(setting, metric, **asked))


def by_hand(entry, width, length=None, seeds=range(3)):
    """The mean over tasks of each seed, over all OOD lengths or at one."""
    lengths = [length] if length else [n for n in LENGTHS if n > TRAINED]
    return [np.mean([value(entry, task, seed, width, n) for task in TASKS for n in lengths]) for seed in seeds]


def interval_by_scipy(seeds):
    return scipy.stats.t.interval(0.95, len(seeds) - 1, np.mean(seeds), scipy.stats.sem(seeds))


def cells_of(spec, place=0):
    return spec["datasets"][f"cells {place}"]


def drawn(folder, tmp_path, *words):
    """The specification, and what the command said."""
    done = invoked("plot", "--results", folder, *words, "--out", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    return json.loads((tmp_path / "a.json").read_text()), done.stderr


def test_points_are_ood_means_with_their_intervals_and_the_protocol_as_it_is_is_one_of_them(folder, tmp_path):
    spec, said = drawn(folder, tmp_path, "--x", "model.width", "--protocol", "quick")
    assert not said
    cells = {(row["entry"], row["setting"]): row for row in cells_of(spec)}
    assert set(cells) == set(itertools.product(ENTRIES, WIDTHS))
    for (entry, width), row in cells.items():
        seeds = by_hand(entry, width)
        low, high = interval_by_scipy(seeds)
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((np.mean(seeds), low, high), abs=1e-4)
        assert row["n"] == 3 and row["context_free"] == pytest.approx(np.mean([0.5 + n / 100 for n in LENGTHS if n > TRAINED]))
    assert [row["setting"] for row in spec["datasets"]["context_free 0"]] == [*WIDTHS]
    assert spec["description"].startswith("alpha: TVD, lower is better. OOD mean, mean over 2 tasks, protocol quick/1")


@pytest.mark.slow
def test_runs_with_another_change_are_in_a_panel_of_their_own_that_names_it(folder, tmp_path):
    plain, other = found(folder)
    assert plain.board.protocol == ProtocolUse("quick", 1)
    assert other.board.protocol == ProtocolUse("quick", 1, (("train.lr", "0.01"),))
    assert [*other.cells[ENTRIES[0]]] == [16, 64] and set(other.cells) == {ENTRIES[0]}
    spec, _ = drawn(folder, tmp_path, "--x", "model.width")
    assert "train.lr=0.01" in json.dumps(spec) and len(cells_of(spec, 1)) == 2
    spec, _ = drawn(folder, tmp_path, "--x", "model.width", "--protocol", "quick/1 train.lr=0.01")
    assert {row["setting"] for row in cells_of(spec)} == {16, 64} and "cells 1" not in spec["datasets"]


def test_a_learning_rate_is_swept_where_the_width_is_the_same(folder):
    panels = found(folder, setting="train.lr")
    assert [sweep.board.protocol.changes for sweep in panels] == [(("model.width", "16"),), (("model.width", "64"),)]
    assert all([*sweep.cells[ENTRIES[0]]] == [0.003, 0.01] for sweep in panels)
    assert all(sweep.lines == [ENTRIES[0]] for sweep in panels)


def test_lengths_that_are_named_have_a_panel_each_with_one_axis(folder, tmp_path):
    spec, _ = drawn(folder, tmp_path, "--x", "model.width", "--protocol", "quick", "--length", "16,8")
    text = json.dumps(spec)
    assert text.index("length 16, OOD") < text.index("length 8, ID")
    for place, length in enumerate((16, 8)):
        means = {(row["entry"], row["setting"]): row["mean"] for row in cells_of(spec, place)}
        expected = {(e, w): np.mean(by_hand(e, w, length)) for e, w in itertools.product(ENTRIES, WIDTHS)}
        assert means == pytest.approx(expected, abs=1e-4)


def test_entries_are_chosen(folder, tmp_path):
    spec, _ = drawn(folder, tmp_path, "--x", "model.width", "--entry", "peri-norm")
    assert {row["entry"] for row in cells_of(spec)} == {ENTRIES[1]} and "cells 1" not in spec["datasets"]


def test_a_family_is_over_the_tasks_on_which_the_setting_has_several_values(tmp_path):
    for task, width, seed in [*itertools.product(TASKS, (OWN,), (0, 1)), *itertools.product(TASKS[:1], (16, 64), (0, 1))]:
        write_run(tmp_path, ENTRIES[0], task, seed, width)
    write_run(tmp_path, ENTRIES[1], TASKS[1], 0, OWN)
    results = Results(tmp_path)
    left_out: list[str] = []
    (sweep,) = sweeps(results, SweepRequest("model.width", "tvd"), left_out.append)
    assert sweep.board.name == "alpha-1" and [*sweep.cells[ENTRIES[0]]] == [16, 32, 64]
    (said,) = dict.fromkeys(left_out)
    assert said == "alpha-2 under quick/1, where no entry has several values of model.width"
    assert found(tmp_path, name="alpha-1")[0].cells == sweep.cells


def test_a_point_may_have_its_tasks_from_several_protocols(tmp_path):
    """--set model.width=32 is no change for a task whose own width is 32."""
    wide = EXPERIMENT | {"options": [["model.width", 64]]}
    for seed in (0, 1):
        write_run(tmp_path, ENTRIES[0], TASKS[0], seed, 16)
        write_run(tmp_path, ENTRIES[0], TASKS[0], seed, OWN)
        same = columns_of(ENTRIES[0], TASKS[1], seed, 16)
        for width in (16, 32):
            changed = same | {"changes": [("model.width", str(width))], "run_id": f"{seed} {width}"}
            values = {n: value(ENTRIES[0], TASKS[1], seed, width, n) for n in LENGTHS}
            about = {"experiment": settings(changed["changes"]), "measurements": measured_by_all()}
            write_rows(tmp_path / f"{seed} {width}.parquet", simulated(values, TRAINED, **changed), **about)
        write_run(tmp_path, ENTRIES[0], TASKS[1], seed, OWN, experiment=wide)  # at 64, where task 1 has nothing
    results = Results(tmp_path)
    left_out: list[str] = []
    (sweep,) = sweeps(results, SweepRequest("model.width", "tvd"), left_out.append)
    assert {value: cell.mean for value, cell in sweep.cells[ENTRIES[0]].items()} == pytest.approx(
        {width: np.mean(by_hand(ENTRIES[0], width, seeds=(0, 1))) for width in (16, 32)}, abs=1e-4
    )
    (said,) = dict.fromkeys(left_out)
    assert said == "seeds 0 to 1 of transformer+pre-norm with model.width 64, which lack a tvd on all of the 2 tasks of alpha"


def test_a_seed_that_lacks_a_task_is_in_no_mean_and_is_told(tmp_path):
    for task, width, seed in itertools.product(TASKS, (16, OWN), range(3)):
        if (task, width, seed) != (TASKS[1], 16, 2):
            write_run(tmp_path, ENTRIES[0], task, seed, width)
    results = Results(tmp_path)
    left_out: list[str] = []
    (sweep,) = sweeps(results, SweepRequest("model.width", "tvd"), left_out.append)
    first, second = sweep.cells[ENTRIES[0]].values()
    assert (first.n, second.n) == (2, 3)
    assert first.mean == pytest.approx(np.mean(by_hand(ENTRIES[0], 16, seeds=(0, 1))), abs=1e-4)
    (said,) = dict.fromkeys(left_out)
    assert said == "seed 2 of transformer+pre-norm with model.width 16, which lacks a tvd on all of the 2 tasks of alpha"


# Probes and numbers of trainings


@pytest.mark.slow
def test_probes_are_drawn_as_means_over_layers_and_heads_or_of_one(tmp_path):
    reading = {(layer, head): layer + 0.1 * head for layer, head in itertools.product((1, 2), (1, 2))}
    for width, seed in itertools.product((16, OWN, 256), (0, 1)):
        extra = [
            row
            for (layer, head), own in reading.items()
            for row in simulated({n: own * width + seed for n in LENGTHS}, TRAINED, metric="output_std", layer=layer, head=head)
        ]
        write_run(tmp_path, ENTRIES[0], TASKS[0], seed, width, extra)
    words = ["--x", "model.width", "--metric", "output_std", "--length", "16"]
    for more, expected in (
        ([], np.mean([*reading.values()])),
        (["--layer", "2"], np.mean([reading[2, 1], reading[2, 2]])),
        (["--layer", "2", "--head", "1"], reading[2, 1]),
        (["--loglog"], np.mean([*reading.values()])),
    ):
        spec, said = drawn(tmp_path, tmp_path, *words, *more)
        assert not said
        assert {row["setting"]: row["mean"] for row in cells_of(spec)} == pytest.approx(
            {width: expected * width + 0.5 for width in (16, OWN, 256)}, rel=1e-5
        )


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Four seeds at each depth: at 8 layers one diverges, at 24 all but one."""
    folder = tmp_path_factory.mktemp("deep")
    for layers, seed in itertools.product((2, 8, 24), range(4)):
        lost = seed < {2: 0, 8: 1, 24: 3}[layers]
        losses = [3.0, 2.0, 1.0, 1.0 + layers * (seed + 1) / 100] if not lost else [3.0, float("inf"), None, float("nan")]
        norms = [1.0, layers * 10.0 + seed, 2.0, 0.5] if not lost else [1.0, layers * 100.0, float("inf"), None]
        change = {} if layers == 2 else {"model.layers": str(layers)}
        experiment = settings(change.items(), {"options": [["model.layers", 2]]})
        extra = [row | {"weights": "raw"} for row in curve(losses, norms)]
        same = columns_of(ENTRIES[0], TASKS[0], seed, OWN, **change) | {"run_id": f"{layers} {seed}"}
        rows = [row | same for row in simulated({n: 0.5 for n in LENGTHS}, TRAINED) + extra]
        rows += [row | same for row in simulated({n: 0.4 for n in LENGTHS}, TRAINED, weights="ema")]
        about = {"experiment": experiment, "measurements": measured_by_all()}
        path = folder / f"{layers} {seed}.parquet"
        write_rows(path, [row | {"diverged_step": 50 if lost else None} for row in rows], **about)
    return folder


def test_the_share_of_diverged_seeds_has_the_exact_interval_of_a_share(deep, tmp_path):
    spec, said = drawn(deep, tmp_path, "--x", "model.layers", "--metric", "diverged")
    assert not said and {row["entry"] for row in cells_of(spec)} == {ENTRIES[0]}
    for row, count in zip(cells_of(spec), (0, 1, 3), strict=True):
        exact = scipy.stats.binomtest(count, 4).proportion_ci(0.95, "exact")
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((count / 4, exact.low, exact.high), abs=1e-4)


def test_a_seed_diverged_on_a_family_if_it_did_on_any_task(tmp_path):
    for task, seed, width in itertools.product(TASKS, range(3), (16, OWN)):
        write_run(tmp_path, ENTRIES[0], task, seed, width, diverged=3 if (task, seed, width) == (TASKS[1], 0, 16) else None)
    (sweep,) = found(tmp_path, "diverged")
    assert [cell.mean for cell in sweep.cells[ENTRIES[0]].values()] == [0.333333, 0.0]


def test_the_gradient_norm_is_the_largest_finite_one_of_every_seed(deep, tmp_path):
    spec, said = drawn(deep, tmp_path, "--x", "model.layers", "--metric", "gradient_norm")
    assert not said
    expected = {2: [20, 21, 22, 23], 8: [800, 81, 82, 83], 24: [2400, 2400, 2400, 243]}
    assert {row["setting"]: row["mean"] for row in cells_of(spec)} == {n: np.mean(own) for n, own in expected.items()}


def test_the_variance_of_the_loss_is_over_the_last_half_of_trainings_that_did_not_diverge(deep, tmp_path):
    spec, said = drawn(deep, tmp_path, "--x", "model.layers", "--metric", "loss_variance")
    for row, seeds in zip(cells_of(spec), (range(4), range(1, 4), range(3, 4)), strict=True):
        expected = [np.var([1.0, 1.0 + row["setting"] * (seed + 1) / 100], ddof=1) for seed in seeds]
        assert (row["mean"], row["n"]) == (pytest.approx(np.mean(expected), rel=1e-5), len(expected))
    assert "left out: seed 0 of transformer+pre-norm with model.layers 8, which lacks a loss_variance on alpha-1\n" in said
    assert "left out: seeds 0 to 2 of transformer+pre-norm with model.layers 24, which lack a loss_variance" in said


# Settings and their axes


def test_settings_are_those_of_the_metadata_in_one_notation(folder):
    results = Results(folder)
    settings = {run: settings_in(record) for run, record in results.records.items()}
    assert {own["norm.affine"] for own in settings.values()} == {"on"}
    assert {own["precision"] for own in settings.values()} == {"float32"}
    record = next(iter(results.records.values()))
    own = settings_in(replace(record, options=(("a", 2.0), ("b", None))))
    assert own["a"] == 2 and isinstance(own["a"], int)
    assert "b" not in own
    assert own["train.lr"] == record.train.lr and own["evaluate.contexts"] == record.evaluate.contexts


def test_an_axis_is_logarithmic_where_positive_numbers_span_more_than_a_factor_of_8():
    assert [axis("a", values).scale for values in ([8, 64], [8, 65], [0, 100], [-1, 100], [1e-4, 1e-2])] == [
        "linear",
        "log",
        "linear",
        "linear",
        "log",
    ]
    assert axis("a", [4, "auto"]).categories == ("4", "auto")
    assert axis("a", [8, 64], loglog=True).scale == "log"
    for values in ([4, "auto"], [0, 4]):
        with pytest.raises(UsageError, match="--loglog draws numbers"):
            axis("a", values, loglog=True)


@pytest.mark.slow
def test_switches_stand_at_equal_distances(tmp_path):
    for seed, (switch, text) in itertools.product(range(2), (("True", ""), ("False", "False"))):
        changes = {"norm.affine": text} if text else {}
        write_run(tmp_path, ENTRIES[0], TASKS[0], seed + 10 * (switch == "True"), OWN, **changes)
    spec, _ = drawn(tmp_path, tmp_path, "--x", "norm.affine")
    assert [row["setting"] for row in cells_of(spec)] == ["off", "on"]
    assert '"type": "point"' in json.dumps(spec)
    done = invoked("plot", "--x", "norm.affine", "--results", tmp_path, "--out", tmp_path / "a.svg")
    assert done.exit_code == 0 and ">off<" in (tmp_path / "a.svg").read_text()


# The command


@pytest.mark.slow
def test_a_plot_against_a_setting_is_named_after_it_and_is_a_picture(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoked("plot", "--x", "model.width", "--task", "alpha-1", "--results", folder)
    assert done.exit_code == 0 and done.stdout == "alpha-1-tvd-by-model.width.png\n"
    assert (tmp_path / "alpha-1-tvd-by-model.width.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--x", "model.widht"],
            "no setting 'model.widht'; did you mean 'model.width'? known: evaluate.contexts, evaluate.max_length, ",
        ),
        (["--x", "model.heads"], "all runs have model.heads 1; `lgbench run --set model.heads=1,2` makes others"),
        (["--x", "norm.affine"], "all runs have norm.affine on; `lgbench run --set norm.affine=on,off` makes others"),
        (["--x", "train.targets"], "`lgbench run --set train.targets=sampled,ANOTHER` makes others"),
        (["--x", "model.width", "--length", "64"], "length 64 was not measured; measured: 8, 16, 32"),
        (["--x", "model.width", "--fit"], "--fit and --heatmap draw against the length; leave out --x model.width"),
        (["--x", "model.width", "--metric", "diverge"], "did you mean 'diverged'?"),
        (["--x", "model.width", "--metric", "diverged", "--layer", "1"], "--layer, --head and --heatmap are for probes"),
        (
            ["--x", "train.lr", "--entry", "peri-norm"],
            "all that --entry names has runs with one value of train.lr alone: transformer+peri-norm; there are lines of "
            "transformer+pre-norm",
        ),
        (["--metric", "gradient_norm"], "gradient_norm is one number of a training; draw it against a setting, as in --x"),
    ],
)
def test_wrong_usage_says_what_would_work(folder, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = invoked("plot", "--results", folder, *arguments)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_setting_that_only_differs_between_entries_has_no_line(tmp_path):
    write_run(tmp_path, ENTRIES[0], TASKS[0], 0, OWN)
    write_run(tmp_path, ENTRIES[1], TASKS[0], 0, 16)
    done = invoked("plot", "--x", "model.width", "--results", tmp_path, "--out", tmp_path / "a.png")
    assert done.exit_code == 2
    assert "no entry has tvd at several values of model.width with nothing else changed; `lgbench run --set" in done.stderr
