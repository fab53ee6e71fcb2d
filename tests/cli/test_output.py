"""The output of a command is its own, whatever plugins do, and printable, whatever names of strangers say."""

from __future__ import annotations

import re
import subprocess
import textwrap
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.claim_files import CLAIM, around, write_claim, write_runs
from helpers.commands import invoked
from helpers.norm_sources import norm_source
from helpers.processes import install, python
from helpers.run_files import simulated, write_rows
from helpers.warm import Warm
from hypothesis import given
from hypothesis import strategies as st

from lgbench.cli.main import main
from lgbench.results import run_files
from lgbench.terminal import MAX_SENTENCE, printable, sentence

COMMAND = "from lgbench.cli.main import main; main(prog_name='lgbench')"


def plugin(folder: Path, module: str, first: str = "", then: str = "pass", about: str = "'Nothing.'", **named: str) -> None:
    install(folder, module, norm_source(module.replace("_", "-"), first, then, about=about), **named)


def command(folder: Path, *arguments: str, plugins: str = "loud") -> subprocess.CompletedProcess[str]:
    return python(COMMAND, *arguments, PYTHONPATH=str(folder), LGBENCH_PLUGINS=plugins)


def test_what_a_plugin_prints_is_no_output_of_a_command(tmp_path):
    plugin(tmp_path, "loud", about="about = property(lambda self: print('loud') or 'Nothing.')")
    listed = command(tmp_path, "list", "norms")
    assert listed.stdout == f"{'loud':<24}Nothing.\n" and listed.returncode == 0
    assert "loud\n" in listed.stderr


EVIL = "\x1b[2J\x1b[31mred\x07\u202ebackwards\nnext line\r\x9b"


def test_nothing_of_a_plugin_moves_the_cursor(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    text = repr(EVIL)
    plugin(tmp_path, "evil_error", f"raise ValueError({text})", version="1\x1b[31m.0")
    plugin(tmp_path, "evil_note", f"print({text})", about=f"about = {text}")
    plugin(tmp_path, "evil_type", f"raise type({text}, (Exception,), {{}})()")
    plugin(tmp_path, "evil_thing", then=f"return [type({text}, (), {{'__repr__': lambda self: {text}}})()]")
    monkeypatch.setenv("LGBENCH_PLUGINS", "evil_error,evil_note,evil_type,evil_thing")
    for arguments in (["plugins"], ["list", "norms"], ["show", "evil-note"], ["check"]):
        done = CliRunner().invoke(main, arguments)
        for line in (done.stdout + done.stderr).splitlines():
            assert line.isprintable(), line
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert arguments[0] == "show" or not any(
            line.startswith("next line") for line in (done.stdout + done.stderr).splitlines()
        )


@pytest.mark.slow
@given(st.text())
def test_what_is_printable_stays_and_the_rest_is_seen(text):
    for lines in (False, True):
        found = printable(text, lines=lines)
        kinds = {unicodedata.category(letter) for letter in found if not (lines and letter == "\n")}
        assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        found.encode()  # no half of a pair is left
    if text.isprintable():
        assert printable(text) == text


def test_a_very_long_text_is_cut():
    assert len(sentence("x" * 10**7)) < MAX_SENTENCE + 10


ON_A_TERMINAL = """
import contextlib, fcntl, os, pty, struct, sys, termios
os.environ.pop("COLUMNS", None)
pid, ours = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    from lgbench.cli.main import main
    main(sys.argv[2:], prog_name="lgbench")
with contextlib.suppress(OSError):  # the command has ended
    while part := os.read(ours, 65536):
        os.write(1, part)
"""


def shown(warm: Warm, width: int, *arguments: str) -> list[str]:
    """Lines of a command on a pseudo-terminal of a width."""
    with warm.start([width, *arguments], ON_A_TERMINAL, TERM="xterm") as process:
        out, _ = process.communicate()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out).replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "arguments", [("list", "metrics"), ("list", "nothing"), ("run", "--task", "x", "--arch", "lstm")], ids=str
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(warm: Warm, width: int, arguments: tuple[str, ...]) -> None:
    lines = shown(warm, width, *arguments)
    assert len(lines) > 1 and max(map(len, lines)) <= width
    note = next((at for at, line in enumerate(lines) if line.startswith("no room for")), len(lines))
    words = {word for line in lines[:note] for word in line.split()}
    assert {word for word in words if set(word) != {"\u2500"}} <= set(
        CliRunner().invoke(main, arguments, prog_name="lgbench").output.split()
    )


