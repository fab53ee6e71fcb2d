"""The command line: its help, wrong usage, `run`, the formats of boards, `list` and `show`, and what the shell completes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import toys
from click.shell_completion import BashComplete
from helpers.commands import invoked
from helpers.processes import COMMAND, lgbench_command
from helpers.registries import BUILT_IN_METRICS

import lgbench_measurements
from lgbench import hookimpl
from lgbench.cli import options
from lgbench.cli.main import main
from lgbench.extensions import describe
from lgbench.results import run_files

TOYS = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "quick"]
TOY_RUN = [*TOYS, "--set", "train.steps=2"]


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> list[pytest.param]:
    """Every command and subcommand, with the words that call it."""
    found = []
    for name, command in group.commands.items():
        words = (*path, name)
        found.append(pytest.param(words, command, id=" ".join(words)))
        found += commands(command, words) if isinstance(command, click.Group) else []
    return found


def test_python_has_the_command_where_it_is_not_on_the_path():
    done = subprocess.run([sys.executable, "-m", "lgbench", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.replace("python -m lgbench", "lgbench") == lgbench_command("--help").stdout


def test_help_shows_a_whole_line_for_each_command_at_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoked("--help").output
    lines = [line for line in shown.splitlines() if line.startswith("  ") and line.split()[0] in main.commands]
    assert [line.split()[0] for line in lines] == list(main.commands)
    assert "..." not in shown.partition("[ARGS]...")[2]
    assert all(len(line) <= 80 and line.endswith(".") for line in lines)


CODES = """
from lgbench import Position, hookimpl

class ByPlace(Position):
    "Nothing."
    name = "by-place"

class ById(ByPlace):
    name, reads_positions = "by-id", True

@hookimpl
def lgbench_positions():
    return [ByPlace(), ById()]
