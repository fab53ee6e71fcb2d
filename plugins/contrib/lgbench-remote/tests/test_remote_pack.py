"""Push and pull: whole files, each checked, weights before runs, and nothing is replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner, Result
from fsspec.implementations.local import LocalFileSystem

import lgbench
from lgbench.cli.main import main
from lgbench_remote.copying import TAIL, damage
from lgbench_remote.folders import Folder

SHORT = {"train.steps": 2, "train.batch": 4, "evaluate.contexts": 2, "evaluate.strings": 4, "evaluate.max_length": 40}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results folder with two runs, their weights, a tuning run, and files that are no results."""
    folder = tmp_path_factory.mktemp("made") / "results"
    lgbench.run("tomita-1", "pre-norm", average=[], seeds=[0, 1], set=SHORT, save_weights=True, results=folder)
    (folder / ".tuning").mkdir()
    shutil.copy(next(folder.glob("*.parquet")), folder / ".tuning" / "tuning.parquet")
    (folder / ".unfinished").mkdir(exist_ok=True)
    for name in (".unfinished/some.parquet", ".hidden.parquet", "notes.txt"):
        (folder / name).write_text("no result")
    return folder


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results"))


@pytest.fixture(params=["memory", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield "memory://bucket/kept" if request.param == "memory" else f"file://{tmp_path}/bucket/kept"
    fsspec.filesystem("memory").store.clear()


def called(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, [*map(str, words)], prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def contents(folder: Path) -> dict[str, bytes]:
    """Files that are results, by their names within a folder."""
    files = [path for path in folder.rglob("*") if path.suffix in (".parquet", ".safetensors")]
    named = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return {name: content for name, content in named.items() if not name.startswith((".unfinished/", ".hidden"))}


def at(address: str) -> dict[str, bytes]:
    """Content of all files at an address."""
    system, root = fsspec.url_to_fs(address)
    return {path.removeprefix(f"{root}/"): system.cat_file(path) for path in system.find(root)}


def test_what_was_pushed_is_pulled_to_the_bit_with_weights_and_tuning_runs(results: Path, address: str, tmp_path: Path) -> None:
    done = called("push", results, address)
    assert (
        done.exit_code == 0 and done.output == f"3 files of runs and 2 of weights copied to {address}; 0 files there before\n"
    )
    assert at(address) == contents(results) and len(contents(results)) == 5
    done = called("pull", address, tmp_path / "new" / "results")
    assert done.exit_code == 0 and contents(tmp_path / "new" / "results") == contents(results)


def test_only_what_is_absent_is_copied(results: Path, address: str) -> None:
    (kept,) = results.glob("*.seed-1.*.parquet")
    away = kept.rename(results / "away")
    called("push", results, address)
    away.rename(kept)
    assert "1 file of runs copied to" in called("push", results, address).output
    again = called("push", results, address)
    assert again.exit_code == 0 and again.output == f"0 files of runs copied to {address}; 5 files there before\n"
    assert at(address) == contents(results)


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c[:-TAIL] + b"." + c[1 - TAIL :]], ids=["size", "content"])
def test_another_content_under_one_name_is_an_error_and_both_files_stay(results: Path, address: str, direction, change) -> None:
    called("push", results, address)
    name = next(results.glob("*.parquet")).name
    system, root = fsspec.url_to_fs(address)
    other = change((results / name).read_bytes())
    system.pipe_file(f"{root}/{name}", other)
    before = contents(results)
    done = called("push", results, address) if direction == "push" else called("pull", address, results)
    where = address if direction == "push" else results
    assert done.exit_code == 1 and f"{where}/{name} is there with another content, and stays" in done.output
    assert "4 files there before" in done.output
    assert system.cat_file(f"{root}/{name}") == other and contents(results) == before


def test_damaged_files_are_left_out_with_a_reason_and_all_others_copied(results: Path, address: str, tmp_path: Path) -> None:
    called("push", results, address)
    system, root = fsspec.url_to_fs(address)
    run, weights = next(results.glob("*.seed-0.*.parquet")).name, next(results.glob("*.seed-1.*.safetensors")).name
    for name in (run, weights):
        content = system.cat_file(f"{root}/{name}")
        system.pipe_file(f"{root}/{name}", content[:99] + bytes([content[99] ^ 1]) + content[100:])
    system.pipe_file(f"{root}/empty.parquet", b"")
    done = called("pull", address, tmp_path / "pulled")
    assert done.exit_code == 1 and "3 files are left out" in done.output
    assert f"{address}/{run} is damaged" in done.output and f"{address}/empty.parquet is empty" in done.output
    assert f"{address}/{weights} is damaged: its content is not that of its name" in done.output
    assert contents(tmp_path / "pulled").keys() == contents(results).keys() - {run, weights}


def test_weights_are_there_before_their_runs_whenever_the_network_fails(results: Path, monkeypatch) -> None:
    system = fsspec.filesystem("memory")
    pipe = type(system).pipe_file

    def failing(self, path, value, **named) -> None:
        if path.endswith(".parquet"):
            raise OSError("the network is down")
        pipe(self, path, value, **named)

    monkeypatch.setattr(type(system), "pipe_file", failing)
    done = called("push", results, "memory://failing")
    assert done.exit_code == 1 and "memory://failing cannot be used: the network is down" in done.output
    assert {Path(name).suffix for name in at("memory://failing")} == {".safetensors"} and len(at("memory://failing")) == 2
    monkeypatch.undo()
    assert called("push", results, "memory://failing").exit_code == 0
    assert at("memory://failing") == contents(results)
    system.store.clear()


class Plain(LocalFileSystem):
    """File system without conditional writes, such as one over ssh."""

    protocol = "plain"


@pytest.mark.parametrize("system", [Plain(), LocalFileSystem(), fsspec.filesystem("memory")], ids=lambda s: str(s.protocol))
def test_a_file_is_made_once_whole_and_never_replaced(system, tmp_path: Path) -> None:
    folder = Folder(system, str(tmp_path / "there"), "there")
    assert folder.sizes() == {}
    assert folder.make("deep/one", b"first") and not folder.make("deep/one", b"second")
    assert folder.read("deep/one") == b"first" and folder.read("deep/one", 3) == b"st"
    assert folder.sizes() == {"deep/one": 5}  # nothing is left beside it
    system.rm(folder.root, recursive=True)


def test_a_push_that_another_one_overtakes_compares_the_contents(results: Path, monkeypatch) -> None:
    make, name = Folder.make, next(results.glob("*.parquet")).name

    def overtaken(self: Folder, own: str, content: bytes) -> bool:
        make(self, own, content if own != name else b"other")
        return make(self, own, content)

    monkeypatch.setattr(Folder, "make", overtaken)
    done = called("push", results, "memory://overtaken")
    assert done.exit_code == 1 and done.output.count("is there with another content") == 1
    assert at("memory://overtaken")[name] == b"other" and len(at("memory://overtaken")) == 5
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["push", "EMPTY", "memory://x"], 2, "no run is in EMPTY; name a folder in which lgbench wrote runs"),
        (["pull", "memory://nothing/there", "EMPTY"], 2, "no run is in memory://nothing/there"),
        (["push", "EMPTY", "bucket/folder"], 2, "'bucket/folder' is no address; use one such as s3://bucket/folder"),
        (["push", "EMPTY", "bucket://folder"], 2, "bucket://folder cannot be reached: Protocol not known: bucket"),
    ],
)
def test_errors_are_sentences(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = called(*[word.replace("EMPTY", str(tmp_path)) for word in words])
    assert done.exit_code == code and said.replace("EMPTY", str(tmp_path)) in done.output


def test_names_that_lead_out_of_the_folder_are_not_copied(results: Path, tmp_path: Path) -> None:
    content = next(results.glob("*.parquet")).read_bytes()
    system = fsspec.filesystem("memory")
    for name in ("good.parquet", "../bad.parquet", "deep/../../bad.parquet", ".tuning/.bad.parquet", "x/.tuning/bad.parquet"):
        system.store[f"/out/{name}"] = fsspec.implementations.memory.MemoryFile(system, name, content)
    assert called("pull", "memory://out", tmp_path / "a" / "pulled").exit_code == 0
    assert [path.name for path in tmp_path.rglob("*.parquet") if "results" not in path.parts] == ["good.parquet"]
    system.store.clear()


def test_an_address_that_is_a_file_has_no_runs(results: Path, tmp_path: Path) -> None:
    path = next(results.glob("*.parquet"))
    done = called("pull", f"file://{path}", tmp_path / "pulled")
    assert done.exit_code == 2 and f"no run is in file://{path}" in " ".join(done.stderr.split())


def test_every_changed_byte_is_damage(results: Path) -> None:
    path = next(results.glob("*.parquet"))
    content = path.read_bytes()
    assert damage(path.name, content) is None
    for place in range(0, len(content), 997):
        assert damage(path.name, content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
