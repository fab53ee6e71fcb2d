"""Models whose answers change with what comes after them, or are not finite, are found where they are tested, and unranked."""

from __future__ import annotations

import json

import pytest
import torch
import toys
from helpers.in_process import run_here
from helpers.plain_training import CPU, initial
from helpers.planning import plan_of
from helpers.run_files import simulated, write_rows
from helpers.toy_registries import METRICS, Marked, experiment_of, settings, toys_and
from torch import nn

from lgbench import Architecture, Unsupported, UsageError
from lgbench.conformance.check import stirred
from lgbench.contracts import SOUNDNESS
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.extensions.registry import Registry
from lgbench.measurement import causality
from lgbench.measurement.evaluate import evaluate
from lgbench.randomness import Random
from lgbench.reports import boards as boards_report
from lgbench.reports.tables import as_json
from lgbench.results import run_files
from lgbench.results.compare import compare
from lgbench.results.leaderboard import Results

TRAINED, TESTED = 40, 64
SETTINGS = settings(1, TRAINED, TESTED, 8, 8)


class Reading(nn.Module):
    """Logits from the mean of the tokens so far, (B, T, 3), and `do` to them: a function of all of these, (B, T, 3)."""

    def __init__(self, do=lambda model, x: x):
        super().__init__()
        self.embedding = nn.Embedding(3, 3)
        self.do = do

    def forward(self, inputs):
        x = self.embedding(inputs)
        return self.do(self, x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])


def one_ahead(x):
    return torch.cat([x[:, 1:], x[:, -1:]], 1)


HOSTILE = {
    "sees the next token in evaluation alone": lambda model, x: x if model.training else x + one_ahead(x),
    "sees the next token from 60 positions on": lambda model, x: x + one_ahead(x) if x.shape[1] >= 60 else x,
    "sees the next token at positions from 41 on": lambda model, x: torch.cat([x[:, :41], x[:, 41:] + one_ahead(x[:, 41:])], 1),
    "sees the mean over all positions": lambda model, x: x + x.mean(1, keepdim=True),
    "sees how many tokens follow": lambda model, x: x + torch.arange(x.shape[1]).flip(0)[:, None] / 10,
    "sees the length": lambda model, x: x * (1 + x.shape[1] / 100),
    "is normed over all positions": lambda model, x: x / x.square().mean((1, 2), keepdim=True).sqrt(),
    "sees the last token": lambda model, x: x + 0.01 * x[:, -1:],
}
SOUND = {
    "the mean so far": lambda model, x: x,
    "the position": lambda model, x: x + torch.arange(x.shape[1])[:, None],
    "the token before": lambda model, x: x + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1),
    "a sum of a thousand": lambda model, x: x.cumsum(1) * 1e3,
}


def said(model, task=None, seed=0):
    """The soundness scores of a model in an evaluation, by metric and length: the value, and the number n that it is over."""
    experiment = experiment_of(task or toys.Walk(), *SETTINGS, seed, METRICS)
    found = [score for score in evaluate(experiment, {"raw": model}, CPU) if score.metric in ("looks_ahead", "not_finite")]
    assert {score.weights for score in found} == {"raw"}
    return {(score.metric, score.length): (score.value, score.n) for score in found}


def built(do):
    torch.manual_seed(0)
    return Reading(do).eval()


@pytest.mark.parametrize(("task", "seed"), [(toys.Walk(), 0), (Marked(), 1)], ids=lambda own: str(getattr(own, "name", own)))
@pytest.mark.parametrize("do", HOSTILE.values(), ids=HOSTILE)
def test_a_model_that_is_not_causal_is_found_where_it_is_tested(do, task, seed):
    found = said(built(do), task, seed)
    value, n = found["looks_ahead", TESTED]
    assert value > 0 and n == causality.PLACES


@pytest.mark.parametrize("task", [toys.Walk(), Marked(), toys.Even()], ids=lambda task: task.name)
@pytest.mark.parametrize("do", SOUND.values(), ids=SOUND)
def test_a_causal_model_is_sound(do, task):
    assert {value for value, n in said(built(do), task).values() if n} == {0.0}


def chaotic(x):
    """States of a recurrence that amplifies any difference, (B, T, 3), here one that depends on B, as rounding does."""
    states = [torch.full_like(x[:, 0], 0.3) + 1e-6 * len(x)]
    for step in x.unbind(1):
        states.append(3.86 * states[-1] * (1 - states[-1]) + 0.01 * step.clamp(0, 1))
    return torch.stack(states[1:], 1)


def test_rounding_that_a_recurrence_amplifies_is_no_look_ahead():
    model, experiment = built(lambda model, x: chaotic(x)), experiment_of(toys.Walk(), *SETTINGS, 0, METRICS)
    asked = causality.question(experiment.task, experiment.train, experiment.evaluate, seed=0)
    together = model(torch.cat([asked.inputs, asked.changed]))[: len(asked.inputs)]
    assert (together - model(asked.inputs)).abs().max() > 0.1
    assert causality.moved(model, asked).distance == 0


