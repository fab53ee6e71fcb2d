"""Who holds a population, where no lock of the operating system says so: two mounts of one folder stand in for two machines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_resume import TWO_STACKS, finished, left, lgbench, rows, trained, until, written

from lgbench.execution import lease

LEASE = 1.0
QUICK = f"""
import sys
from lgbench.execution import lease
lease.BEAT_SECONDS, lease.LEASE_SECONDS = 0.05, {LEASE}
"""
STRANGER = QUICK + "lease._machine = lambda: f'{abs(hash(sys.argv[1])):012x}'[:12]\n"
"""As a process of another machine, which cannot ask this one whether a process lives."""
COMMAND = "from lgbench.cli.main import main; main(sys.argv[2:], prog_name='lgbench')"


@pytest.fixture
def quick(monkeypatch) -> None:
    """In this process too, heartbeats are frequent and leases short."""
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE)


@pytest.fixture
def mounts(tmp_path) -> Iterator[list[Path]]:
    """One folder, mounted twice: a lock of one mount is not known to the other, as on many network file systems."""
    if not (shutil.which("bindfs") and os.access("/dev/fuse", os.W_OK)):
        pytest.skip("needs bindfs (Debian: apt-get install bindfs) and /dev/fuse")
    (tmp_path / "folder").mkdir()
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
        subprocess.run(["bindfs", tmp_path / "folder", place], check=True)
    yield places
    for place in places:
        subprocess.run(["fusermount", "-u", "-z", place], check=True)


def waited_until(watch: lease.Watch, folder: Path) -> float:
    """Seconds until a holder counts as dead."""
    started = time.monotonic()
    while not watch.is_dead(folder):
        time.sleep(0.02)
        assert time.monotonic() - started < 30 * LEASE
    return time.monotonic() - started


def test_a_folder_has_one_holder_and_what_it_writes_stays(tmp_path):
    held = lease.make(tmp_path)
    (held.folder / "file").write_text("mine")
    held.require()
    assert not lease.is_parked(held.folder) and not lease.Watch().is_dead(held.folder)
    held.park()
    (parked,) = tmp_path.iterdir()
    assert lease.is_parked(parked) and lease.name_of(parked) == lease.name_of(held.folder)
    again, late = lease.take(parked), lease.take(parked)
    assert again and late is None and (again.folder / "file").read_text() == "mine"
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_holder_of_a_folder_that_was_taken_notices_and_can_write_nothing(tmp_path, quick):
    first = lease.make(tmp_path)
    second = lease.take(first.folder)
    with pytest.raises(lease.LeaseLost, match="another process has taken over"):
        first.require()
    with pytest.raises(FileNotFoundError):
        (first.folder / "file").write_text("mine")
    (second.folder / "file").write_text("second")
    first.park(), first.remove()
    second.require()
    assert list(tmp_path.iterdir()) == [second.folder] and (second.folder / "file").read_text() == "second"
    second.remove()


def test_the_thread_of_the_heartbeat_notices_too(tmp_path, quick):
    first = lease.make(tmp_path)
    second = lease.take(first.folder)
    ends = time.monotonic() + 10
    while not first.lost:
        assert time.monotonic() < ends
        time.sleep(0.01)
    second.remove()


HOLDS = "from pathlib import Path; held = lease.make(Path(sys.argv[2])); print(held.folder.name, flush=True)\n"
THEN_WRITES = """
import time
while not Path(sys.argv[3]).exists():
    time.sleep(0.01)
try:
    held.require()
    print("writes")
except lease.LeaseLost as error:
    print(error)
