"""What commands import when they run. What modules may import stands in pyproject.toml, and `lint-imports` checks it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from helpers.processes import install, python
from helpers.registries import BUILT_IN

import lgbench

CORE = Path(lgbench.__file__).parent
MODULES = sorted(".".join(path.relative_to(CORE).with_suffix("").parts) for path in CORE.rglob("*.py"))
"""Every module, by its name within lgbench, such as "cli.main"."""


def test_no_module_is_a_drawer():
    assert not {"utils", "base", "common", "helpers", "misc"} & {part for module in MODULES for part in module.split(".")}


def test_the_hookspecs_fit_on_one_screen():
    assert len((CORE / "hookspecs.py").read_text(encoding="utf-8").splitlines()) <= 76


def test_an_entry_point_has_the_name_of_its_module():
    own = [e for e in entry_points(group="lgbench") if e.dist.name == "lgbench"]
    assert sorted(e.name for e in own) == sorted(BUILT_IN)
    assert all(e.name == e.value for e in own)


ESSENTIAL = ("lgbench_measurements", "lgbench_optimizers")
"""The built-in plugins that every run needs."""
LIST_IMPORTED = "print('imported', *sorted(set(m.partition('.')[0] for m in sys.modules)))"
COMMANDS = """
import sys
from lgbench.cli.main import main

def run(*arguments):
    try:
        main(arguments, prog_name="lgbench")
    except SystemExit as end:
        return end.code
"""


def imported(code: str, *arguments: str, **environ: str) -> list[set[str]]:
    """The top-level modules that a fresh interpreter had each time that the code lists them."""
    done = python(code, *arguments, **environ)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    printed = done.stdout + done.stderr  # where it leads after a command that loaded plugins
    return [set(line.split()[1:]) for line in printed.splitlines() if line.startswith("imported ")]


def plugins_among(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("lgbench_")}


@pytest.fixture(scope="module")
def imported_by_now(toys_installed, tmp_path_factory) -> tuple[list[set[str]], Path]:
    """The modules imported after a run with toy plugins, and after importing every module; and the run's folder."""
    folder = tmp_path_factory.mktemp("boundaries") / "results"
    code = f"""import importlib
{COMMANDS}
words = "run --task all --arch toy-table,toy-fragile --average none --seeds 0 --protocol quick".split()
assert run(*words, "--set", "train.steps=2", "--set", "evaluate.max_length=16", "--results", sys.argv[1]) == 0
{LIST_IMPORTED}
for name in {[f"lgbench.{module}" for module in MODULES]}: importlib.import_module(name)
{LIST_IMPORTED}"""
    found = imported(code, str(folder), PYTHONPATH=str(toys_installed), LGBENCH_PLUGINS=",".join(["toys", *ESSENTIAL]))
    return found, folder


def test_the_package_alone_imports_nothing_heavy():
    (alone,) = imported(f"import sys, lgbench; {LIST_IMPORTED}")
    assert "lgbench" in alone and not alone & {"torch", "duckdb", "pyarrow", "numpy"}


@pytest.mark.slow
def test_a_run_with_toy_plugins_needs_no_other_task_part_or_averager_and_no_duckdb(imported_by_now):
    (ran, _), folder = imported_by_now
    assert {"torch", "toys"} <= ran and not ran & {"duckdb", "obstore"}
    assert plugins_among(ran) == set(ESSENTIAL)
    assert len(list(folder.glob("*.parquet"))) == 5  # toy-fragile cannot be run on toy-largest


@pytest.mark.slow
def test_the_core_imports_no_plugin(imported_by_now):
    (_, everything), _ = imported_by_now
    assert {"torch", "duckdb", "altair"} <= everything
    assert plugins_among(everything) == set(ESSENTIAL)  # which the run had asked for


def test_help_imports_nothing_heavy_and_no_plugin(tmp_path):
    install(tmp_path, "mine", "raise RuntimeError('must not be imported')")
    code = f"""{COMMANDS}
def help_of(command, *words):
    assert run(*words, "--help") == 0
    for name, own in getattr(command, "commands", {{}}).items():
        help_of(own, *words, name)

help_of(main)
assert run("--version") == 0
{LIST_IMPORTED}"""
    (found,) = imported(code, PYTHONPATH=str(tmp_path))
    heavy = {"torch", "duckdb", "pyarrow", "numpy", "rich", "jinja2", "obstore", "transformers"}
    assert "lgbench" in found and not found & {*heavy, "mine"}
    assert not plugins_among(found)


@pytest.mark.slow
def test_reading_results_imports_neither_torch_nor_a_plugin(results_folder, tmp_path):
    code = f"""{COMMANDS}
folder = ("--results", sys.argv[1])
assert run("leaderboard", *folder) == 0
assert run("sql", "select count(*) from results", *folder) == 0
assert run("compare", "pre-norm", "peri-norm", *folder) == 0
assert run("plot", "--out", sys.argv[2], *folder) == 0
import lgbench.reports.site
{LIST_IMPORTED}"""
    (found,) = imported(code, str(results_folder), str(tmp_path / "figure.json"))
    assert "duckdb" in found and not found & {"torch", "obstore"}
    assert not plugins_among(found)