"""


@pytest.mark.parametrize(("words", "command"), commands())
def test_every_option_of_every_command_has_a_sentence_of_help(words, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.help and command.help.partition("\n")[0].endswith((".", ":"))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            text = (parameter.help or "").partition("  [default")[0]
            assert text and text[0].isupper() and text.endswith("."), f"{' '.join(words)} {parameter.name}: {text!r}"
    shown = invoked(*words, "--help")
    assert shown.exit_code == 0 and all(len(line) <= 80 for line in shown.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--seeds", "3:1"],
            "--seeds': '3:1' names no seeds; use a range such as 0:3",
        ),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--seeds", "9223372036854775808"],
            "'9223372036854775808' is beyond the greatest seed, 9223372036854775807",
        ),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm+"],
            "'pre-norm+' lacks a name beside a +; parts are joined as in transformer+peri-norm",
        ),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--average", "none,ema", "--average", "bema"],
            "--average names none and ema, bema: use none alone, or leave it out",
        ),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--set", "train.steps"], "use key=value"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--device", "abacus"], "use auto, cpu, or cuda or mps"),
        (["run", "--arch", "pre-norm"], "--task"),
        (["show", "tomta"], "did you mean 'tomita'"),
        (["leaderbord"], "No such command 'leaderbord'"),
    ],
)
def test_wrong_usage_says_what_would_work_and_exits_with_2(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoked(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0:3", (0, 1, 2)),
        ("0:2,4,0", (0, 1, 4)),
        (" 1 , 2 ", (1, 2)),
        (str(2**63 - 1), (2**63 - 1,)),
    ],
)
def test_seeds_are_a_range_or_numbers(text, seeds):
    assert options.seeds(text) == seeds


@pytest.mark.parametrize("text", ["", ",", "a", "1.5", "0:", ":3", "-1", "3:3", "0:3:1"])
def test_text_that_names_no_seeds_is_refused(text):
    with pytest.raises(click.BadParameter, match="0:3"):
        options.seeds(text)


def test_a_change_may_hold_an_equals_sign_and_spaces():
    assert options.change("model.kind = a=b") == ("model.kind", "a=b")


class Extra(lgbench_measurements.TotalVariation):
    """A measurement that was not installed when runs were made."""

    name, title, range, threshold = "extra", "my own title", (0.25, None), None


def test_a_run_writes_a_file_and_run_again_says_where_it_is(tmp_path, toys_alone):
    arguments = [*TOY_RUN, "--seeds", "4", "--results", tmp_path / "r"]
    first = invoked(*arguments)
    (path,) = (tmp_path / "r").iterdir()
    assert first.exit_code == 0 and "1 run written" in first.output and str(tmp_path / "r") in first.output
    before = path.stat()
    second = invoked(*arguments)
    assert second.exit_code == 0
    assert "1 run was done before and not run again" in second.output and str(path) in second.output
    assert "written" not in second.output and "started" not in second.output
    assert path.stat() == before or path.stat().st_mtime_ns == before.st_mtime_ns
    more = invoked(*arguments[:-4], "--seeds", "3:6", "--results", tmp_path / "r")
    assert "1 run was done before" in more.output and "2 runs written" in more.output


def test_the_default_protocol_ends_with_a_line_about_that_of_the_boards(tmp_path, toys_alone):
    arguments = ["run", "--task", "toy-even", "--arch", "toy-table", "--seeds", "0", "--results", tmp_path]
    for protocol, expected in (("short", 1), ("quick", 0)):
        *_, last = invoked(*arguments, "--protocol", protocol, "--no-compile").output.splitlines()
        assert ("boards use --protocol standard" in last) == expected


def test_a_run_that_fails_is_reported_and_the_others_are_done(tmp_path, toys_alone):
    result = invoked(*TOYS, "--set", "train.steps=5", "--arch", "toy-broken", "--seeds", "0", "--results", tmp_path)
    assert result.exit_code == 1
    assert "the toy is broken" in result.output and "toys.py" in result.output
    assert [path.name.split(".")[1] for path in tmp_path.iterdir()] == ["toy-table+toy-nothing"]


@pytest.mark.slow
def test_a_diverged_run_is_reported_and_kept(tmp_path, toys_alone):
    words = ["--arch", "toy-fragile", "--set", "train.steps=20", "--set", "train.lr=0.02", "--seeds", "0:6"]
    result = invoked(*TOYS, *words, "--results", tmp_path)
    assert result.exit_code == 0 and "diverged at step" in result.output
    steps = [set(run_files.read(path)["diverged_step"].to_pylist()) for path in tmp_path.glob("*fragile*")]
    assert len(steps) == 6 and {None} in steps and any(step != {None} for step in steps)
    assert "diverged" in invoked("leaderboard", "--results", tmp_path).output


def test_a_results_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for arguments in (["run", "--task", "tomita", "--arch", "pre-norm"], ["leaderboard"], ["sql", "select 1"]):
        result = invoked(*arguments, "--results", tmp_path / "file")
        assert result.exit_code == 2
        assert "file" in result.output


def test_sql_answers_questions_in_three_formats(results_folder):
    query = "select entry, count(distinct seed) as seeds from results group by entry order by entry"
    shown = {form: invoked("sql", query, "--results", results_folder, "--format", form) for form in ("table", "csv", "json")}
    assert json.loads(shown["json"].stdout) == [
        {"entry": "transformer+peri-norm", "seeds": 2},
        {"entry": "transformer+pre-norm", "seeds": 2},
    ]
    assert shown["csv"].stdout.splitlines() == ["entry,seeds", "transformer+peri-norm,2", "transformer+pre-norm,2"]
    assert "transformer+peri-norm" in shown["table"].stdout


def test_decimals_of_sql_are_numbers(results_folder):
    query = "select 1.50 as x, sum(distinct 0.5 + seed) as y, 0.00012345 as z from final"
    found = {form: invoked("sql", query, "--results", results_folder, "--format", form).stdout for form in ("table", "json")}
    assert json.loads(found["json"]) == [{"x": 1.5, "y": 2.0, "z": 0.00012345}]
    assert found["table"].split()[-3:] == ["1.5", "2", "0.0001234"]


def test_sql_refuses_columns_of_one_name_in_json(results_folder):
    query = "select a.value, b.value from final as a join final as b using (run_id) limit 1"
    assert invoked("sql", query, "--results", results_folder, "--format", "csv").stdout.startswith("value,value\n")
    done = invoked("sql", query, "--results", results_folder, "--format", "json")
    assert done.exit_code == 2 and "several columns 'value': give each a name of its own, as in a.value as first" in done.output


BROKEN_TASK = """
import toys
from lgbench import Batch, hookimpl
class Broken(toys.Walk):
    "A walk without p*."
    name = family = "broken"
    def sample(self, length, random):
        batch = super().sample(length, random)
        return Batch(batch.inputs, batch.distribution[:, :1])
