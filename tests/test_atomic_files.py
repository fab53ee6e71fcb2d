"""A file is seen whole or not at all, whenever its writer is killed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from helpers.processes import python

from lgbench.atomic_files import created, replaced

BOTH = pytest.mark.parametrize("writing", [created, replaced])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(writing, path: Path, text: str, **options) -> None:
    with writing(path, **options) as partial:
        partial.write_text(text)


@pytest.mark.parametrize(("writing", "kept"), [(created, "old"), (replaced, "new")])
def test_creating_leaves_a_file_that_is_there_and_replacing_takes_its_place(tmp_path, writing, kept):
    path = tmp_path / "file"
    path.write_text("old")
    write(writing, path, "new")
    assert path.read_text() == kept and names(tmp_path) == ["file"]


@BOTH
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_writer_that_fails_changes_nothing_and_leaves_nothing(tmp_path, writing, error, before):
    path = tmp_path / "file"
    if before:
        path.write_text(before)
    with pytest.raises(error), writing(path) as partial:
        partial.write_text("half of a")
        raise error
    assert names(tmp_path) == (["file"] if before else [])
    assert not before or path.read_text() == before


@BOTH
def test_a_writer_may_put_another_file_at_the_name_that_it_was_given(tmp_path, writing):
    """As a library does that renames its own."""
    with writing(tmp_path / "file") as partial:
        own = tmp_path / "own"
        own.write_text("done")
        own.replace(partial)
    assert (tmp_path / "file").read_text() == "done" and names(tmp_path) == ["file"]


@BOTH
def test_the_content_is_on_the_disk_before_the_file_gets_its_name(tmp_path, monkeypatch, writing):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append((os.fstat(handle).st_size, names(tmp_path))))
    write(writing, tmp_path / "file", "done")
    ((size, there),) = seen
    assert size == 4 and "file" not in there and len(there) == 1


def test_the_other_name_is_in_the_scratch_folder_where_there_is_one(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with created(tmp_path / "file", scratch) as partial:
        assert partial.parent == scratch and names(tmp_path) == ["scratch"]
        partial.write_text("done")
    assert names(tmp_path) == ["file", "scratch"] and names(scratch) == []


@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_system_without_links_gives_the_name_by_renaming(tmp_path, monkeypatch, before):
    def no_links(source, target):
        raise PermissionError("links are not supported here")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "file"
    if before:
        path.write_text(before)
    write(created, path, "new")
    assert path.read_text() == (before or "new") and names(tmp_path) == ["file"]


@BOTH
def test_of_many_that_write_one_file_at_a_time_a_reader_sees_one_whole(tmp_path, writing):
    path, texts = tmp_path / "file", [str(n) * 5000 for n in range(8)]
    seen, done = set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            if path.exists():
                seen.add(path.read_text())

    reader = threading.Thread(target=look)
    writers = [threading.Thread(target=write, args=(writing, path, text)) for text in texts]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert seen <= set(texts) and path.read_text() in texts and names(tmp_path) == ["file"]
    assert writing is replaced or len(seen) <= 1  # the first stays


KILLED_EVERYWHERE = """
import json, os, sys
from pathlib import Path
from lgbench.atomic_files import created, replaced

folder, writing, before = Path(sys.argv[1]), {"created": created, "replaced": replaced}[sys.argv[2]], sys.argv[3]
path, scratch = folder / "file", folder / "scratch"
scratch.mkdir()
NEW = "new " * 5000
os.fsync = lambda handle: None  # the disk outlives the writer


def write(moment):
    '''Write the file, and die before the call of C of that number: nothing else changes a disk.'''
    left = moment

    def count(frame, event, argument):
        nonlocal left
        left -= event == "c_call"
        if left < 0:
            os._exit(9)

    sys.setprofile(count)
    with writing(path, scratch) if writing is created else writing(path) as partial, partial.open("w") as file:
        for part in (NEW[:100], NEW[100:200], NEW[200:]):
            file.write(part)
            file.flush()
    sys.setprofile(None)


found, moment, killed = {}, 0, 0
while True:
    for left in (*folder.iterdir(), *scratch.iterdir()):
        if left != scratch:
            left.unlink()
    if before:
        path.write_text(before)
    child = os.fork()
    if child == 0:
        write(moment)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
    content = path.read_text() if path.exists() else ""
    name = "new" if content == NEW else "before" if content == before else "HALF"
    found[name] = found.get(name, 0) + 1
    if status == 0:
        break
    moment, killed = moment + 1, killed + 1
print(json.dumps({"killed": killed, "found": found, "end": name}))
"""


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("before", ["", "old"], ids=["new", "there already"])
def test_killed_at_any_moment_a_writer_leaves_the_file_as_it_was_or_whole(tmp_path, writing, before):
    done = python(KILLED_EVERYWHERE, str(tmp_path), writing.__name__, before)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["killed"] > 80 and "HALF" not in report["found"]
    assert report["end"] == ("before" if before and writing is created else "new")
    assert report["found"].get("before", 0) > 40  # most moments are before the name is given
    if report["end"] == "new":
        assert report["found"]["new"] > 1  # and some after it
