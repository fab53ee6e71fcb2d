"""The versions of the libraries that a plugin's package requires are in the metadata of its runs."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch
from helpers.processes import install

from lgbench.execution.work_queue import made_by
from lgbench.experiment.record import LoadedPlugin
from lgbench.extensions import loading
from lgbench.extensions.loading import Distribution, libraries_of


@pytest.fixture
def requiring(tmp_path, monkeypatch):
    """A function that installs a package with these requirements, and names it."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(*requirements):
        name = f"requiring-{tmp_path.name.replace('_', '-')}"  # one that no other test has, for versions are kept
        install(tmp_path, name.replace("-", "_"), "", distribution=name)
        metadata = next(tmp_path.glob(f"{name.replace('-', '_')}-*/METADATA"))
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
        return made_by(planned(toy_registry, "toy-walk", "toy-table"), torch.device("cpu"))

    before = versions()
    monkeypatch.setattr(loading, "libraries_of", lambda name: (("numpy", "99"),))
    assert versions().items() - before.items() == {("numpy of lgbench-toys", "99")}
