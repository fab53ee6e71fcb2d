from __future__ import annotations

import tomllib
from types import ModuleType

import pytest
import toys
from helpers.folders import ROOT
from helpers.norm_sources import norm_source
from helpers.processes import install

import lgbench
from lgbench import hookimpl
from lgbench.errors import PluginError, UsageError
from lgbench.experiment.components import find_entries, find_tasks
from lgbench.extensions import registry as registries
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry


def module(**hooks) -> ModuleType:
    """A plugin module whose hooks are functions by name."""
    made = ModuleType("plugin_at_hand")
    for name, function in hooks.items():
        setattr(made, name, hookimpl(function))
    return made


def norm(name: str) -> toys.Nothing:
    scheme = toys.Nothing()
    scheme.name = name
    return scheme


def taken(*plugins) -> Registry:
    registry = Registry()
    for index, plugin in enumerate(plugins):
        registry.add(plugin, f"plugin{index}", Distribution(f"dist-{index}", f"{index}.0"))
    return registry


def test_a_registry_remembers_which_distribution_gave_what(toy_registry):
    (plugin,) = [plugin for plugin in toy_registry.plugins if plugin.name == "toys"]
    assert plugin.error is None
    names = "toy-walk toy-largest toy-even toy-table toy-fragile toy-broken toy-nothing toy-mean"
    assert " ".join(sum(plugin.provides.values(), [])) == names
    for kind, name in {"task": "toy-walk", "architecture": "toy-table", "norm": "toy-nothing", "averager": "toy-mean"}.items():
        catalog = toy_registry.catalogs()[kind]
        assert catalog.found(name).origin == Distribution("lgbench-toys", "1.2.3")
        assert catalog.get("nobody") is None


def test_a_name_that_two_give_names_both_and_only_that_name_is_unusable():
    registry = taken(
        module(lgbench_norms=lambda: [norm("shared"), norm("one")]), module(lgbench_norms=lambda: [norm("shared"), norm("two")])
    )
    with pytest.raises(PluginError) as refused:
        registry.norms["shared"]
    for said in ("shared", "dist-0 0.0", "dist-1 1.0", "LGBENCH_PLUGINS"):
        assert said in str(refused.value)
    assert registry.norms.names() == ["one", "two"]
    assert [scheme.name for scheme in registry.norms] == ["one", "two"]
    assert registry.norms["two"].name == "two"
    assert registry.problems() == [str(refused.value)]


def test_a_plugin_that_gives_one_name_twice_cannot_use_it():
    registry = taken(module(lgbench_norms=lambda: [norm("twice"), norm("twice"), norm("once")]))
    assert registry.norms.names() == ["once"]
    assert registry.problems() == [
        "dist-0 0.0 provides 2 objects named 'twice', so none can be used: give each a name of its own"
    ]


def test_a_misspelt_hook_is_refused_with_the_right_name():
    registry = taken(module(lgbench_norm=lambda: [norm("lost")]), module(lgbench_norms=lambda: [norm("kept")]))
    first, second = registry.plugins
    assert "lgbench_norm'" in first.error and "did you mean 'lgbench_norms'?" in first.error
    assert second.error is None
    assert registry.norms.names() == ["kept"]


def test_a_hook_with_arguments_that_do_not_exist_is_refused():
    registry = taken(module(lgbench_norms=lambda width: [norm("lost")]))
    assert "width" in registry.plugins[0].error
    assert registry.norms.names() == []


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda: ["pre-norm"], "expected objects of lgbench.NormScheme"),
        (lambda: [toys.Nothing], "expected objects of lgbench.NormScheme: call the class, as in Nothing()"),
        (lambda: toys.Nothing(), "expected a list of objects of lgbench.NormScheme: end it with `return [...]`"),
        (lambda: [norm("kept"), norm("../escape")], "use lower-case letters, digits and hyphens"),
        (lambda: 1 / 0, f"ZeroDivisionError: division by zero ({__file__}:"),
        (lambda: None, "provides nothing: lgbench_norms returned nothing: end it with `return [...]`"),
        (lambda: [norm("raw")], "the name 'raw', which is reserved: use another, such as my-raw"),
    ],
)
def test_a_breach_of_the_contract_is_named_and_nothing_of_the_plugin_is_taken_in(hook, said):
    registry = taken(module(lgbench_norms=hook), module(lgbench_norms=lambda: [norm("healthy")]))
    assert said in registry.plugins[0].error
    assert registry.norms.names() == ["healthy"]
    assert len(registry.problems()) == 1
    assert all(word in registry.problems()[0] for word in ("plugin0", "dist-0 0.0", said))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"family": None}, "has the family None; lgbench.Task declares family: str"),
        ({"train_lengths": (1,)}, "has the train_lengths (1,); lgbench.Task declares train_lengths: tuple[int, int]"),
        ({"budgets": {"quick": {"steps": 5}}}, "lgbench.Task declares budgets: Mapping[str, Budget]"),
        ({"model": {"width": None}}, "lgbench.Task declares model: Mapping[str, int | float | bool | str]"),
    ],
)
def test_a_thing_without_a_declared_attribute_is_not_taken_in(changes, said):
    task = type("Changed", (toys.Walk,), changes)()
    registry = taken(module(lgbench_tasks=lambda: [task]), module(lgbench_tasks=lambda: [toys.Even()]))
    assert said in registry.plugins[0].error
    assert registry.tasks.names() == [toys.Even.name]


