"""`lgbench plugins`: broken plugins are shown beside working ones, and installed plugins can be installed again."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import install
from packaging.requirements import Requirement
from rich.console import Console

import lgbench
from lgbench.cli.main import main
from lgbench.cli.plugins import table
from lgbench.contracts import CONTRACT
from lgbench.extensions import requirements

NORM = """
import sys
import time

from lgbench import NormScheme, hookimpl

{first}


class Nothing(NormScheme):
    name = "{name}"

    def embed(self, *given):
        return None

    residual = output = final = embed


@hookimpl
def lgbench_{hook}():
    return [Nothing()]
"""


def norm(name: str, first: str = "", hook: str = "norms") -> str:
    """A module that provides a norm of that name, and does `first` when it is imported."""
    return NORM.format(name=name, first=first, hook=hook)


def came_from(folder: Path, distribution: str, direct: object, version: str = "1.0") -> None:
    """Say of an installed distribution where it came from, as installers do (PEP 610)."""
    text = direct if isinstance(direct, str) else json.dumps(direct)
    (folder / f"{distribution.replace('-', '_')}-{version}.dist-info" / "direct_url.json").write_text(text)


def command(*arguments: str | Path):
    """The command in this interpreter; no traceback is shown and none escapes."""
    result = CliRunner().invoke(main, ["plugins", *map(str, arguments)], prog_name="lgbench")
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@contextlib.contextmanager
def seen(folder: Path):
    """Inside, this interpreter sees the distributions of a folder; their modules are forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield patch
    for name in set(sys.modules) - before:
        if (folder / f"{name.replace('.', '/')}.py").exists() or (folder / name).is_dir():
            del sys.modules[name]


@pytest.fixture
def site(tmp_path):
    """A folder of installed distributions."""
    folder = tmp_path / "site"
    folder.mkdir()
    with seen(folder):
        yield folder


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """The output as a table and as JSON, where five plugins are in trouble and one is not."""
    folder = tmp_path_factory.mktemp("troubled")
    install(folder, "a_healthy", norm("kept"), "2.0")
    install(folder, "a_broken", "import no_such_module_at_all", "1.1")
    install(folder, "a_talker", norm("talking", "print('hello, world')"), "1.2")
    install(folder, "a_sleeper", norm("sleeping", "time.sleep(0.3)"), "1.3")
    install(folder, "a_newcomer", norm("coming", 'LGBENCH_CONTRACT = "9.0"\nraise RuntimeError("imported")'), "1.4")
    install(folder, "a_misspeller", norm("lost", hook="norm"), "1.5")
    results = []
    for words in ([], ["--json"]):
        with seen(folder) as patch:
            patch.setattr("lgbench.extensions.loading.SLOW_SECONDS", 0.25)
            results.append(command(*words))
    return results


def row(output: str, plugin: str) -> str:
    """The line of the table that is the plugin's."""
    (line,) = [line for line in output.splitlines() if line.split()[:1] == [plugin]]
    return line


def test_a_working_plugin_is_shown_beside_broken_ones(troubled):
    shown, as_json = troubled
    assert row(shown.stdout, "a_healthy").split() == ["a_healthy", "a_healthy", "2.0", "index", "norm:", "kept"]
    assert "built in" in row(shown.stdout, "lgbench_norms") and "peri-norm" in row(shown.stdout, "lgbench_norms")
    found = {plugin["plugin"]: plugin for plugin in json.loads(as_json.stdout)["plugins"]}
    assert found["a_healthy"] == {
        "plugin": "a_healthy",
        "distribution": "a_healthy",
        "version": "2.0",
        "url": "",
        "editable": False,
        "provides": {"norm": ["kept"]},
        "error": None,
        "notes": [],
    }
    assert "peri-norm" in found["lgbench_norms"]["provides"]["norm"]


