"""Which probe tells how well a model does on longer inputs: rank correlations, against SciPy and by hand."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from helpers.commands import invoked
from helpers.run_files import simulated, write_rows
from scipy.stats import spearmanr

import lgbench_measurements
from lgbench.errors import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.results import run_files
from lgbench.results.leaderboard import EVERYWHERE, Results
from lgbench.results.metrics import descriptions
from lgbench.results.predictors import MIN_ENTRIES, _predictor, _spearman, probed

TOLD = descriptions(lgbench_measurements.lgbench_measurements())


def predictors(results):
    return [each for own in probed(results) for each in own.predictors()]


def write(folder, task, entry, seed, scores, entropies, **columns):
    """A run with TVD by length, and an entropy by length for each of two heads."""
    same = {
        "task": task,
        "family": "alpha",
        "entry": entry,
        "seed": seed,
        "run_id": f"{len([*folder.glob('*')]):016x}",
    } | columns
    rows = simulated(scores, **same)
    for head in (1, 2):
        read = {length: value + head - 1.5 for length, value in entropies.items()}
        rows += simulated(read, metric="attention_entropy", layer=1, head=head, **same)
    write_rows(folder / f"{task}.{entry}.{seed}.parquet", rows, experiment={}, measurements=TOLD)


@pytest.fixture
def drawn(tmp_path):
    """Two tasks, five entries, three seeds: the entropy at length 64 goes with the OOD TVD, loosely."""
    draw, made = np.random.default_rng(1), {}
    for task in ("alpha-1", "alpha-2"):
        for e in range(5):
            for seed in range(3):
                scores = {8: 0.1, 16: draw.uniform(), 64: draw.uniform(), 128: draw.uniform()}
                ood = (scores[16] + scores[64] + scores[128]) / 3
                entropy = {8: 100 * draw.uniform(), 64: ood + draw.normal(scale=0.1), 128: 100 * draw.uniform()}
                write(tmp_path, task, f"entry-{e}", seed, scores, entropy)
                made[task, f"entry-{e}", seed] = (entropy[64], ood)
    return tmp_path, made


def test_the_correlation_is_the_mean_of_spearman_over_tasks_at_eight_times_the_training_length(drawn):
    folder, made = drawn
    (found,) = predictors(Results(folder))
    each = [spearmanr([pair for (own, *_), pair in made.items() if own == task]).statistic for task in ("alpha-1", "alpha-2")]
    assert (found.family, found.probe, found.entries, found.models) == ("alpha", "attention_entropy", 5, 15)
    assert found.correlation == pytest.approx(np.mean(each), abs=1e-12) and 0.3 < found.correlation < 1
    assert -1 <= found.low < found.correlation < found.high <= 1


def test_copies_of_a_model_count_as_often_as_they_are_there():
    """Resamples as counts have the correlation of SciPy over the models that are written out, ties included."""
    draw = np.random.default_rng(2)
    pairs, copies = draw.integers(0, 6, (2, 12)).astype(float), draw.multinomial(12, np.full(12, 1 / 12), 50).astype(float)
    copies[0] = 0  # a task without any of the drawn entries
    expected = [spearmanr(*pairs.repeat(own.astype(int), 1)).statistic for own in copies[1:]]
    found = _spearman(pairs, copies)
    assert np.isnan(found[0]) and found[1:] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(_spearman(np.ones((2, 3)), np.ones((1, 3)))).all()


def test_a_relation_that_is_the_same_for_all_entries_has_a_narrow_interval_and_few_entries_have_none(tmp_path):
    for e in range(MIN_ENTRIES):
        for seed in range(3):
            score = (e + 10 * seed) / 100
            write(tmp_path, "alpha", f"entry-{e}", seed, {8: 0.1, 64: score}, {64: -(score**3)})
    (found,) = predictors(Results(tmp_path))
    assert (found.correlation, found.low, found.high) == pytest.approx((-1, -1, -1))
    for path in tmp_path.glob("alpha.entry-0.*"):
        path.unlink()
    (found,) = predictors(Results(tmp_path))
    assert found.correlation == pytest.approx(-1) and found.low is found.high is None


@pytest.mark.slow
@pytest.mark.parametrize("entries", [4, 8])
def test_the_interval_holds_the_true_correlation_as_often_as_it_says(entries):
    """Entries and seeds of normal distributions, whose Spearman correlation has a closed form (Kruskal 1958)."""
    draw, rho, held = np.random.default_rng(entries), 0.7, []
    root = np.linalg.cholesky([[1, rho], [rho, 1]])
    for _ in range(100):
        of_entries, of_seeds = root @ draw.normal(size=(2, entries)), root @ draw.normal(size=(2, entries * 5))
        values = np.sqrt(0.3) * of_entries[:, :, None] + np.sqrt(0.7) * of_seeds.reshape(2, entries, 5)
        found = _predictor(ProtocolUse("quick", 1), "alpha", "probe", {"alpha": {str(e): values[:, e] for e in range(entries)}})
        held.append(found.low <= 6 / np.pi * np.arcsin(rho / 2) <= found.high)
    assert np.mean(held) >= 0.9


def test_averaged_weights_diverged_trainings_and_models_that_boards_do_not_rank_are_left_out(tmp_path):
    for seed, score in enumerate((0.1, 0.2, 0.3)):
        write(tmp_path, "alpha", "good", seed, {8: 0.1, 64: score}, {64: score})
    write(tmp_path, "alpha", "diverged", 0, {8: 0.1, 64: 0.9}, {64: 0.0}, diverged_step=3)
    write(tmp_path, "alpha", "averaged", 0, {8: 0.1, 64: 0.9}, {64: 0.0}, weights="ema")
    for flag in ("looks_ahead", "not_finite"):
        write(tmp_path, "alpha", flag, 0, {8: 0.1, 64: 0.9}, {64: 0.0}, run_id=f"{flag:0<16}")
        flags = simulated({64: 1.0}, task="alpha", family="alpha", entry=flag, metric=flag, run_id=f"{flag:0<16}")
        write_rows(tmp_path / f"{flag}.parquet", flags, experiment={}, measurements=TOLD)
    (found,) = predictors(Results(tmp_path))
    assert (found.correlation, found.entries, found.models) == (pytest.approx(1), 1, 3)


def test_of_several_versions_of_a_measurement_the_newest_counts_and_no_file_counts_twice(tmp_path):
    for seed, score in enumerate((0.1, 0.2, 0.3)):
        write(tmp_path, "alpha", "one", seed, {8: 0.1, 16: 0.5, 64: score}, {64: score})
        own = {"task": "alpha", "family": "alpha", "entry": "one", "seed": seed, "run_id": f"{seed + 9:016x}"}
        again = simulated({16: 0.5}, **own) + simulated({64: score - 0.5}, metric="attention_entropy", layer=1, head=1, **own)
        write_rows(tmp_path / f"again-{seed}.parquet", again, experiment={}, measurements=TOLD)
    for seed in range(3):
        own = {"task": "alpha", "family": "alpha", "entry": "one", "seed": seed, "run_id": f"{seed + 19:016x}"}
        newer = [
            row for head in (1, 2) for row in simulated({64: -seed}, metric="attention_entropy", layer=1, head=head, **own)
        ]
        rows = [row | {"metric_version": 2} for row in newer]
        write_rows(tmp_path / f"newer-{seed}.parquet", rows, experiment={}, measurements=TOLD)
    (found,) = predictors(Results(tmp_path))
    assert found.correlation == pytest.approx(-1)


def test_runs_without_probes_are_told_in_a_sentence(tmp_path):
    write_rows(tmp_path / "one.parquet", simulated({8: 0.1, 64: 0.2}), experiment={}, measurements=TOLD)
    with pytest.raises(UsageError, match="no run has a probe beside its scores; `lgbench run --probe all` makes such runs"):
        predictors(Results(tmp_path))


command = partial(invoked, "predictors")


@pytest.mark.slow
def test_the_command_prints_what_was_found(drawn):
    folder, _ = drawn
    (found,) = predictors(Results(folder))
    told = json.loads(command("--results", folder, "--format", "json").output)
    assert told == [
        {
            "protocol": "quick/1",
            "metric": "tvd",
            "family": "alpha",
            "probe": "attention_entropy",
            "correlation": found.correlation,
            "low": found.low,
            "high": found.high,
            "entries": 5,
            "models": 15,
        }
    ]
    line = f"| attention_entropy | **{found.correlation:+.2f} {found.low:+.2f} to {found.high:+.2f}** |"
    header, _, *lines = command("--results", folder, "--format", "markdown").output.splitlines()
    assert header == "| quick/1: rank correlation with OOD TVD | alpha, 5 entries |" and line in lines
    assert "alpha: 15 models on a task" in command("--results", folder).output


def test_a_table_says_of_how_many_entries_it_is_where_not_all_have_every_probe(tmp_path):
    write(tmp_path, "alpha", "two", 0, {8: 0.1, 64: 0.3}, {64: 3})
    for seed in range(2):
        write(tmp_path, "alpha", "one", seed, {8: 0.1, 64: seed / 10}, {64: seed})
        own = {"task": "alpha", "family": "alpha", "entry": "one", "seed": seed, "run_id": f"{seed + 9:016x}"}
        gap = simulated({64: seed}, metric="logit_gap", **own)
        write_rows(tmp_path / f"gap-{seed}.parquet", gap, experiment={}, measurements=TOLD)
    assert "alpha: 2 to 3 models on a task" in command("--results", tmp_path).output
    assert "| alpha, 1 to 2 entries |" in command("--results", tmp_path, "--format", "markdown").output


def test_a_perfect_correlation_of_few_entries_is_not_the_one_that_tells_most(drawn):
    folder, made = drawn
    for (task, entry, seed), (_, ood) in made.items():
        if entry in ("entry-0", "entry-1"):
            own = {"task": task, "family": "alpha", "entry": entry, "seed": seed}
            run = run_files.read(folder / f"{task}.{entry}.{seed}.parquet")
            same = own | {"run_id": run["run_id"][0].as_py()}
            gap = simulated({64: -ood}, metric="logit_gap", **same)
            write_rows(folder / f"gap-{task}-{entry}-{seed}.parquet", gap, experiment={}, measurements=TOLD)
    many, few = predictors(Results(folder))
    assert (many.probe, few.probe) == ("attention_entropy", "logit_gap") and few.correlation == pytest.approx(-1)
    assert "**-1.00**" not in command("--results", folder, "--format", "markdown").output


def test_several_protocols_are_apart_and_the_table_is_of_one(tmp_path):
    for seed in range(2):
        write(tmp_path, "alpha", "one", seed, {8: 0.1, 64: seed / 10}, {64: seed})
        write(tmp_path, "alpha", "two", seed, {8: 0.1, 64: seed / 10}, {64: -seed}, protocol="short")
    found = {str(each.protocol): each.correlation for each in predictors(Results(tmp_path))}
    assert found == {"quick/1": pytest.approx(1), "short/1": pytest.approx(-1)}
    shown = command("--results", tmp_path)
    assert "short/1: rank" in shown.output and "quick/1: rank" not in shown.output
    assert "there are also runs of quick/1" in shown.output


def test_a_head_without_a_finite_reading_hides_no_other(tmp_path):
    rows = simulated({8: 0.1, 16: 0.2})
    for head, value in ((1, 3.0), (2, math.inf)):
        rows += simulated({8: value, 16: value}, metric="attention_entropy", layer=1, head=head)
    write_rows(tmp_path / "run.parquet", rows, measurements=TOLD)
    ((_, models),) = Results(tmp_path).models("attention_entropy", inside=EVERYWHERE)
    assert models.columns["length", 16].tolist() == [[3.0]]
