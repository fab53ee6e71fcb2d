"""Results in object storage, on a server like S3 in this process: nothing is replaced, nothing is lost, boards are the same."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import object_storage
import obstore
import published
import pytest
import torch
import tuned
from click.testing import CliRunner
from conftest import python, simulated, write_rows
from object_storage import Bucket
from packing import packed
from test_executor import made
from test_work_queue import abandon
from test_workers import rows_of

import lgbench
from lgbench.cli.main import main
from lgbench.errors import Interrupted, NoAccess, Refused, RunFailed, RunFileError, StorageError, UsageError
from lgbench.execution import address_claims, engines, lease, publishing, remote, runner
from lgbench.execution.address_markers import AddressMarkers
from lgbench.execution.manner import PlanOutcome
from lgbench.execution.scheduler import path_of
from lgbench.execution.work_queue import UNFINISHED, WorkQueue, by_id
from lgbench.results import checked_files, mirror, objects, weights_files
from lgbench.results.addresses import Address
from lgbench.results.leaderboard import Results, read_results
from lgbench.results.mirror import mirrored, place_of
from lgbench.results.stores import store_of
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
        for name, value in object_storage.environ(url, tmp_path / f"cache of {machine}").items():
            monkeypatch.setenv(name, value)

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


@pytest.fixture
def theirs(bucket, address, toys_at_hand, at, server) -> dict[str, bytes]:
    """The run files that another machine makes of the grid. It has published nothing of it yet."""
    at(server, "theirs")
    lgbench.run(**GRID, **HOW, results=address)
    found = {name: bucket.get(name) for name in bucket.names()}
    for name in found:
        bucket.remove(name)
    at(server)
    return found


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
        from lgbench.results.stores import store_of
        store = store_of(Address.of(sys.argv[1]))
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


@pytest.mark.slow
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


def test_a_model_that_was_trained_elsewhere_is_published_once_and_never_replaced(bucket, address, toys_at_hand):
    settings = {"evaluate.contexts": 4, "evaluate.max_length": 16}

    def measured(model):
        return lgbench.evaluate_model(model, "toy-walk", name="mine", set=settings, results=address)

    rows = measured(lambda tokens: torch.zeros(*tokens.shape, 3))
    (name,) = [name for name in bucket.names() if name.endswith(".parquet")]
    content = bucket.get(name)
    assert measured(lambda tokens: torch.zeros(*tokens.shape, 3)).equals(rows)
    with pytest.raises(UsageError, match="has other numbers of a model with the name mine and the seed 0"):
        measured(lambda tokens: torch.eye(3)[tokens])
    assert bucket.get(name) == content
    (board,) = Results(address).boards("tvd", protocol="external")
    assert [row.entry for row in board.rows] == ["mine"]


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
    monkeypatch.setattr(checked_files, "MAX_BYTES", 100_000)
    found = command("leaderboard", "--results", address)
    assert found.exit_code == 0 and "peri-norm" in found.output
    assert f"left out: {address}/{long}.parquet cannot be copied, since no file can have its name here" in found.stderr
    assert f"left out: {address}/huge.parquet is not a run of lgbench: it is larger" in found.stderr


def test_a_copy_that_another_process_brings_while_this_one_lists_stays(bucket, address, results_folder, monkeypatch):
    upload(results_folder, bucket)
    name, later = "later.parquet", next(results_folder.rglob("*.parquet")).read_bytes()
    listing = objects.Store.list

    def slow(store):
        found = listing(store)
        bucket.put(f"my runs/{name}", later)
        monkeypatch.setattr(objects.Store, "list", listing)
        mirrored(Address.of(address))
        return found

    monkeypatch.setattr(objects.Store, "list", slow)
    assert (mirrored(Address.of(address)).folder / name).read_bytes() == later
    bucket.remove(f"my runs/{name}")
    assert not (mirrored(Address.of(address)).folder / name).exists()


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


@pytest.mark.slow
def test_a_population_for_another_engine_is_published(bucket, address, toys_at_hand, tmp_path, monkeypatch):
    files = {}
    for population in lgbench.plan(**GRID, **HOW):
        files |= lgbench.run_population(population, results=address)
    assert {f"my runs/{name}": content for name, content in files.items()} == {n: bucket.get(n) for n in bucket.names()}
    assert len(files) == 4


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_run_that_another_machine_published_first_stays(bucket, address, theirs, monkeypatch):
    mine = sorted(theirs)[0]
    train = runner.train

    def meanwhile(population, *arguments, **options):
        """The other machine took this one for dead, which trains the run none the less."""
        if population[0].record.task in mine:
            bucket.put(mine, theirs[mine])
        return train(population, *arguments, **options)

    monkeypatch.setattr(runner, "train", meanwhile)
    found = command(*COMMAND, "--results", address)
    assert found.exit_code == 0 and bucket.get(mine) == theirs[mine]
    assert f"{mine.rpartition('/')[2]} was published by another machine meanwhile: its file stays" in found.stderr
    assert "3 runs written" in found.stdout and "1 run was done before" in found.stdout
    kept = place_of(Address.of(address), publishing.WORK) / mine.rpartition("/")[2]
    assert kept.read_bytes() == theirs[mine]


@pytest.mark.slow
def test_runs_that_another_machine_publishes_after_the_beginning_are_brought_and_not_made_again(
    bucket, address, theirs, monkeypatch
):
    bring = publishing.WorkingFolder.bring

    def before(work, runs):
        bring(work, runs)
        for name, content in theirs.items():
            bucket.put(name, content)

    monkeypatch.setattr(publishing.WorkingFolder, "bring", before)
    no_training(monkeypatch)
    found = command(*COMMAND, "--results", address)
    assert found.exit_code == 0 and "4 runs were done before" in found.stdout, found.output
    kept = place_of(Address.of(address), publishing.WORK)
    assert {f"my runs/{path.name}": path.read_bytes() for path in kept.glob("*.parquet")} == theirs


class Machine:
    """A command on a machine: a cache folder of its own, and a work queue."""

    def __init__(self, address: str, experiments) -> None:
        self.said: list[str] = []
        self.experiments, self.left = experiments, by_id(experiments)
        self.work = publishing.WorkingFolder(Address.of(address), self.said.append)
        self.work.bring(publishing.names_of(experiments))
        self.begin()

    def begin(self) -> None:
        self.markers = AddressMarkers(self.work, self.experiments)
        self.queue = WorkQueue(self.work.folder, self.experiments, self.markers)

    def take(self, most: int = 2):
        return self.queue.take(self.left, most, lambda members: {"lgbench": "1"})

    def end(self, claim, score: float = 0.5) -> None:
        """Make the runs of a claim."""
        with claim:
            for experiment in claim.experiments:
                path = path_of(experiment, self.work.folder)
                write_rows(path, simulated({8: score}, run_id=experiment.run_id))

    def has(self) -> set[str]:
        return {path.name for path in self.work.folder.glob("*.parquet")}


@pytest.fixture
def machines(bucket, address, at, server, toy_registry, planned, monkeypatch):
    """Two, which ask for the same six runs."""
    monkeypatch.setattr(address_claims, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(address_claims, "BEAT_SECONDS", 0.05)
    found = []
    for name in ("mine", "theirs"):
        at(server, name)
        found.append(Machine(address, planned(toy_registry, "toy-walk", "toy-table", seeds=range(6), train_steps=2)))
    yield found
    for machine in found:
        machine.markers.end()


def runs_of(claim) -> list[int]:
    return [experiment.seed for experiment in claim.experiments]


def test_machines_that_share_an_address_make_no_run_twice_and_each_has_all_of_them(machines, bucket):
    mine, theirs = machines
    first, second = mine.take(), theirs.take()
    assert (runs_of(first), runs_of(second)) == ([0, 1], [2, 3])
    mine.end(first)
    third = theirs.take()
    assert runs_of(third) == [4, 5] and mine.take() is None
    theirs.end(second)
    assert mine.take() is None and len(mine.has()) == 4  # what is done meanwhile is brought
    theirs.end(third)
    assert mine.take() is None and theirs.take() is None
    names = {f"my runs/{name}" for name in mine.has()}
    assert mine.has() == theirs.has() and names == {*bucket.names()} and len(names) == 6
    assert bucket.names(hidden=True) == []  # no claim and no heartbeat is left
    assert not mine.said and not theirs.said


def test_of_machines_that_claim_a_run_at_the_same_moment_one_has_it_and_the_other_leaves_nothing(machines, bucket, monkeypatch):
    mine, theirs = machines
    monkeypatch.setattr(address_claims, "LOOK_SECONDS", 1000.0)
    assert mine.markers.taken() == theirs.markers.taken() == set()  # both have looked before either claims
    claim = mine.take(6)
    assert runs_of(claim) == [0, 1, 2, 3, 4, 5] and theirs.take(6) is None
    assert len([name for name in bucket.names(hidden=True) if name.endswith(".beat")]) == 1
    mine.end(claim)
    assert theirs.take() is None and theirs.has() == mine.has() and bucket.names(hidden=True) == []


def test_a_population_that_was_interrupted_or_failed_is_free_for_every_machine(machines, bucket):
    mine, theirs = machines
    for error in (KeyboardInterrupt, RuntimeError):
        with pytest.raises(error), mine.take():
            raise error
        with pytest.raises(error), theirs.take() as claim:
            assert runs_of(claim) == [0, 1]
            raise error
    assert bucket.names(hidden=True) == []


@pytest.mark.slow
def test_the_same_machine_goes_on_at_once_after_a_kill_and_another_one_when_the_heartbeat_stands_still(machines, monkeypatch):
    mine, theirs = machines
    killed = mine.take(6)
    mine.markers.end()
    abandon(killed)
    assert theirs.take() is None
    mine.begin()
    again = mine.take(6)
    assert runs_of(again) == runs_of(killed) and theirs.take() is None
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    assert theirs.take() is None
    beaten = [theirs.take() for _ in range(20) if not time.sleep(0.05)]
    assert beaten == [None] * 20  # it lives
    mine.markers.end()
    while not (taken := theirs.take(6)):
        time.sleep(0.05)
    assert runs_of(taken) == runs_of(again)


def test_a_machine_that_was_taken_for_dead_replaces_nothing_and_ends_no_claim_of_another_one(machines, bucket, monkeypatch):
    mine, theirs = machines
    frozen = mine.take(6)
    mine.markers.end()
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    while not (taken := theirs.take(2)):
        time.sleep(0.02)
    claims = [name for name in bucket.names(hidden=True) if name.endswith(".1")]
    assert len(claims) == 2
    theirs.end(taken)
    before = {name: bucket.get(name) for name in bucket.names()}
    other = theirs.take(2)
    mine.end(frozen, 0.25)
    assert {name: bucket.get(name) for name in before} == before and len(bucket.names()) == 6
    assert [sentence.partition(" was ")[2] for sentence in mine.said] == [
        "published by another machine meanwhile: its file stays, and this one is not written"
    ] * 2
    assert any(name.endswith(".1") for name in bucket.names(hidden=True))
    theirs.end(other)
    assert len(bucket.names()) == 6 and mine.take() is None and theirs.take() is None
    assert bucket.names(hidden=True) == []


def test_where_the_server_does_not_answer_machines_go_on_without_claims_and_say_so_once(machines, monkeypatch):
    mine, theirs = machines

    def away(store, *about):
        raise StorageError("no server answers")

    with monkeypatch.context() as patch:
        patch.setattr(objects.Store, "list", away)
        first = mine.take()
        assert runs_of(first) == [0, 1] and runs_of(mine.take()) == [2, 3]
        assert mine.said == [
            "no server answers; meanwhile other machines may make the same runs, and the first file of each stays"
        ]
    assert runs_of(theirs.take()) == [0, 1]


def test_an_account_that_may_not_remove_objects_shares_the_work_all_the_same(machines, bucket, monkeypatch):
    mine, theirs = machines

    def refused(store, name):
        raise NoAccess("the server refuses access")

    monkeypatch.setattr(objects.Store, "remove", refused)
    mine.end(mine.take(6))
    assert theirs.take() is None
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    while not theirs.has():
        assert theirs.take(6) is None
        time.sleep(0.02)
    assert theirs.has() == mine.has() and not mine.said and not theirs.said


def test_jobs_of_slurm_share_with_no_other_machine_and_the_command_says_so(bucket, address, toys_at_hand, monkeypatch):
    monkeypatch.setattr(engines, "_carried_out", lambda *about: PlanOutcome([], [], []))
    said = command(*COMMAND, "--executor", "slurm", "--results", address).stderr
    assert f"jobs of SLURM make no claims at {address}, so commands on other machines may make the same runs" in said
    assert "no claims" not in command(*COMMAND, "--results", address).stderr


TOGETHER = """
from lgbench.execution import address_claims, lease
address_claims.BEAT_SECONDS, lease.LEASE_SECONDS = 0.5, 5.0
from lgbench.cli.main import main
main(prog_name="lgbench")
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["both live", "one is killed"])
def test_two_machines_with_one_bucket_share_a_grid(bucket, address, toys_at_hand, tmp_path, warm, killed):
    """No file is lost, none is made twice by machines that live, and every value is that of a run alone."""
    words = ["run", "--task", "toy-walk,toy-even", "--arch", "toy-table", "--average", "toy-mean", "--seeds", "0:6"]
    words += [
        "--protocol",
        "quick",
        "--population",
        "2",
        "--workers",
        "1",
        "--no-compile",
        "--device",
        "cpu",
        "--checkpoint",
        "0",
    ]
    words += [word for key, value in (SETTINGS | {"train.steps": 20}).items() for word in ("--set", f"{key}={value}")]
    alone = command(*words, "--results", tmp_path / "alone")
    assert alone.exit_code == 0, alone.output

    def start(machine: str):
        cache = str(tmp_path / f"cache of {machine}")
        return warm.start([*words, "--results", address], TOGETHER, LGBENCH_CACHE=cache, TOYS_SLEEP="0.05")

    with start("mine") as mine, start("theirs") as theirs:
        if killed:
            while mine.poll() is None and not bucket.names():
                time.sleep(0.05)
            os.kill(mine.pid, signal.SIGKILL)
        said = [process.communicate() for process in ([theirs] if killed else [mine, theirs])]
        assert theirs.returncode == 0 and (killed or mine.returncode == 0), said
    if killed:
        with start("mine") as mine:
            mine.communicate()
            assert mine.returncode == 0
    else:
        numbers = [int(found[1]) for out, _ in said if (found := re.search(r"^(\d+) runs? written", out, re.MULTILINE))]
        assert len(numbers) == 2 and sum(numbers) == 12  # each has done some
        assert not any("published by another machine meanwhile" in error for _, error in said)
    found = files_of(bucket, tmp_path / "published")
    assert rows_of(made(found)) == rows_of(made(tmp_path / "alone")) and len(made(found)) == 12
    for machine in ("mine", "theirs"):
        (kept,) = (tmp_path / f"cache of {machine}" / publishing.WORK).iterdir()
        assert {path.name for path in kept.glob("*.parquet")} == {path.name for path in found.iterdir()}
        assert not (kept / UNFINISHED).exists()
    assert [name for name in bucket.names(hidden=True) if "/.claims/" in name] == []


