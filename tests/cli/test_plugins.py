"""`lgbench plugins`: broken plugins are shown beside working ones, with the reason."""

from __future__ import annotations

from functools import partial

import pytest
from helpers.commands import invoked
from helpers.norm_sources import norm_source
from helpers.processes import install, visible

from lgbench.cli.main import main
from lgbench.extensions.registry import Registry

command = partial(invoked, "plugins")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """The output where three plugins are in trouble and one is not, and the registry."""
    folder = tmp_path_factory.mktemp("troubled")
    install(folder, "a_healthy", norm_source("kept"), "2.0")
    install(folder, "a_broken", "import no_such_module_at_all", "1.1")
    install(folder, "a_talker", norm_source("talking", "print('hello, world')"), "1.2")
    install(folder, "a_sluggard", norm_source("slow", "sum(range(5 * 10**7))"), "1.3")
    results = []
    for made in (command, lambda: {plugin.name: plugin for plugin in Registry.load().plugins}):
        with visible(folder) as patch:
            patch.setenv("LGBENCH_PLUGINS", "a_healthy,a_broken,a_talker,a_sluggard,lgbench_norms")
            patch.setattr("lgbench.extensions.loading.SLOW_SECONDS", 0.25)
            results.append(made())
    return results


def row(output: str, plugin: str) -> str:
    """The line of the table that is the plugin's."""
    (line,) = [line for line in output.splitlines() if line.split()[:1] == [plugin]]
    return line


def test_a_working_plugin_is_shown_beside_broken_ones(troubled):
    shown, found = troubled
    assert row(shown.stdout, "a_healthy").split() == ["a_healthy", "a_healthy", "2.0", "index", "norm:", "kept"]
    assert "built in" in row(shown.stdout, "lgbench_norms") and "no-norm" in row(shown.stdout, "lgbench_norms")
    healthy = found["a_healthy"]
    assert (healthy.provides, healthy.error, healthy.notes) == ({"norm": ["kept"]}, None, [])
    assert "peri-norm" in found["lgbench_norms"].provides["norm"]


def test_a_plugin_that_failed_is_in_the_table_and_below_it(troubled):
    shown, found = troubled
    assert row(shown.stdout, "a_broken").split() == ["a_broken", "a_broken", "1.1", "index", "nothing,", "see", "below"]
    (sentence,) = [line for line in shown.stdout.splitlines() if line.startswith("plugin a_broken (a_broken 1.1): ")]
    broken = found["a_broken"]
    assert broken.provides == {} and "no_such_module_at_all" in sentence and "no_such_module_at_all" in broken.error
    assert shown.exit_code == 1


@pytest.mark.parametrize(
    ("plugin", "version", "norm", "said"),
    [
        ("a_talker", "1.2", "talking", "prints when it is imported, which is hidden because it would spoil a command's output"),
        ("a_sluggard", "1.3", "slow", "s to import, and every command that needs plugins waits for it"),
    ],
)
def test_a_plugin_that_is_a_nuisance_works_and_is_noted(troubled, plugin, version, norm, said):
    shown, found = troubled
    assert row(shown.stdout, plugin).split() == [plugin, plugin, version, "index", "norm:", norm]
    (sentence,) = [line for line in shown.stdout.splitlines() if line.startswith(f"plugin {plugin} ({plugin} {version}) ")]
    assert said in sentence
    assert found[plugin].error is None and found[plugin].provides == {"norm": [norm]}
    (note,) = found[plugin].notes
    assert said in note


def test_not_even_a_package_above_the_plugin_prints_to_standard_output(site, monkeypatch, capsys):
    install(site, "a_shouter", norm_source("shouting"))
    (site / "a_shouter-1.0.dist-info" / "entry_points.txt").write_text("[lgbench]\na_shouter = above.a_shouter\n")
    (site / "above").mkdir()
    (site / "above" / "__init__.py").write_text("print('from above')\n")
    (site / "a_shouter.py").rename(site / "above" / "a_shouter.py")
    monkeypatch.setenv("LGBENCH_PLUGINS", "a_shouter")
    main(["list", "norms"], prog_name="lgbench", standalone_mode=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "shouting"


def test_a_check_of_what_a_broken_plugin_would_provide_says_what_is_broken(tmp_path):
    install(tmp_path, "a_broken", "import no_such_module_at_all")
    with visible(tmp_path) as patch:
        patch.setenv("LGBENCH_PLUGINS", "a_broken")
        done = invoked("check", "my-task")
    assert done.exit_code == 2 and "no plugin 'my-task'" in done.stderr
    assert "warning: plugin a_broken" in done.stderr and "no_such_module_at_all" in done.stderr


def test_notes_alone_are_no_failure(site, monkeypatch):
    install(site, "a_talker", norm_source("talking", "print('hello')"))
    monkeypatch.setenv("LGBENCH_PLUGINS", "a_talker")
    result = command()
    assert result.exit_code == 0 and "prints when it is imported" in result.stdout


def test_a_file_is_a_plugin_with_its_path_and_its_content_for_a_version(tmp_path, monkeypatch):
    path = tmp_path / "my_norm.py"
    path.write_text(norm_source("of-a-file"))
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_averaging")
    shown = row(command("--plugin", path).stdout, "my_norm")
    (found,) = [plugin for plugin in Registry.load(files=[path]).plugins if plugin.name == "my_norm"]
    origin = found.distribution
    assert (origin.name, origin.url, found.provides) == ("my_norm.py", str(path), {"norm": ["of-a-file"]})
    assert f"file {path}" in shown and origin.version[:15] in shown
    missing = command("--plugin", tmp_path / "nowhere.py")
    assert missing.exit_code == 2 and "no plugin file" in missing.stderr
