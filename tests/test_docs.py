"""The documentation is run, not trusted: every block of code in it belongs to a test here, and links lead somewhere."""

import csv
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from helpers.commands import invoked
from helpers.folders import ROOT

from lgbench.contracts import CONTRACT
from lgbench.extensions.registry import Registry

pytestmark = pytest.mark.usefixtures("all_plugins")  # the pages are for readers who have the packs, too

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
MAKE = (("README.md", "Set up"), ("CONTRIBUTING.md", "Contributing"))
PACKS = sorted(path.name for path in (ROOT / "plugins" / "contrib").iterdir() if path.is_dir())
QUICK_SESSIONS = {"index.md", "explanation/code.md", "how-to/add-a-task.md", "reference/plugins.md"}
"""The others take seconds of work each, publishing a plugin a minute."""


def loaded(path: Path) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


run_blocks = loaded(ROOT / "docs" / "_generate" / "run_blocks.py")
SESSIONS = [
    pytest.param(session, id=" ".join(session), marks=[] if set(session) <= QUICK_SESSIONS else [pytest.mark.slow])
    for session in run_blocks.sessions()
]


def the(page: str, section: str, language: str) -> Block:
    (found,) = [b for b in BLOCKS if (b.page, b.section, b.language) == (page, section, language)]
    return found


PICTURED = ("leaderboards/README.md", "leaderboards/inside/README.md")


def is_run(block: Block) -> bool:
    """Whether a test below runs it, or it is what something prints."""
    return (
        block.language == "text"
        or block.page.startswith("docs/")
        or ((block.page, block.section) in MAKE and block.language == "sh")
        or (block.page == "README.md" and block.section == "Use" and block.language in ("sh", "python"))
        or (block.page, block.section, block.language) == ("benchmarks/README.md", "On a GPU", "sh")
        or (block.page.startswith("plugins/contrib/") and block.language == "sh")
        or (block.page in PICTURED and block.text.startswith("lgbench plot "))  # tests/test_boards.py draws each picture
    )


@pytest.mark.parametrize("session", SESSIONS)
def test_the_code_of_the_docs_runs_as_a_reader_would_run_it(session, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_blocks.Session(tmp_path).read(session)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.section}")
def test_every_block_of_code_is_run_by_a_test(block):
    assert is_run(block), f"no test runs this block of {block.page}:\n{block.text}"


def test_examples_in_sql_pool_no_runs_with_changed_settings():
    examples = [block.text for block in BLOCKS if block.page == "docs/how-to/query-with-sql.md" and block.language == "sql"]
    assert len(examples) == 6 and all(re.search(r"cardinality\((r\.)?changes\) [=>] 0", text) for text in examples)


@pytest.fixture
def directory():
    """The program that makes the directory of plugins."""
    return loaded(ROOT / "plugins" / "generate.py")


def test_what_the_guide_adds_to_the_directory_fits_there(directory):
    blocks_of_guide = run_blocks.blocks("how-to/publish-a-plugin.md")
    (added,) = [block.text for block in blocks_of_guide if block.text.startswith("[[plugin]]")]
    text = (ROOT / "lgbench" / "extensions" / "directory.toml").read_text(encoding="utf-8") + "\n" + added
    head, *plugins = re.split(r"^(?=\[\[plugin\]\])", text, flags=re.MULTILINE)
    page = directory.page(head + "\n".join(sorted(plugins)))  # each begins with its name, which orders them
    assert "| [lgbench-resharpen](https://example.org/lgbench-resharpen) |" in page and "`resharpen`" in page


def test_the_contract_that_the_docs_name_is_this_one():
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    named = {version for page in pages for version in re.findall(r'^LGBENCH_CONTRACT = "([\d.]+)"', page, re.MULTILINE)}
    assert named == {f"{CONTRACT[0]}.{CONTRACT[1]}"}


@pytest.mark.parametrize("where", MAKE, ids=" ".join)
def test_make_has_what_the_documentation_says(where):
    for command in the(*where, "sh").text.splitlines():
        words = command.partition("#")[0].split()
        done = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
        assert words[0] == "make" and done.returncode == 0, done.stderr


def accepted(commands, tmp_path, monkeypatch):
    """Each command of lgbench ends well; what it runs is made small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    for command in commands:
        words = re.findall(r'"[^"]*"|\S+', os.path.expandvars(command))
        arguments = [word.strip('"') for word in words[1:]]
        if arguments[0] == "run":
            arguments = [*arguments, *SMALL.split()]
        result = invoked(*arguments)
        assert result.exit_code == 0, f"{command}: {result.output}"


def commands_of(block: Block) -> list[str]:
    return [line.split("  #")[0].strip() for line in block.text.splitlines()]


@pytest.mark.slow
def test_the_commands_of_the_readme_are_accepted(tmp_path, monkeypatch):
    accepted(commands_of(the("README.md", "Use", "sh")), tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs, measured = (b for b in BLOCKS if (b.page, b.section, b.language) == ("README.md", "Use", "python"))
    names = {}
    exec(runs.text, names)
    assert set(names["rows"]["task"].to_pylist()) == {"tomita-5"}
    assert names["tvd"].fetchall()
    exec(measured.text, names)
    assert set(names["rows"].filter(names["rows"]["on_boards"])["length"].to_pylist()) == {40, 80, 160}


@pytest.mark.slow
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
            result = invoked(*words[1:])
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

    listed = tomllib.loads((ROOT / "lgbench" / "extensions" / "directory.toml").read_text(encoding="utf-8"))["plugin"]
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
        (ENTRY + 'norm = ["-"]', "mine: norm is ['-'], expected a list of names of lower-case letters, digits and single"),
        (ENTRY, "mine: name what it provides, by kind"),
        (ENTRY + 'norms = ["my-norm"]', "mine: 'norms' is no field"),
        (ENTRY.replace('"MIT"', "1"), "mine: license is 1, expected a line of text"),
        ('[plugin]\nname = "mine"', "plugin is {'name': 'mine'}, expected a list of tables"),
        ('[[plugins]]\nname = "mine"', "'plugins' is no key of the directory: every plugin is a table that begins with"),
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


def test_the_table_of_coverage_is_that_of_the_simulation_in_which_the_chosen_test_alone_holds_where_entries_are_sound():
    path = ROOT / "benchmarks" / "coverage.csv"
    table = runpy.run_path(str(ROOT / "benchmarks" / "coverage.py"))["table"](path)
    assert table in (ROOT / "docs" / "explanation" / "statistics.md").read_text(encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["errors"] in ("normal", "as on the boards")]
    fails = {line["test"] for line in lines if not all(0.93 <= float(line[end]) <= 0.97 for end in ("least", "most"))}
    assert {line["test"] for line in lines} - fails == {"ordinary paired t"}


def printed(notebook) -> list[set[str]]:
    """The words that each cell of code prints. Numbers and bars may differ by rounding."""
    texts = ("".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    return [set(re.findall("[a-z][a-z_-]{2,}", text)) for text in texts]


@pytest.mark.slow  # a kernel is started, which starts commands
@pytest.mark.filterwarnings("default")  # of the kernel's own client
@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_from_the_first_cell_to_the_last_and_prints_what_it_shows(path, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    done = loaded(ROOT / "docs" / "_generate" / "notebooks.py").executed(path, tmp_path)
    assert printed(done) == printed(nbformat.read(path, as_version=4))
    text = "".join(output.get("text", "") for cell in done.cells for output in cell.get("outputs", []))
    assert "lgbench: " not in text and "Error" not in text