@pytest.mark.slow
def test_two_machines_with_one_bucket_try_rates_together(bucket, address, tuned_everywhere, tmp_path, warm):
    words = [*tuned.WORDS, "--workers", "1"]
    alone = command(*words, "--results", tmp_path / "alone")
    assert alone.exit_code == 0, alone.output

    def start(machine: str):
        cache = str(tmp_path / f"cache of {machine}")
        return warm.start([*words, "--results", address], tuned.REGISTER + TOGETHER, LGBENCH_CACHE=cache, TOYS_SLEEP="0.02")

    with start("mine") as mine, start("theirs") as theirs:
        said = [process.communicate() for process in (mine, theirs)]
    assert mine.returncode == theirs.returncode == 0, said
    assert not any("published by another machine meanwhile" in error for _, error in said)
    found = tuned.values(bucket.fetch("my runs/", tmp_path / "published"))
    assert found == tuned.values(tmp_path / "alone") and len(found) == 16


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


@pytest.mark.slow
def test_an_interrupted_command_has_published_what_is_done_and_goes_on(bucket, address, toys_at_hand, tmp_path, monkeypatch):
    lgbench.run(**GRID, **HOW, results=tmp_path / "alone")
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
        store_of(Address.of(address)).require_writable()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> list[Path]:
    return published.make(tmp_path_factory.mktemp("small"))


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
