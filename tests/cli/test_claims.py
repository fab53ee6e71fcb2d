"""`lgbench claims`, and claims on the page."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from helpers.claim_files import CLAIM, QUICK, around, write_claim, write_runs
from helpers.commands import invoked
from helpers.norm_sources import norm_source

from lgbench.claims.claim import read_claims
from lgbench.claims.verdicts import decide
from lgbench.cli.main import main
from lgbench.experiment.components import find_entries, find_tasks
from lgbench.extensions.registry import Registry
from lgbench.reports import claims as shown
from lgbench.results.leaderboard import Results

TOY = """
claim = "The mean of the weights is better than the last weights."

[source]
paper = "none"
title = "A toy"

[runs]
tasks = ["toy-walk"]
seeds = 3
protocols = ["quick"]
average = ["toy-mean"]

[[tests]]
entry = "toy-table+toy-nothing@toy-mean"
against = "toy-table+toy-nothing"
lengths = "all"
"""


TASKS = """
from lgbench import Answers, Batch, Signature, Task, Tokens

class Steps(Task):
    '''Nothing.'''

    family, version, signature = "steps", 1, Signature(Tokens(3), 3, Answers.EVERY_PREFIX)
    train_lengths, max_length = (1, 8), 64

    def __init__(self, name):
        self.name = name

    def sample(self, length, random):
        raise NotImplementedError

@hookimpl
def lgbench_tasks():
    return [Steps("steps-1"), Steps("steps-2")]