@pytest.mark.parametrize(
    ("plugin", "version", "said"),
    [
        ("a_broken", "1.1", ["no_such_module_at_all"]),
        ("a_newcomer", "1.4", ["written for contract 9.0", "was not imported", "upgrade lgbench"]),
        ("a_misspeller", "1.5", ["no hook 'lgbench_norm'", "did you mean 'lgbench_norms'?"]),
    ],
)
def test_a_plugin_that_failed_is_in_the_table_and_below_it_and_in_the_json(troubled, plugin, version, said):
    shown, as_json = troubled
    assert row(shown.stdout, plugin).split() == [plugin, plugin, version, "index", "nothing,", "see", "below"]
    (sentence,) = [line for line in shown.stdout.splitlines() if line.startswith(f"plugin {plugin} ({plugin} {version}): ")]
    (found,) = [found for found in json.loads(as_json.stdout)["plugins"] if found["plugin"] == plugin]
    assert found["provides"] == {}
    for words in said:
        assert words in sentence and words in found["error"]
    assert (shown.exit_code, as_json.exit_code) == (1, 1)


@pytest.mark.parametrize(
    ("plugin", "version", "norm", "said"),
    [
        ("a_talker", "1.2", "talking", "prints when it is imported, which is hidden because it would spoil a command's output"),
        ("a_sleeper", "1.3", "sleeping", "s to import, and every command that needs plugins waits for it"),
    ],
)
def test_a_plugin_that_is_a_nuisance_works_and_is_noted(troubled, plugin, version, norm, said):
    shown, as_json = troubled
    assert row(shown.stdout, plugin).split() == [plugin, plugin, version, "index", "norm:", norm]
    (sentence,) = [line for line in shown.stdout.splitlines() if line.startswith(f"plugin {plugin} ({plugin} {version}) ")]
    assert said in sentence
    (found,) = [found for found in json.loads(as_json.stdout)["plugins"] if found["plugin"] == plugin]
    assert found["error"] is None and found["provides"] == {"norm": [norm]}
    assert len(found["notes"]) == 1 and said in found["notes"][0]


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """The real standard output and error of a command, also of processes that it starts."""
    capfd.readouterr()
    main(["plugins", *arguments], prog_name="lgbench", standalone_mode=False)
    return capfd.readouterr()


def test_nothing_but_json_is_on_standard_output_though_a_plugin_prints(site, monkeypatch, capfd):
    install(site, "a_talker", norm("talking", "print('hello'); sys.stdout.write('world'); print('!', file=sys.stderr)"))
    monkeypatch.setenv("LGBENCH_PLUGINS", "a_talker")
    out, error = printed(capfd, "--json")
    found = json.loads(out)
    contract = ".".join(map(str, CONTRACT))
    assert (found["lgbench"], found["contract"], found["clashes"], error) == (lgbench.__version__, contract, [], "")
    (plugin,) = found["plugins"]
    assert len(plugin["notes"]) == 1 and "'hello'" in plugin["notes"][0]


def test_not_even_a_package_above_the_plugin_or_a_process_it_starts_writes_to_standard_output(site, monkeypatch, capfd):
    install(site, "a_shouter", norm("shouting", "import os; os.system('echo from a process')"))
    (site / "a_shouter-1.0.dist-info" / "entry_points.txt").write_text("[lgbench]\na_shouter = above.a_shouter\n")
    (site / "above").mkdir()
    (site / "above" / "__init__.py").write_text("print('from above')\n")
    (site / "a_shouter.py").rename(site / "above" / "a_shouter.py")
    monkeypatch.setenv("LGBENCH_PLUGINS", "a_shouter")
    out, error = printed(capfd, "--json")
    (plugin,) = json.loads(out)["plugins"]
    assert plugin["provides"] == {"norm": ["shouting"]} and "from a process" in error


def test_notes_alone_are_no_failure(site, monkeypatch):
    install(site, "a_talker", norm("talking", "print('hello')"))
    monkeypatch.setenv("LGBENCH_PLUGINS", "a_talker")
    result = command()
    assert result.exit_code == 0 and "prints when it is imported" in result.stdout


def test_a_clash_is_reported_once_and_is_a_failure(site, monkeypatch):
    install(site, "one", norm("shared"), "1.0", "dist-one")
    install(site, "two", norm("shared"), "2.0", "dist-two")
    monkeypatch.setenv("LGBENCH_PLUGINS", "one,two")
    shown, as_json = command(), command("--json")
    assert (shown.exit_code, as_json.exit_code) == (1, 1)
    sentence = "norm 'shared' is provided by dist-one 1.0 and dist-two 2.0"
    assert shown.stdout.count(sentence) == 1
    (clash,) = json.loads(as_json.stdout)["clashes"]
    assert clash.startswith(sentence)
    assert "shared" in row(shown.stdout, "one") and "shared" in row(shown.stdout, "two")


