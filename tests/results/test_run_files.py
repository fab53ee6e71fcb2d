from __future__ import annotations

import errno
import hashlib
import json
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.processes import python
from helpers.registries import BUILT_IN_METRICS
from helpers.run_files import corrupt, simulated, write_rows

import lgbench
from lgbench.errors import RunFileError
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA

ROWS = simulated({1: 0.5, 2: None, 16: 0.25})


def table(rows=ROWS) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_what_is_written_is_read_back_with_its_schema_and_footer(tmp_path):
    path = write_rows(tmp_path / "deep" / "run.parquet", ROWS, answer=42, nested={"a": [1, None]})
    found = run_files.read(path)
    assert found.schema.remove_metadata().equals(SCHEMA)
    assert found.to_pylist() == [dict.fromkeys(SCHEMA.names) | row for row in ROWS]
    about = run_files.metadata(path)
    assert (
        len(about.pop("checksum")) == 64 and about.pop("experiment")["train"].items() >= {"steps": 5, "max_length": 2}.items()
    )
    assert about == {"answer": 42, "nested": {"a": [1, None]}}
    assert pq.read_table(path).num_rows == 3  # any Parquet reader can


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_reading_a_file_starts_no_thread_that_could_abort_a_process_that_ends(tmp_path):
    path = write_rows(tmp_path / "run.parquet", ROWS)
    script = f"""
import os
from pathlib import Path
from lgbench.results import run_files
before = len(os.listdir("/proc/self/task"))
assert run_files.read(Path({str(path)!r})).num_rows == {len(ROWS)}
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert python(script).stdout == "0\n"


def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    path = write_rows(tmp_path / "run.parquet", ROWS)
    before = path.read_bytes()
    write_rows(path, simulated({1: 0.75}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_hidden_files_and_hidden_folders_are_never_searched(tmp_path):
    run, deep = (write_rows(tmp_path / name, ROWS) for name in ("run.parquet", "deep/er/run.parquet"))
    for name in (".hidden.parquet", ".cache/run.parquet", "deep/.packs/run.parquet", ".unfinished/a/b/run.parquet"):
        write_rows(tmp_path / name, ROWS)
    (tmp_path / "folder.parquet").mkdir()
    assert list(run_files.find(tmp_path)) == [deep, run]
    assert list(run_files.find(tmp_path / ".unfinished")) == [tmp_path / ".unfinished" / "a" / "b" / "run.parquet"]
    assert list(run_files.find(tmp_path / "nowhere")) == []


LACKING = table().drop_columns(["layer", "head"])
OTHER_TYPES = table().set_column(0, "run_id", pa.array([1, 2, 3]))
BAD = {
    "lacks the columns run_id": lambda path: pq.write_table(pa.table({"a": [1, 2]}), path),
    "lacks the columns layer, head; if an earlier lgbench made it, run it again": lambda path: pq.write_table(
        LACKING.replace_schema_metadata({b"lgbench": b"{}"}), path
    ),
    "no readable Parquet file": lambda path: path.write_text("not a Parquet file at all"),
    "is damaged or was changed: its content does not fit its checksum": lambda path: path.write_bytes(
        write_rows(path.with_name("whole"), ROWS).read_bytes()[:-40]
    ),
    "is empty": Path.touch,
    "no rows": lambda path: run_files.write(path, table([]), {}),
    "columns differ": lambda path: pq.write_table(OTHER_TYPES.replace_schema_metadata({b"lgbench": b"{}"}), path),
    "no metadata of lgbench": lambda path: pq.write_table(table(), path),
    "its metadata have no checksum": lambda path: pq.write_table(table().replace_schema_metadata({b"lgbench": b"{}"}), path),
}


@pytest.mark.parametrize("said", BAD)
def test_what_is_no_run_file_is_refused_with_the_reason(tmp_path, said):
    path = tmp_path / "bad.parquet"
    BAD[said](path)
    with pytest.raises(RunFileError) as refused:
        run_files.read(path)
    assert said in str(refused.value) and str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sound_footer_over_corrupt_data_is_refused_with_the_reason(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({n: n / 7 for n in range(1, 500)}))
    corrupt(path)
    assert run_files.metadata(path)
    with pytest.raises(RunFileError, match="unreadable data"):
        run_files.read(path)


def test_a_run_that_the_disk_does_not_give_is_not_taken_for_damaged(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "run.parquet", ROWS)
    run_id = ROWS[0]["run_id"]

    def fail(self):
        raise OSError(errno.EIO, "Input/output error", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        with pytest.raises(OSError, match="Input/output error"):
            run_files.make_room(path, run_id)
    assert run_files.is_run(path, run_id) and not run_files.is_run(tmp_path / "none.parquet", run_id)


@pytest.mark.slow
def test_every_flipped_bit_of_a_file_is_found_by_every_reader(tmp_path):
    path = write_rows(tmp_path / "run.parquet", ROWS, answer=42)
    whole = path.read_bytes()
    assert run_files.is_run(path, ROWS[0]["run_id"])
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        assert not run_files.is_run(path, ROWS[0]["run_id"])
        for read in (run_files.read, run_files.metadata):
            with pytest.raises(RunFileError, match="run.parquet"):
                read(path)


def test_the_checksum_is_the_hash_of_the_file_with_zeros_in_its_place(tmp_path):
    path = write_rows(tmp_path / "run.parquet", ROWS, checksum="mine")
    digits = run_files.metadata(path)["checksum"]
    zeroed = path.read_bytes().replace(digits.encode(), b"0" * 64)
    assert hashlib.sha256(zeroed).hexdigest() == digits


def test_a_real_run_says_how_and_where_it_was_made(saved_runs):
    """Its settings are those of its experiment, by the tests of inspection."""
    for path in saved_runs.files:
        about = run_files.metadata(path)
        environment = about["environment"]
        assert {description["name"] for description in about["measurements"]} > BUILT_IN_METRICS  # and the probes
        assert environment["lgbench"] == lgbench.__version__ and environment["torch"] == torch.__version__
        assert {"python", "git_commit", "device", "threads", "date"} <= environment.keys()
        assert environment["device"].startswith("cpu") or torch.cuda.is_available()
        assert environment["threads"] == 1  # on a CPU, whatever torch uses in this process
        versions = {plugin["name"]: plugin["version"] for plugin in about["plugins"] if plugin["takes_part"]}
        assert versions == {"lgbench": lgbench.__version__}
        others = {plugin["name"] for plugin in about["plugins"]} - {"lgbench"}
        assert others == {e.dist.name for e in entry_points(group="lgbench")} - {"lgbench"}
        assert 0 < about["seconds"]["train"] <= about["seconds"]["total"] < 600
        json.dumps(about, allow_nan=False)
