"""The documentation is run, not trusted: every block of code in it belongs to a test here, and links lead somewhere."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from click.testing import CliRunner

from lgbench import hookspecs
from lgbench.cli import main
from lgbench.contracts import CONTRACT
from lgbench.registry import Registry

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")]
    if not {"node_modules", "results", "dist"} & set(page.relative_to(ROOT).parts)
)
SMALL = "--set train.steps=2 --set evaluate.contexts=4 --set evaluate.strings=4 --set evaluate.max_length=40 --seeds 0"


class Block(NamedTuple):
    """A fenced block of code: where it stands, what it is in, and the file that it is said to be."""

    page: str
    section: str
    language: str
    file: str | None
    text: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found, section, end = [], "", 0
    for match in re.finditer(r"^(#+) ([^\n]*)$|(?:^`([\w.]+)`\n\n)?^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match.start() < end:
            continue  # a comment in a block looks like a heading
        end = match.end()
        if match[2] is not None:
            section = match[2]
        else:
            found.append(Block(page, section, match[4], match[3], match[5]))
    return found


BLOCKS = [block for page in PAGES for block in blocks(page)]
GUIDE = ("One file, nothing to install", "A package, in two files", "A package that can be published", "A pack")
MAKE = (("README.md", "Set up"), ("CONTRIBUTING.md", "Change lgbench"))
PACKS = sorted(path.name for path in (ROOT / "plugins" / "contrib").iterdir() if path.is_dir())


def the(page: str, section: str, language: str) -> Block:
    (found,) = [b for b in BLOCKS if (b.page, b.section, b.language) == (page, section, language)]
    return found


def is_run(block: Block) -> bool:
    """Whether a test below runs it."""
    return (
        (block.page == "CONTRIBUTING.md" and block.section in GUIDE and block.language in ("sh", "python", "toml"))
        or ((block.page, block.section) in MAKE and block.language in ("sh", "text"))
        or (block.page == "README.md" and block.section == "Use" and block.language in ("sh", "python"))
        or (block.page, block.section, block.language) == ("CONTRIBUTING.md", "Let others find it", "toml")
        or (block.page, block.section, block.language) == ("CONTRIBUTING.md", "Which lgbench a plugin fits", "python")
        or (block.page, block.section, block.language) == ("benchmarks/README.md", "On a GPU", "sh")
        or (block.page.startswith("plugins/contrib/") and block.language == "sh")
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.section}")
def test_every_block_of_code_is_run_by_a_test(block):
    assert is_run(block), f"no test runs this block of {block.page}:\n{block.text}"


@pytest.mark.parametrize("page", PAGES)
def test_code_stands_in_fences_where_it_is_found(page):
    prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"\n\n {4}\S", prose), f"{page} has an indented block"


def hooks():
    return {n: f for n, f in inspect.getmembers(hookspecs, inspect.isfunction) if n.startswith("lgbench_")}


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_documented_with_its_signature(name):
    signature = str(inspect.signature(hooks()[name])).replace("'", "")
    assert f"`{name}{signature}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_guide_goes_from_one_file_to_a_published_pack(tmp_path):
    """One session in one folder, as a reader would have it. What it installs goes into a folder of its own, offline."""
    site = tmp_path / "site"
    install = f"{sys.executable} -m pip install --quiet --no-deps --no-build-isolation --upgrade --target {site}"
    environ = os.environ | {"PYTHONPATH": str(site), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    said: dict[str, str] = {}
    for block in BLOCKS:
        if block.page != "CONTRIBUTING.md" or block.section not in GUIDE:
            continue
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            continue
        script = re.sub(r"pip install (--\S+ )*", f"{install} ", block.text)
        script = script.replace("pip wheel", f"{sys.executable} -m pip wheel --quiet --no-build-isolation")
        script = re.sub(r"^(lgbench run .*)$", rf"\1 {SMALL}", script, flags=re.MULTILINE)
        script = re.sub(r"^pytest$", f"{sys.executable} -m pytest -q", script, flags=re.MULTILINE)
        done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        said[block.section] = said.get(block.section, "") + done.stdout
    one, two, published, pack = (said[section] for section in GUIDE)
    assert "promises are kept" in one and re.search(r"transformer\+my-norm~[0-9a-f]{8}", one)
    assert re.search(r"my_norm +lgbench-my-norm +0\.1\.0", two) and "norm: my-norm" in two
    assert "transformer+my-norm " in two
    assert "transformer+pre-norm" not in published and "transformer+resharpen" in published and "passed" in published
    assert re.search(r"lgbench_resharpen +lgbench-resharpen +0\.1\.0", pack)


@pytest.fixture
def directory():
    """What makes the directory of plugins."""
    spec = importlib.util.spec_from_file_location("directory", ROOT / "plugins" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_guide_adds_to_the_directory_fits_there(directory):
    added = the("CONTRIBUTING.md", "Let others find it", "toml").text
    page = directory.page((ROOT / "plugins" / "directory.toml").read_text(encoding="utf-8") + "\n" + added)
    assert "| [lgbench-resharpen](https://example.org/lgbench-resharpen) |" in page and "`resharpen`" in page


def test_the_contract_that_the_guide_names_is_this_one():
    names = {}
    exec(the("CONTRIBUTING.md", "Which lgbench a plugin fits", "python").text, names)
    assert names["LGBENCH_CONTRACT"] == f"{CONTRACT[0]}.{CONTRACT[1]}"


@pytest.mark.parametrize("where", MAKE, ids=" ".join)
def test_make_has_what_the_documentation_says(where):
    for command in the(*where, "sh").text.splitlines():
        words = command.partition("#")[0].split()
        done = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
        assert words[0] == "make" and done.returncode == 0, done.stderr


def test_the_flow_that_is_drawn_names_modules_that_there_are():
    drawn = the("CONTRIBUTING.md", "Change lgbench", "text").text
    names = re.findall(r"[a-z]+", re.sub(r"\(.*?\)", "", drawn).replace("run files", "runfiles"))
    for name in names:
        place = ROOT / "lgbench" / name
        assert place.is_dir() or place.with_suffix(".py").exists(), name


def accepted(commands, tmp_path, monkeypatch):
    """Each command of lgbench ends well; what it runs is made small."""
    monkeypatch.chdir(tmp_path)
    for command in commands:
        words = re.findall(r'"[^"]*"|\S+', command)
        arguments = [word.strip('"') for word in words[1:]]
        if arguments[0] == "run":
            arguments = [*arguments, *SMALL.split()]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, f"{command}: {result.output}"


def commands_of(block: Block) -> list[str]:
    return [line.split("  #")[0].strip() for line in block.text.splitlines()]


def test_the_commands_of_the_readme_are_accepted(tmp_path, monkeypatch):
    accepted(commands_of(the("README.md", "Use", "sh")), tmp_path, monkeypatch)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(the("README.md", "Use", "python").text, names)
    assert set(names["rows"]["task"].to_pylist()) == {"tomita-5"}
    assert names["best"].fetchall()


@pytest.mark.parametrize("pack", PACKS)
def test_the_commands_of_a_packs_readme_are_accepted(pack, tmp_path, monkeypatch):
    (block,) = [b for b in BLOCKS if b.page == f"plugins/contrib/{pack}/README.md"]
    first, *commands = commands_of(block)
    assert first == f"pip install ./plugins/contrib/{pack}"  # it is installed here
    accepted(commands, tmp_path, monkeypatch)


@pytest.mark.skipif(torch.cuda.is_available(), reason="they run for hours where there is a GPU")
def test_commands_for_a_gpu_have_their_options_and_say_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in commands_of(the("benchmarks/README.md", "On a GPU", "sh")):
        words = command.removeprefix("time ").split()
        if words[0] == "lgbench":
            result = CliRunner().invoke(main, words[1:])
            assert result.exit_code == 2 and "device 'cuda' cannot be used here" in result.output
        else:
            assert "--device" in (ROOT / words[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
        place = ((ROOT / page).parent / target) if target else ROOT / page
        assert place.exists(), f"{page}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, f"{page}: #{heading}"


def test_the_packs_of_the_directory_provide_what_it_says():
    import tomllib

    listed = tomllib.loads((ROOT / "plugins" / "directory.toml").read_text(encoding="utf-8"))["plugin"]
    ours = {each["name"]: each for each in listed if each["url"].startswith("contrib/")}
    assert sorted(ours) == PACKS
    for plugin in Registry.load().plugins:
        if plugin.distribution.name in ours:
            entry = ours[plugin.distribution.name]
            assert {kind: sorted(names) for kind, names in plugin.provides.items()} == {
                kind: names for kind, names in entry.items() if kind in plugin.provides
            }


ENTRY = '[[plugin]]\nname = "mine"\nabout = "what it is"\nurl = "https://example.org"\nlicense = "MIT"\n'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (ENTRY + 'norm = "my-norm"', "mine: norm is 'my-norm', expected a list of names"),
        (ENTRY + "norm = [1]", "mine: norm is [1], expected a list of names"),
        (ENTRY + "attention = []", "mine: attention is [], expected a list of names"),
        (ENTRY + 'norm = ["my-norm"]\nattention = []', 'as in attention = ["my-attention"]'),
        (ENTRY + 'norm = ["-"]', "mine: norm is ['-'], expected a list of names of lower-case letters, digits and single"),
        (ENTRY + 'norm = ["my--norm"]', "mine: norm is ['my--norm']"),
        (ENTRY, "mine: name what it provides, by kind"),
        (ENTRY + 'norms = ["my-norm"]', "mine: 'norms' is no field"),
        (ENTRY.replace('"MIT"', "1"), "mine: license is 1, expected a line of text"),
        ('[plugin]\nname = "mine"', "plugin is {'name': 'mine'}, expected a list of tables"),
        ('plugin = ["mine"]', "plugin is ['mine'], expected a list of tables"),
        (
            '[[plugins]]\nname = "mine"',
            "'plugins' is no key of the directory: every plugin is a table that begins with [[plugin]]",
        ),
        ("[[plugin", "at end of document"),
    ],
)
def test_what_cannot_stand_in_the_directory_is_told_in_a_sentence(directory, monkeypatch, tmp_path, data, said):
    monkeypatch.setattr(directory, "DATA", tmp_path / "directory.toml")
    monkeypatch.setattr(directory, "PAGE", tmp_path / "README.md")
    directory.DATA.write_text(data)
    with pytest.raises(SystemExit) as stopped:
        directory.main()
    assert str(stopped.value).startswith(f"{directory.DATA}: ") and said in str(stopped.value)
    assert not directory.PAGE.exists()


def test_the_directory_is_what_its_data_say():
    done = subprocess.run([sys.executable, ROOT / "plugins" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
