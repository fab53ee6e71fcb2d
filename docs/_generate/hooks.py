"""MkDocs calls this while it builds the site: comments in pages become generated text, pictures and notebooks join
the pages.

A page asks for generated text with a comment on a line of its own, so that it reads well where nothing is generated.

- `<!-- tasks -->` is a section of :mod:`reference`, by the name of its function.
- `<!-- output: lgbench show dyck-2-3 -->` is what a command prints.
- `<!-- table: lgbench leaderboard --format markdown | GLOB,GLOB -->` is a table that a command prints, over published runs.
- `<!-- picture: dyck: what it shows -->` is a figure of `PICTURES`, with its alternative text.
- `<!-- include: lgbench/reports/rules.md -->` is a file of the repository, without its title; with `# SECTION` behind the
  name, one section of it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import notebooks
import pyarrow.compute as pc
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from lgbench.results import run_files

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "leaderboards" / "runs"
COMMENT = re.compile(r"^<!-- ([a-z]+)(?:: (.*?))? -->$", re.MULTILINE)
PICTURES = {
    "overview": None,  # drawn by `make boards`
    "dyck": "plot --task dyck --entry pre-norm,stick-breaking,rope,lstm",
}
"""Figures by name: the command that draws each from the published runs."""

_drawn = tempfile.TemporaryDirectory(prefix="lgbench-docs-")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the figures among the files of the site, so that links to them are checked."""
    for name, command in PICTURES.items():
        path = ROOT / "leaderboards" / f"{name}.svg" if command is None else Path(_drawn.name) / f"{name}.svg"
        if command and not path.exists():
            lgbench([*shlex.split(command), "--out", str(path), "--results", str(RUNS)])
        files.append(File.generated(config, f"assets/{name}.svg", abs_src_path=str(path)))
    for path in notebooks.NOTEBOOKS:
        page = path.relative_to(notebooks.DOCS).with_suffix(".md").as_posix()
        files.append(File.generated(config, page, content=notebooks.as_markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the comments that ask for something. A browser downloads a notebook, so links to it lead to its page."""
    markdown = markdown.replace(".ipynb)", ".md)")
    return COMMENT.sub(lambda match: generated(match[1], match[2] or "", page), markdown)


def generated(kind: str, argument: str, page: Page) -> str:
    """The Markdown that a comment asks for."""
    if kind in ("output", "table"):
        printed = output(argument)
        return re.sub(r"^#+ (.*)$", r"**\1**", printed, flags=re.MULTILINE) if kind == "table" else f"```text\n{printed}```"
    if kind == "picture":
        name, _, meaning = argument.partition(": ")
        return f"![{meaning}]({get_relative_url(f'assets/{name}.svg', page.file.src_uri)}){{ width=700 }}"
    if kind == "include":
        name, _, section = argument.partition(" # ")
        text = (ROOT / name).read_text(encoding="utf-8")
        if not section:
            return text.partition("\n")[2]
        if f"\n## {section}\n" not in text:
            raise PluginError(f"{page.file.src_uri}: {name} has no section '{section}'")
        return text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    if kind in reference.SECTIONS:
        return reference.SECTIONS[kind](*([argument] if argument else []))
    known = ", ".join(["output", "table", "picture", "include", *reference.SECTIONS])
    raise PluginError(f"{page.file.src_uri}: nothing generates '{kind}'; known: {known}")


def output(argument: str) -> str:
    """The output of `COMMAND`, or of `COMMAND | GLOB,GLOB` over the published runs of these names."""
    command, _, globs = argument.partition(" | ")
    _, *words = shlex.split(command)
    return lgbench([*words, "--results", str(chosen(globs))] if globs else words)


def chosen(globs: str) -> Path:
    """A folder with run files of the published runs whose names fit one of these patterns."""
    folder = Path(_drawn.name) / f"runs-{abs(hash(globs))}"
    folder.mkdir(exist_ok=True)
    for path in RUNS.glob("*.parquet"):
        fitting, filed = {}, run_files.metadata_of_runs(path)
        for run_id, own in filed.items():
            about = own["experiment"]
            name = f"{about['task']}.{about['entry']}.seed-{about['seed']}.{run_id}"
            if any(fnmatchcase(name, glob) for glob in globs.split(",")):
                fitting[run_id] = name
        rows = run_files.read(path) if fitting else None
        for run_id, name in fitting.items():
            run_files.write(folder / f"{name}.parquet", rows.filter(pc.field("run_id") == run_id), filed[run_id])
    if not any(folder.iterdir()):
        raise PluginError(f"no published run fits '{globs}'")
    return folder


def lgbench(words: list[str]) -> str:
    """The output of a command."""
    command = [sys.executable, "-P", "-c", "from lgbench.cli.main import main; main()", *words]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(f"`lgbench {shlex.join(words)}` failed: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
