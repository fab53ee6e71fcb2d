"""Names that are not installed, and the packages that have them."""

from __future__ import annotations

import tomllib

import pytest
from helpers.folders import ROOT

from lgbench.errors import UsageError
from lgbench.experiment.components import find_entries, find_tasks
from lgbench.extensions import registry


def test_a_part_or_task_of_a_pack_is_named_with_the_command_that_installs_it(toy_registry, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError) as refused:
        find_entries(["toy-table+rope"], toy_registry)
    assert str(refused.value).endswith("rope is in lgbench-positions: pip install ./plugins/contrib/lgbench-positions")
    with pytest.raises(UsageError, match="parity-check is in lgbench-algorithms: pip install ./plugins/contrib/lgbench-algor"):
        find_tasks(["parity-check"], toy_registry)


def test_elsewhere_the_command_has_the_whole_path_and_without_a_checkout_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"pip install {ROOT}/plugins/contrib/lgbench-positions" in str(registry.not_installed("part", "rope", []))
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    said = str(registry.not_installed("part", "rope", []))
    assert said.endswith("pip install ./plugins/contrib/lgbench-positions, in a checkout of lgbench")


def test_a_listed_package_of_somebody_else_is_installed_by_its_name(tmp_path, monkeypatch):
    listed = '[[plugin]]\nname = "lgbench-far"\nurl = "https://example.org"\nnorm = ["far-norm"]\n'
    (tmp_path / "directory.toml").write_text(listed)
    monkeypatch.setattr(registry, "DIRECTORY", tmp_path / "directory.toml")
    assert str(registry.not_installed("norm", "far-norm", [])).endswith("far-norm is in lgbench-far: pip install lgbench-far")
    assert str(registry.not_installed("norm", "fra-norm", ["far-norm"])).startswith(
        "no norm 'fra-norm'; did you mean 'far-norm'?"
    )


def test_the_extra_for_packs_names_every_pack_of_this_repository():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["packs"] == sorted(path.parent.name for path in ROOT.glob("plugins/contrib/*/pyproject.toml"))
