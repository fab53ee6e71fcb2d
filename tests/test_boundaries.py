"""The rooms of lgbench, what each may import, and what commands import when they run."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from conftest import BUILT_IN, install, python

import lgbench

CORE = Path(lgbench.__file__).parent
MODULES = sorted(".".join(path.relative_to(CORE).with_suffix("").parts) for path in CORE.rglob("*.py"))
"""Every module, by its name within lgbench, such as "cli.main"."""

BASICS = {"contracts", "errors", "randomness", "seeds"}
ROOMS = {
    # Words and tools that everybody uses.
    "errors": set(),
    "seeds": set(),
    "philox": set(),
    "randomness": {"philox", "seeds"},
    "noise": set(),
    "atomic_files": set(),
    "user_cache": set(),
    "checkout": set(),
    "contracts": {"randomness"},
    "terminal": set(),
    "attending": {"contracts"},
    "chain": {"contracts"},
    "hookspecs": {"contracts"},
    # The settings and the record of an experiment, and its objects; no plugin is looked up here.
    "experiment": BASICS,
    # Finding plugins.
    "extensions": {"checkout", "contracts", "errors", "hookspecs", "terminal"},
    # Planning: names become objects, once.
    "experiment.names": {"contracts", "errors", "experiment", "extensions"},
    "experiment.components": {"contracts", "errors", "experiment", "experiment.names", "extensions"},
    "experiment.plan": {*BASICS, "experiment", "experiment.names", "experiment.components", "extensions"},
    "experiment.replan": {"contracts", "errors", "experiment", "experiment.plan", "extensions"},
    # Work with the objects of an experiment.
    "training.tracing": set(),
    "training.program": {"atomic_files", "training.tracing", "user_cache"},
    "training.gradients": {"errors"},
    "training": {
        *BASICS,
        "atomic_files",
        "experiment",
        "noise",
        "training.gradients",
        "training.program",
        "training.tracing",
    },
    # Insides of models.
    "insides": {"contracts", "errors", "experiment", "seeds"},
    "measurement": {*BASICS, "experiment", "insides", "terminal"},
    # Reading results needs neither torch nor a plugin; `rows` writes them.
    "results": {"atomic_files", "contracts", "errors", "experiment", "terminal", "user_cache"},
    "results.rows": {"contracts", "experiment", "measurement", "results", "training"},
    # Claims are decided from results alone; only what cannot be run here asks what is installed.
    "claims": {"checkout", "contracts", "errors", "experiment", "experiment.names", "extensions", "results", "terminal"},
    "reports": {"atomic_files", "claims", "contracts", "errors", "experiment", "results", "terminal"},
    # Models that others trained.
    "pretrained": {*BASICS, "insides", "measurement", "results"},
    # Running plans.
    "execution": {
        *BASICS,
        "atomic_files",
        "checkout",
        "experiment",
        "experiment.plan",
        "extensions",
        "measurement",
        "results",
        "results.rows",
        "terminal",
        "training",
        "user_cache",
    },
    # A worker process builds experiments from the records that it gets, and so does whoever trains for another engine.
    "execution.workers": {"contracts", "execution", "execution.runner", "experiment.components", "extensions"},
    "execution.remote": {"execution", "execution.workers", "experiment.components", "extensions", "results"},
    "execution.jobs": {
        "atomic_files",
        "contracts",
        "errors",
        "execution",
        "execution.remote",
        "execution.runner",
        "execution.workers",
        "extensions",
        "results",
    },
    "execution.engines": {
        "contracts",
        "errors",
        "execution",
        "execution.jobs",
        "execution.runner",
        "execution.workers",
        "extensions",
    },
    "execution.runner": {
        *BASICS,
        "atomic_files",
        "execution",
        "experiment",
        "experiment.plan",
        "extensions",
        "measurement",
        "results",
        "results.rows",
        "terminal",
        "training",
    },
    # Describing and checking plugins.
    "extensions.describe": {*BASICS, "experiment", "extensions"},
    "conformance": {
        *BASICS,
        "attending",
        "experiment",
        "extensions",
        "extensions.describe",
        "measurement",
        "noise",
        "training.gradients",
        "training.tracing",
    },
    "testing": {"extensions", "conformance"},
    # Results of others, and verifying them.
    "submissions": {
        *BASICS,
        "atomic_files",
        "execution",
        "experiment",
        "extensions",
        "experiment.replan",
        "kept",
        "measurement",
        "results",
        "results.rows",
        "training",
    },
    # Models from kept weights.
    "kept": {
        *BASICS,
        "execution",
        "experiment",
        "experiment.replan",
        "extensions",
        "measurement",
        "results",
        "results.rows",
        "training",
    },
    # Models that were trained elsewhere.
    "external": {
        *BASICS,
        "execution",
        "execution.runner",
        "experiment",
        "experiment.names",
        "experiment.components",
        "extensions",
        "measurement",
        "results",
        "results.rows",
        "training",
    },
    # The front doors: the package, and the command line.
    "options": {"contracts", "experiment", "results"},
    "functions": {
        "options",
        "errors",
        "execution",
        "execution.engines",
        "execution.remote",
        "experiment",
        "experiment.plan",
        "extensions",
        "results",
    },
    "": {"contracts", "errors", "hookspecs", "execution", "external", "functions", "kept", "options", "randomness", "results"},
    "cli": {
        *BASICS,
        "functions",
        "options",
        "claims",
        "execution",
        "execution.engines",
        "experiment",
        "experiment.plan",
        "extensions",
        "conformance",
        "extensions.describe",
        "kept",
        "pretrained",
        "reports",
        "results",
        "submissions",
        "terminal",
    },
}
"""The rooms that each room may import. A module belongs to the room with the longest name that its own begins with."""


def room_of(module: str) -> str:
    """The room of a module, or of a name within one."""
    parts = module.split(".")
    return next((name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in ROOMS), "")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(CORE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))


def imports(module: str) -> set[str]:
    """The full names of everything that a module imports anywhere, also in functions and for its types."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_room_imports_only_the_rooms_that_it_may():
    used = defaultdict(set)
    for module in MODULES:
        room = room_of(module.removesuffix("__init__").rstrip("."))
        own = {name.removeprefix("lgbench.") for name in imports(module) if name.startswith("lgbench.")}
        used[room] |= {target for name in own if (target := room_of(name)) != room}
        assert used[room] <= ROOMS[room], f"{module} imports {', '.join(sorted(used[room] - ROOMS[room]))}"
    assert set(used) == set(ROOMS)


