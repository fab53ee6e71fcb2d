from __future__ import annotations

import ast
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from conftest import lgbench_command, python

import lgbench

CORE = Path(lgbench.__file__).parent
MODULES = sorted(".".join(path.relative_to(CORE).with_suffix("").parts) for path in CORE.rglob("*.py"))
LIST_IMPORTED = "print('imported', *sorted(set(m.partition('.')[0] for m in sys.modules)))"


READING = [["leaderboard"], ["sql", "select count(*) from results"], ["compare", "pre-norm", "peri-norm"]]


def imported(done) -> set[str]:
    """The top-level modules that a subprocess had in the end."""
    assert done.returncode == 0, done.stderr
    return set(next(line for line in done.stdout.splitlines() if line.startswith("imported ")).split()[1:])


def test_the_core_imports_no_plugin():
    code = f"import sys, importlib\nfor name in {MODULES}:\n    importlib.import_module(f'lgbench.{{name}}')\n{LIST_IMPORTED}"
    found = imported(python(code))
    assert {"lgbench", "torch", "duckdb"} <= found
    assert not {name for name in found if name.startswith("lgbench_")}


@pytest.mark.parametrize("module", MODULES)
def test_no_core_module_names_a_plugin_in_its_imports(module):
    tree = ast.parse(CORE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [name for name in names if name.startswith("lgbench_")]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_heavy_and_no_plugin(arguments):
    found = imported(lgbench_command(*arguments, then=LIST_IMPORTED))
    assert not found & {"torch", "duckdb", "pyarrow", "numpy", "rich"}
    assert not {name for name in found if name.startswith("lgbench_")}


def test_importing_lgbench_imports_neither_torch_nor_duckdb():
    found = imported(python(f"import sys, lgbench\n{LIST_IMPORTED}"))
    assert not found & {"torch", "duckdb"}


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
def test_reading_results_imports_neither_torch_nor_a_plugin(results_folder, arguments):
    found = imported(lgbench_command(*arguments, "--results", str(results_folder), then=LIST_IMPORTED))
    assert "duckdb" in found and "torch" not in found
    assert not {name for name in found if name.startswith("lgbench_")}


def test_an_entry_point_has_the_name_of_its_module():
    own = [e for e in entry_points(group="lgbench") if e.dist.name == "lgbench"]
    assert len(own) == 4
    assert all(e.name == e.value for e in own)


def test_the_hookspecs_fit_on_one_screen():
    assert len((CORE / "hookspecs.py").read_text(encoding="utf-8").splitlines()) <= 50


def test_no_module_is_a_drawer():
    assert not {"utils", "base", "common", "helpers"} & set(MODULES)
