from __future__ import annotations

import os
import random
import shutil
import sys
import time
from pathlib import Path

import published
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import python, write_sealed

from lgbench.errors import RunFailed, RunFileError
from lgbench.results import run_files
from lgbench.results.run_schema import SCHEMA
from lgbench.submissions import submission
from lgbench.submissions.inspection import Inspector
from lgbench.submissions.quarantine import Limits
from lgbench.submissions.reader import Reader


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """A run."""
    (path,) = published.make(tmp_path_factory.mktemp("made"), seeds=[3], tasks=["small-even"])
    return path


@pytest.fixture(scope="module")
def inspect():
    """A function that inspects one file as a submission does."""
    inspector = Inspector(published.registry(), submission.RULES)
    with Reader() as reader:
        yield lambda path: inspector.run(path, reader.read(path))


def write_table(path: Path, table: pa.Table, like: Path, metadata: bytes | None = None, **options) -> Path:
    """A Parquet file of any columns with the footer of a run, or any other."""
    about = pq.read_metadata(like).metadata[b"lgbench"] if metadata is None else metadata
    return write_sealed(path, table, about, **options)


column = SCHEMA.names.index


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.append_column("payload", pa.array(["x"] * t.num_rows)), "columns that no run has: 'payload'"),
        (lambda t: t.append_column("value", t["value"]), "in order, number or nulls"),
        (lambda t: t.drop_columns(["seed"]), "it lacks the columns seed"),
        (lambda t: t.drop_columns(["seed"]).append_column("seed", t["seed"]), "in order, number or nulls"),
        (lambda t: t.set_column(column("seed"), "seed", t["seed"].cast(pa.int32())), "seed is int32, not int64"),
        (lambda t: t.set_column(column("value"), "value", t["value"].cast(pa.string())), "value is string, not double"),
        (lambda t: t.set_column(column("changes"), "changes", t["entry"]), "changes is string, not map<string, string"),
        (lambda t: t.set_column(1, "entry", t["entry"].dictionary_encode()), "entry is dictionary"),
        (lambda t: t.rename_columns(["Run_id", *t.column_names[1:]]), "it lacks the columns run_id"),
        (lambda t: t.slice(0, 0), "has no rows"),
    ],
)
def test_columns_are_exactly_those_of_a_run(honest, tmp_path, inspect, change, said):
    with pytest.raises(RunFileError) as refused:
        inspect(write_table(tmp_path / "run.parquet", change(run_files.read(honest)), honest))
    assert said in str(refused.value)


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (b"[1]", "in its footer, Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "codec"),
        (DEEP[: 200 * 1024], "nested too deeply"),
        (DEEP[: 5 * 2000] + b"1" + b"}" * 2000, "nested too deeply"),
        (DEEP, "and a run at most 262144"),
        (b'{"experiment": NaN}', "'NaN' is no finite number"),
        (b'{"experiment": 1e999}', "'1e999' is no finite number"),
        (b'{"experiment": ' + b"9" * 5000 + b"}", "is no number of 64 bits"),
        (b'{"' + b"x" * 300_000 + b'": 1}', "and a run at most 262144"),
    ],
)
def test_metadata_that_are_no_footer_are_refused(honest, tmp_path, inspect, metadata, said):
    with pytest.raises(RunFileError) as refused:
        inspect(write_table(tmp_path / "run.parquet", run_files.read(honest), honest, metadata))
    assert said in str(refused.value)


def test_a_file_without_metadata_is_refused(honest, tmp_path, inspect):
    pq.write_table(run_files.read(honest).replace_schema_metadata(None), tmp_path / "run.parquet")
    with pytest.raises(RunFileError, match="its footer has no metadata"):
        inspect(tmp_path / "run.parquet")


def test_a_file_that_was_cut_off_anywhere_is_refused(honest, tmp_path, inspect):
    whole, path = honest.read_bytes(), tmp_path / "cut.parquet"
    for length in [*range(0, len(whole), 61), *range(len(whole) - 12, len(whole))]:
        path.write_bytes(whole[:length])
        with pytest.raises(RunFileError, match="cut.parquet"):
            inspect(path)


def test_bytes_that_were_changed_anywhere_are_refused_in_a_sentence(honest, tmp_path, inspect):
    chance, path = random.Random(0), tmp_path / "changed.parquet"
    refused = 0
    for _ in range(150):
        content = bytearray(honest.read_bytes())
        for _ in range(chance.choice([1, 4, 40])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
        refused += content != honest.read_bytes()
        if content != honest.read_bytes():
            with pytest.raises(RunFileError, match="changed.parquet") as error:
                inspect(path)
            assert all(line.isprintable() for line in str(error.value).split("\n"))
    assert refused > 140


def test_a_file_that_another_program_wrote_anew_is_refused(honest, tmp_path, inspect):
    pq.write_table(run_files.read(honest), tmp_path / "run.parquet")
    with pytest.raises(RunFileError, match="content does not fit the checksum|has no metadata|has no checksum"):
        inspect(tmp_path / "run.parquet")


def _touched(path: Path) -> Path:
    path.touch()
    return path


def test_a_run_file_may_be_smaller_than_a_submission_file(honest):
    with Reader(Limits(file_bytes=1000)) as reader, pytest.raises(RunFileError, match="is larger than 0 MB, and no run is"):
        reader.read(honest)


def test_what_is_no_file_is_refused_in_a_sentence(tmp_path, inspect):
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("PAR1 and some text PAR1")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "link.parquet").symlink_to("/etc/passwd")
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    os.truncate(_touched(tmp_path / "large.parquet"), 65 * 2**20)
    said = {
        "empty": "is empty",
        "text": "no readable Parquet file",
        "folder": "is no regular file",
        "link": "no readable Parquet file",
        "loop": "cannot be opened",
        "pipe": "is no regular file",
        "large": "is larger than 64 MB, and no submission is",
        "missing": "cannot be opened: No such file",
    }
    for name, reason in said.items():
        with pytest.raises(RunFileError, match=reason) as refused:
            inspect(tmp_path / f"{name}.parquet")
        assert "root:" not in str(refused.value)