def test_a_missing_attribute_is_named():
    class Unrelated(lgbench.Task):
        name = "unrelated"
        sample = lambda self, length, random: None  # noqa: E731

    registry = taken(module(lgbench_tasks=lambda: [Unrelated()]))
    assert registry.plugins[0].error.endswith("has no family; lgbench.Task declares family: str")


class Growing(toys.Walk):
    """A task whose family has more members than it lists."""

    name = family = "growing"

    def sibling(self, name):
        return type("Grown", (toys.Walk,), {"name": name, "family": name})() if name == "growing-3" else None


class Greedy(toys.Walk):
    """It answers every name."""

    name = family = "a-greedy"

    def sibling(self, name):
        return type("Grown", (toys.Walk,), {"name": name, "family": name})()


@pytest.mark.parametrize("family", ["a-greedy", "grow"])
def test_a_task_is_only_asked_for_names_of_its_own_family(family):
    greedy = type("Greedier", (Greedy,), {"family": family})()
    registry = taken(module(lgbench_tasks=lambda: [greedy]), module(lgbench_tasks=lambda: [Growing()]))
    assert registry.tasks.found("growing-3").origin.name == "dist-1"
    assert registry.tasks.get("tomato") is None and "tomato" not in registry.tasks
    assert registry.tasks.found(f"{family}-7").origin.name == "dist-0"


def test_a_name_that_two_plugins_make_for_one_family_is_of_neither():
    greedy = type("Greedier", (Greedy,), {"family": "growing"})()
    registry = taken(module(lgbench_tasks=lambda: [greedy]), module(lgbench_tasks=lambda: [Growing()]))
    with pytest.raises(PluginError, match="task 'growing-3' is provided by dist-0 0.0 and dist-1 1.0"):
        registry.tasks["growing-3"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module_at_all", "no_such_module_at_all"),
        ("raise SystemExit('bye')", "bye"),
        (None, "ModuleNotFoundError"),
    ],
)
def test_a_plugin_that_fails_to_import_is_reported_and_the_others_work(site, source, said):
    install(site, "broken_import", source)
    registry = Registry.load({})
    (problem,) = registry.problems()
    assert said in problem and "broken_import" in problem and "1.0" in problem
    assert "pre-norm" in registry.norms


def test_two_distributions_with_one_entry_point_name_are_both_loaded(site):
    install(site, "same_module", norm_source("same"), "1.0", "dist-a")
    install(site, "same_module", None, "2.0", "dist-b")
    registry = Registry.load({"LGBENCH_PLUGINS": "same_module"})
    assert {p.distribution.name for p in registry.plugins} == {"dist-a", "dist-b"}
    assert registry.problems()


def test_plugins_to_load_can_be_named(site):
    install(site, "wanted", norm_source("wanted-norm"))
    install(site, "unwanted", "raise RuntimeError('must not be imported')")
    registry = Registry.load({"LGBENCH_PLUGINS": " wanted , lgbench_averaging,"})
    assert [p.name for p in registry.plugins] == ["lgbench_averaging", "wanted"]
    assert registry.norms.names() == ["wanted-norm"]
    assert not registry.problems()


# Names that are not installed, and the packages that have them.


def test_a_part_or_task_of_a_pack_is_named_with_the_command_that_installs_it(toy_registry, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError) as refused:
        find_entries(["toy-table+rope"], toy_registry)
    assert str(refused.value).endswith("rope is in lgbench-positions: pip install ./plugins/contrib/lgbench-positions")
    with pytest.raises(UsageError, match="parity-check is in lgbench-algorithms: pip install ./plugins/contrib/lgbench-algor"):
        find_tasks(["parity-check"], toy_registry)


def test_the_name_of_another_kind_is_told_with_its_kind(toy_registry):
    for find, kind in ((find_tasks, "architecture"), (find_entries, "task")):
        with pytest.raises(UsageError) as refused:
            find(["lstm" if kind == "architecture" else "parity-check"], toy_registry)
        assert f"is of the kind {kind}, in lgbench-" in str(refused.value) and "pip" not in str(refused.value)


def test_elsewhere_the_command_has_the_whole_path_and_without_a_checkout_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"pip install {ROOT}/plugins/contrib/lgbench-positions" in str(registries.not_installed("position", "rope", []))
    monkeypatch.setattr(registries, "ROOT", tmp_path)
    said = str(registries.not_installed("position", "rope", []))
    assert said.endswith("pip install ./plugins/contrib/lgbench-positions, in a checkout of lgbench")


def test_a_listed_package_of_somebody_else_is_installed_by_its_name(tmp_path, monkeypatch):
    listed = '[[plugin]]\nname = "lgbench-far"\nurl = "https://example.org"\nnorm = ["far-norm"]\n'
    (tmp_path / "directory.toml").write_text(listed)
    monkeypatch.setattr(registries, "DIRECTORY", tmp_path / "directory.toml")
    assert str(registries.not_installed("norm", "far-norm", [])).endswith("far-norm is in lgbench-far: pip install lgbench-far")
    said = str(registries.not_installed("norm", "fra-norm", ["far-norm"]))
    assert said.startswith("no norm 'fra-norm'; did you mean 'far-norm'?")


def test_the_extra_for_packs_names_every_pack_of_this_repository():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["packs"] == sorted(path.parent.name for path in ROOT.glob("plugins/contrib/*/pyproject.toml"))
