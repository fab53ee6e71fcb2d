"""The runs of a folder: which files are read, which are left out with a reason, which names are known, and queries."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import site_runs
from helpers.commands import invoked
from helpers.packing import together
from helpers.run_files import corrupt, simulated, write_rows

import lgbench
import lgbench_measurements
from lgbench import Facts, UsageError
from lgbench.errors import RunFileError
from lgbench.results.file_format import METADATA_KEY, SCHEMA
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric


def test_bad_files_are_named_and_the_rest_is_ranked(tmp_path):
    good = simulated({8: 0.5, 16: 0.25})
    write_rows(tmp_path / "good.parquet", good)
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("hello")
    bad = write_rows(tmp_path / "flipped.parquet", simulated({8: 0.5}, entry="flipped"))
    bad.write_bytes(bad.read_bytes().replace(b"flipped", b"flopped"))
    results = Results(tmp_path)
    named = {name for name in ("empty", "text", "flipped", "good") if f"/{name}.parquet" in "\n".join(results.left_out)}
    assert named == {"flipped", "empty", "text"}
    (board,) = results.boards("tvd")
    assert [row.entry for row in board.rows] == ["arch+norm"]
    with pytest.warns(UserWarning, match="left out") as warned:
        assert lgbench.read_results(tmp_path).shape[0] == len(good)
    assert len(warned) == 3


def test_a_folder_with_bad_files_alone_says_why_there_is_nothing(tmp_path):
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(UsageError, match="no readable runs") as refused:
        Results(tmp_path)
    assert "empty.parquet" in str(refused.value)


def test_a_missing_and_an_empty_folder_say_what_makes_runs(tmp_path):
    with pytest.raises(UsageError, match="no results folder .*nowhere.*lgbench run"):
        Results(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no runs in .*lgbench run"):
        Results(tmp_path)


@pytest.fixture
def small(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}, task="alpha-1", family="alpha"))
    return Results(tmp_path)


def test_unknown_names_suggest_what_the_folder_has(small):
    with pytest.raises(UsageError, match="no task 'alhpa'; did you mean 'alpha'"):
        small.boards("tvd", "alhpa")
    with pytest.raises(UsageError, match="no metric 'tdv'; did you mean 'tvd'"):
        small.boards("tdv")
    with pytest.raises(UsageError, match="no protocol 'quck'; did you mean 'quick'"):
        small.boards("tvd", protocol="quck")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nonsense from results", "nonsense"),
        ("selec 1", "syntax error"),
        ("select * from nowhere", "nowhere"),
        (" ", "select"),
        ("-- nothing", "select"),
    ],
)
def test_a_wrong_query_is_a_usage_error_in_the_words_of_duckdb(small, sql, said):
    with pytest.raises(UsageError) as refused:
        small.ask(sql)
    assert said in str(refused.value)


def test_a_query_groups_tasks_by_what_is_published_about_them(tmp_path):
    regular = Facts("regular with groups", "regular", False, False, True, "Z_2", ("arXiv 2410.02140, table 1", "another"))
    tasks = {"alpha-1": regular, "alpha-2": Facts("counter"), "beta-1": Facts("counter"), "gamma": None}
    for value, (task, facts) in enumerate(tasks.items()):
        told = {"facts": asdict(facts)} if facts else {}
        write_rows(tmp_path / f"{task}.parquet", simulated({8: value / 10}, task=task, family=task[0]), **told)
    results = Results(tmp_path)
    _, rows = results.ask("select kind, round(avg(value), 4) from final join facts using (task) group by all order by all")
    assert rows == [("counter", 0.15), ("regular with groups", 0.0)]
    columns, (row, *_) = results.ask("select * from facts order by task")
    assert dict(zip(columns, row, strict=True)) == {"task": "alpha-1"} | asdict(regular) | {"sources": [*regular.sources]}


def test_facts_without_any_detail_are_a_row_too(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}), facts=asdict(Facts("counter")))
    assert Results(tmp_path).ask("select kind, chomsky, star_free, sources from facts")[1] == [("counter", None, None, [])]


def test_results_are_a_relation_that_keeps_working(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    relation = lgbench.read_results(tmp_path)
    assert relation.aggregate("avg(value)").fetchall() == [(0.375,)]
    assert relation.filter("length = 16").fetchall()[0][relation.columns.index("value")] == 0.25


def test_each_number_of_a_run_in_several_files_is_there_once_and_of_different_numbers_the_first(tmp_path):
    rows = simulated({8: 0.5, 16: 0.25}, run_id="1" * 16)
    write_rows(tmp_path / "b.parquet", rows)
    for copied in ("a", "c"):
        (tmp_path / f"{copied}.parquet").write_bytes((tmp_path / "b.parquet").read_bytes())
    probed = simulated({8: 0.5, 16: 0.25}, run_id="1" * 16) + simulated({8: 1.5}, metric="entropy", layer=1, run_id="1" * 16)
    write_rows(tmp_path / "d.parquet", probed)
    write_rows(tmp_path / "e.parquet", simulated({8: 0.75, 16: 0.25, 32: 0.25}, run_id="1" * 16))  # more numbers, but others
    results = Results(tmp_path)
    count = "select metric, length, value from results order by all"
    expected = [("entropy", 8, 1.5), ("tvd", 8, 0.5), ("tvd", 16, 0.25)]
    assert results.ask(count)[1] == expected
    assert len(results.left_out) == 1 and "e.parquet" in results.left_out[0]
    with pytest.warns(UserWarning, match="e.parquet.*the first counts"):
        relation = lgbench.read_results(tmp_path)
    assert relation.columns == SCHEMA.names
    assert relation.project("metric, length, value").order("all").fetchall() == expected


def test_a_folder_whose_name_has_glob_characters_or_quotes_is_read(tmp_path):
    folder = tmp_path / "runs [a]*'s"
    write_rows(folder / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    assert lgbench.read_results(folder).shape[0] == 2
    assert Results(folder).ask("select count(*) from results")[1] == [(2,)]


def test_folders_that_say_key_equals_value_add_no_columns(tmp_path):
    for seed in (0, 1):
        write_rows(tmp_path / f"device={seed}" / "run.parquet", simulated({8: 0.5, 16: 0.25}, seed=seed))
    assert lgbench.read_results(tmp_path).columns == SCHEMA.names
    assert Results(tmp_path).ask("select * from results")[0] == SCHEMA.names


def description(**changes):
    return {**asdict(Metric.of(lgbench_measurements.TotalVariation())), **changes}


WRONG = [
    None,
    [1, None, "tvd", []],
    [{"name": "tvd"}],
    [description(low=10**400)],
    [description(version="1")],
    [description(lower_is_better=1)],
]


@pytest.mark.parametrize("measurements", WRONG, ids=str)
def test_a_footer_that_describes_no_metric_harms_no_other_file(tmp_path, measurements):
    write_rows(tmp_path / "good.parquet", simulated({8: 0.5, 16: 0.25}), measurements=[description()])
    write_rows(tmp_path / "strange.parquet", simulated({8: 0.75, 16: 0.75}, seed=1), measurements=measurements)
    results = Results(tmp_path)
    (board,) = results.boards("tvd")
    assert (results.metric_names, board.rows[0].seeds, board.metric.threshold) == (["tvd"], (0, 1), 0.1)
    (tmp_path / "good.parquet").unlink()
    with pytest.raises(UsageError, match="no metric 'tvd'; known: none"):
        Results(tmp_path).boards("tvd")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[]"], ids=len)
def test_a_footer_that_cannot_be_decoded_is_named_and_the_rest_is_ranked(tmp_path, content):
    write_rows(tmp_path / "good.parquet", simulated({8: 0.5, 16: 0.25}))
    rows = pa.Table.from_pylist(simulated({8: 0.5, 16: 0.25}, seed=1), schema=SCHEMA)
    pq.write_table(rows.replace_schema_metadata({METADATA_KEY: content}), tmp_path / "strange.parquet")
    results = Results(tmp_path)
    assert len(results.left_out) == 1 and "strange.parquet" in results.left_out[0]
    assert results.boards("tvd")[0].rows[0].seeds == (0,)


def test_metrics_come_with_the_primary_one_first_and_new_versions_before_old_ones(tmp_path):
    own = [description(name="kl"), description(), description(name="kl", version=2), description(name="accuracy")]
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}), measurements=own)
    results = Results(tmp_path)
    assert [(m.name, m.version) for m in results.metrics] == [("tvd", 1), ("accuracy", 1), ("kl", 2), ("kl", 1)]
    assert results.metric_names == ["tvd", "accuracy", "kl"]


def test_unknown_labels_of_protocols_are_refused_with_those_that_there_are(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}, changes=[("train.lr", "0.1")]))
    results = Results(tmp_path)
    for wrong in ("quick", "quick/1", "quick/2 train.lr=0.1", "quick/1 train.lr=0.2", "train.lr=0.1"):
        with pytest.raises(UsageError, match=r"no protocol .* known: quick/1 train\.lr=0\.1$"):
            results.boards("tvd", protocol=wrong)
    assert len(results.boards("tvd", protocol="quick/1 train.lr=0.1")) == 1


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A file cut short, or with flipped bits: half of the time near the end, where the metadata are."""
    if draw.random() < 0.25:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 3, 20])):
        first = draw.choice([0, max(0, len(content) - 6000)])
        changed[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("submitted", [False, True], ids=["run file", "submission file"])
@pytest.mark.parametrize("many", [5, pytest.param(80, marks=pytest.mark.slow)])
def test_a_damaged_file_is_named_and_left_out_and_the_boards_of_the_others_stay(tmp_path, many, submitted):
    draw = random.Random(0)
    for number, entry in enumerate(("best+norm", "poor+norm")):
        for seed in range(3):
            site_runs.write_run(tmp_path, "beta", entry, seed, number)
    poor = sorted(tmp_path.glob("*.parquet"))[3:]
    victim = together(poor, tmp_path) if submitted else poor[0]
    whole = victim.read_bytes()
    for path in poor:
        path.unlink()
    before = Results(tmp_path).boards("tvd") if submitted else None
    victim.unlink(missing_ok=True)
    boards = Results(tmp_path).boards("tvd")
    assert boards != before
    for _ in range(many):
        content = damaged(whole, draw)
        if content == whole:
            continue
        victim.write_bytes(content)
        results = Results(tmp_path)
        (sentence,) = results.left_out
        assert sentence.startswith(str(victim)) and results.boards("tvd") == boards


def test_a_file_deleted_after_the_folder_was_opened_is_an_error_in_a_sentence(tmp_path):
    path: Path = write_rows(tmp_path / "good.parquet", simulated({8: 0.5}))
    results = Results(tmp_path)
    path.unlink()
    with pytest.raises(RunFileError, match="good.parquet cannot be read: No such file"):
        results.boards("tvd")


def test_a_file_with_broken_rows_and_a_checksum_that_fits_is_named(tmp_path):
    write_rows(tmp_path / "good.parquet", simulated({8: 0.5}))
    corrupt(write_rows(tmp_path / "bad[1].parquet", simulated({8: 0.5}, seed=1)))
    done = invoked("leaderboard", "--results", tmp_path)
    assert done.exit_code == 1 and f"{tmp_path / 'bad[1].parquet'}: unreadable data" in done.stderr
