"""Answers to SQL queries as a table, CSV and JSON."""

from __future__ import annotations

import json

from helpers.commands import invoked
from helpers.run_files import simulated, write_rows

from lgbench.reports.tables import as_csv, as_json
from lgbench.results.leaderboard import Results


def objects(names, rows) -> str:
    return as_json([dict(zip(names, row, strict=True)) for row in rows])


def test_an_answer_without_rows_is_still_an_answer(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}))
    names, rows = Results(tmp_path).ask("select entry from results where false")
    assert as_csv(names, rows) == "entry\n"
    assert json.loads(objects(names, rows)) == []


def test_a_table_without_rows_says_so_and_names_what_is_from_a_plugin_file(tmp_path):
    named = dict(task="own~1a2b3c4d", entry="transformer+mine~1a2b3c4d", family="alpha")
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}, **named))
    asked = "select entry, value from results where task = '{}' and entry = 'transformer+mine'"
    said = " ".join(invoked("sql", asked.format("own"), "--results", tmp_path).stdout.split())
    for name in ("own", "transformer+mine"):
        assert f"'{name}' is from a plugin file; in the results it is '{name}~1a2b3c4d'" in said
    assert "0 rows" in said
    said = invoked("sql", "select entry from results where task = 'other'", "--results", tmp_path).stdout
    assert said.splitlines()[-1] == "0 rows"


def test_changes_of_a_protocol_are_a_map(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}, changes=[("train.lr", "0.1"), ("train.steps", "5")]))
    found = Results(tmp_path).ask("select changes, changes['train.lr'] as lr from results")
    assert json.loads(objects(*found)) == [{"changes": {"train.lr": "0.1", "train.steps": "5"}, "lr": "0.1"}]


def test_a_query_may_write_a_file(tmp_path):
    write_rows(tmp_path / "runs" / "run.parquet", simulated({8: 0.5}))
    query = f"copy (select value from results) to '{tmp_path}/out.csv'"
    done = invoked("sql", query, "--results", tmp_path / "runs")
    assert done.exit_code == 0 and (tmp_path / "out.csv").read_text() == "value\n0.5\n"