"""


def test_a_process_of_this_machine_that_was_killed_is_dead_at_once(tmp_path, warm):
    with warm.start(
        ["here", tmp_path], QUICK + "lease.LEASE_SECONDS = 1000\n" + HOLDS + "import signal; signal.pause()"
    ) as holder:
        folder = tmp_path / holder.stdout.readline().strip()
        assert not lease.Watch().is_dead(folder)
        holder.kill()
        holder.wait()
    assert lease.Watch().is_dead(folder)


@pytest.mark.slow
def test_a_process_of_another_machine_is_dead_when_its_heartbeat_stands_still_for_long_and_not_while_it_is_slow(
    tmp_path, warm, quick
):
    with warm.start(["there", tmp_path], STRANGER + HOLDS + "import signal; signal.pause()") as holder:
        folder, watch = tmp_path / holder.stdout.readline().strip(), lease.Watch()
        for _ in range(20):
            assert not watch.is_dead(folder)
            time.sleep(LEASE / 10)
        holder.kill()
        assert waited_until(watch, folder) > LEASE / 2


@pytest.mark.parametrize("machine", [QUICK, STRANGER], ids=["of this machine", "of another machine"])
def test_a_process_that_was_stopped_for_long_notices_that_its_folder_is_gone(tmp_path, warm, quick, machine):
    go = tmp_path / "go"
    with warm.start(["there", tmp_path / "folder", go], machine + HOLDS + THEN_WRITES) as holder:
        folder = tmp_path / "folder" / holder.stdout.readline().strip()
        os.kill(holder.pid, signal.SIGSTOP)
        waited_until(lease.Watch(), folder)
        mine = lease.take(folder)
        go.touch()
        os.kill(holder.pid, signal.SIGCONT)
        out, error = holder.communicate()
        assert "another process has taken over" in out, error
    mine.require()
    assert list((tmp_path / "folder").iterdir()) == [mine.folder] and [path.name for path in mine.folder.iterdir()] == [
        lease.HEARTBEAT
    ]
    mine.remove()


def test_a_name_that_no_process_has_given_is_nobodys_until_its_heartbeat_stood_still(tmp_path, quick):
    folder = tmp_path / "0123456789abcdef.somebody"
    folder.mkdir()
    watch = lease.Watch()
    assert not watch.is_dead(folder)
    assert waited_until(watch, folder) > LEASE / 2


@pytest.mark.slow
def test_two_machines_share_a_grid_and_nothing_is_done_twice(tmp_path, warm, environ, toys_alone, mounts):
    """With locks that each machine keeps to itself, 9 of 18 runs were written here, and both commands failed."""
    command = [*TWO_STACKS, "--seeds", "0:4", "--population", "1", "--results"]
    lgbench(*command, tmp_path / "alone")
    code, slowly = STRANGER + COMMAND, {"TOYS_SLEEP": "0.05", **environ}
    one, two = (warm.start([name, *command, mount], code, **slowly) for name, mount in named(mounts))
    with one, two:
        said = [finished(process) for process in (one, two)]
    assert sum(trained(error) for _, error in said) == sum(written(out) for out, _ in said) == 8
    assert rows(tmp_path / "folder") == rows(tmp_path / "alone") and len(rows(tmp_path / "alone")) == 8
    assert left(tmp_path / "folder") == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_machine_takes_over_what_another_was_training_when_it_died_or_froze(
    tmp_path,
    warm,
    environ,
    toys_alone,
    mounts,
    how,
):
    command = [*TWO_STACKS, "--set", "train.average_every=5", "--seeds", "0,1", "--checkpoint", "0", "--results"]
    lgbench(*command, tmp_path / "alone")
    (first, one), (second, two) = named(mounts)
    with warm.start([first, *command, one], STRANGER + COMMAND, TOYS_SLEEP="0.3", **environ) as holder:
        assert trained("".join(until(holder, "train"))) == 1
        time.sleep(0.5)
        os.kill(holder.pid, how)
        with warm.start([second, *command, two], STRANGER + COMMAND, **environ) as other:
            out, rest = finished(other)
        assert "training goes on after step" in rest and written(out) == 4
        if how == signal.SIGSTOP:
            before = {path: path.stat().st_mtime_ns for path in (tmp_path / "folder").glob("*.parquet")}
            os.kill(holder.pid, signal.SIGCONT)
            out, said = finished(holder)
            assert "another process has taken over" in said and "4 runs were done before" in out + said
            assert {path: path.stat().st_mtime_ns for path in before} == before
    assert rows(tmp_path / "folder") == rows(tmp_path / "alone") and len(rows(tmp_path / "alone")) == 4
    assert left(tmp_path / "folder") == []


def named(mounts: list[Path]) -> list[tuple[str, Path]]:
    return list(zip(("machine-one", "machine-two"), mounts, strict=True))