# Files that are made to do harm.


def peak_megabytes() -> float:
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


BOMBS = {
    "dictionary": "has a text of 300000 bytes in entry",
    "map": "has a text of 300000 bytes in changes",
    "texts": "unfolds to more than 64 MB",
    "changes": "unfolds to more than 64 MB",
    "pages": "unfolds to more than 64 MB",
    "rows": "has 2000000 rows",
}
MAKE_BOMBS = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from lgbench.results import run_files
from lgbench.results.checksums import sealed
from lgbench.results.run_schema import SCHEMA

footer, folder = {b"lgbench": b'{"checksum": "%s"}' % (b"0" * 64)}, sys.argv[1]
schema, names = SCHEMA, SCHEMA.names

def nothing(rows):
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)

with pq.ParquetWriter(f"{folder}/rows.parquet", schema) as writer:
    writer.write_table(nothing(2_000_000))
    writer.add_key_value_metadata(footer)

# 100,000 rows that share one text: 30 GB, or 100 MB, to whoever unfolds them. A map has texts, too.
def shared(text):
    return pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array([text]))

def changes(text):
    return pa.MapArray.from_arrays(pa.array(range(100_001), pa.int32()), shared("key"), shared(text))

for name, column, values in (
    ("dictionary", "entry", shared("x" * 300_000)),
    ("map", "changes", changes("x" * 300_000)),
    ("texts", "entry", shared("x" * 1000)),
    ("changes", "changes", changes("x" * 1000)),
):
    table = nothing(100_000).set_column(names.index(column), column, values)
    with pq.ParquetWriter(f"{folder}/{name}.parquet", table.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(footer)

# Twelve texts of 50 MB in pages of their own.
plain = {"use_dictionary": False, "write_statistics": False}
with pq.ParquetWriter(f"{folder}/pages.parquet", schema, compression="zstd", **plain) as writer:
    for letter in "abcdefghijkl":
        writer.write_table(nothing(1).set_column(1, "entry", pa.array([letter * 50_000_000])))
    writer.add_key_value_metadata(footer)

for path in Path(folder).iterdir():
    path.write_bytes(sealed(path.read_bytes()))
"""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory) -> dict[str, Path]:
    """Small files that unfold to a lot, made elsewhere, so that this process stays small."""
    folder = tmp_path_factory.mktemp("bombs")
    done = python(MAKE_BOMBS, str(folder))
    assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.parquet" for name in BOMBS}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_unfolds_to_gigabytes_costs_nothing(bombs, inspect, name):
    assert bombs[name].stat().st_size < 2**20
    before, started = peak_megabytes(), time.monotonic()
    with pytest.raises(RunFileError) as refused:
        inspect(bombs[name])
    assert BOMBS[name] in str(refused.value)
    assert peak_megabytes() - before < 50 and time.monotonic() - started < 20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's memory")
def test_pages_that_unfold_to_more_than_they_declare_run_into_the_limit_of_memory(bombs, honest):
    before = peak_megabytes()
    with Reader(Limits(unfolded_bytes=2**60, text_bytes=2**60)) as trusting:  # as if the file had lied about its sizes
        with pytest.raises(RunFileError, match="takes more than 512 MB of memory|broke down"):
            trusting.read(bombs["pages"])
        assert trusting.read(honest).rows.num_rows
    assert peak_megabytes() - before < 50


def test_a_file_that_takes_too_long_costs_its_reader_and_the_next_one_is_read(honest):
    with Reader(Limits(seconds=0.0)) as reader:
        with pytest.raises(RunFileError, match="the process that read it took more than 0 s"):
            reader.read(honest)
        reader.limits = Limits()
        assert reader.read(honest).rows.num_rows


def test_a_reader_that_died_is_replaced(honest):
    with Reader() as reader:
        reader.read(honest)
        reader._child.kill()
        reader._child.wait()
        with pytest.raises(RunFileError, match="broke down"):
            reader.read(honest)
        assert next(reader.runs(honest, rows=False)).rows is None


def test_a_reader_that_cannot_start_is_no_fault_of_the_file(honest, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with Reader() as reader, pytest.raises(RunFailed, match="does not start"):
        reader.read(honest)


def test_modules_that_lie_beside_the_files_are_not_imported(honest, tmp_path, monkeypatch):
    for name in ("json", "pyarrow", "lgbench", "signal"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with Reader() as reader:
        assert reader.read(honest).rows.num_rows
    assert not (tmp_path / "imported").exists()