@hookimpl
def lgbench_tasks():
    return [Broken()]
"""


def test_a_task_with_invalid_contexts_is_told_in_a_sentence(tmp_path, toys_alone):
    file = tmp_path / "broken_task.py"
    file.write_text(BROKEN_TASK)
    done = invoked("show", "broken", "--plugin", file)
    assert done.exit_code == 2 and "broken cannot be shown, since drawing contexts fails: p* has" in done.output


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tasks", ["set-complement", "max-retrieval", "dictionary-lookup", "dyck-2-5", "tomita-7"]),
        ("norms", ["pre-norm", "post-norm", "peri-norm", "peri-init-norm"]),
        ("averagers", ["ema", "bema"]),
        ("protocols", ["quick", "short", "standard", "long", "paper"]),
    ],
)
def test_each_kind_is_listed_with_a_sentence(kind, names):
    result = invoked("list", kind)
    listed = {line.split()[0]: line.split(maxsplit=1)[1:] for line in result.output.splitlines()}
    assert result.exit_code == 0 and set(names) <= listed.keys()
    assert all(listed[name] for name in names)


NEITHER = ("neither", "-infinity to infinity", "none")
ROC_AUC = "contexts of tasks other than languages, strings of languages"


def test_the_table_of_metrics_is_made_from_the_measurements(monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_measurements,lgbench_tasks")
    hook = lgbench_measurements.lgbench_measurements
    monkeypatch.setattr(lgbench_measurements, "lgbench_measurements", hookimpl(lambda: [*hook(), Extra()]))
    result = invoked("list", "metrics")
    rows = [tuple(re.split(r"\s{2,}", line.strip())) for line in result.output.splitlines() if line.strip(" ─")]
    assert result.exit_code == 0 and rows[0] == ("name", "title", "better", "range", "threshold", "computed from")
    probes = {row[0] for row in rows[1:] if row[-1].startswith("internals")}
    assert len(probes) == 13 and {"attention_entropy", "logit_gap"} <= probes
    assert {row[0] for row in rows[1:]} - probes == BUILT_IN_METRICS | {"extra"}
    assert {*rows} >= {
        ("exact_match", "exact match", "higher", "0 to 1", "0.9", "no installed task"),  # no task here has marked answers
        ("extra", "my own title", "lower", "0.25 to infinity", "none", "contexts"),
        ("attention_on_source", "attention weight on the source", *NEITHER, "internals of some tasks"),
        ("roc_auc", "area under the curve (ROC AUC)", "higher", "0 to 1", "0.9", ROC_AUC),
        ("tvd", "total variation distance (TVD)", "lower", "0 to 1", "0.1", "contexts"),
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tomita-2", ["(10)*", "quick", "short", "standard", "long", "paper", "end"]),
        ("tomita", ["tomita-1", "tomita-7", "no 000"]),
        ("transformer", ["model.width=32", "norm by default: pre-norm"]),
        ("adamw", ["optimizer.beta1=0.9, optimizer.beta2=0.999", "1711.05101"]),
        ("softmax", ["options: none"]),
        ("roc_auc", ["higher is better", "range: 0 to 1", "above 0.9", "0.5 (chance)", "strings of languages"]),
        ("tvd", ["lower is better; version 1", "below 0.1", "computed from: contexts"]),
        ("peri-norm", ["x <- x + N(F(N(x)))"]),
        ("quick", ["steps: 100", "batch"]),
    ],
)
def test_show_has_what_a_reader_wants_to_know_of_a_thing(name, said):
    result = invoked("show", name)
    assert result.exit_code == 0
    for word in said:
        assert word in result.output
    assert ">>>" not in result.output


def test_show_says_which_position_codes_read_ids(tmp_path):
    file = tmp_path / "codes.py"
    file.write_text(CODES)
    for name, reads in (("by-id", True), ("by-place", False)):
        assert ("reads the position ids of a task" in invoked("show", name, "--plugin", file).output) is reads


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(results_folder):
    query = "select * from range(100000)"
    command = f'"{sys.executable}" -c "{COMMAND}" sql "{query}" --format csv --results "{results_folder}" | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "range\n" and done.stderr == ""


def test_a_path_without_permission_is_reported_with_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = Path.is_dir

    def refuse(path):  # as under a folder of mode 000, which root, and so a test, may read
        if "d" in path.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr(Path, "is_dir", refuse)
    result = invoked("leaderboard", "--results", "d/x")
    assert result.exit_code == 1
    assert re.fullmatch(r"lgbench: cannot use '(/.*/)?d/x': Permission denied\n", result.stderr)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "lgbench: No space left on device\n"),
        (TimeoutError(), 1, "lgbench: TimeoutError\n"),
        (KeyboardInterrupt(), 130, ""),
        (RuntimeError("Query interrupted"), 130, ""),
    ],
    ids=repr,
)
def test_an_error_of_the_system_is_a_sentence_and_an_interrupt_an_exit_code(monkeypatch, error, code, said):
    def stop(*given):
        raise error

    monkeypatch.setattr(describe, "summaries", stop)
    result = invoked("list", "protocols")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


def test_an_interrupt_leaves_whole_files_and_the_same_command_continues(tmp_path, toys_alone, monkeypatch):
    results, update = tmp_path / "results", toys.Mean.update
    arguments = [*TOY_RUN, "--task", "toy-even,toy-largest", "--average", "toy-mean", "--seeds", "0", "--results", results]

    def interrupted(*given):
        if list(results.glob("*.parquet")):
            raise KeyboardInterrupt
        return update(*given)

    with monkeypatch.context() as patch:
        patch.setattr(toys.Mean, "update", interrupted)
        done = invoked(*arguments, "--set", "train.average_every=1")
    assert done.exit_code == 130 and "interrupted; no file was left half written" in done.stderr
    (kept,) = results.iterdir()
    assert run_files.read(kept).num_rows
    done = invoked(*arguments, "--set", "train.average_every=1")
    assert "1 run was done before" in done.output and "2 runs written" in done.output
    assert [path.suffix for path in results.iterdir()] == [".parquet"] * 3


def test_the_shell_completes_names():
    # The environment in which the shell calls lgbench, to complete names of kinds, which need no plugin.
    environ = {"_LGBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "lgbench list a", "COMP_CWORD": "2"}
    done = lgbench_command(**environ)
    found = {line.partition(",")[2] for line in done.stdout.splitlines()}
    assert found == {"archs", "attentions", "averagers"}, done.stderr


def completed(arguments: list[str], incomplete: str) -> set[str]:
    completions = BashComplete(main, {}, "lgbench", "_LGBENCH_COMPLETE").get_completions(arguments, incomplete)
    return {item.value for item in completions}


@pytest.mark.parametrize(
    ("arguments", "incomplete", "offered", "not_offered"),
    [
        (["run", "--arch"], "peri-", {"peri-norm", "peri-init-norm"}, "pre-norm"),
        (["run", "--arch"], "peri-norm+sof", {"peri-norm+softmax"}, "softmax"),
        (["run", "--arch"], "", {"transformer", "set-attention", "pre-norm"}, "tomita"),
        (["run", "--task"], "tomita-1,dyck-2", {"tomita-1,dyck-2-3", "tomita-1,dyck-2-5"}, "dyck-2-3"),
        (["run", "--task"], "a", {"all"}, "tomita"),
        (["run", "--protocol"], "", {"quick", "short", "standard", "long", "paper"}, "tomita"),
        (["show"], "tomita-", {"tomita-1"}, "pre-norm"),
        (["list"], "", {"tasks", "archs", "norms", "optimizers", "averagers", "metrics", "protocols"}, "tomita"),
    ],
)
def test_installed_names_complete_options(arguments, incomplete, offered, not_offered):
    found = completed(arguments, incomplete)
    assert offered <= found and not_offered not in found


@pytest.mark.parametrize("command", ["leaderboard", "compare", "plot"])
def test_names_in_the_results_folder_complete_the_options_of_boards(results_folder, command, tmp_path):
    options = [command, "--results", str(results_folder)]
    assert completed([*options, "--metric"], "") == {"tvd", "accuracy", "exact_match", "roc_auc", "illegal_mass", "illegal_top"}
    assert completed([*options, "--metric"], "ro") == {"roc_auc"}
    assert completed([*options, "--task"], "tom") == {"tomita", "tomita-1"}
    assert "quick" in completed([*options, "--protocol"], "")
    assert completed([command, "--results", str(tmp_path / "nowhere"), "--metric"], "") == set()
