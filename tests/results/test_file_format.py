"""Submission files: everything that reads results says the same of them as of the run files that they were made of."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers import site_runs
from helpers.packing import repacked, together

from lgbench.errors import RunFileError
from lgbench.results import file_format, run_files
from lgbench.results.compare import compare
from lgbench.results.file_format import SCHEMA, digest
from lgbench.results.leaderboard import Results


@pytest.fixture(scope="module")
def apart(tmp_path_factory) -> Path:
    """Results with everything a page shows, in run files."""
    return site_runs.write_all(tmp_path_factory.mktemp("apart"))


@pytest.fixture(scope="module")
def paths(apart) -> list[Path]:
    return [*run_files.find(apart)]


@pytest.fixture
def few(paths) -> list[Path]:
    """Runs of one entry."""
    return [path for path in paths if run_files.metadata(path)["experiment"]["entry"] == site_runs.BEST][:7]


@pytest.fixture(params=["one file", "two files", "mixed", "several row groups"])
def filed(request, tmp_path, paths, monkeypatch) -> Path:
    """The same runs in submission files, or some of them; some runs are in a run file as well."""
    if request.param == "several row groups":
        monkeypatch.setattr(file_format, "GROUP_ROWS", 300)
    half = len(paths) // 2
    together(paths if "one" in request.param or "groups" in request.param else paths[:half], tmp_path / "filed")
    if request.param == "two files":
        together(paths[half:], tmp_path / "filed")
    if request.param == "mixed":
        for path in paths[half - 3 :]:
            shutil.copy(path, tmp_path / "filed")
    return tmp_path / "filed"


def everything(results: Results) -> list[str]:
    """All boards, a comparison, and all rows."""
    boards = [results.boards(metric, apart=apart) for metric in results.ranking_names for apart in (False, True)]
    pair = compare(results, site_runs.BEST, site_runs.POOR, "tvd")
    return [
        repr(found) for found in (results.metrics, boards, pair, results.ask("select distinct * from results order by all"))
    ]


@pytest.fixture(scope="module")
def expected(apart) -> list[str]:
    return everything(Results(apart))


@pytest.mark.slow
def test_boards_comparisons_and_queries_are_those_of_the_run_files(expected, filed):
    found = Results(filed)
    assert found.left_out == [] and everything(found) == expected


def test_the_footer_of_every_run_comes_back(paths, tmp_path):
    found = run_files.metadata_of_runs(together(paths, tmp_path))
    for path in paths:
        assert run_files.metadata_of_runs(path) == {path.stem: found[path.stem]}
        assert found[path.stem] == run_files.metadata(path)


def test_a_submission_file_is_no_run(few, tmp_path):
    path = together(few[:1], tmp_path)
    assert not run_files.is_run(path, few[0].stem)
    with pytest.raises(RunFileError, match="is a submission file, not a run file"):
        run_files.metadata(path)


def test_the_footers_are_read_without_lgbench_as_the_reference_says(few, tmp_path):
    path = together(few, tmp_path)
    table = base64.b64decode(pq.read_metadata(path).metadata[b"lgbench.footers"])
    text = pa.decompress(table[4:], int.from_bytes(table[:4], "big"), "zstd").to_pybytes()
    runs = [json.loads(line) for line in text.splitlines()]
    rows = pq.read_table(path)
    for run in runs:
        own = rows.filter(pc.equal(rows["run_id"], run["run_id"]))
        assert own.num_rows == run["rows"] and run["content"] == by_hand(run["footer"], own)
    content = path.read_bytes()
    digits = json.loads(pq.read_metadata(path).metadata[b"lgbench"])["checksum"].encode()
    assert hashlib.sha256(content.replace(digits, b"0" * 64)).hexdigest().encode() == digits


def by_hand(metadata, rows) -> str:
    """The digest, value by value."""
    text = {"sort_keys": True, "separators": (",", ":")}
    found = hashlib.sha256(json.dumps(metadata, **text).encode())
    sizes = {"int32": 4, "int64": 8}
    for field in SCHEMA:
        values = rows[field.name].to_pylist()
        found.update(field.name.encode())
        if str(field.type) in ("string", "map<string, string>"):
            found.update(json.dumps(values, **text).encode())
            continue
        found.update(bytes(value is not None for value in values))
        for value in values:
            if field.type == pa.float64():
                found.update(pa.array([value or 0.0]).buffers()[1].to_pybytes()[:8] if sys.byteorder == "little" else b"")
            else:
                found.update(int(value or 0).to_bytes(sizes.get(str(field.type), 1), "little", signed=True))
    return found.hexdigest()


def test_the_digest_of_a_run_changes_with_everything_in_it_and_not_with_its_encoding(few):
    metadata, rows = run_files.metadata(few[0]), run_files.read(few[0])
    same = digest(metadata, rows)
    assert digest(dict(reversed(metadata.items())), pa.concat_tables([rows.slice(0, 5), rows.slice(5)])) == same
    others = {same, digest(metadata | {"seconds": 1}, rows)}
    others |= {digest(metadata, own) for own in (rows.slice(1), rows.take([1, 0]))}
    changes = {"value": [0.123, None, float("nan")], "n": [9, None], "entry": ["x", None], "on_boards": [False, None]}
    content = rows.to_pylist()
    for name, values in changes.items():
        for value in values:
            changed = [content[0] | {name: value}, *content[1:]]
            others.add(digest(metadata, pa.Table.from_pylist(changed, schema=SCHEMA)))
    assert len(others) == 13


def line(**fields: object) -> bytes:
    """A line of the table, with these fields other than in an empty run."""
    return json.dumps({"run_id": "", "rows": 1, "content": "0" * 64, "footer": {}} | fields).encode() + b"\n"


def compressed(text: bytes) -> bytes:
    return base64.b64encode(len(text).to_bytes(4, "big") + pa.Codec("zstd").compress(text, asbytes=True))


TABLES = {
    "no text": (lambda table: b"\xff\xfe", "its table of runs is not a compressed table"),
    "half": (lambda table: table[: len(table) // 8 * 4], "its table of runs is not a compressed table"),
    "a list": (lambda table: compressed(b"[1]"), "a line of its table of runs is broken"),
    "a type": (lambda table: compressed(line(run_id=1)), "Expected `str`, got `int`"),
    "no digest": (lambda table: compressed(line(content="")), "a line of its table of runs is broken"),
    "fewer than no rows": (lambda table: compressed(line(rows=-1)), "a line of its table of runs is broken"),
    "other rows": (lambda table: compressed(line()), "about other rows"),
    "twice": (lambda table: compressed(line() * 2), "has a run twice"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_broken_table_of_runs_is_refused_with_the_reason(few, tmp_path, kind):
    change, why = TABLES[kind]
    path = together(few, tmp_path)
    repacked(path, path, table=change)
    with pytest.raises(RunFileError, match=why):
        run_files.metadata_of_runs(path)


def test_names_say_what_a_submission_is_of_and_change_with_its_runs(paths, few, tmp_path):
    names = {together(part, tmp_path).name for part in (few, few[:1], few[1:2], paths)}
    families = {name.split(".")[0] for name in names}
    assert len(names) == 4 and families <= {"alpha", "beta", "2-families"} and "2-families" in families
    assert together(reversed(few), tmp_path).name in names
