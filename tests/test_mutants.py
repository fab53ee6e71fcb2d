"""Damaged and hostile run files and submission files: each is read, or named and left out, and the rest is ranked."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import site_runs
from conftest import simulated, write_rows, write_sealed
from helpers.packing import repacked, together

from lgbench.errors import LgbenchError
from lgbench.reports import boards as boards_report
from lgbench.reports import figure, site
from lgbench.results import columns, run_files
from lgbench.results.checked_files import packed_runs
from lgbench.results.compare import compare
from lgbench.results.footers import PackedRun
from lgbench.results.leaderboard import Results
from lgbench.results.run_schema import SCHEMA

BEST, POOR = "best+norm", "poor+norm"
ODD: list[Any] = [None, True, -1, 1e308, float("nan"), "x" * 5000, "\ud800", "[red]\x1b[31m\n", 10**30, [], {}, [[[]]]]
OTHERS: dict[type, list[Any]] = {
    str: ["", "x" * 5000, "\x1b[2J", "<script>", "a\nb"],
    int: [0, -1, 2**31 - 1, -(2**31)],
    float: [float("nan"), float("inf"), -1e308],
    list: [[("a", "b")] * 3, [("train.lr", "x" * 9000)]],
}


class Mutants:
    """One file of a small folder of runs, changed in ways that a seed decides: a run file or a submission file."""

    def __init__(self, folder: Path, seed: int, submitted: bool) -> None:
        self.draw = random.Random(seed)
        for number, entry in enumerate((BEST, POOR)):
            for model in range(3):
                site_runs.write_run(folder, "beta", entry, model, number)
        self.victim = max(folder.glob("*.parquet"))
        self.runs: list[PackedRun] = []
        if submitted:
            poor = sorted(folder.glob("*.parquet"))[3:]
            self.victim = together(poor, folder)
            for path in poor:
                path.unlink()
            self.runs = packed_runs(self.victim, pq.read_metadata(self.victim))
        self.whole, self.rows = self.victim.read_bytes(), pq.read_table(self.victim)
        self.footer = self.runs[1].footer if submitted else run_files.metadata(self.victim)

    def mutate(self) -> None:
        kinds: list[Callable[[], bytes]] = [self.flipped, self.flipped, self.cut, self.other_footer, self.other_rows]
        kinds += [self.other_table] if self.runs else []
        self.victim.write_bytes(self.draw.choice(kinds)())

    def flipped(self) -> bytes:
        """With some bits flipped, half of the time near the end, where the footer is."""
        content = bytearray(self.whole)
        for _ in range(self.draw.choice([1, 1, 1, 3, 20])):
            first = self.draw.choice([0, max(0, len(content) - 6000)])
            content[self.draw.randrange(first, len(content))] ^= 1 << self.draw.randrange(8)
        return bytes(content)

    def cut(self) -> bytes:
        return self.whole[: self.draw.randrange(len(self.whole))]

    def other_footer(self) -> bytes:
        """With one thing of the footer left out or replaced; at times nested deeply, or no text."""
        text = json.dumps(self._changed(json.loads(json.dumps(self.footer))))
        if self.draw.random() < 0.1:
            depth = self.draw.choice([15, 900, 50_000])
            text = '{"experiment": ' + '{"a": ' * depth + "1" + "}" * depth + "}"
        raw = text.encode("utf-8", "surrogatepass")
        if self.draw.random() < 0.1:
            raw = raw[: len(raw) // 2] + b"\xff\xfe" + raw[len(raw) // 2 :]
        return self.written(self.rows, raw)

    def other_rows(self) -> bytes:
        """With some values replaced by others of their type, or by none."""
        rows = self.rows.to_pylist()
        for _ in range(self.draw.choice([1, 3, 50])):
            row = self.draw.choice(rows)
            name = self.draw.choice(list(row))
            row[name] = self.draw.choice([None, self.draw.choice(OTHERS.get(type(row[name]), [row[name]]))])
        return self.written(pa.Table.from_pylist(rows, schema=self.rows.schema), json.dumps(self.footer).encode())

    def written(self, rows: pa.Table, footer: bytes) -> bytes:
        """A file with a right checksum, as somebody writes it who means harm."""
        if not self.runs:
            return write_sealed(self.victim.with_suffix(".made"), rows, footer).read_bytes()
        lines = [json.dumps(asdict(run)).encode() for run in self.runs]
        lines[1] = json.dumps(asdict(replace(self.runs[1], footer={"?": 0}))).encode().replace(b'{"?": 0}', footer)
        return self.with_table(rows, _compressed(b"\n".join(lines)))

    def other_table(self) -> bytes:
        """With another table of footers: cut, of other runs, of a size that it has not, with lines that are no runs."""
        lines = [self._changed(json.loads(json.dumps(asdict(run)))) for run in self.runs[: self.draw.choice([1, 2, 3, 3])]]
        text = "\n".join(json.dumps(line) for line in lines * self.draw.choice([1, 1, 1, 2])).encode()
        raw = _compressed(text, self.draw.choice([None, None, 0, 1, len(text) - 1, 2**26, 2**32 - 1]))
        return self.with_table(self.rows, raw[: self.draw.choice([len(raw), len(raw), len(raw) // 2, 4, 0])])

    def with_table(self, rows: pa.Table, raw: bytes) -> bytes:
        path = self.victim.with_suffix(".made")
        return repacked(self._again(), path, rows=lambda _: rows, table=lambda _: base64.b64encode(raw)).read_bytes()

    def _again(self) -> Path:
        """The file as it was."""
        path = self.victim.with_suffix(".whole")
        path.write_bytes(self.whole)
        return path

    def _changed(self, content: Any) -> Any:
        if not (isinstance(content, dict | list) and content and self.draw.random() < 0.9):
            return self.draw.choice(ODD)
        place = self.draw.choice(list(content) if isinstance(content, dict) else range(len(content)))
        if isinstance(content, dict) and self.draw.random() < 0.15:
            del content[place]
        else:
            content[place] = self._changed(content[place])
        return content


def _compressed(text: bytes, size: int | None = None) -> bytes:
    """The table of a submission file before it becomes Base64, which may state another size than it has."""
    return (len(text) if size is None else size).to_bytes(4, "big") + pa.Codec("zstd").compress(text, asbytes=True)


def read_in_every_way(results: Results, *, drawn: bool) -> None:
    """The boards, a comparison, a query, and where `drawn` a figure and the page. Each may refuse, in a sentence."""
    for metric in results.ranking_names[:4]:
        boards = results.boards(metric)
        boards_report.boards_json(boards), boards_report.boards_csv(boards)
    results.ask("select * from results limit 3")
    ways: list[Callable[[], object]] = [lambda: compare(results, BEST, POOR, "tvd")]
    if drawn:
        ways += [lambda: figure.figure(results.boards("tvd"), [BEST]), lambda: site.page(results)]
    for way in ways:
        try:
            way()
        except LgbenchError as error:
            assert str(error)


@pytest.mark.parametrize("submitted", [False, True], ids=["run file", "submission file"])
@pytest.mark.parametrize(("seed", "many"), [(0, 2), *(pytest.param(n, 40, marks=pytest.mark.slow) for n in range(1, 26))])
def test_no_damaged_file_takes_a_board_down(tmp_path, seed, many, submitted):
    """A thousand mutants of either kind with the slow ones."""
    mutants = Mutants(tmp_path, seed, submitted)
    left_out = 0
    for number in range(many):
        mutants.mutate()
        results = Results(tmp_path)
        left_out += bool(results.left_out)
        assert all(mutants.victim.name in sentence for sentence in results.left_out)
        read_in_every_way(results, drawn=number % 20 == 0)
        shown = {row.entry for board in results.boards("tvd", "beta") for row in board.rows}
        assert BEST in shown
    assert left_out < many and (many < 40 or left_out > many / 4)


@pytest.mark.slow
def test_a_file_of_many_runs_lengths_or_long_names_is_left_out_and_says_why(tmp_path):
    good = simulated({8: 0.5, 16: 0.5})
    write_rows(tmp_path / "good.parquet", good)
    write_rows(tmp_path / "many.parquet", [good[0] | {"entry": f"e{n}", "seed": n} for n in range(3000)])
    write_rows(tmp_path / "long.parquet", [good[0] | {"length": n + 1, "run_id": "1", "on_boards": True} for n in range(1001)])
    write_rows(tmp_path / "wide.parquet", [row | {"entry": "e" * 50_000_000, "run_id": "2"} for row in good])
    write_rows(tmp_path / "deep.parquet", good, experiment={"a": "b" * 2**21})
    found = Results(tmp_path).left_out
    reasons = {
        "many": "its rows of one run name several entries, tasks, protocols or seeds",
        "long": "it has more than 1000 lengths for boards",
        "wide": "it has a name or a setting of more than 2000 characters",
        "deep": "bytes in its footer, and a run has 1048576 at most",
    }
    assert len(found) == len(reasons)
    for name, reason in reasons.items():
        assert any(f"{name}.parquet" in sentence and reason in sentence for sentence in found), (name, found)


def test_a_file_whose_name_is_no_text_is_left_out(tmp_path):
    good = write_rows(tmp_path / "good.parquet", simulated({8: 0.5}))
    with open(bytes(tmp_path) + b"/\xff.parquet", "wb") as file:
        file.write(good.read_bytes())
    results = Results(tmp_path)
    (sentence,) = results.left_out
    assert "its name is not UTF-8; rename it" in sentence and results.boards("tvd")


MEMORY = """
import sys
from lgbench.cli.main import main
try:
    main(sys.argv[1:], prog_name="lgbench")
