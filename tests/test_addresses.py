"""Results in object storage, on a server like S3 in this process: nothing is replaced, nothing is lost, boards are the same."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import object_storage
import obstore
import published
import pytest
from click.testing import CliRunner
from conftest import python
from object_storage import Bucket
from packing import packed
from test_executor import made

import lgbench
from lgbench.cli.main import main
from lgbench.errors import Interrupted, NoAccess, Refused, RunFailed, RunFileError, StorageError, UsageError
from lgbench.execution import engines, publishing, remote
from lgbench.results import mirror, objects, run_files, weights_files
from lgbench.results.addresses import Address
from lgbench.results.leaderboard import Results, read_results
from lgbench.results.mirror import mirrored, place_of
from lgbench.submissions.submission import submit

SETTINGS = {"train.steps": 3, "train.batch": 2, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 16}
GRID = {"task": ["toy-walk", "toy-even"], "arch": "toy-table", "seeds": (0, 1), "protocol": "quick", "set": SETTINGS}
HOW = {"population": 2, "workers": 1, "compile": False, "device": "cpu"}
WORDS = ["--task", "toy-walk,toy-even", "--arch", "toy-table", "--seeds", "0:2", "--protocol", "quick"]
CHANGES = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
COMMAND = ("run", *WORDS, "--workers", "1", "--no-compile", *CHANGES)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with object_storage.moto() as url:
        yield url


@pytest.fixture
def at(monkeypatch, tmp_path):
    """A function that leads to a server, as another machine if it is told so: with a cache folder of its own."""

    def lead(url: str, machine: str = "mine") -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
        monkeypatch.setenv("LGBENCH_CACHE", str(tmp_path / f"cache of {machine}"))

    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", *objects.ENDPOINTS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(objects.RETRIES, "max_retries", 0)
    monkeypatch.setattr(publishing, "LOOK_SECONDS", 0.02)
    return lead


@pytest.fixture
def bucket(server, at, tmp_path_factory) -> Bucket:
    at(server)
    return Bucket(server, tmp_path_factory.mktemp("bucket").name)


@pytest.fixture
def address(bucket) -> str:
    return f"s3://{bucket.url.rpartition('/')[2]}/my runs"


@pytest.fixture
def toys_at_hand(toys_alone):
    remote._replanner.cache_clear()
    yield
    remote._replanner.cache_clear()


def upload(folder: Path, bucket: Bucket) -> None:
    for path in folder.rglob("*.parquet"):
        bucket.put(f"my runs/{path.relative_to(folder).as_posix()}", path.read_bytes())


def files_of(bucket: Bucket, folder: Path) -> Path:
    """The objects, fetched without lgbench into a new folder."""
    folder.mkdir()
    for name in bucket.names():
        (folder / name.rpartition("/")[2]).write_bytes(bucket.get(name))
    return folder


def command(*words: str):
    return CliRunner().invoke(main, [*map(str, words)], prog_name="lgbench")


def no_training(monkeypatch) -> None:
    def never(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("lgbench.execution.runner.train", never)


def test_of_eight_writers_to_one_name_one_wins_and_the_others_know(bucket, address):
    code = """
import os, sys
writers = []
for writer in range(8):
    if not (child := os.fork()):
        from lgbench.results.addresses import Address
        store = Address.of(sys.argv[1]).store()
        won = [bool(store.put(f"{key}.parquet", b"writer %d" % writer)) for key in range(20)]
        os._exit(os.write(1, b"%d %s\\n" % (writer, "".join(map(str, map(int, won))).encode())) == 0)
    writers.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in writers))