def test_no_rooms_import_each_other():
    order = list(TopologicalSorter(ROOMS).static_order())
    assert order.index("contracts") < order.index("training") < order.index("execution") < order.index("cli")


PLANNED = ("training", "measurement", "execution", "results", "reports")


@pytest.mark.parametrize("room", PLANNED)
def test_nothing_below_planning_takes_a_registry(room):
    for module in (module for module in MODULES if module.startswith(f"{room}.")):
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.arg):
                annotation = ast.unparse(node.annotation) if node.annotation else ""
                assert node.arg != "registry" and "Registry" not in annotation, f"{module} takes a registry"


def test_only_other_processes_look_plugins_up_below_planning():
    users = {
        module
        for module in MODULES
        if module.startswith(PLANNED) and any("lgbench.extensions" in name for name in imports(module))
    }
    # The runner names the type of what is loaded, for footers, and Ray's tasks take plugin files along.
    remote = {"execution.engines", "execution.jobs", "execution.remote", "execution.workers"}
    # Trackers are named by their plugins, which workers load.
    assert users == {"execution.manner", "execution.runner", "execution.tracking", *remote}


def test_no_core_module_names_a_plugin_in_its_imports():
    for module in MODULES:
        assert not [name for name in imports(module) if name.startswith("lgbench_")], module


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