@pytest.mark.parametrize("beyond", [41, 63])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_anywhere_are_found_and_counted(beyond, number):
    def broken(model, x):
        after = torch.arange(x.shape[1])[:, None] >= beyond
        return x.masked_fill(after & torch.tensor([True, False, False]), number)

    found = said(built(broken))
    assert found["not_finite", TESTED] == (pytest.approx((TESTED - beyond) / TESTED), 8 * TESTED)
    assert found["looks_ahead", TESTED][0] == 0.0


def test_a_logit_that_is_not_finite_on_whole_strings_alone_is_found():
    """Strings are spoilt, so a model may read there something that no context has."""
    task = toys.Even()

    def ends(inputs):
        odd = nn.functional.pad(inputs[:, 1:].cumsum(-1) % 2, (1, 0))
        logits = torch.zeros(*inputs.shape, 3)
        return logits.masked_fill((inputs.shape[1] == 17) & (odd == 1)[..., None], torch.nan)

    experiment = experiment_of(task, *settings(1, 16, 32, 8, 8), 0, METRICS)
    found = {(s.metric, s.length): s.value for s in evaluate(experiment, {"raw": ends}, CPU)}
    assert found["not_finite", 16] > 0 and found["not_finite", 32] == 0


def test_a_task_that_answers_at_the_end_may_look_at_everything():
    experiment = experiment_of(toys.Largest(), *SETTINGS, 0, METRICS)
    found = evaluate(experiment, {"raw": lambda inputs: inputs.sum(1, keepdim=True)}, CPU)
    assert {score.value for score in found if score.metric == "not_finite"} == {0.0}
    assert "looks_ahead" not in {score.metric for score in found}


@pytest.mark.parametrize(("trained", "tested"), [(40, 513), (40, 64), (5, 6), (64, 64), (1, 2), (100, 9), (2, 3)])
def test_cuts_are_within_the_training_length_just_beyond_it_in_the_middle_and_near_the_end(trained, tested):
    for seed in range(50):
        cuts = causality.cut_positions(trained, tested, Random(causality.PLACES, seed))
        assert len(cuts) == causality.PLACES and all(1 <= cut < tested for cut in cuts)
        within, beyond, middle, end = cuts
        if trained + 3 < tested:
            assert within < max(2, trained) and trained < beyond <= trained + 3
        if tested > 8:
            assert tested // 4 <= middle <= tested - tested // 4 and tested - end <= 3


@pytest.mark.parametrize("task", [toys.Walk(), toys.Even(), Marked()], ids=lambda task: task.name)
def test_a_changed_context_is_the_same_up_to_the_cut_and_another_valid_one_everywhere_after_it(task):
    asked = causality.question(task, *SETTINGS, seed=3)
    assert asked.length == TESTED and len(asked.inputs) == causality.CONTEXTS
    for index, cut in enumerate(asked.cuts):
        before, after = asked.inputs[index % len(asked.inputs)], asked.changed[index]
        assert torch.equal(before[:cut], after[:cut]) and (before[cut:] != after[cut:]).all()
        assert after.min() >= 0 and after.max() < task.signature.inputs.size


def sound_pairs(registry, entries, task):
    """The entries that can be run on a task. Asserts that their models, with every weight moved, are causal."""
    found = []
    for entry in entries:
        try:
            (experiment,) = plan_of(registry, task, entry, protocol="standard").experiments
        except UsageError:
            continue
        asked = causality.question(experiment.task, experiment.train, experiment.evaluate, seed=0)
        outcome = causality.moved(stirred(initial(experiment)).eval(), asked)
        assert not outcome.cuts and outcome.distance < causality.TOLERANCE / 10, (entry, task, outcome)
        found.append(entry)
    return found


def test_some_entries_are_causal_at_the_tested_lengths(registry):
    entries = ["pre-norm", "attention-layer-norm", "transformer+no-norm"]
    assert sound_pairs(registry, entries, "set-complement") == entries


@pytest.mark.long
@pytest.mark.usefixtures("all_plugins")
@pytest.mark.parametrize("task", ["set-complement", "dyck-2-3", "tomita-4"])
def test_every_entry_of_what_is_built_in_or_in_a_pack_is_causal_at_the_tested_lengths(task):
    installed = Registry.load()
    norms, attentions, positions = (catalog.names() for catalog in (installed.norms, installed.attentions, installed.positions))
    takes_norms = {a.name: "norm" in a.defaults for a in installed.architectures}
    entries = [f"{a}+{n}" for a, takes in takes_norms.items() if takes for n in norms]
    entries += [a for a, takes in takes_norms.items() if not takes]
    entries += [f"transformer+{a}+{p}" for a in attentions for p in positions]
    assert len(sound_pairs(installed, entries, task)) > 100


# Soundness in runs and on boards.


class Hostile(Architecture):
    """Learns as any model does, and sees the next token once it is tested at 60 positions."""

    name = "hostile"

    def build(self, signature, parts):
        if signature.inputs != toys.Walk.signature.inputs:
            raise Unsupported("it reads three tokens")
        return Reading(HOSTILE["sees the next token from 60 positions on"])


