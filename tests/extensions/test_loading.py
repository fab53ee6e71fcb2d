"""Plugins that are files, and errors of a plugin that are found before anything of it is used."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.commands import invoked
from helpers.folders import TESTS
from helpers.plain_training import CPU
from helpers.planning import plan_of
from helpers.processes import install

from lgbench import UsageError
from lgbench.contracts import CONTRACT
from lgbench.errors import PluginError
from lgbench.execution.work_queue import made_by
from lgbench.experiment.record import LoadedPlugin
from lgbench.extensions import loading
from lgbench.extensions.loading import Distribution, libraries_of
from lgbench.extensions.registry import Registry
from lgbench.results import run_files

NORM = """
from lgbench_norms.placement import Placement
from lgbench import hookimpl

@hookimpl
def lgbench_norms():
    return [Placement("{name}", "nothing anywhere")]
"""
GROWING = """
from toys import Walk
from lgbench import hookimpl

class Growing(Walk):
    name = family = "growing"

    def sibling(self, name):
        found = Growing()
        found.name = found.family = name
        return found if name == "growing-3" else None

@hookimpl
def lgbench_tasks():
    return [Growing()]
"""
OPTIONS = ["--task", "tomita-1", "--protocol", "quick", "--seeds", "0", "--average", "none", "--set", "train.steps=2"]
OPTIONS += ["--set", "evaluate.max_length=40", "--set", "evaluate.contexts=4", "--set", "evaluate.strings=4"]

HERE = ".".join(map(str, CONTRACT))


def file(folder: Path, name: str = "my-norm", text: str = NORM, extra: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "my_norm.py"
    path.write_text(text.format(name=name) + extra)
    return path


def ran(path: Path, results: Path) -> str:
    done = invoked("run", "--plugin", path, "--arch", "my-norm", *OPTIONS, "--results", results)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_file_is_a_plugin_and_the_run_has_its_name_and_content(tmp_path):
    path, results = file(tmp_path / "mine"), tmp_path / "results"
    ran(path, results)
    (run,) = run_files.find(results)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()
    found = {plugin["name"]: plugin for plugin in run_files.metadata(run)["plugins"]}
    assert {name for name, plugin in found.items() if plugin["takes_part"]} == {"lgbench", "my_norm.py"}
    about = {"version": f"sha256:{digits}", "source": digits[:16], "installed": "file", "origin": None}
    assert found["my_norm.py"] == {"name": "my_norm.py", "takes_part": True} | about
    assert set(pq.read_table(run)["entry"].to_pylist()) == {f"transformer+my-norm~{digits[:8]}"}


def test_a_file_may_provide_a_task_whose_versions_never_share_a_board(tmp_path):
    text = (TESTS / "toys.py").read_text().replace("{", "{{").replace("}", "}}")
    path = file(tmp_path / "mine", text=text)
    registry = Registry.load(files=[path])
    (experiment,) = plan_of(registry, "toy-walk", "toy-table", average="toy-mean").experiments
    stamp, record = hashlib.sha256(path.read_bytes()).hexdigest()[:8], experiment.record
    assert record.task == record.family == f"toy-walk~{stamp}"
    assert record.entry == f"toy-table~{stamp}+toy-nothing~{stamp}"
    assert record.averagers == (f"toy-mean~{stamp}",)
    assert experiment.build()


@pytest.mark.parametrize(("text", "said"), [("def broken(:", "SyntaxError"), ("x = 1", "provides nothing")])
def test_a_broken_file_stops_the_command(tmp_path, text, said):
    path = file(tmp_path / "mine", text=text)
    with pytest.raises(PluginError, match=said) as refused:
        Registry.load(files=[path])
    assert "my_norm.py" in str(refused.value)


def test_a_file_that_imports_one_beside_it_is_told_how_and_then_loads(tmp_path, monkeypatch):
    path = file(tmp_path / "mine", text=f"import beside_it\n{GROWING}")
    path.with_name("beside_it.py").touch()
    with pytest.raises(PluginError, match=f"set PYTHONPATH={path.parent}"):
        Registry.load(files=[path])
    monkeypatch.syspath_prepend(path.parent)
    assert not Registry.load(files=[path]).problems()


def test_a_things_label_in_a_file_differs_from_an_installed_name(tmp_path):
    path = file(tmp_path / "mine", "peri-norm")
    registry = Registry.load(files=[path])
    stamp = registry.plugins[-1].distribution.stamp
    (clash,) = registry.problems()
    assert f"or use peri-norm~{stamp} for that of the file" in clash
    entry = f"transformer+peri-norm~{stamp}"
    (experiment,) = plan_of(registry, "tomita-1", f"peri-norm~{stamp}").experiments
    assert experiment.entry == entry
    assert experiment.record.norm == f"peri-norm~{stamp}"
    assert experiment.parts["norm"].about == "nothing anywhere"  # and not the built-in one


def test_a_thing_that_a_file_provides_and_does_not_list_is_named_by_its_content(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(TESTS)
    registry = Registry.load(files=[file(tmp_path / "mine", text=GROWING)])
    stamp = registry.plugins[-1].distribution.stamp
    (experiment,) = plan_of(registry, "growing-3", "pre-norm").experiments
    assert (experiment.record.task, experiment.record.family) == (f"growing-3~{stamp}", f"growing-3~{stamp}")
    assert experiment.task.name == "growing-3"


def test_two_files_of_one_name_are_refused_for_results_could_not_tell_them_apart(tmp_path):
    with pytest.raises(UsageError, match=r"have one name, and results name files by it"):
        Registry.load(files=[file(tmp_path / "one"), file(tmp_path / "two", "other")])


def test_the_content_that_runs_is_the_content_that_results_name(tmp_path):
    path = file(tmp_path / "mine", "first")
    source = loading.file_source(path)
    file(tmp_path / "mine", "other")  # as long as before and, for all that clocks tell, written at the same time
    registry = Registry()
    assert registry.take(source).provides == {"norm": ["first"]}
    assert Registry.load(files=[path]).norms["other"]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("9.0", f"is written for contract 9.0 and was not imported. This lgbench has contract {HERE}: upgrade lgbench"),
        ("1.0", f"is written for contract 1.0 and was not imported. This lgbench has contract {HERE}: upgrade the plugin to a"),
        (f"{CONTRACT[0]}.{CONTRACT[1] + 1}", "upgrade lgbench"),
        ("2", f"expected a version such as '{HERE}'"),
    ],
)
def test_a_plugin_for_another_contract_is_explained_and_not_imported(site, stated, said):
    install(site, "from_elsewhere", f"LGBENCH_CONTRACT = '{stated}'\nraise RuntimeError('imported')")
    registry = Registry.load({})
    (problem,) = registry.problems()
    assert said in problem and "RuntimeError" not in problem
    assert "from_elsewhere" not in sys.modules and "pre-norm" in registry.norms


@pytest.mark.parametrize(
    "stated", [f"LGBENCH_CONTRACT: str = '{CONTRACT[0]}.{CONTRACT[1]}'", f"LGBENCH_CONTRACT = '{CONTRACT[0]}.0'", ""]
)
def test_a_plugin_for_this_contract_or_for_none_in_particular_is_loaded(site, stated):
    install(site, "fits", stated + NORM.format(name="fitting"))
    registry = Registry.load({"LGBENCH_PLUGINS": "fits"})
    assert not registry.problems() and "fitting" in registry.norms


def test_hook_calls_are_shown_where_asked_for(site, capfd):
    install(site, "traced", NORM.format(name="traced-norm"))
    for value in ("", "0"):
        Registry.load({"LGBENCH_PLUGINS": "traced", "LGBENCH_TRACE": value})
        assert capfd.readouterr() == ("", "")
    Registry.load({"LGBENCH_PLUGINS": "traced,lgbench_averaging", "LGBENCH_TRACE": "1"})
    out, shown = capfd.readouterr()
    assert "plugin traced (traced 1.0)" in shown and "plugin lgbench_averaging (lgbench " in shown
    assert "finish lgbench_norms --> [[Placement(name='traced-norm'" in shown
    assert not out


# Versions of the libraries that the package of a plugin requires.


@pytest.fixture
def requiring(site, tmp_path):
    """A function that installs a package with these requirements, and names it."""

    def installed(*requirements):
        name = f"requiring-{tmp_path.name.replace('_', '-')}"  # one that no other test has, for versions are kept
        install(site, name.replace("-", "_"), "", distribution=name)
        metadata = next(site.glob(f"{name.replace('-', '_')}-*/METADATA"))
        metadata.write_text(metadata.read_text() + "".join(f"Requires-Dist: {each}\n" for each in requirements))
        return name

    return installed


def test_what_a_package_requires_is_named_with_its_version(requiring):
    name = requiring("lgbench", "torch>=2.7", "NumPy>=1", "scipy; python_version > '3'")
    assert libraries_of(name) == (("numpy", version("numpy")), ("scipy", version("scipy")))


@pytest.mark.parametrize("left_out", ["pytest; extra == 'test'", "numpy; python_version < '3'", "nowhere-to-be-had"])
def test_extras_and_what_is_not_there_are_left_out(requiring, left_out):
    assert libraries_of(requiring("lgbench", left_out)) == ()


def test_lgbench_and_plugin_files_and_what_is_not_installed_have_none():
    assert libraries_of("nowhere-to-be-had") == ()
    assert Distribution("lgbench", "0.1.0").libraries == {} == Distribution("mine.py", "sha256:12").libraries


def test_metadata_have_the_field_only_where_there_is_something_in_it():
    about = ("mine", "1.0", "unknown", "index", None, True)
    assert "libraries" not in LoadedPlugin(*about).content
    assert LoadedPlugin(*about, {"numpy": "2.0"}).content["libraries"] == {"numpy": "2.0"}


def test_a_training_goes_on_with_the_same_libraries_alone(planned, toy_registry, monkeypatch):
    def versions():
        return made_by(planned(toy_registry, "toy-walk", "toy-table"), CPU)

    before = versions()
    monkeypatch.setattr(loading, "libraries_of", lambda name: (("numpy", "99"),))
    assert versions().items() - before.items() == {("numpy of lgbench-toys", "99")}
