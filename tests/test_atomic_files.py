"""A file is seen whole or not at all. Kills at every change of the disk are in tests/execution/test_resume.py."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

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
