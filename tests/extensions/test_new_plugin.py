"""Packages of `lgbench new-plugin` can be installed and used as they are, and names that could do harm are refused."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hatchling.build
import pytest
from click.testing import Result
from helpers.commands import invoked
from helpers.processes import visible
from helpers.registries import BUILT_IN

from lgbench.contracts import CONTRACT
from lgbench.extensions import new_plugin as packages
from lgbench.extensions.registry import Registry

KINDS = list(packages.EXAMPLES)
ADA = '[user]\n name = "Ada \\"L\\" Müller"\n email = ada@example.org\n'
SMALL = "--seeds 0 --set train.steps=2 --set evaluate.contexts=4 --set evaluate.strings=4 --set evaluate.max_length=40"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests stand in a folder of their own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], None]]:
    """A function that replaces git's configuration, which names the author."""
    folder = tmp_path_factory.mktemp("git")

    def set_to(text: str) -> None:
        (folder / "config").write_text(text, encoding="utf-8")

    set_to(ADA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(folder / "config"))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.chdir(folder)
        yield set_to


def new_plugin(*arguments: str) -> Result:
    return invoked("new-plugin", *arguments)


def refused(*arguments: str) -> str:
    """The sentence with which it is refused; nothing is left behind."""
    before = sorted(Path.cwd().rglob("*"))
    result = new_plugin(*arguments)
    assert result.exit_code == 2
    assert sorted(Path.cwd().rglob("*")) == before
    return result.output


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package of every kind, called after it."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in KINDS:
        result = new_plugin(f"own_{kind}", "--kind", kind, "--out", str(folder / kind))
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def site(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them installed, from the wheels that their build backend makes."""
    site, wheels = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("wheels")
    for kind in KINDS:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(written / kind)  # as installers call a build backend (PEP 517)
            wheel = hatchling.build.build_wheel(str(wheels))
        with zipfile.ZipFile(wheels / wheel) as archive:
            archive.extractall(site)
    return site


def provided(kind: str) -> str:
    """The name of the thing in the package."""
    return f"own-{kind}" if kind != "measurement" else "own_measurement"


@contextlib.contextmanager
def only(site: Path, *kinds: str) -> Iterator[None]:
    """Inside, what is built in is installed, and the packages of these kinds."""
    own = [f"lgbench_own_{kind}" for kind in kinds]
    with visible(site) as patch:
        patch.setenv("LGBENCH_PLUGINS", ",".join([*own, *BUILT_IN]))
        yield


def commands_of(readme: Path) -> Iterator[list[str]]:
    """The arguments of `lgbench` wherever the README calls it."""
    for block in re.findall(r"```sh\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "lgbench":
                yield words[1:]


def lgbench(*arguments: str) -> str:
    """The output of a command."""
    done = invoked(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_plugin_of_every_kind_is_loaded(site):
    with only(site, *KINDS):
        found = {plugin.name: plugin for plugin in Registry.load().plugins}
    for kind in KINDS:
        assert found[f"lgbench_own_{kind}"].provides == {kind: [provided(kind)]}
        assert not found[f"lgbench_own_{kind}"].notes


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_in_the_readme_of_every_kind_work(kind, written, site):
    commands = list(commands_of(written / kind / "README.md"))
    assert [command[0] for command in commands] == ["show", "run", "leaderboard", "plugins", "check"]
    with only(site, kind):
        shown, ran, board, plugins, checked = (
            lgbench(*command, *(SMALL.split() if command[0] == "run" else [])) for command in commands
        )
    assert shown.startswith(provided(kind)) and "written to" in ran
    assert {"averager": f"@{provided(kind)}", "measurement": "KL", "logger": "pre-norm"}.get(kind, provided(kind)) in board
    assert re.search(rf"lgbench_own_{kind} +lgbench-own-{kind} +0\.1\.0 .* {kind}: {provided(kind)}\b", plugins)
    assert re.search(r"all \d+ checks passed", checked)


PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.slow
def test_the_tests_of_a_package_of_every_kind_pass(written, site, warm):
    """With warnings as errors, in a process of their own."""
    folders = [written / kind / "tests" for kind in KINDS]
    # That lgbench is imported already is so here alone. Making a graph of a training step takes seconds, and `check` makes one.
    words = ["-k", "not graph", "-p", "no:cacheprovider", "-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with warm.start([*words, "--rootdir", site, *folders], PYTEST, PYTHONPATH=str(site)) as process:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert re.search(r"\d+ passed", said)


@pytest.mark.parametrize("how", [["check", "--select", "E,F,I,UP,B,SIM"], ["format", "--check"]], ids=lambda how: how[0])
def test_every_package_passes_ruff_as_its_author_would_run_it(how, written):
    for kind in KINDS:
        ruff = [sys.executable, "-m", "ruff", *how, "--isolated", "--no-cache", "."]
        done = subprocess.run(ruff, cwd=written / kind, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_every_package_passes_mypy_strict(written, tmp_path):
    for kind in KINDS:
        mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), f"lgbench_own_{kind}", "tests"]
        done = subprocess.run(mypy, cwd=written / kind, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_complete_and_says_who_wrote_it_for_what(kind, written):
    folder = written / kind
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == f"lgbench-own-{kind}"
    assert project["authors"] == [{"name": 'Ada "L" Müller', "email": "ada@example.org"}]
    assert project["entry-points"] == {"lgbench": {f"lgbench_own_{kind}": f"lgbench_own_{kind}"}}
    assert 'Ada "L" Müller' in (folder / "LICENSE").read_text(encoding="utf-8")
    source = (folder / f"lgbench_own_{kind}" / "__init__.py").read_text(encoding="utf-8")
    assert f'\nLGBENCH_CONTRACT = "{CONTRACT[0]}.{CONTRACT[1]}"\n' in source
    assert (folder / f"lgbench_own_{kind}" / "py.typed").read_text() == ""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    assert len(files) == len(packages.FILES)
    assert not [path for path in files if re.search(r"{{ \w+ }}|{%", path.read_text(encoding="utf-8"))]


def test_the_next_commands_are_printed(tmp_path):
    result = new_plugin("my-norm", "--kind", "norm")
    assert result.output.splitlines()[2:] == [
        "  cd lgbench-my-norm",
        '  pip install -e ".[test]"',
        "  lgbench check lgbench_my_norm",
        "  lgbench run --task dyck-2-3 --arch my-norm --protocol quick",
    ]
    assert (tmp_path / "lgbench-my-norm" / "lgbench_my_norm" / "__init__.py").is_file()


@pytest.mark.parametrize("written_as", ["my-norm", "my_norm", "lgbench-my-norm", "lgbench_my_norm"])
def test_a_name_is_understood_however_it_is_written(written_as):
    package = packages.Package.named(written_as, "norm")
    names = (package.name, package.distribution, package.module, package.class_name)
    assert names == ("my-norm", "lgbench-my-norm", "lgbench_my_norm", "MyNorm")


@pytest.mark.parametrize(("name", "kind"), [("tensor", "attention"), ("true", "task"), ("task", "task"), ("residual", "norm")])
def test_the_class_of_a_plugin_hides_no_name_of_its_template(name, kind, tmp_path):
    package = packages.Package.named(name, kind)
    source = package.files("Ada", "")[f"{package.module}/__init__.py"]
    assert source.count(f"class {package.class_name}(") == 1
    assert package.class_name == f"{name.capitalize()}{kind.capitalize()}"


@pytest.fixture
def called(author: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """As `author`, for one test."""
    yield author
    author(ADA)


def test_without_an_author_in_git_a_placeholder_is_written_and_reported(called, tmp_path):
    called("")
    result = new_plugin("my-norm", "--kind", "norm")
    assert "replace YOUR NAME in pyproject.toml and LICENSE" in result.stderr
    assert 'authors = [{ name = "YOUR NAME" }]' in (tmp_path / "lgbench-my-norm" / "pyproject.toml").read_text()


def test_an_address_that_no_package_may_have_is_left_out(called):
    called("[user]\n name = root\n email = root@(none)\n")
    assert packages.author_by_git() == ("root", "")


@pytest.mark.parametrize("name", ["MyNorm", "3d-norm", "", "lgbench", "mÿ", "../evil", "a--b"])
def test_a_bad_name_is_refused_with_what_would_work(name):
    assert "as in my-norm" in refused("--kind", "norm", "--", name)


@pytest.mark.parametrize(
    ("name", "kind", "owner"),
    [
        ("pre-norm", "norm", "lgbench 0.1.0 provides the norm 'pre-norm' already"),
        ("dyck-3-4", "task", "provides the task 'dyck-3-4'"),
        ("tomita", "task", "provides the family of tasks 'tomita'"),
        ("tvd", "measurement", "provides the measurement 'tvd'"),
        ("pre-norm", "optimizer", "provides the norm 'pre-norm'"),
        ("all", "task", "'all' is a reserved name"),
        ("train-loss", "measurement", "'train_loss' is a reserved name: choose another, such as my-train-loss"),
        ("norms", "norm", "a module lgbench_norms exists already"),
    ],
)
def test_a_name_that_is_taken_is_refused(name, kind, owner):
    assert owner in refused(name, "--kind", kind)


@pytest.mark.parametrize("blocker", ["folder", "file"])
def test_nothing_is_overwritten(blocker, tmp_path):
    place = tmp_path / "lgbench-my-norm"
    if blocker == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("years of work")
    else:
        place.write_text("years of work")
    assert "nothing is overwritten: name a new folder with --out" in refused("my-norm", "--kind", "norm")
