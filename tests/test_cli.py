from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from conftest import CHEAP, lgbench_command, python, simulated, write_rows

from lgbench import describe, runfiles
from lgbench.cli import main
from lgbench.commands import catalog
from lgbench.options import Change, Seeds
from lgbench.registry import Registry

QUICK = ["--protocol", "quick", *(word for key, value in CHEAP.items() for word in ("--set", f"{key}={value}"))]
TOYS = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "quick"]
TOY_RUN = [*TOYS, "--set", "train.steps=2"]


def lgbench(*arguments: str | Path):
    """The command in this interpreter; whatever happens, no traceback is shown and none escapes."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="lgbench")
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--task", "tomta", "--arch", "pre-norm"], "no task 'tomta'; did you mean 'tomita'?"),
        (["run", "--task", "tomita,dick", "--arch", "pre-norm"], "no task 'dick'; did you mean 'dyck'?"),
        (["run", "--task", "tomita", "--arch", "pre-nrom"], "did you mean 'pre-norm'?"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--average", "bima"], "did you mean 'bema'?"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--protocol", "standart"], "did you mean 'standard'?"),
        (["run", "--task", "tomita", "--arch", "set-attention"], "cannot be run on tomita-1: set-attention answers once"),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--seeds", "3:1"],
            "--seeds': '3:1' names no seeds; use a range such as 0:3",
        ),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--average", "none,ema", "--average", "bema"],
            "--average names none and ema, bema: say none for the raw weights alone, or leave it out",
        ),
        (
            ["run", "--task", "tomita", "--arch", "pre-norm", "--set", "train.lr=banana", "--set", "train.lr=1e-3"],
            "train.lr='banana' is not a finite number",
        ),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--set", "train=5"], "no setting 'train'"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--seeds", "-1"], "whole numbers from 0"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--set", "train.steps"], "use key=value"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--set", "train.steps=0"], "train.steps=0 is out of range"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--set", "model.heads=3"], "width must be a multiple of heads"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--device", "abacus"], "use auto, cpu, or cuda"),
        (["run", "--task", "tomita", "--arch", "pre-norm", "--device", "meta"], "use auto, cpu or cuda"),
        (["run", "--arch", "pre-norm"], "--task"),
        (["run", "--task", "", "--arch", "pre-norm"], "task"),
        (["show", "tomta"], "did you mean 'tomita'"),
        (["list", "tsaks"], "tasks"),
        (["leaderbord"], "leaderboard"),
        (["leaderboard", "--metric", "auc"], "roc_auc"),
        (["leaderboard", "--results", "/nowhere/at/all"], "no results folder"),
        (["sql", "select 1", "--results", "/nowhere/at/all"], "no results folder"),
    ],
)
def test_wrong_usage_says_what_would_work_and_exits_with_2(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = lgbench(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0:3", (0, 1, 2)),
        ("0,7", (0, 7)),
        ("5", (5,)),
        ("0:2,4,0", (0, 1, 4)),
        (" 1 , 2 ", (1, 2)),
        (str(2**63 - 1), (2**63 - 1,)),
    ],
)
def test_seeds_are_a_range_or_numbers(text, seeds):
    assert Seeds().convert(text, None, None) == seeds


@pytest.mark.parametrize("text", ["", ",", "a", "1.5", "0:", ":3", "-1", "3:3", "0:3:1", str(2**63)])
def test_what_names_no_seeds_is_refused(text):
    with pytest.raises(click.BadParameter, match="0:3"):
        Seeds().convert(text, None, None)


@pytest.mark.parametrize(("text", "part"), [("5:2,7", "5:2"), ("7,5:2", "5:2"), ("0:3,4:4", "4:4"), ("0,", ""), ("1,-1", "-1")])
def test_the_part_that_names_no_seeds_is_named(text, part):
    with pytest.raises(click.BadParameter, match=f"^'{part}' names no seeds; use a range such as 0:3"):
        Seeds().convert(text, None, None)


def test_a_change_may_hold_an_equals_sign_and_spaces():
    assert Change().convert("model.kind = a=b", None, None) == ("model.kind", "a=b")


def test_a_run_writes_a_file_and_run_again_says_where_it_is(tmp_path, toys_alone):
    arguments = [*TOY_RUN, "--seeds", "4", "--results", tmp_path / "r"]
    first = lgbench(*arguments)
    (path,) = (tmp_path / "r").iterdir()
    assert first.exit_code == 0 and "1 run written" in first.output and str(tmp_path / "r") in first.output
    before = path.stat()
    second = lgbench(*arguments)
    assert second.exit_code == 0
    assert "1 run was done before and not run again" in second.output and str(path) in second.output
    assert "written" not in second.output and "started" not in second.output
    assert path.stat() == before or path.stat().st_mtime_ns == before.st_mtime_ns
    more = lgbench(*arguments[:-4], "--seeds", "3:6", "--results", tmp_path / "r")
    assert "1 run was done before" in more.output and "2 runs written" in more.output


def test_names_with_commas_and_repeated_options_are_one_grid(tmp_path, toys_alone):
    result = lgbench(*TOY_RUN, "--task", "toy-even,toy-largest", "--seeds", "0,2", "--results", tmp_path)
    assert result.exit_code == 0
    found = {tuple(path.name.split(".")[:3]) for path in tmp_path.iterdir()}
    assert found == {
        (task, "toy-table+toy-nothing", f"seed-{s}") for task in ("toy-walk", "toy-even", "toy-largest") for s in (0, 2)
    }


@pytest.mark.parametrize("repeated", [False, True], ids=["commas", "repeated"])
def test_several_values_of_a_setting_are_one_grid(tmp_path, toys_alone, repeated):
    values = ["train.lr=0.01", "train.lr=0.02,0.01"] if repeated else ["train.lr=0.01,0.02"]
    words = [word for value in values for word in ("--set", value)]
    assert lgbench(*TOY_RUN, *words, "--seeds", "0", "--results", tmp_path).exit_code == 0
    rates = [runfiles.metadata(path)["experiment"]["train"]["lr"] for path in tmp_path.iterdir()]
    assert sorted(rates) == [0.01, 0.02]


def test_averages_are_all_or_those_named_or_none(tmp_path, toys_alone):
    variants = {}
    for name, words in {"all": [], "none": ["--average", "none"], "named": ["--average", "toy-mean"]}.items():
        assert lgbench(*TOY_RUN, "--seeds", "0", *words, "--results", tmp_path / name).exit_code == 0
        (path,) = (tmp_path / name).iterdir()
        variants[name] = set(runfiles.read(path)["weights"].to_pylist())
    assert variants == {"all": {"raw", "toy-mean"}, "none": {"raw"}, "named": {"raw", "toy-mean"}}


def test_an_impossible_pair_is_told_and_the_possible_ones_run(tmp_path, toys_alone):
    result = lgbench(*TOY_RUN, "--task", "toy-largest", "--arch", "toy-fragile", "--seeds", "0", "--results", tmp_path)
    assert result.exit_code == 0
    assert "toy-fragile+toy-nothing cannot be run on toy-largest: toy-fragile reads tokens" in result.output
    assert len(list(tmp_path.iterdir())) == 3


def test_a_run_that_fails_is_told_and_the_others_are_done(tmp_path, toys_alone):
    result = lgbench(*TOYS, "--set", "train.steps=5", "--arch", "toy-broken", "--seeds", "0", "--results", tmp_path)
    assert result.exit_code == 1
    assert "the toy is broken" in result.output and "toys.py" in result.output
    assert [path.name.split(".")[1] for path in tmp_path.iterdir()] == ["toy-table+toy-nothing"]


def test_a_diverged_run_is_told_and_kept(tmp_path, toys_alone):
    words = ["--arch", "toy-fragile", "--set", "train.steps=20", "--set", "train.lr=0.02", "--seeds", "0:6"]
    result = lgbench(*TOYS, *words, "--results", tmp_path)
    assert result.exit_code == 0 and "diverged at step" in result.output
    steps = [set(runfiles.read(path)["diverged_step"].to_pylist()) for path in tmp_path.glob("*fragile*")]
    assert len(steps) == 6 and {None} in steps and any(step != {None} for step in steps)
    assert "diverged" in lgbench("leaderboard", "--results", tmp_path).output


def test_a_results_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for arguments in (["run", "--task", "tomita", "--arch", "pre-norm"], ["leaderboard"], ["sql", "select 1"]):
        result = lgbench(*arguments, "--results", tmp_path / "file")
        assert result.exit_code == 2
        assert "file" in result.output


def test_a_results_folder_below_a_file_is_refused_before_training(tmp_path, toys_alone):
    (tmp_path / "file").touch()
    result = lgbench(*TOY_RUN, "--results", tmp_path / "file" / "deeper")
    assert result.exit_code == 2
    assert "started" not in result.output


def test_a_leaderboard_comes_in_four_formats_with_the_same_numbers(results_folder):
    shown = {
        form: lgbench("leaderboard", "--results", results_folder, "--format", form)
        for form in ("table", "markdown", "csv", "json")
    }
    assert all(result.exit_code == 0 for result in shown.values())
    (board,) = json.loads(shown["json"].output)
    assert (board["name"], board["metric"]) == ("tomita", "tvd")
    assert len(board["rows"]) == 6  # two norms, each raw, ema and bema
    lines = list(csv.DictReader(io.StringIO(shown["csv"].output)))
    for row in board["rows"]:
        (score,) = [c for c in row["cells"] if c["kind"] == "score"]
        assert row["entry"] in shown["table"].output and f"`{row['entry']}`" in shown["markdown"].output
        assert f"{score['mean']:.4f}" in shown["table"].output and f"{score['mean']:.4f}" in shown["markdown"].output
        (line,) = [line for line in lines if line["entry"] == row["entry"] and line["column"] == "score"]
        assert float(line["mean"]) == score["mean"]
        assert [int(line[name]) for name in ("tier", "best_place", "worst_place")] == [row["tier"], *row["places"]]


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_a_leaderboard_of_another_metric_task_and_protocol(results_folder, metric):
    result = lgbench("leaderboard", "--results", results_folder, "--metric", metric, "--task", "tomita-1")
    assert result.exit_code == 0 and f"tomita-1: {metric}" in result.output


@pytest.mark.parametrize(("option", "said"), [("--task", "did you mean 'tomita"), ("--protocol", "known: quick")])
def test_a_leaderboard_of_what_is_not_there_is_wrong_usage(results_folder, option, said):
    result = lgbench("leaderboard", "--results", results_folder, option, "tomito")
    assert result.exit_code == 2 and said in result.output


def test_bad_files_are_told_and_the_leaderboard_is_shown(tmp_path):
    write_rows(tmp_path / "good.parquet", simulated({8: 0.5, 16: 0.25}))
    (tmp_path / "empty.parquet").touch()
    result = lgbench("leaderboard", "--results", tmp_path)
    assert result.exit_code == 0
    assert "empty.parquet is empty" in result.stderr and "arch+norm" in result.stdout


def test_sql_answers_questions_in_three_formats(results_folder):
    query = "select entry, count(distinct seed) as seeds from results group by entry order by entry"
    shown = {form: lgbench("sql", query, "--results", results_folder, "--format", form) for form in ("table", "csv", "json")}
    assert json.loads(shown["json"].stdout) == [
        {"entry": "transformer+peri-norm", "seeds": 2},
        {"entry": "transformer+pre-norm", "seeds": 2},
    ]
    assert shown["csv"].stdout.splitlines() == ["entry,seeds", "transformer+peri-norm,2", "transformer+pre-norm,2"]
    assert "transformer+peri-norm" in shown["table"].stdout


@pytest.mark.parametrize(
    "query",
    [
        "selec 1",
        "select nonsense from results",
        "",
        "select cast(entry as int) from results",
        "select error('no') from results",
    ],
)
def test_a_wrong_query_is_wrong_usage(results_folder, query):
    for form in ("table", "csv"):
        result = lgbench("sql", query, "--results", results_folder, "--format", form)
        assert result.exit_code == 2
        assert "query" in result.stderr


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tasks", ["set-complement", "max-retrieval", "dictionary-lookup", "dyck-2-5", "tomita-7"]),
        ("archs", ["transformer", "set-attention"]),
        ("norms", ["pre-norm", "post-norm", "peri-norm", "peri-init-norm"]),
        ("averagers", ["ema", "bema"]),
        ("protocols", ["quick", "standard", "paper"]),
    ],
)
def test_each_kind_is_listed_with_a_sentence(kind, names):
    result = lgbench("list", kind)
    listed = {line.split()[0]: line.split(maxsplit=1)[1:] for line in result.output.splitlines()}
    assert result.exit_code == 0 and set(names) <= listed.keys()
    assert all(listed[name] for name in names)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tomita-2", ["(10)*", "quick", "standard", "paper", "end"]),
        ("tomita", ["tomita-1", "tomita-7", "no 000"]),
        ("dyck-3-4", ["dyck-3-4", "sample contexts"]),
        ("max-retrieval", ["sample contexts", "answers with one of 10"]),
        ("transformer", ["model.width=32", "pre-norm"]),
        ("peri-norm", ["x <- x + N(F(N(x)))"]),
        ("bema", ["ema"]),
        ("quick", ["steps: 100", "batch"]),
    ],
)
def test_show_tells_what_a_thing_is(name, said):
    result = lgbench("show", name)
    assert result.exit_code == 0
    for word in said:
        assert word in result.output
    assert ">>>" not in result.output


@pytest.mark.parametrize("name", ["toy-walk", "toy-largest", "toy-even", "toy-table", "toy-nothing", "toy-mean"])
def test_show_works_for_the_plainest_plugin(name, toys_alone):
    result = lgbench("show", name)
    assert result.exit_code == 0 and result.output.startswith(name)


def test_every_kind_that_can_be_described_is_offered():
    assert (*describe.KINDS, "protocols") == catalog.KINDS
    assert tuple(describe.KINDS.values()) == tuple(Registry().catalogs())


def test_plugins_lists_what_each_provides():
    result = lgbench("plugins")
    assert result.exit_code == 0
    for said in ("lgbench_tasks", "tomita-7", "lgbench_norms", "peri-norm", "lgbench_averaging", "bema", "transformer"):
        assert said in result.output


def test_an_unknown_plugin_in_the_environment_is_wrong_usage(monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_tsaks")
    result = lgbench("list", "tasks")
    assert result.exit_code == 2 and "did you mean 'lgbench_tasks'?" in result.output


def test_a_reader_that_goes_away_is_no_error():
    code = "from lgbench.cli import main; main(prog_name='lgbench')"
    command = f'"{sys.executable}" -c "{code}" show tomita | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "tomita-1\n" and done.stderr == ""


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("is_file", ["list", "norms", "--plugin", "d/x.py"]),
        ("exists", ["new-plugin", "foo", "--kind", "norm", "--to", "d/x"]),
        ("is_dir", ["leaderboard", "--results", "d/x"]),
    ],
)
def test_a_path_that_cannot_be_looked_at_is_told_and_exits_with_1(tmp_path, monkeypatch, method, arguments):
    monkeypatch.chdir(tmp_path)
    real = getattr(Path, method)

    def refuse(path):  # as under a folder of mode 000, which root, and so a test, may read
        if "d" in path.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr(Path, method, refuse)
    result = lgbench(*arguments)
    assert result.exit_code == 1
    assert re.fullmatch(rf"lgbench: cannot use '(/.*/)?{arguments[-1]}': Permission denied\n", result.stderr)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "lgbench: No space left on device\n"),
        (OSError("the disk is tired"), 1, "lgbench: the disk is tired\n"),
        (TimeoutError(), 1, "lgbench: TimeoutError\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=repr,
)
def test_what_stops_a_command_from_outside_is_a_sentence_or_an_exit_code(monkeypatch, error, code, said):
    def stop(*given):
        raise error

    monkeypatch.setattr(describe, "summaries", stop)
    result = lgbench("list", "protocols")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from lgbench.cli import main; main()"


def test_an_interrupt_leaves_whole_files_and_the_same_command_goes_on(tmp_path, toys_installed):
    results = tmp_path / "results"
    arguments = ["run", "--task", "toy-even,toy-largest", "--arch", "toy-table", "--seeds", "0", "--protocol", "quick"]
    arguments += ["--set", "train.steps=16", "--set", "train.average_every=1", "--set", "evaluate.max_length=16"]
    arguments += ["--results", str(results)]
    environ = {"PYTHONPATH": str(toys_installed), "LGBENCH_PLUGINS": "toys"}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environ | {"TOYS_SLEEP": "0.1"},
    )
    try:
        lines = iter(process.stderr.readline, "")
        said = next(line for line in lines if "train toy-largest" in line)
        process.send_signal(signal.SIGINT)
        said += "".join(lines)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert "interrupted; no file was left half written" in said and "Traceback" not in said
    (kept,) = results.iterdir()
    assert kept.name.startswith("toy-even") and runfiles.read(kept).num_rows
    done = python(INTERRUPTIBLE, *arguments, **environ)
    assert done.returncode == 0, done.stderr
    assert "1 run was done before" in done.stdout and "1 run written" in done.stdout
    assert {path.suffix for path in results.iterdir()} == {".parquet"}
    assert len(list(results.iterdir())) == 2


def test_the_shell_completes_names():
    environ = {"_LGBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "lgbench run --task tom", "COMP_CWORD": "3"}
    done = lgbench_command(**environ)
    found = {line.partition(",")[2] for line in done.stdout.splitlines()}
    assert {"tomita", "tomita-1", "tomita-7"} <= found and "dyck-2-3" not in found, done.stderr


@pytest.mark.parametrize(
    ("arguments", "incomplete", "offered", "not_offered"),
    [
        (["run", "--arch"], "peri-", {"peri-norm", "peri-init-norm"}, "pre-norm"),
        (["run", "--arch"], "peri-norm+sof", {"peri-norm+softmax"}, "softmax"),
        (["run", "--arch"], "", {"transformer", "set-attention", "pre-norm"}, "tomita"),
        (["run", "--task"], "tomita-1,dyck-2", {"tomita-1,dyck-2-3", "tomita-1,dyck-2-5"}, "dyck-2-3"),
        (["run", "--task"], "a", {"all"}, "tomita"),
        (["run", "--average"], "b", {"bema"}, "ema"),
        (["run", "--protocol"], "", {"quick", "standard", "paper"}, "tomita"),
        (["show"], "tomita-", {"tomita-1"}, "pre-norm"),
        (["list"], "", {"tasks", "archs", "norms", "averagers", "protocols"}, "tomita"),
    ],
)
def test_what_is_installed_completes_options(arguments, incomplete, offered, not_offered):
    completions = BashComplete(main, {}, "lgbench", "_LGBENCH_COMPLETE").get_completions(arguments, incomplete)
    found = {item.value for item in completions}
    assert offered <= found and not_offered not in found