"""


@pytest.fixture
def plugin(tmp_path):
    """A plugin file with a norm and two tasks of a family, and the end of their names in results."""
    path = tmp_path / "own.py"
    path.write_text(norm_source("own-norm") + TASKS)
    return path, f"~{Registry.load(files=[path]).norms.found('own-norm').origin.stamp}"


@pytest.fixture
def folder(tmp_path):
    """A claim that is confirmed on alpha, refuted on beta and not run on tomita-1; and one of which nothing was run."""
    for task, mean in (("alpha", 0.3), ("beta", 0.7)):
        entries = {"arch+new": around(mean), "arch+old": around(0.5, sign=-1, spread=0.1)}
        write_runs(tmp_path / "results", entries, task)
    write_claim(tmp_path / "claims", CLAIM.replace('["alpha"]', '["alpha", "beta", "tomita-1"]'))
    real = CLAIM.replace("arch+", "transformer+").replace("+new", "+peri-norm").replace("+old", "+pre-norm")
    write_claim(tmp_path / "claims", real.replace('"alpha"', '"tomita-1", "dyck"'), "peri-norm")
    return tmp_path


def options(folder):
    return ["--claims", folder / "claims", "--results", folder / "results"]


def judged(folder):
    return [(claim, decide(claim, Results(folder / "results"))) for claim in read_claims(folder / "claims")]


def lines_of(output):
    """Task, protocol and verdict of each line of a table."""
    lines = [re.split(r" {2,}", line.strip()) for line in output.splitlines()]
    return [(line[0], line[2], line[3]) for line in lines if len(line) > 3 and "/" in line[2]]


def test_every_claim_with_a_verdict_has_a_line_for_each_and_the_others_are_counted(folder):
    done = invoked("claims", *options(folder))
    assert done.exit_code == 0, done.output
    assert lines_of(done.stdout) == [("alpha", QUICK, "confirmed"), ("beta", QUICK, "refuted")]
    assert "new-norm: The new norm is better than the old one." in done.stdout
    assert "A new norm (arXiv 0000.00000, table 2)" in done.stdout
    assert "1 of 2 predictions hold (1 refuted); 3 not run. 1 claim has no verdict." in done.stdout
    assert "peri-norm:" not in done.stdout


def test_a_test_has_its_verdict_under_the_newest_protocol_with_runs_and_all_on_request(folder):
    standard = {"arch+new": around(0.9), "arch+old": around(0.5)}
    for version in (2, 10):
        write_runs(folder / f"results/{version}", standard, protocol="standard", protocol_version=version)
    assert lines_of(invoked("claims", *options(folder)).stdout) == [
        ("alpha", "standard/10", "refuted"),
        ("beta", QUICK, "refuted"),
    ]
    every = lines_of(invoked("claims", "--protocol", "all", *options(folder)).stdout)
    assert [use for task, use, _ in every if task == "alpha"] == ["standard/10", "standard/2", QUICK]
    assert ("tomita-1", QUICK, "not run") in lines_of(invoked("claims", "new-norm", *options(folder)).stdout)


def test_one_claim_is_shown_in_full(folder):
    done = invoked("claims", "new-norm", *options(folder))
    assert done.exit_code == 0, done.output
    ((_, verdicts), _) = judged(folder)
    for verdict in verdicts[:2]:
        for number in (f"{verdict.difference:+.4f}", f"{verdict.low:+.4f}", f"{verdict.first:.4f}", f"{verdict.p:.2g}"):
            assert number in done.stdout
    assert "Needs 5 seeds of arch+new, arch+old on alpha, beta, tomita-1, protocol quick." in done.stdout
    assert "Expected: arch+new better than arch+old (tvd, OOD)." in done.stdout
    assert "1 of 2 predictions hold (1 refuted); 1 not run." in done.stdout
    assert "0 of 2 predictions run." in invoked("claims", "peri-norm", *options(folder)).stdout
    assert f"{QUICK}: not run: no architecture, norm, attention or position 'arch'" in done.stdout
    assert "lgbench run" not in done.stdout, "what is not installed cannot be run"


@pytest.mark.parametrize("fitted", [0, 2])
@pytest.mark.parametrize(("mean", "told"), [(0.3, "1 of 1 prediction holds."), (0.5, "0 of 1 prediction holds (1 undecided).")])
def test_a_prediction_without_a_fitted_model_is_counted_apart(tmp_path, mean, told, fitted):
    unfitted = {"arch+new": around(mean), "arch+old": around(0.5, sign=-1, spread=0.1)}
    for own in unfitted.values():
        for run in own[fitted:]:
            run[8] = 0.5
    write_runs(tmp_path / "results", unfitted)
    write_claim(tmp_path / "claims", CLAIM)
    said = invoked("claims", "new-norm", *options(tmp_path)).stdout
    assert f"5, {fitted} fit" in said
    verdict = "undecided" if mean == 0.5 else "confirmed"
    assert (f" {verdict}* " in said, "* says nothing on generalization" in said) == (fitted == 0, fitted == 0)
    assert f" {verdict} " in said.replace("*", " ")
    assert ("1 not fitted." if fitted == 0 else told) in said
    assert ("prediction holds" in said) is (fitted > 0)


def test_json_has_every_number_and_nothing_else(folder):
    done = invoked("claims", "--json", *options(folder))
    found = {claim["name"]: claim for claim in json.loads(done.stdout)}
    assert set(found) == {"new-norm", "peri-norm"}
    for claim, verdicts in judged(folder):
        for verdict, said in zip(verdicts, found[claim.name]["verdicts"], strict=True):
            assert (said["task"], said["state"], said["protocol"]) == (verdict.task, verdict.state, str(verdict.protocol))
            assert all(said[name] == getattr(verdict, name) for name in ("difference", "low", "p", "n"))


def test_the_commands_for_what_was_not_run_are_those_of_lgbench(folder):
    (command,) = json.loads(invoked("claims", "peri-norm", "--json", *options(folder)).stdout)[0]["commands"]
    assert command not in invoked("claims", "peri-norm", *options(folder)).stdout
    missing = invoked("claims", "--missing", *options(folder)).stdout
    assert command in missing and "new-norm:" in missing and "no architecture, norm, attention or position 'arch'" in missing
    words = shlex.split(command)
    assert words[:2] == ["lgbench", "run"]
    context = main.commands["run"].make_context("run", words[2:])
    assert context.params["task"] == ["tomita-1", "dyck"] and context.params["seeds"] == (0, 1, 2, 3, 4)
    assert context.params["arch"] == ["transformer+peri-norm", "transformer+pre-norm"]
    assert context.params["protocol"] == "quick" and context.params["results"] == folder / "results"


def test_a_claim_that_lacks_no_run_says_so(tmp_path):
    write_runs(tmp_path / "results", {"arch+new": around(0.3), "arch+old": around(0.5, sign=-1, spread=0.1)})
    write_claim(tmp_path / "claims", CLAIM)
    said = invoked("claims", "new-norm", "--missing", *options(tmp_path)).stdout
    assert said.strip() == "new-norm: no run is missing."


def test_the_list_names_the_obstacles_of_claims(folder):
    for number in range(7):
        write_claim(folder / "claims", CLAIM.replace('"alpha"', '"tomta-1"'), f"odd-{number}")
    said = invoked("claims", *options(folder)).stdout.splitlines()
    lines = ["new-norm cannot be decided in full here: no architecture, norm, attention or position 'arch'."]
    lines += [f"odd-{number} cannot be decided here: no task 'tomta-1'; did you mean 'tomita-1'?" for number in range(4)]
    assert [line for line in said if "cannot" in line] == lines and "and 3 more" in said


def test_the_list_names_a_misspelt_metric_of_a_claim_with_other_verdicts(tmp_path):
    text = CLAIM.replace("arch+new", "transformer+peri-norm").replace("arch+old", "transformer+pre-norm")
    text = text.replace('"alpha"', '"tomita-1"')
    entries = {"transformer+peri-norm": around(0.3), "transformer+pre-norm": around(0.5, sign=-1)}
    write_runs(tmp_path / "results", entries, "tomita-1")
    misspelt = '[[tests]]\nentry = "transformer+peri-norm"\nvalue = 0.9\nmetric = "acuracy"\n'
    write_claim(tmp_path / "claims", text + misspelt)
    said = invoked("claims", *options(tmp_path)).stdout
    assert "1 of 1 prediction holds" in said and "1 not run" in said
    reason = "no metric 'acuracy'; did you mean 'accuracy'?"
    assert f"new-norm cannot be decided in full here: nothing that is installed measures it: {reason}" in said


def test_a_reason_is_said_once_for_all_that_it_holds_for(folder):
    text = CLAIM.replace('["alpha"]', '["alpha", "gamma", "delta"]') + '[[tests]]\nentry = "arch+odd"\nagainst = "arch+old"\n'
    write_claim(folder / "claims", text.replace('["quick"]', '["quick", "paper"]'), "several")
    (verdicts,) = [own for claim, own in judged(folder) if claim.name == "several"]
    paper = next(str(verdict.protocol) for verdict in verdicts if verdict.protocol.name == "paper")
    assert sorted(shown.reasons(verdicts)) == sorted(
        [
            f"{QUICK}: not run: there is no run of arch+odd (alpha, arch+odd against arch+old).",
            f"{QUICK}: not run: there is no run of it (gamma; delta).",
            f"{paper}: not run: there is no run of it.",
        ]
    )


def runs_of_a_file(folder, stamp, seeds):
    """Runs with the norm on both tasks, and runs with another version of the file."""
    for task in ("steps-1", "steps-2"):
        entries = {f"transformer+own-norm{stamp}": around(0.3, seeds), "transformer+pre-norm": around(0.5, sign=-1)}
        write_runs(folder / "results", entries, f"{task}{stamp}", family=f"steps{stamp}")
        older = {"transformer+own-norm~00000000": around(0.9), "transformer+pre-norm": around(0.5)}
        write_runs(folder / "results", older, f"{task}~00000000", family="steps~00000000")


@pytest.mark.parametrize("task", ["steps", "steps-2"])
def test_a_claim_names_what_a_plugin_file_provides_with_or_without_its_hash(tmp_path, plugin, task):
    path, stamp = plugin
    runs_of_a_file(tmp_path, stamp, seeds=5)
    text = CLAIM.replace("arch+old", "transformer+pre-norm")
    bare = text.replace('"alpha"', f'"{task}"').replace("arch+new", "transformer+own-norm")
    full = text.replace('"alpha"', f'"{task}{stamp}"').replace("arch+new", f"transformer+own-norm{stamp}")
    write_claim(tmp_path / "claims", bare, "bare")
    write_claim(tmp_path / "claims", full, "full")
    found = {}
    for name, *plugins in (("bare", "--plugin", path), ("full", "--plugin", path), ("full",)):
        (claim,) = json.loads(invoked("claims", name, "--json", *plugins, *options(tmp_path)).stdout)
        found[name, bool(plugins)] = [(verdict["task"], verdict["state"], verdict["n"]) for verdict in claim["verdicts"]]
    assert set(map(tuple, found.values())) == {((f"{task}{stamp}", "confirmed", 5),)}
    said = invoked("claims", "bare", "--missing", "--plugin", path, *options(tmp_path)).stdout
    assert said.strip() == "bare: no run is missing."


def test_the_page_has_a_claim_on_the_names_of_a_plugin_file(tmp_path, plugin):
    path, stamp = plugin
    runs_of_a_file(tmp_path, stamp, seeds=5)
    text = CLAIM.replace('"alpha"', '"steps"').replace("arch+new", "transformer+own-norm")
    write_claim(tmp_path / "claims", text.replace("arch+old", "transformer+pre-norm"))
    done = invoked("site", "--out", tmp_path / "site", "--plugin", path, *options(tmp_path))
    assert done.exit_code == 0, done.output
    assert 'href="#/claims"' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("task", ["steps", "steps-2"])
def test_a_command_for_missing_runs_of_a_plugin_file_has_the_file(tmp_path, plugin, task):
    path, stamp = plugin
    runs_of_a_file(tmp_path, stamp, seeds=2)
    text = CLAIM.replace('"alpha"', f'"{task}"').replace("arch+new", "transformer+own-norm")
    write_claim(tmp_path / "claims", text.replace("arch+old", "transformer+pre-norm"))
    said = invoked("claims", "--missing", "--plugin", path, *options(tmp_path)).stdout
    (command,) = [shlex.split(line) for line in said.splitlines() if "lgbench run" in line]
    asked = main.commands["run"].make_context("run", command[2:]).params
    registry = Registry.load(files=asked["plugins"])
    members = ["steps-1", "steps-2"] if task == "steps" else [task]
    assert [each.label for each in find_tasks(asked["task"], registry)] == [f"{member}{stamp}" for member in members]
    assert [*find_entries(asked["arch"], registry)] == [f"transformer+own-norm{stamp}"]
    assert (*asked["plugins"],) == (path,) and asked["seeds"] == (2, 3, 4)


def test_what_cannot_be_run_is_said_beside_the_commands_for_the_rest(tmp_path, plugin):
    path, _ = plugin
    text = CLAIM.replace('"alpha"', '"steps"').replace('"arch+old"', '"transformer+pre-norm"')
    text += '\n[[tests]]\nentry = "own-norm"\nagainst = "transformer+pre-norm"\n'
    write_claim(tmp_path / "claims", text.replace("arch+new", "transformer+own-norm"))
    (tmp_path / "results").mkdir()
    said = invoked("claims", "--missing", "--plugin", path, *options(tmp_path)).stdout
    assert "not run: the entry 'own-norm' is 'transformer+own-norm' on boards; write that in the claim" in said
    assert "lgbench run --task " in said


def test_a_protocol_leaves_out_the_others(folder):
    write_runs(folder / "results", {"arch+new": around(0.9), "arch+old": around(0.5)}, protocol="standard", protocol_version=1)
    done = invoked("claims", "new-norm", "--json", "--protocol", "standard", *options(folder))
    assert [v["protocol"] for v in json.loads(done.stdout)[0]["verdicts"]] == ["standard/1"] * 3
    done = invoked("claims", "--protocol", "standrad", *options(folder))
    assert done.exit_code == 2 and "did you mean 'standard'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--missing", "--json"], "--missing lists commands, and does not go with --json"),
        (["peri-norm", "--missing", "--run"], "--missing lists commands, and does not go with --run"),
        (["--run"], "--run takes the names of claims"),
        (["peri-norm", "--seeds", "0:3"], "--seeds says nothing without --run"),
        (["peri-norm", "--run", "--json"], "--json does not go with --run"),
        (["peri-nrom"], "did you mean 'peri-norm'"),
        (["new-norm", "--run"], "the claim new-norm cannot be run: no task 'alpha'"),
        (["peri-norm", "--run", "--protocol", "qiuck"], "no protocol 'qiuck'; did you mean 'quick'"),
        (["peri-norm", "--run", "--protocol", "quick/5"], "no protocol 'quick/5'; did you mean 'quick'"),
    ],
)
def test_wrong_usage_is_one_sentence(folder, arguments, said):
    done = invoked("claims", *arguments, *options(folder))
    assert done.exit_code == 2 and said in done.stderr and not list((folder / "results").glob("*peri-norm*"))


def test_a_misspelt_results_folder_is_no_folder_without_runs(folder, tmp_path):
    done = invoked("claims", "--results", str(tmp_path / "nope"), "--claims", str(folder / "claims"))
    assert done.exit_code == 2 and "no results folder" in done.stderr
    commands = invoked("claims", "--missing", "--results", str(tmp_path / "nope"), "--claims", str(folder / "claims"))
    assert commands.exit_code == 0 and "not run" in commands.stdout


@pytest.mark.slow
def test_run_makes_what_is_missing_and_then_decides(tmp_path, toys_alone):
    write_claim(tmp_path / "claims", TOY, "toy-mean")
    first = invoked("claims", "toy-mean", "--run", "--seeds", "0:2", "--workers", "1", *options(tmp_path))
    assert first.exit_code == 0, first.output
    assert "2 runs written" in first.stdout and "a test needs 3 seeds" in first.stdout
    again = invoked("claims", "toy-mean", "--run", "--workers", "1", *options(tmp_path))
    assert "1 run written" in again.stdout and "not run" not in again.stdout
    (verdict,) = decide(*read_claims(tmp_path / "claims"), Results(tmp_path / "results"))
    assert verdict.n == 3 and verdict.state in ("confirmed", "refuted", "undecided")
    assert invoked("claims", "toy-mean", "--run", *options(tmp_path)).stdout.startswith("toy-mean lacks no run under quick")