class Honest(Hostile):
    """Does not."""

    name = "honest"

    def build(self, signature, parts):
        return Reading()


class Overflows(Hostile):
    """Gives NaN beyond 41 positions."""

    name = "overflows"

    def build(self, signature, parts):
        return Reading(lambda model, x: x.masked_fill(torch.arange(x.shape[1])[:, None] > 41, torch.nan))


SMALL = {"train.steps": "3", "train.batch": "4", "evaluate.contexts": "4"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of the three, five seeds each, and everything that was said."""
    folder = tmp_path_factory.mktemp("runs")
    registry = toys_and(architecture=[Hostile(), Honest(), Overflows()])
    planned = plan_of(registry, "toy-walk", ["hostile", "honest", "overflows"], seeds=range(5), set=SMALL)
    display = ProgressDisplay()
    display.say = (heard := []).append
    outcome = run_here(planned, Execution(CPU, False), folder, display)
    assert not outcome.failed
    return folder, heard


def test_a_run_of_such_a_model_says_so_in_its_rows_and_to_the_user(made):
    folder, said = made
    for path in run_files.find(folder):
        rows = {row["metric"]: row for row in run_files.read(path).to_pylist() if row["metric"] in SOUNDNESS}
        entry = path.name.split(".")[1]
        assert (rows["looks_ahead"]["value"] > 0) == (entry == "hostile")
        assert (rows["not_finite"]["value"] > 0) == (entry == "overflows")
    title = "hostile on toy-walk seed 0: its answers change with what comes after them (weights: raw), so boards do not rank it"
    assert title in said and not any("honest on" in sentence for sentence in said)


def test_boards_show_such_entries_apart_without_a_rank_and_say_why(made):
    (board,) = Results(made[0]).boards("tvd")
    assert board.rows[0].entry == "honest" and board.rows[0].tier == 2 and board.rows[0].rank_interval == (1, 1)
    others = {row.entry: row for row in board.rows[1:]}
    assert set(others) == {"hostile", "overflows"}
    assert all(row.tier is row.rank_interval is None and row.better_than == () for row in others.values())
    assert others["hostile"].not_causal == (0, 1, 2, 3, 4) == others["overflows"].not_finite
    assert others["hostile"].not_finite == () == others["overflows"].not_causal
    notes = boards_report.notes(board)
    assert "hostile is not ranked: its answers change with what comes after them on seeds 0 to 4." in notes
    assert "overflows is not ranked: some of its answers are not finite on seeds 0 to 4." in notes
    shown = boards_report.boards_markdown([board])
    assert "5 not causal" in shown and "5 not finite" in shown and notes[0] in shown
    assert json.loads(as_json([board]))[0]["rows"][-1]["tier"] is None


def test_nothing_is_concluded_from_a_comparison_with_such_an_entry(made):
    (found,) = compare(Results(made[0]), "honest", "hostile", "tvd")
    assert found.verdict.startswith("On toy-walk nothing is concluded, for hostile is not ranked: its answers change with")
    assert not found.mean.significant and not any(difference.significant for difference in found.lengths)


def flagged(metric, value=0.5, **columns):
    (row,) = simulated({16: value}, **columns, metric=metric)
    return row


def test_one_seed_on_one_task_is_enough_and_averaged_weights_stand_for_themselves(tmp_path):
    for task in ("one", "two"):
        for entry in ("a", "b"):
            for seed in range(3):
                same = {"entry": entry, "task": task, "family": "both", "seed": seed}
                rows = simulated({8: 0.2, 16: 0.3}, **same) + simulated({8: 0.2, 16: 0.3}, **same, weights="ema")
                looks = (entry, task, seed) == ("a", "two", 1)
                rows += [flagged("looks_ahead", float(looks), **same, weights="ema"), flagged("looks_ahead", 0.0, **same)]
                write_rows(tmp_path / f"{entry}.{task}.{seed}.parquet", rows)
    (board,) = Results(tmp_path).boards("tvd")
    assert {row.entry: row.not_causal for row in board.rows} == {"a": (), "a@ema": (1,), "b": (), "b@ema": ()}
    assert [row.entry for row in board.rows if row.tier is None] == ["a@ema"] == [board.rows[-1].entry]
    (alone,) = Results(tmp_path).boards("tvd", "one")
    assert not alone.unsound and all(row.tier for row in alone.rows)


def test_a_seed_that_diverged_is_ranked_as_ever_for_its_answers_are_not_finite_because_its_weights_are_not(tmp_path):
    for seed, step in enumerate((None, 7)):
        rows = simulated({8: 0.5, 16: 1.0}, seed=seed, diverged_step=step)
        rows.append(flagged("not_finite", float(step is not None), seed=seed, diverged_step=step))
        write_rows(tmp_path / f"{seed}.parquet", rows)
    (board,) = Results(tmp_path).boards("tvd")
    assert board.rows[0].tier == 2 and board.rows[0].diverged == (1,) and board.rows[0].not_finite == () == board.unsound