finally:
    print("peak", *[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


def peak(*words):
    """Of a command: its exit code, standard error, and how many bytes of memory it took at most."""
    done = subprocess.run([sys.executable, "-c", MEMORY, *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stderr, int(done.stdout.split("peak ")[1]) * 1024


def write_many(folder, count, **names):
    """Small sound files, each with another number in these columns, and in `length` where that is named."""
    for number in range(count):
        lengths = {8: 0.1, 16 + (number if "length" in names else 0): 0.5}
        rows = simulated(lengths, run_id=f"{number:016x}", family="many")
        own = {name: number if name == "seed" else f"{text}{number}" for name, text in names.items() if name != "length"}
        write_rows(folder / f"{number}.parquet", [row | {"on_boards": True} | own for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["leaderboard"], ["compare", "e0", "e1"], ["plot", "--out", "a.json"], ["site"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("names", [{"task": "t"}, {}], ids=["and tasks", "of one task"])
def test_a_thousand_files_that_agree_in_nothing_stay_below_a_gibibyte_and_others_are_ranked(
    tmp_path, monkeypatch, words, names
):
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path / "runs", 1000, entry="e", seed="", length="", **names)
    for seed in range(3):
        for entry in ("e0", "e1"):
            own = simulated({8: 0.5, 16: 0.5}, entry=entry, seed=seed, task="sound")
            write_rows(tmp_path / "runs" / f"{entry}.{seed}.parquet", own)
    code, said, most = peak(*words, "--results", tmp_path / "runs")
    assert code == 0 and most < 2**30, said
    assert words[0] == "compare" or "few values in common" in said


@pytest.mark.long
@pytest.mark.parametrize("column", ["task", "protocol", "entry"])
def test_a_thousand_boards_or_entries_stay_below_a_gibibyte_in_every_report(tmp_path, monkeypatch, column):
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path / "runs", 1000, **{column: "n"})
    for words in (["leaderboard"], ["plot", "--out", "a.json"], ["site"]):
        code, said, most = peak(*words, "--results", tmp_path / "runs")
        assert most < 2**30 and "Traceback" not in said, said
        assert code == 0 or "1000 boards are found, and a figure has 40 panels at most" in said


def test_a_board_of_seeds_entries_and_lengths_that_agree_in_nothing_is_left_out_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MAX_PLACES", 200)
    write_many(tmp_path, 10, entry="e", seed="", length="")
    for seed in range(3):
        write_rows(tmp_path / f"good{seed}.parquet", simulated({8: 0.5}, task="sound", seed=seed))
    results = Results(tmp_path)
    assert [board.name for board in results.boards("tvd")] == ["sound"]
    (sentence,) = results.no_boards
    assert "the board of many by tvd under protocol quick/1" in sentence
    assert "it has 10 entries, 10 seeds, 1 tasks and 11 lengths with few values in common, 20 in all" in sentence
    monkeypatch.setattr(columns, "MAX_ENTRIES", 9)
    results = Results(tmp_path)
    assert [board.name for board in results.boards("tvd")] == ["sound"]
    assert "a board can rank 9 entries" in "".join(results.no_boards)


@pytest.mark.slow
def test_a_board_beside_a_million_seeds_stays_below_a_gibibyte(tmp_path):
    good = write_rows(tmp_path / "good.parquet", simulated({8: 0.5, 16: 0.5}))
    row = pa.Table.from_pylist(simulated({8: 0.5}), schema=SCHEMA)
    seeds = pa.array(range(10**6), pa.int64())
    rows = row.take(pa.array([0] * 10**6)).set_column(SCHEMA.get_field_index("seed"), "seed", seeds)
    write_sealed(tmp_path / "many.parquet", rows, json.dumps(run_files.metadata(good)).encode())
    code, said, most = peak("leaderboard", "--results", tmp_path)
    assert code == 0 and "many.parquet" in said and most < 2**30, said
