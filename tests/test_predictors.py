"""Which probe tells how well a model does on longer inputs: rank correlations, against SciPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import simulated, write_rows
from scipy.stats import spearmanr

import lgbench_measurements
from lgbench.errors import UsageError
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions
from lgbench.results.predictors import MIN_ENTRIES, predictors

TOLD = descriptions(lgbench_measurements.lgbench_measurements())


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


def test_averaged_weights_and_trainings_that_diverged_are_left_out(tmp_path):
    for seed, score in enumerate((0.1, 0.2, 0.3)):
        write(tmp_path, "alpha", "good", seed, {8: 0.1, 64: score}, {64: score})
    write(tmp_path, "alpha", "bad", 0, {8: 0.1, 64: 0.9}, {64: 0.0}, diverged_step=3)
    write(tmp_path, "alpha", "averaged", 0, {8: 0.1, 64: 0.9}, {64: 0.0}, weights="ema")
    (found,) = predictors(Results(tmp_path))
    assert (found.correlation, found.entries, found.models) == (pytest.approx(1), 1, 3)


def test_runs_without_probes_are_told_in_a_sentence(tmp_path):
    write_rows(tmp_path / "one.parquet", simulated({8: 0.1, 64: 0.2}), experiment={}, measurements=TOLD)
    with pytest.raises(UsageError, match="no run has a probe beside its scores; `lgbench run --probe all` makes such runs"):
        predictors(Results(tmp_path))
