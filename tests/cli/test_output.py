"""The output of a command is its own, whatever plugins do, and printable, whatever names of strangers say."""

from __future__ import annotations

import contextlib
import fcntl
import io
import pty
import re
import struct
import sys
import termios
import textwrap
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.commands import invoked
from helpers.norm_sources import norm_source
from helpers.processes import install
from helpers.run_files import simulated, write_rows
from hypothesis import given
from hypothesis import strategies as st

from lgbench.cli.main import main
from lgbench.cli.output import console, echo
from lgbench.results import run_files
from lgbench.terminal import MAX_SENTENCE, printable, sentence


def plugin(folder: Path, module: str, first: str = "", then: str = "pass", about: str = "'Nothing.'", **named: str) -> None:
    install(folder, module, norm_source(module.replace("_", "-"), first, then, about=about), **named)


def test_what_a_plugin_prints_is_no_output_of_a_command(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LGBENCH_PLUGINS", "loud")
    plugin(tmp_path, "loud", about="about = property(lambda self: print('loud') or 'Nothing.')")
    listed = invoked("list", "norms")
    assert listed.stdout == f"{'loud':<24}Nothing.\n" and listed.exit_code == 0
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
        done = invoked(*arguments)
        for line in (done.stdout + done.stderr).splitlines():
            assert line.isprintable(), line
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


def test_a_table_whose_reader_goes_away_is_a_broken_pipe_and_no_exit(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(BrokenPipeError):  # the command ends well then
        console().print("a table")


def test_letters_that_a_terminal_lacks_are_question_marks(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    echo("größer ▁▂█ │")
    sys.stdout.flush()
    assert written.getvalue() == "größer ??? ?\n".encode("latin-1")


def shown(width: int, *arguments: str) -> list[str]:
    """Lines of a command on a pseudo-terminal of a width."""

    def everything() -> bytes:
        with open(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # the command has ended
            while part := screen.read(65536):
                found.append(part)
        return b"".join(found)

    found: list[bytes] = []
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with ThreadPoolExecutor(1) as reader:
        said = reader.submit(everything)
        with open(theirs, "w", encoding="utf-8") as terminal, pytest.MonkeyPatch.context() as patch:
            patch.delenv("COLUMNS", raising=False)
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            with contextlib.suppress(SystemExit):
                main(arguments, prog_name="lgbench")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.result().decode()).replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "arguments", [("list", "metrics"), ("list", "nothing"), ("run", "--task", "x", "--arch", "lstm")], ids=str
)
@pytest.mark.parametrize("width", [60, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(width: int, arguments: tuple[str, ...]) -> None:
    lines = shown(width, *arguments)
    assert len(lines) > 1 and max(map(len, lines)) <= width
    note = next((at for at, line in enumerate(lines) if line.startswith("no room for")), len(lines))
    words = {word for line in lines[:note] for word in line.split()}
    assert {word for word in words if set(word) != {"\u2500"}} <= set(invoked(*arguments).output.split())


LONG = "select entry, task, protocol, weights, metric, avg(value) as value, avg(value) / 3e5 as small from results group by all"


@pytest.mark.parametrize("width", [70, 120])
def test_an_answer_of_sql_keeps_all_columns_on_a_terminal_and_rounds_numbers(tmp_path, width) -> None:
    write_rows(tmp_path / "run.parquet", simulated({8: 1 / 3}, entry="transformer+peri-norm+sandwich"))
    lines = shown(width, "sql", LONG, "--results", str(tmp_path))
    said = " ".join(lines)
    assert max(map(len, lines)) <= width and "no room" not in said
    assert {"entry", "task", "protocol", "weights", "metric", "value", "small"} < {*said.split()}
    assert {"0.3333", "1.111e-06"} < {*said.split()}
    digits = invoked("sql", "select value from results", "--format", "csv", "--results", tmp_path).stdout
    assert digits == f"value\n{1 / 3}\n"


def test_an_answer_of_sql_too_wide_for_a_terminal_has_a_line_for_each_column(tmp_path) -> None:
    write_rows(tmp_path / "run.parquet", simulated({8: 1 / 3, 16: 0.5}))
    lines = shown(80, "sql", "select * from results order by length", "--results", str(tmp_path))
    assert max(map(len, lines)) <= 80
    names = [line[4:].split()[0] for line in lines if line.strip()][2:]
    header = invoked("sql", "select * from results limit 0", "--format", "csv", "--results", tmp_path).stdout
    assert names == header.strip().split(",") * 2
    assert [line.split()[-1] for line in lines if " value " in line][1:] == ["0.3333", "0.5"]


def test_paragraphs_of_a_docstring_fill_the_lines_of_a_terminal() -> None:
    paragraphs = "\n".join(shown(80, "show", "tomita-2")).split("\n\n")
    (told,) = [paragraph for paragraph in paragraphs if paragraph.startswith("Next may come")]
    assert textwrap.wrap(told, 80) == told.splitlines()


def test_list_without_a_word_counts_the_things_of_each_kind() -> None:
    kinds = dict(line.split() for line in invoked("list").output.splitlines())
    assert int(kinds["tasks"]) == len(invoked("list", "tasks").output.splitlines()) and "protocols" in kinds


@pytest.mark.usefixtures("all_plugins")
def test_a_list_in_a_pipe_has_a_space_after_the_longest_names() -> None:
    names = {line.split()[0] for line in invoked("list", "tasks").output.splitlines()}
    assert {"decimal-addition-coupled", "modular-arithmetic-brackets"} <= names


def test_the_table_of_plugins_in_a_pipe_fits_on_a_page() -> None:
    assert max(map(len, invoked("plugins").output.splitlines())) <= 240


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
    done = invoked(*words, "--results", folder)
    assert not UNSAFE.findall(done.output)
    assert "all is well" not in [line.removeprefix("lgbench: ") for line in done.output.splitlines()]
    assert r"name\x1b[2J.parquet" in done.stderr


def test_a_results_folder_with_a_hostile_name_is_named_harmlessly(tmp_path):
    for text in HOSTILE:
        (tmp_path / text).mkdir()
        done = invoked("leaderboard", "--results", tmp_path / text)
        assert done.exit_code == 2 and "no runs in" in done.output and not UNSAFE.findall(done.output)
        assert len(done.output.splitlines()) == 1
