"""What a process has imported after a command. What a module may import stands in pyproject.toml, for `lint-imports`."""

from __future__ import annotations

import pytest
from helpers.processes import install, python

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


def imported(code: str, *arguments: str, **environ: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after the code."""
    done = python(f"{code}\n{LIST_IMPORTED}", *arguments, **environ)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    printed = done.stdout + done.stderr  # where it leads after a command that loaded plugins
    (line,) = (line for line in printed.splitlines() if line.startswith("imported "))
    return set(line.split()[1:])


def plugins_among(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("lgbench_")}


@pytest.mark.slow
def test_a_run_with_toy_plugins_needs_no_other_task_part_or_averager_and_no_duckdb(environ, tmp_path):
    words = "run --task toy-walk --arch toy-table --average none --seeds 0 --protocol quick --set train.steps=2"
    ran = imported(f"{COMMANDS}\nassert run(*'{words}'.split(), '--results', sys.argv[1]) == 0", str(tmp_path), **environ)
    assert {"torch", "toys"} <= ran and "duckdb" not in ran
    assert plugins_among(ran) == {"lgbench_measurements", "lgbench_optimizers"} and len(list(tmp_path.glob("*.parquet"))) == 1


def test_help_imports_nothing_heavy_and_no_plugin(tmp_path):
    install(tmp_path, "mine", "raise RuntimeError('must not be imported')")
    code = f"""{COMMANDS}
def help_of(command, *words):
    assert run(*words, "--help") == 0
    for name, own in getattr(command, "commands", {{}}).items():
        help_of(own, *words, name)

help_of(main)
assert run("--version") == 0"""
    found = imported(code, PYTHONPATH=str(tmp_path))
    assert "lgbench" in found and not plugins_among(found)
    assert not found & {"torch", "duckdb", "pyarrow", "numpy", "rich", "jinja2", "psutil", "msgspec", "transformers", "mine"}


@pytest.mark.slow
def test_reading_results_imports_neither_torch_nor_a_plugin(results_folder, tmp_path):
    code = f"""{COMMANDS}
folder = ("--results", sys.argv[1])
assert run("leaderboard", *folder) == 0
assert run("sql", "select count(*) from results", *folder) == 0
assert run("compare", "pre-norm", "peri-norm", *folder) == 0
assert run("plot", "--out", sys.argv[2], *folder) == 0
import lgbench.reports.site"""
    found = imported(code, str(results_folder), str(tmp_path / "figure.json"))
    assert "duckdb" in found and "torch" not in found and not plugins_among(found)