@pytest.mark.parametrize("command", ["leaderboard", "compare", "claims"])
def test_no_table_is_wider_than_the_terminal_and_no_number_is_cut(warm: Warm, tmp_path: Path, command: str) -> None:
    pair = ["transformer+attention-layer-norm", "transformer+input-output-post-norm"]
    runs = write_runs(tmp_path / "runs", {pair[0]: around(0.3), pair[1]: around(0.5, sign=-1)})
    claim = write_claim(tmp_path / "claims", CLAIM.replace("arch+new", pair[0]).replace("arch+old", pair[1]))
    arguments = [command, *{"compare": pair, "claims": ["--claims", str(claim.parent)]}.get(command, [])]
    whole = set(re.findall(r"\d+\.\d+", invoked(*arguments, "--results", runs).output))
    for width in (60, 80, 120):
        lines = shown(warm, width, *arguments, "--results", str(runs))
        numbers = set(re.findall(r"\d+\.\d+", "\n".join(lines)))
        assert len(lines) > 3 and max(map(len, lines)) <= width
        assert numbers and numbers <= whole


def test_paragraphs_of_a_docstring_fill_the_lines_of_a_terminal(warm: Warm) -> None:
    paragraphs = "\n".join(shown(warm, 80, "show", "tomita-2")).split("\n\n")
    (told,) = [paragraph for paragraph in paragraphs if paragraph.startswith("Next may come")]
    assert textwrap.wrap(told, 80) == told.splitlines()


def test_list_without_a_word_counts_the_things_of_each_kind() -> None:
    kinds = dict(line.split() for line in CliRunner().invoke(main, ["list"]).output.splitlines())
    assert int(kinds["tasks"]) == len(CliRunner().invoke(main, ["list", "tasks"]).output.splitlines()) and "protocols" in kinds


def test_a_list_in_a_pipe_has_a_space_after_the_longest_names() -> None:
    names = {line.split()[0] for line in CliRunner().invoke(main, ["list", "tasks"]).output.splitlines()}
    assert {"decimal-addition-coupled", "modular-arithmetic-brackets"} <= names


def test_the_table_of_plugins_in_a_pipe_fits_on_a_page() -> None:
    assert max(map(len, CliRunner().invoke(main, ["plugins"]).output.splitlines())) <= 240


HOSTILE = ("\x1b[2J", "a\nlgbench: all is well", "\x9b31m", "a\u202eb", "\u2028", "\x07\x08\x7f", "\u2066x")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FIELDS = ("entry", "task", "family", "protocol", "weights", "metric", "run_id", "changes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sound runs, runs with each hostile text in each name and in the title of a metric, and hostile names of files."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for entry in ("one", "two"):
            good = write_rows(folder / f"{entry}{seed}.parquet", simulated({8: 0.1, 16: seed / 9}, entry=entry, seed=seed))
    described = run_files.metadata(good)["measurements"]
    for number, text in enumerate(HOSTILE):
        for field in FIELDS:
            own = {field: [("train.lr", text)] if field == "changes" else f"tvd{text}"}
            write_rows(folder / f"{field}{number}.parquet", simulated({8: 0.1}, **own))
        for field in ("title", "label", "landmark_name"):
            own = [description | {field: text} for description in described]
            path = folder / f"{field}{number}.parquet"
            write_rows(path, simulated({8: 0.1}, entry=f"{field}{number}"), measurements=own)
        (folder / f"name{text}.parquet").write_text("no run")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["leaderboard"],
        ["leaderboard", "--format", "markdown"],
        ["leaderboard", "--task", HOSTILE[0]],
        ["leaderboard", "--metric", HOSTILE[1]],
        ["leaderboard", "--protocol", HOSTILE[2]],
        ["compare", "one", "two"],
        ["compare", "one", HOSTILE[0]],
        ["sql", "select chr(27) || '[2J' as \"a\x1b[2J\", 'a' || chr(10) || chr(155) as b"],
        ["sql", "select \x1b[2J from results"],
        ["sql", "select error(chr(27) || chr(8238))"],
        ["plot", "--out", "a\x1b[2J.json"],
        ["plot", "--entry", HOSTILE[3], "--out", "a.json"],
        ["site", "--out", "a\x9b31m"],
    ],
    ids=lambda words: " ".join(words[:2]).encode("unicode_escape").decode(),
)
def test_a_terminal_obeys_no_name_of_a_run_file_or_of_a_file(folder, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*words, "--results", str(folder)], prog_name="lgbench")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert not UNSAFE.findall(done.output)
    assert "all is well" not in [line.removeprefix("lgbench: ") for line in done.output.splitlines()]
    assert r"name\x1b[2J.parquet" in done.stderr


def test_a_results_folder_with_a_hostile_name_is_named_harmlessly(tmp_path):
    for text in HOSTILE:
        (tmp_path / text).mkdir()
        done = CliRunner().invoke(main, ["leaderboard", "--results", str(tmp_path / text)], prog_name="lgbench")
        assert done.exit_code == 2 and "no runs in" in done.output and not UNSAFE.findall(done.output)
        assert len(done.output.splitlines()) == 1