"""
    done = python(code, address)
    assert done.returncode == 0, done.stderr
    won = dict(line.split() for line in done.stdout.splitlines())
    assert len(won) == 8
    for key in range(20):
        (winner,) = [writer for writer, keys in won.items() if keys[key] == "1"]
        assert bucket.get(f"my runs/{key}.parquet") == f"writer {winner}".encode()


def test_the_boards_of_an_address_are_those_of_the_folder_and_a_second_look_copies_nothing(
    bucket, address, results_folder, tmp_path, monkeypatch
):
    folder = tmp_path / "folder"
    shutil.copytree(results_folder, folder / "some" / "older")
    last = sorted((folder / "some").rglob("*.parquet"))[-1]
    last.rename(folder / last.name)
    upload(folder, bucket)
    bucket.put("my runs/.hidden/x.parquet", b"never read")
    bucket.put("my runs/notes.txt", b"never read")
    bucket.put("other/x.parquet", b"another folder's")
    assert repr(Results(address).boards("tvd")) == repr(Results(folder).boards("tvd"))
    copied = []
    get = objects.Store.get
    monkeypatch.setattr(objects.Store, "get", lambda store, name: (copied.append(name), get(store, name))[1])
    assert repr(Results(address).boards("tvd")) == repr(Results(folder).boards("tvd")) and not copied
    bucket.remove(f"my runs/{last.name}")
    other = next((folder / "some").rglob("*.parquet"))
    bucket.put(f"my runs/{last.name}2.parquet", other.read_bytes())
    kept = mirrored(Address.of(address)).folder
    assert copied == [f"{last.name}2.parquet"] and not (kept / last.name).exists()


@pytest.mark.slow
def test_every_command_that_reads_a_folder_says_the_same_of_an_address(bucket, address, results_folder, tmp_path):
    upload(results_folder, bucket)
    query = "select count(*), round(sum(value), 6) from results"
    for words in (["leaderboard"], ["leaderboard", "--task", "nope"], ["compare", "pre-norm", "peri-norm"], ["sql", query]):
        local, there = (command(*words, "--results", place) for place in (results_folder, address))
        assert local.exit_code == there.exit_code
        assert local.output.replace(str(results_folder), address) == there.output
    for words, name in ((("plot", "--out", "figure.json"), "figure.json"), (("site", "--out", "."), "index.html")):
        written = []
        for place in (results_folder, address):
            assert command(*words[:-1], tmp_path / words[-1], "--results", place).exit_code == 0
            written.append((tmp_path / name).read_text())
        assert written[0] == written[1]


def test_an_object_that_changes_is_copied_again_even_within_a_second_and_at_the_same_size(bucket, address):
    for content in (b"first", b"other"):
        bucket.put("my runs/a.parquet", content)
        assert (mirrored(Address.of(address)).folder / "a.parquet").read_bytes() == content


def test_objects_that_cannot_be_files_here_are_named_and_left_out(bucket, address, results_folder, monkeypatch):
    upload(results_folder, bucket)
    long = "n" * 300
    bucket.put(f"my runs/{long}.parquet", b"x")
    bucket.put("my runs/huge.parquet", b"x" * 200_000)
    monkeypatch.setattr(run_files, "MAX_BYTES", 100_000)
    found = command("leaderboard", "--results", address)
    assert found.exit_code == 0 and "peri-norm" in found.output
    assert f"left out: {address}/{long}.parquet cannot be copied, since no file can have its name here" in found.stderr
    assert f"left out: {address}/huge.parquet is not a run of lgbench: it is larger" in found.stderr


def test_a_damaged_object_is_named_by_its_address(bucket, address, results_folder):
    upload(results_folder, bucket)
    bucket.put("my runs/a.parquet", b"no run")
    found = command("leaderboard", "--results", address)
    assert found.exit_code == 0 and f"left out: {address}/a.parquet is no readable Parquet file" in found.stderr


def test_read_results_takes_an_address(bucket, address, results_folder):
    upload(results_folder, bucket)
    assert read_results(address).aggregate("count(distinct run_id)").fetchall() == [(4,)]


def test_runs_at_an_address_are_those_of_a_folder_and_are_not_made_again(bucket, address, toys_at_hand, tmp_path, monkeypatch):
    lgbench.run(**GRID, **HOW, results=tmp_path / "alone")
    first = command(*COMMAND, "--population", "2", "--device", "cpu", "--results", address)
    assert (
        first.exit_code == 0 and f"4 runs written to {address}/; see `lgbench leaderboard --results {address}`" in first.stdout
    )
    assert made(files_of(bucket, tmp_path / "published")) == made(tmp_path / "alone")
    no_training(monkeypatch)
    again = command(*COMMAND, "--results", address)
    assert again.exit_code == 0 and f"4 runs were done before and not run again: {address}/" in again.stdout
    monkeypatch.setenv("LGBENCH_CACHE", str(tmp_path / "cache of another machine"))
    assert (
        lgbench.run(**GRID, **HOW, results=address).num_rows == lgbench.run(**GRID, **HOW, results=tmp_path / "alone").num_rows
    )
    dry = command(*COMMAND, "--dry-run", "--results", address)
    assert dry.exit_code == 0 and "4 runs done before; 0 runs left" in dry.stdout
    assert lgbench.plan(**GRID, **HOW, results=address) == []


def test_a_population_for_another_engine_is_published(bucket, address, toys_at_hand, tmp_path, monkeypatch):
    files = {}
    for population in lgbench.plan(**GRID, **HOW):
        files |= lgbench.run_population(population, results=address)
    assert {f"my runs/{name}": content for name, content in files.items()} == {n: bucket.get(n) for n in bucket.names()}
    assert len(files) == 4


def test_weights_are_published_before_their_runs_and_stay_if_the_run_was_lost(
    bucket, address, toys_at_hand, tmp_path, monkeypatch
):
    order = []
    put = objects.Store.put
    monkeypatch.setattr(objects.Store, "put", lambda s, name, content: (order.append(name), put(s, name, content))[1])
    lgbench.run(**GRID, **HOW, keep_weights=True, results=address)
    local = tmp_path / "alone"
    lgbench.run(**GRID, **HOW, keep_weights=True, results=local)
    there = files_of(bucket, tmp_path / "published")
    assert made(there) == made(local)
    weights = sorted(path.name for path in local.glob("*.safetensors"))
    assert len(weights) == 4 and all((there / name).read_bytes() == (local / name).read_bytes() for name in weights)
    for run in there.glob("*.parquet"):
        name = weights_files.name_beside(run)
        assert name in weights and order.index(name) < order.index(run.name)
    no_training(monkeypatch)
    again = command(*COMMAND, "--keep-weights", "--results", address)
    assert again.exit_code == 0 and "kept weights" not in again.output
    bucket.remove(f"my runs/{run.name}")  # whoever forgets the run here forgets its weights, too
    with publishing.published(Address.of(address), [], print) as work:
        assert not (work.folder / run.name).exists() and not (work.folder / name).exists()
        assert len(list(work.folder.glob("*.safetensors"))) == 3


def test_what_stands_in_the_place_of_weights_at_an_address_is_named_and_their_run_waits(
    bucket, address, toys_at_hand, tmp_path
):
    one = {**GRID, "task": "toy-walk", "seeds": (0,), "keep_weights": True}
    lgbench.run(**one, **HOW, results=tmp_path)
    (weights,) = (path.name for path in tmp_path.glob("*.safetensors"))
    bucket.put(f"my runs/{weights}", b"something else")
    with pytest.raises(RunFailed, match=re.escape(f"remove {address}/{weights}")):
        lgbench.run(**one, **HOW, results=address)
    assert bucket.names() == [f"my runs/{weights}"]
    bucket.remove(f"my runs/{weights}")
    lgbench.run(**one, **HOW, results=address)
    assert len(bucket.names()) == 2 and bucket.get(f"my runs/{weights}") == (tmp_path / weights).read_bytes()


def test_a_run_that_was_removed_at_the_address_is_made_again(bucket, address, toys_at_hand):
    lgbench.run(**GRID, **HOW, results=address)
    gone = bucket.names()[0]
    bucket.remove(gone)
    found = command(*COMMAND, "--results", address)
    assert found.exit_code == 0 and "3 runs were done before" in found.stdout and "1 run written" in found.stdout
    assert gone in bucket.names() and len(bucket.names()) == 4


def test_what_cannot_be_published_is_kept_and_the_same_command_publishes_it_without_training(
    bucket, address, toys_at_hand, monkeypatch, server
):
    put = objects.Store.put

    def down(store, name, content):
        if name.endswith(".parquet"):
            raise StorageError("no server answers")
        return put(store, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(
            objects.Store, "put", lambda store, name, content: objects.Object(0, "") if store.address.is_file else None
        )
        patch.setattr(publishing.WorkingFolder, "_publish", lambda work, path: down(work.store, path.name, b""))
        failed = command(*COMMAND, "--results", address)
    assert failed.exit_code == 1 and "Traceback" not in failed.output
    kept = place_of(Address.of(address), publishing.WORK)
    sentence = (
        f"4 runs are not at {address}, since no server answers; kept in {kept}, the same command publishes without training"
    )
    assert sentence in failed.stderr and bucket.names() == []
    no_training(monkeypatch)
    done = command(*COMMAND, "--results", address)
    assert done.exit_code == 0 and "4 runs were done before" in done.stdout and len(bucket.names()) == 4


def test_the_run_that_another_machine_published_first_stays(bucket, address, toys_at_hand, at, server, tmp_path, monkeypatch):
    at(server, "theirs")
    lgbench.run(**GRID, **HOW, results=address)
    theirs = {name: bucket.get(name) for name in bucket.names()}
    for name in theirs:
        bucket.remove(name)
    at(server)
    mine = sorted(theirs)[0]
    carry_out = engines._carried_out

    def meanwhile(*arguments):
        """The other machine ends before this one, which has looked already."""
        bucket.put(mine, theirs[mine])
        return carry_out(*arguments)

    monkeypatch.setattr(engines, "_carried_out", meanwhile)
    found = command(*COMMAND, "--results", address)
    assert found.exit_code == 0 and bucket.get(mine) == theirs[mine]
    assert f"{mine.rpartition('/')[2]} was published by another machine meanwhile: its file stays" in found.stderr
    assert "3 runs written" in found.stdout and "1 run was done before" in found.stdout
    kept = place_of(Address.of(address), publishing.WORK) / mine.rpartition("/")[2]
    assert kept.read_bytes() == theirs[mine]


def test_an_object_that_is_no_run_stands_in_the_way_with_a_sentence_before_anything_is_trained(
    bucket, address, toys_at_hand, monkeypatch
):
    lgbench.run(**GRID, **HOW, results=address)
    name = bucket.names()[0]
    bucket.put(name, bucket.get(name)[:-100])
    no_training(monkeypatch)
    found = command(*COMMAND, "--results", address)
    in_the_way = f"{address}/{name.rpartition('/')[2]} is no whole file of its run, and nothing at an address is replaced"
    assert found.exit_code == 2 and in_the_way in found.stderr and "Traceback" not in found.output


def test_an_interrupted_command_has_published_what_is_done_and_goes_on(bucket, address, toys_at_hand, tmp_path, monkeypatch):
    lgbench.run(**GRID, **HOW, results=tmp_path / "alone")
    from lgbench.execution import runner

    trained, count = runner.train, iter(range(9))

    def interrupted(*arguments, **options):
        if next(count) == 1:
            raise KeyboardInterrupt
        return trained(*arguments, **options)

    monkeypatch.setattr(runner, "train", interrupted)
    stopped = command(*COMMAND, "--population", "2", "--device", "cpu", "--results", address)
    assert stopped.exit_code == Interrupted.exit_code and len(bucket.names()) == 2
    again = command(*COMMAND, "--population", "2", "--device", "cpu", "--results", address)
    assert again.exit_code == 0 and "2 runs written" in again.stdout
    assert made(files_of(bucket, tmp_path / "published")) == made(tmp_path / "alone")


def test_names_that_cannot_be_paths_are_told(bucket, address):
    bucket.put("my runs/a//b.parquet", b"x")
    with pytest.raises(StorageError, match=f"{address} cannot be used: "):
        mirrored(Address.of(address))


def test_a_server_that_replaces_objects_is_refused(bucket, address, monkeypatch):
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, name, content, mode, **options: put(store, name, content, **options))
    with pytest.raises(NoAccess, match="replaces objects where it is asked not to"):
        Address.of(address).store().require_writable()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> list[Path]:
    return published.make(tmp_path_factory.mktemp("small"))


def test_submitted_runs_are_filed_once_at_an_address_as_in_a_folder(bucket, address, small, tmp_path):
    installed, boards = published.registry(), Address.of(address)
    (tmp_path / "boards").mkdir()
    submit(small, tmp_path / "boards", installed)
    done = submit(small, boards, installed)
    assert (done.filed, done.before) == (10, 0)
    assert {name: bucket.get(name) for name in bucket.names()} == {
        f"my runs/runs/{path.name}": path.read_bytes() for path in (tmp_path / "boards" / "runs").iterdir()
    }
    again = submit(small, boards, installed)
    assert (again.file, again.filed, again.before) == (None, 0, 10)


@pytest.mark.parametrize("error", [StorageError("no server answers"), KeyboardInterrupt()])
@pytest.mark.parametrize("arrives", [True, False])
def test_a_submission_that_is_cut_short_has_filed_all_or_nothing(bucket, address, small, monkeypatch, error, arrives):
    installed, boards = published.registry(), Address.of(address)
    put = objects.Store.put

    def cut(store, name, content):
        if not name.endswith(".parquet"):
            return put(store, name, content)
        if arrives:
            put(store, name, content)
        raise error

    sentence = "nothing was filed, or the answer got lost, since no server answers|interrupted; nothing was filed, or all"
    with monkeypatch.context() as patch, pytest.raises((RunFileError, Interrupted), match=sentence):
        patch.setattr(objects.Store, "put", cut)
        submit(small, boards, installed)
    assert len(bucket.names()) == arrives
    done = submit(small, boards, installed)
    assert (done.filed, done.before) == ((0, 10) if arrives else (10, 0)) and len(bucket.names()) == 1


def test_whoever_files_runs_that_another_one_files_at_the_same_time_is_told(bucket, address, small, tmp_path, monkeypatch):
    installed, boards = published.registry(), Address.of(address)
    other, content = packed(small[:5])
    put = objects.Store.put

    def meanwhile(store, name, own):
        if name.endswith(".parquet"):
            bucket.put(f"my runs/runs/{other}", content)
        return put(store, name, own)

    monkeypatch.setattr(objects.Store, "put", meanwhile)
    with pytest.raises(RunFileError, match=f"somebody else filed the same at the same time; remove {address}/runs/"):
        submit(small, boards, installed)
    assert len(bucket.names()) == 2


def test_a_filed_run_is_never_replaced(bucket, address, small, monkeypatch):
    installed, boards = published.registry(), Address.of(address)
    name = f"my runs/runs/{packed(small)[0]}"
    bucket.put(name, b"another's")
    with pytest.raises(Refused, match="nothing was filed"):
        submit(small, boards, installed)
    assert bucket.names() == [name] and bucket.get(name) == b"another's"


@pytest.mark.slow
def test_run_files_at_addresses_can_be_verified_one_by_one(bucket, address, results_folder):
    upload(results_folder, bucket)
    name = bucket.names()[0].rpartition("/")[2]
    bucket.put("my runs/no.parquet", b"no run")
    found = command("verify", f"{address}/{name}", f"{address}/no.parquet", f"{address}/missing.parquet")
    assert "1 of 1 runs verified; see above for what was refused" in found.stderr and f"  {address}/{name}" in found.stdout
    assert f"refused: {address}/no.parquet is no readable" in found.stdout
    assert f"refused: {address}/missing.parquet" in found.stdout


READERS = (("leaderboard",), ("sql", "select 1"), ("site",), ("plot",), ("compare", "a", "b"))


@pytest.mark.parametrize("words", [*READERS, COMMAND], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("results", "code", "sentence"),
    [
        ("foo://bucket/x", 2, "'foo://bucket/x' begins with foo://, which lgbench cannot reach; known: s3:// for Amazon S3"),
        ("s3://", 2, "'s3://' names no folder of a bucket; use an address such as s3://bucket/folder"),
        ("s3://bucket/../x", 2, "'s3://bucket/../x' names no folder of a bucket"),
        ("s3://no-such-bucket/x", 2, "there is no bucket 'no-such-bucket' for s3://no-such-bucket/x; make it"),
    ],
)
def test_a_wrong_address_is_told_in_a_sentence(bucket, toys_at_hand, tmp_path, monkeypatch, words, results, code, sentence):
    refused(words, results, code, sentence, tmp_path, monkeypatch)


def refused(words, results, code, sentence, tmp_path, monkeypatch) -> None:
    """The command says this one sentence, and nothing is trained or written."""
    monkeypatch.chdir(tmp_path)
    no_training(monkeypatch)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    found = command(*words, "--results", results)
    assert found.exit_code == code and found.stdout == ""
    said = [line for line in found.stderr.splitlines() if not line.startswith("lgbench: warning")]
    assert len(said) == 1 and sentence in said[0] and said[0].startswith("lgbench: ")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [("leaderboard",), COMMAND], ids=lambda words: words[0])
def test_a_server_that_is_not_there_or_not_ours_is_told_in_a_sentence(toys_at_hand, at, words, tmp_path, monkeypatch):
    at("http://127.0.0.1:9")
    refused(
        words, "s3://bucket/x", 1, "no server answers for s3://bucket/x at http://127.0.0.1:9; check", tmp_path, monkeypatch
    )
    for wrong in ("localhost:9000", "http://", "http://x y", "http://x:99999", ""):
        at(wrong)
        refused(words, "s3://bucket/x", 2, f"AWS_ENDPOINT_URL is {wrong!r}, and no address of a server", tmp_path, monkeypatch)
    with object_storage.read_only(readable=False) as url:
        at(url)
        sentence = "the server refuses access to s3://bucket/x (AccessDenied); check the credentials"
        refused(words, "s3://bucket/x", 2, sentence, tmp_path, monkeypatch)
    at("http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "lgbench.results.objects")
    monkeypatch.delattr("lgbench.results.objects")
    sentence = "obstore is not installed, which s3:// needs: pip install 'lgbench[storage]'"
    refused(words, "s3://bucket/x", 2, sentence, tmp_path, monkeypatch)


def test_who_may_not_write_is_told_before_anything_is_trained_or_filed(toys_at_hand, at, tmp_path, monkeypatch, small):
    with object_storage.read_only(readable=True) as url:
        at(url)
        refused(COMMAND, "s3://bucket/x", 2, "the server refuses access to s3://bucket/x (AccessDenied)", tmp_path, monkeypatch)
        with pytest.raises(NoAccess, match="refuses access"):
            submit(small, Address.of("s3://bucket/x"), published.registry())


def test_a_kept_copy_is_no_answer_without_its_server(bucket, address, results_folder, at, tmp_path, monkeypatch):
    upload(results_folder, bucket)
    assert command("leaderboard", "--results", address).exit_code == 0
    monkeypatch.setattr(objects, "from_url", lambda url, **options: _away(url, options))
    refused(("leaderboard",), address, 1, "no server answers", tmp_path, monkeypatch)


def _away(url, options):
    from obstore.store import from_url

    return from_url(url, endpoint="http://127.0.0.1:9", **options)


def test_a_cache_folder_that_cannot_be_made_is_told(bucket, address, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LGBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=f"cannot be written to, and {address} needs it; LGBENCH_CACHE names another"):
        mirrored(Address.of(address))


def test_copies_that_nobody_has_read_for_long_are_removed(bucket, address, results_folder, monkeypatch):
    upload(results_folder, bucket)
    old = mirrored(Address.of(address)).folder
    monkeypatch.setattr(mirror.user_cache, "KEPT_SECONDS", -1.0)
    mirrored(Address.of(address).folder)
    assert not old.exists()