@pytest.mark.parametrize(
    ("direct", "shown"),
    [
        (None, "index"),
        ({"url": "file:///some/folder", "dir_info": {}}, "/some/folder"),
        ({"url": "file:///my%20work/folder", "dir_info": {"editable": True}}, "/my work/folder (editable)"),
        ({"url": "https://a.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}, "https://a.org/p.git"),
        ("not JSON", "index"),
    ],
)
def test_the_table_says_where_a_plugin_was_installed_from(site, monkeypatch, direct, shown):
    install(site, "mine", norm("my-norm"), "1.0", "my-dist")
    if direct is not None:
        came_from(site, "my-dist", direct)
    monkeypatch.setenv("LGBENCH_PLUGINS", "mine")
    assert row(command().stdout, "mine").split() == f"mine my-dist 1.0 {shown} norm: my-norm".split()


def test_a_file_is_a_plugin_with_its_path_and_its_content_for_a_version(tmp_path, monkeypatch):
    path = tmp_path / "my_norm.py"
    path.write_text(norm("of-a-file"))
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_averaging")
    shown, as_json = command("--plugin", path), command("--json", "--plugin", path)
    (found,) = [plugin for plugin in json.loads(as_json.stdout)["plugins"] if plugin["plugin"] == "my_norm"]
    assert (found["distribution"], found["url"], found["provides"]) == ("my_norm.py", str(path), {"norm": ["of-a-file"]})
    assert f"file {path}" in row(shown.stdout, "my_norm") and found["version"][:15] in row(shown.stdout, "my_norm")
    missing = command("--plugin", tmp_path / "nowhere.py")
    assert missing.exit_code == 2 and "no plugin file" in missing.stderr


def words(plugin) -> list[str]:
    """The words of a plugin that must be found whole."""
    provided = [name for names in plugin.provides.values() for name in names]
    return [plugin.name, plugin.distribution.name, plugin.distribution.version, *provided]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_table_fits_its_terminal_and_breaks_no_name(registry, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    table(registry, console)
    shown = console.file.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    found = set(re.split(r"[\s,]+", shown))
    assert found >= {word for plugin in registry.plugins for word in words(plugin)}


def test_a_terminal_too_narrow_for_a_name_folds_it_and_cuts_nothing(registry):
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    table(registry, console)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 30 for line in lines)
    half = lines[1].index("provides")
    folded = "".join(line[:half].strip() for line in lines) + "".join(line[half:].strip() for line in lines)
    assert all(word in folded for plugin in registry.plugins for word in words(plugin))


def test_a_pipe_has_every_path_and_every_list_in_one_line(site, monkeypatch):
    deep = "/".join(["a-folder-with-a-long-name"] * 12)
    install(site, "mine", norm("my-norm"))
    came_from(site, "mine", {"url": f"file:///{deep}", "dir_info": {"editable": True}})
    monkeypatch.setenv("LGBENCH_PLUGINS", "mine,lgbench_tasks")
    output = command().stdout
    assert f"/{deep} (editable)" in row(output, "mine")
    assert "set-complement" in row(output, "lgbench_tasks") and "tomita-7" in row(output, "lgbench_tasks")


# Where a distribution came from, as in the examples of PEP 610, and what pip is to be told.
ORIGINS = {
    "index": (None, "my-dist==1.0"),
    "damaged": ("{", "my-dist==1.0"),
    "git": (
        {
            "url": "https://github.com/pypa/pip.git",
            "vcs_info": {"vcs": "git", "requested_revision": "1.3.1", "commit_id": "7921be1537eac1e97bc40179a57f0349c2aee67d"},
        },
        "my-dist @ git+https://github.com/pypa/pip.git@7921be1537eac1e97bc40179a57f0349c2aee67d",
    ),
    "git, a folder of it": (
        {"url": "ssh://git@a.org/p", "subdirectory": "sub", "vcs_info": {"vcs": "git", "commit_id": "7921be15"}},
        "my-dist @ git+ssh://git@a.org/p@7921be15#subdirectory=sub",
    ),
    "git, a repository of this machine": (
        {"url": "file:///home/user/project", "vcs_info": {"vcs": "git", "commit_id": "7921be15"}},
        "git+file:///home/user/project@7921be15",
    ),
    "archive": (
        {"url": "https://github.com/pypa/pip/archive/1.3.1.zip", "archive_info": {}},
        "my-dist @ https://github.com/pypa/pip/archive/1.3.1.zip",
    ),
    "archive of known content": (
        {
            "url": "https://github.com/pypa/pip/archive/1.3.1.zip",
            "archive_info": {"hash": "sha256=2dc6b5a470a1", "hashes": {"sha256": "2dc6b5a470a1"}},
        },
        "my-dist @ https://github.com/pypa/pip/archive/1.3.1.zip#sha256=2dc6b5a470a1",
    ),
    "folder": ({"url": "file:///home/user/project", "dir_info": {}}, "my-dist @ file:///home/user/project"),
    "editable": ({"url": "file:///home/user/project", "dir_info": {"editable": True}}, "-e /home/user/project"),
    "editable, with a space": (
        {"url": "file:///home/my%20user/project", "dir_info": {"editable": True}},
        "-e file:///home/my%20user/project",
    ),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_requirement_names_where_a_distribution_came_from(tmp_path, origin):
    direct, line = ORIGINS[origin]
    install(tmp_path, "mine", None, "1.0", "my-dist")
    if direct is not None:
        came_from(tmp_path, "my-dist", direct)
    (distribution,) = importlib.metadata.distributions(path=[str(tmp_path)])
    assert requirements.requirement(distribution) == line
    if not line.startswith(("-e", "git+file:")):
        assert Requirement(line).name == "my-dist"


def test_freeze_names_broken_plugins_and_plugins_that_are_not_chosen_but_not_lgbench(site, monkeypatch):
    install(site, "zebra", "raise RuntimeError('must not be imported')", "3.0", "Zebra_plugins")
    install(site, "ape", None, "1.0")
    monkeypatch.setenv("LGBENCH_PLUGINS", "ape")
    done = command("freeze")
    assert done.exit_code == 0 and done.stderr == ""
    first, *found = done.stdout.splitlines()
    assert first == f"# plugins of lgbench {lgbench.__version__}; lgbench plugins restore FILE installs them"
    assert {"ape==1.0", "Zebra_plugins==3.0"} <= set(found)
    named = [line for line in found if not line.startswith("-e")]
    assert named == sorted(named, key=str.lower)
    assert not [line for line in found if re.match(r"lgbench\b(?!-)", line)]


def test_a_distribution_of_several_plugins_is_one_requirement(site):
    install(site, "first", None, "1.0", "several")
    (site / "several-1.0.dist-info" / "entry_points.txt").write_text("[lgbench]\nfirst = first\nsecond = second\n")
    assert command("freeze").stdout.count("several==1.0") == 1


def test_freeze_passes_over_what_has_lost_its_metadata(site):
    install(site, "whole", None)
    install(site, "nameless", None)
    (site / "nameless-1.0.dist-info" / "METADATA").unlink()
    result = command("freeze")
    assert result.exit_code == 0 and "whole==1.0" in result.stdout and "nameless" not in result.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no file"),
        (b"", "has no requirement in it"),
        (
            b"# plugins of lgbench 0.1.0\n\n  # none\n--extra-index-url https://a.org\n-c other.txt\n",
            "has no requirement in it",
        ),
        (b"\x89PNG\xff\xfe\x00", "it is not a text file"),
    ],
)
def test_a_file_that_cannot_be_restored_is_wrong_usage_and_the_message_says_how_to_make_one(
    tmp_path, monkeypatch, content, said
):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip was asked"))
    path = tmp_path / "plugins.txt"
    if content is not None:
        path.write_bytes(content)
    result = command("restore", path)
    assert result.exit_code == 2
    assert said in result.stderr and str(path) in result.stderr and "lgbench plugins freeze > " in result.stderr


def test_a_folder_cannot_be_restored(tmp_path):
    result = command("restore", tmp_path)
    assert result.exit_code == 2 and "Is a directory" in result.stderr


@pytest.mark.parametrize("arguments", [("--json", "freeze"), ("--plugin", "my_norm.py", "restore", "plugins.txt")])
def test_options_of_the_table_are_not_silently_ignored_by_the_subcommands(arguments):
    result = command(*arguments)
    assert result.exit_code == 2 and "takes neither" in result.stderr


# A small build backend, which stands in the folder that it builds, so that pip needs no other package for it.
BACKEND = """
import os
import pathlib
import zipfile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    (module,) = pathlib.Path().glob("plugin_*.py")
    return wheel(folder, module.name, module.read_text())


def build_editable(folder, config_settings=None, metadata_directory=None):
    (module,) = pathlib.Path().glob("plugin_*.py")
    return wheel(folder, module.stem + ".pth", os.getcwd())


def wheel(folder, file, content):
    module, version = file.partition(".")[0], pathlib.Path("VERSION").read_text()
    info = f"{module}-{version}.dist-info"
    files = {
        file: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {module.replace('_', '-')}\\nVersion: {version}\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": f"[lgbench]\\n{module} = {module}\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    path = pathlib.Path(folder, f"{module}-{version}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path.name
"""


def project(folder: Path, module: str, version: str, backend: str = BACKEND) -> Path:
    """The source of a plugin that pip can build without the network; the plugin itself is broken."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    (folder / "backend.py").write_text(backend)
    (folder / "VERSION").write_text(version)
    (folder / f"{module}.py").write_text("raise RuntimeError('must not be imported')\n")
    return folder


def built(folder: Path, source: Path) -> Path:
    """Its wheel."""
    code = "import sys; sys.path.insert(0, ''); import backend; print(backend.build_wheel(sys.argv[1]))"
    folder.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", code, folder], cwd=source, capture_output=True, text=True, check=True)
    return folder / done.stdout.strip()


class Bare:
    """A Python of its own that has lgbench, click, packaging and pluggy, and neither torch nor DuckDB nor the network."""

    def __init__(self, folder: Path, *packages: str) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        (self.site,) = folder.rglob("site-packages")
        shared = folder / "shared"
        install(shared, "lgbench_norms", None, lgbench.__version__, "lgbench")
        for name in ("lgbench", "click", "packaging", "pluggy", *packages):
            # Not by find_spec: setuptools, where it is installed, answers for pip with a warning.
            own = Path(lgbench.__file__).parent if name == "lgbench" else distribution(name).locate_file(name)
            (shared / name).symlink_to(own)
        (self.site / "shared.pth").write_text(str(shared))
        unwanted = ("PIP_", "PYTHON", "LGBENCH_")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self.environ |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}

    def run(self, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [self.python, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.environ | environ, check=False)

    def lgbench(self, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        done = self.run("-c", "from lgbench.cli.main import main; main(prog_name='lgbench')", *arguments, **environ)
        assert "Traceback" not in done.stderr
        return done


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=nobody", "-c", "user.email=nobody@example.org", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_restore_installs_the_output_of_freeze_and_freeze_prints_it_again(tmp_path):
    shelf = tmp_path / "shelf"
    built(shelf, project(tmp_path / "shelved", "plugin_shelved", "1.5"))
    wheel = built(tmp_path / "wheels", project(tmp_path / "unpacked", "plugin_wheel", "2.0"))
    folder = project(tmp_path / "a folder", "plugin_folder", "3.0")
    linked = project(tmp_path / "linked", "plugin_linked", "4.0")
    odd = project(tmp_path / "linked too", "plugin_odd", "4.5")
    repository = project(tmp_path / "repository", "plugin_versioned", "5.0")
    git(repository, "init", "--quiet")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "all")
    commit = git(repository, "rev-parse", "HEAD")
    before = Bare(tmp_path / "before", "pip")
    sources = ["plugin-shelved", wheel, folder, "--editable", linked, "--editable", odd.as_uri()]
    sources.append(f"git+{repository.as_uri()}")
    found = before.run("-m", "pip", "install", *sources, PIP_FIND_LINKS=str(shelf))
    assert found.returncode == 0, found.stderr
    frozen = before.lgbench("plugins", "freeze")
    digits = re.escape(wheel.as_uri()) + "#sha256=[0-9a-f]{64}"
    assert re.fullmatch(
        "\n".join(
            [
                f"# plugins of lgbench {re.escape(lgbench.__version__)}; lgbench plugins restore FILE installs them",
                f"-e {re.escape(str(linked))}",
                f"-e {re.escape(odd.as_uri())}",
                f"git\\+{re.escape(repository.as_uri())}@{commit}",
                f"plugin-folder @ {re.escape(folder.as_uri())}",
                "plugin-shelved==1.5",
                f"plugin-wheel @ {digits}",
                "",
            ]
        ),
        frozen.stdout,
    ), frozen

    file = tmp_path / "plugins.txt"
    file.write_text(frozen.stdout)
    after = Bare(tmp_path / "after", "pip")
    install(after.site, "bystander", None)
    done = after.lgbench("plugins", "restore", file, PIP_FIND_LINKS=str(shelf))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "6 plugins restored: plugin-folder 3.0, plugin-linked 4.0, plugin-odd 4.5, plugin-shelved 1.5, "
        "plugin-versioned 5.0, plugin-wheel 2.0\n"
    )
    assert "Successfully installed" in done.stderr
    again = after.lgbench("plugins", "freeze").stdout.splitlines()
    again.remove("bystander==1.0")
    assert again == frozen.stdout.splitlines()


@pytest.fixture(scope="module")
def with_pip(tmp_path_factory) -> Bare:
    return Bare(tmp_path_factory.mktemp("with_pip"), "pip")


@pytest.fixture(scope="module")
def without_pip(tmp_path_factory) -> Bare:
    return Bare(tmp_path_factory.mktemp("without_pip"))


@pytest.mark.slow
def test_a_requirement_that_is_there_already_and_one_that_is_no_plugin(tmp_path, with_pip):
    bare, file = with_pip, tmp_path / "plugins.txt"
    install(bare.site, "plugin_here", None, "1.0")
    # As some shells redirect what a command prints, and with what pip allows after a requirement.
    file.write_text("Plugin.Here==1.0  # a comment\n", encoding="utf-16")
    assert bare.lgbench("plugins", "restore", file).stdout == "1 plugin restored: plugin_here 1.0\n"
    (bare.site / "plugin_here-1.0.dist-info" / "entry_points.txt").unlink()
    done = bare.lgbench("plugins", "restore", file)
    said = f"installed, but no line of {file} names a plugin; `lgbench plugins` shows all plugins\n"
    assert (done.returncode, done.stdout) == (0, said)


@pytest.mark.slow
def test_a_failure_of_pip_is_reported_after_its_own_reason(tmp_path, with_pip):
    bare, file = with_pip, tmp_path / "plugins.txt"
    file.write_text("no-such-plugin==1.0\n")
    done = bare.lgbench("plugins", "restore", file)
    assert done.returncode == 1 and done.stdout == ""
    *reasons, last = done.stderr.splitlines()
    assert last == f"lgbench: pip could not install the requirements in {file}; its output above says why"
    assert any("no-such-plugin==1.0" in line for line in reasons)


def test_without_pip_the_message_says_what_would_work(tmp_path, without_pip):
    bare, file = without_pip, tmp_path / "plugins.txt"
    file.write_text("no-such-plugin==1.0\n")
    done = bare.lgbench("plugins", "restore", file)
    assert done.returncode == 1 and done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert f"{bare.python} has no pip" in sentence
    assert f"`{bare.python} -m ensurepip`" in sentence
    assert f"`uv pip install --python {bare.python} --requirement {file}`" in sentence


INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from lgbench.cli.main import main; main()"
)

# It takes back what it has half installed, and that takes a while.
SLOW_PIP = """
import pathlib
import time

here = pathlib.Path(__file__).parent
try:
    (here / "started").touch()
    time.sleep(30)
except KeyboardInterrupt:
    time.sleep(1)
    (here / "cleaned").touch()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a terminal interrupts a group of processes there in another way")
def test_an_interrupt_waits_until_pip_has_cleaned_up_and_exits_with_130(tmp_path, without_pip):
    bare = without_pip
    pip = bare.site / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(SLOW_PIP)
    file = tmp_path / "plugins.txt"
    file.write_text("any-plugin==1.0\n")
    words = [bare.python, "-c", INTERRUPTIBLE, "plugins", "restore", file]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bare.environ, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not (pip / "started").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=20)
        cleaned = (pip / "cleaned").exists()
        said, errors = (text.decode() for text in process.communicate(timeout=20))
    finally:
        process.kill()
        shutil.rmtree(pip)
    assert code == 130 and cleaned and said == ""
    (sentence,) = errors.splitlines()
    assert sentence.startswith("lgbench: interrupted; ") and "`lgbench plugins`" in sentence and "same command" in sentence
