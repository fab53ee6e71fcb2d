"""Measurements in submissions: a plugin's own, those that a run lacks, and the chance level of the task."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from types import ModuleType

import kl
import published
import pytest
import toys
from conftest import CPU
from packing import packed
from published import forged

from lgbench import hookimpl
from lgbench.errors import Refused, RunFileError
from lgbench.execution.progress import SilentProgress
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.metrics import Metric
from lgbench.submissions import submission
from lgbench.submissions.inspection import Inspector, inspect_all
from lgbench.submissions.reader import Reader
from lgbench.submissions.rows import Bounds
from lgbench.submissions.submission import check_filed, submit
from lgbench.submissions.verification import verify


class KlWithChance(kl.KlDivergence):
    """KL divergence of one prediction for all contexts: the least mean is that of the mean of p*."""

    def chance(self, distribution, test):
        p = test.double()
        return (p.xlogy(p) - p * distribution.double().mean(0).log()).sum(-1)


@cache
def with_kl(measurement=KlWithChance) -> Registry:
    """Everything that is published, and the plugin of a stranger with one measurement."""
    module = ModuleType("kl")
    module.lgbench_measurements = hookimpl(specname="lgbench_measurements")(lambda: [measurement()])
    return published.registry(kl=module)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> list[Path]:
    """A whole series in which KL is measured; about half of its runs diverged."""
    folder = tmp_path_factory.mktemp("measured")
    return published.make(folder, ("toy-fragile",), installed=with_kl())


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[Path]:
    """The same without KL."""
    return published.make(tmp_path_factory.mktemp("plain"), ("toy-fragile",))


@pytest.fixture(scope="module")
def walk(measured) -> Path:
    """A run of a task with three answers, of a model that did not diverge."""
    walks = (path for path in measured if path.name.startswith("small-walk"))
    return next(path for path in walks if not run_files.read(path)["diverged_step"][0].is_valid)


@pytest.fixture(scope="module")
def inspect():
    """Why a submission refuses a file; nothing if it accepts it."""
    inspector = cache(lambda installed: Inspector(installed, submission.RULES))

    def reasons(path: Path, installed: Registry | None = None) -> str:
        try:
            inspector(installed or with_kl()).run(path, reader.read(path))
        except RunFileError as error:
            assert all(line.startswith(f"{path}: ") for line in str(error).split("\n  "))
            return str(error)
        return ""

    with Reader() as reader:
        yield reasons


def row(weights, metric, length, **columns):
    """A change of one row."""

    def change(rows):
        (found,) = [r for r in rows if (r["weights"], r["metric"], r["step"], r["length"]) == (weights, metric, 20, length)]
        found.update(columns)

    return change


# A plugin's own measurement.


def test_a_measurement_of_a_plugin_is_filed_and_verified_with_no_other_change(measured, tmp_path):
    filed = submit(measured, tmp_path, with_kl()).file
    assert check_filed(tmp_path, with_kl()) == []
    assert (filed.name, filed.read_bytes()) == packed(measured)
    runs, _ = inspect_all([filed], Inspector(with_kl()))
    assert len(runs) == len(measured) and all({"kl", "tvd"} <= set(run.rows["metric"].to_pylist()) for run in runs)
    runs = runs[-2:]
    outcomes = list(verify(runs, CPU, SilentProgress()))
    assert len(outcomes) == 2 and all(outcome.agrees for outcome in outcomes)
    assert all(outcome.compared == outcome.run.rows.num_rows for outcome in outcomes)


@pytest.mark.slow
def test_a_run_that_lacks_an_installed_measurement_is_as_good_as_before(plain, tmp_path, inspect):
    assert all(not inspect(path) for path in plain)
    assert submit(plain, tmp_path, with_kl()).filed == len(plain)
    assert check_filed(tmp_path, with_kl()) == check_filed(tmp_path, published.registry()) == []


def test_a_measurement_that_is_not_installed_is_refused_with_the_plugin_to_install(measured, tmp_path, inspect):
    without_kl = published.registry()
    for path in measured:
        said = inspect(path, without_kl)
        assert "measurement kl" in said and "install lgbench-kl 1.0" in said
    with pytest.raises(Refused, match="install lgbench-kl 1.0"):
        submit(measured, tmp_path, published.registry())
    assert list(tmp_path.iterdir()) == []


def test_a_measurement_that_no_plugin_of_the_run_can_have_is_refused(plain, tmp_path, inspect):
    def claim(about):
        about["measurements"][0]["name"] = "beauty"

    said = inspect(forged(plain[0], tmp_path / plain[0].name, footer=claim), published.registry())
    assert "no installed plugin provides its measurement beauty" in said and "--plugin" in said


class Stricter(KlWithChance):
    """The same with another threshold."""

    threshold = 0.01


class Newer(KlWithChance):
    """The same, with other numbers."""

    version = 2


@pytest.mark.parametrize(("installed", "said"), [(Stricter, "threshold 0.1"), (Newer, "version 1")])
def test_another_description_than_that_of_the_installed_measurement_is_refused_with_what_differs(
    measured, installed, said, inspect
):
    found = inspect(measured[0], with_kl(installed))
    assert f"its measurement kl has the {said}, and the installed one has " in found and "run it again" in found


DESCRIPTIONS = [
    ({"low": -1.0}, "its measurement tvd has the low -1.0, and the installed one has 0.0"),
    ({"high": None}, "its measurement tvd has the high None, and the installed one has 1.0"),
    ({"lower_is_better": False}, "lower_is_better False, and the installed one has True"),
    ({"title": "<script>"}, "title '<script>'"),
    ({"worst": 0.5}, "worst 0.5"),
    ({"landmark": None, "landmark_name": None}, "landmark None"),
]


@pytest.mark.parametrize(("change", "said"), DESCRIPTIONS, ids=[said for _, said in DESCRIPTIONS])
def test_a_forged_description_is_refused(walk, tmp_path, change, said, inspect):
    def forge(about):
        next(each for each in about["measurements"] if each["name"] == "tvd").update(change)

    assert said in inspect(forged(walk, tmp_path / walk.name, footer=forge))


def test_descriptions_and_rows_belong_together(walk, tmp_path, inspect):
    def twice(about):
        about["measurements"].append(about["measurements"][0])

    def without(about):
        about["measurements"] = [each for each in about["measurements"] if each["name"] != "accuracy"]

    def no_rows(rows):
        rows[:] = [each for each in rows if each["metric"] != "accuracy"]

    path = tmp_path / walk.name
    assert "describes the measurement accuracy more than once" in inspect(forged(walk, path, twice))
    path.unlink()
    assert "it has weights='raw' metric='accuracy' step=20 length=1" in inspect(forged(walk, path, without))
    path.unlink()
    assert "it lacks accuracy (raw) at length 1 after step 20" in inspect(forged(walk, path, rows=no_rows))
    path.unlink()
    assert not inspect(forged(walk, path, without, no_rows))


def test_a_run_in_which_nothing_is_measured_is_not_published(walk, tmp_path, inspect):
    def nothing(about):
        about["measurements"] = []
        next(plugin for plugin in about["plugins"] if plugin["name"] == "lgbench-kl")["takes_part"] = False

    def curve(rows):
        rows[:] = [each for each in rows if each["length"] is None]

    path = forged(walk, tmp_path / walk.name, nothing, curve)
    assert "it has no measurement, so no board can show it" in inspect(path)


def test_all_runs_of_a_series_have_the_same_measurements(measured, plain, tmp_path):
    """Or somebody could leave a measurement out of the seeds with bad values."""
    mixed = [path for path in measured if ".seed-3." not in path.name] + [path for path in plain if ".seed-3." in path.name]
    with pytest.raises(Refused) as refused:
        submit(mixed, tmp_path, with_kl())
    (said,) = refused.value.sentences
    assert "the measurements accuracy, kl, roc_auc, tvd and others accuracy, roc_auc, tvd" in said


# Possible values.


@pytest.mark.parametrize("value", [0.0, 7.5, 1e6, -1e-9])
def test_a_measurement_without_a_greatest_value_may_have_any_from_the_least(walk, tmp_path, value, inspect):
    assert not inspect(forged(walk, tmp_path / walk.name, rows=row("raw", "kl", 4, value=value)))


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, None])
def test_a_value_out_of_the_range_of_its_measurement_is_refused(walk, tmp_path, value, inspect):
    said = inspect(forged(walk, tmp_path / walk.name, rows=row("raw", "kl", 4, value=value)))
    assert f"kl (raw) at length 4 after step 20 is {value}, expected a number from 0" in said


def test_the_worst_value_is_possible_wherever_it_is():
    class Odd(kl.KlDivergence):
        range = (0.0, 1.0)
        worst = 2.0

    class Bad(kl.KlDivergence):
        range = (0.5, 1.0)
        worst = 0.0

    assert Bounds.of(Metric.of(Odd())) == (0.0, 2.0) and Bounds.of(Metric.of(Bad())) == (0.0, 1.0)
    assert Bounds.of(Metric.of(kl.KlDivergence())) == (0.0, math.inf)


def test_runs_that_diverged_have_the_worst_value_and_are_accepted(measured, inspect):
    diverged = [path for path in measured if run_files.read(path)["diverged_step"][0].is_valid]
    assert diverged
    for path in diverged:
        rows = run_files.read(path).to_pylist()
        values = {r["value"] for r in rows if (r["weights"], r["metric"], r["step"]) == ("raw", "kl", 20)}
        assert values == {kl.KlDivergence.worst} and not inspect(path)


# The chance level.


def test_the_chance_level_in_a_file_is_the_one_of_its_task(walk):
    levels = {(r["metric"], r["length"]): r["value"] for r in run_files.read(walk).to_pylist() if r["weights"] == "chance"}
    assert levels.keys() == {(metric, length) for metric in ("tvd", "kl") for length in (1, 2, 4, 6, 8)}
    p, mean = toys.WALK.double(), toys.WALK.double().mean(0)
    exact = (p.xlogy(p) - p * mean.log()).sum(-1).mean().item()
    assert all(value == pytest.approx(exact, abs=0.05) for (metric, _), value in levels.items() if metric == "kl")


def drop(weights, metric):
    return lambda rows: rows.remove(next(r for r in rows if (r["weights"], r["metric"]) == (weights, metric)))


def add(weights, metric, length, **columns):
    def change(rows):
        like = next(r for r in rows if (r["weights"], r["metric"]) == ("raw", metric))
        rows.append(like | {"weights": weights, "length": length} | columns)

    return change


CHANCE = [
    (
        row("chance", "tvd", 4, value=0.9),
        "tvd (chance) at length 4 after step 20 is 0.9, expected 0.",
        "the chance level of the task",
    ),
    (
        row("chance", "kl", 8, value=50.0),
        "kl (chance) at length 8 after step 20 is 50.0, expected 0.",
        "the chance level of the task",
    ),
    (row("chance", "tvd", 4, value=None), "tvd (chance) at length 4 after step 20 is None, expected 0.", "the chance level"),
    (
        row("chance", "tvd", 4, value=math.nan),
        "tvd (chance) at length 4 after step 20 is nan, expected 0.",
        "the chance level",
    ),
    (row("chance", "tvd", 4, n=1), "n of tvd (chance) at length 4 after step 20 is 1, expected ", ""),
    (
        row("chance", "tvd", 4, on_boards=False),
        "on_boards of tvd (chance) at length 4 after step 20 is False, expected True",
        "",
    ),
    (
        row("chance", "tvd", 8, in_distribution=True),
        "in_distribution of tvd (chance) at length 8 after step 20 is True, expected False",
        "",
    ),
    (
        row("chance", "tvd", 8, metric_version=7),
        "metric_version of tvd (chance) at length 8 after step 20 is 7, expected 1",
        "",
    ),
    (drop("chance", "tvd"), "it lacks tvd (chance) at length 1 after step 20", ""),
    (add("chance", "tvd", 3), "weights='chance' metric='tvd' step=20 length=3, which this run does not have", ""),
    (add("chance", "accuracy", 4), "weights='chance' metric='accuracy' step=20 length=4, which this run does not have", ""),
]


@pytest.mark.parametrize(("change", "said", "more"), CHANCE, ids=[said for _, said, _ in CHANCE])
def test_altered_rows_of_the_chance_level_are_refused(walk, tmp_path, change, said, more, inspect):
    found = inspect(forged(walk, tmp_path / walk.name, rows=change))
    assert said in found and more in found


def test_a_chance_level_may_differ_by_rounding(walk, tmp_path, inspect):
    rows = run_files.read(walk).to_pylist()
    (level,) = [r["value"] for r in rows if (r["weights"], r["metric"], r["length"]) == ("chance", "tvd", 4)]
    near = forged(walk, tmp_path / "near.parquet", rows=row("chance", "tvd", 4, value=level + 5e-5))
    far = forged(walk, tmp_path / "far.parquet", rows=row("chance", "tvd", 4, value=level + 2e-4))
    assert not inspect(near) and "the chance level of the task" in inspect(far)


@pytest.mark.parametrize(("length", "shown"), [(4, False), (3, True)])
def test_lengths_that_boards_show_are_not_the_submitters_choice(walk, tmp_path, length, shown, inspect):
    path = forged(walk, tmp_path / walk.name, rows=row("raw", "tvd", length, on_boards=shown))
    said = inspect(path)
    assert f"on_boards of tvd (raw) at length {length} after step 20 is {shown}, expected {not shown}" in said


def test_a_measurement_that_fails_is_a_reason_of_its_own(measured, tmp_path):
    class Failing(KlWithChance):
        def chance(self, distribution, test):
            raise ZeroDivisionError("the mean of nothing")

    with pytest.raises(RunFileError, match="small-even .*failed with ZeroDivisionError: the mean of nothing"):
        submit(measured, tmp_path, with_kl(Failing))
