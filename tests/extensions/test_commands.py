"""Commands of plugins: found by metadata, imported when somebody asks for one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from helpers import processes
from helpers.commands import invoked

from lgbench.cli.main import main

SOURCE = """
import click
from lgbench import LgbenchError, UsageError, hookimpl

@click.command()
@click.argument("whom")
def greet(whom):
    '''Say hello.'''
    if whom == "nobody":
        raise UsageError("there is nobody to greet; name somebody")
    click.echo(f"hello {whom}")

@hookimpl
def lgbench_commands():
    return [greet]
"""


def install(folder: Path, module: str, names: list[str], source: str = SOURCE) -> None:
    """What pip leaves behind of a package with commands."""
    processes.install(folder, module, source)
    info = folder / f"{module}-1.0.dist-info"
    (info / "METADATA").write_text((info / "METADATA").read_text() + "Summary: Greet people\n")
    (info / "entry_points.txt").write_text("[lgbench.commands]\n" + "".join(f"{name} = {module}\n" for name in names))


def test_a_command_of_a_plugin_is_called_as_a_built_in_one(site):
    install(site, "greeter", ["greet"])
    assert invoked("greet", "you").output == "hello you\n"
    assert "Say hello." in invoked("greet", "--help").output


def test_errors_of_a_command_are_one_sentence(site):
    install(site, "greeter", ["greet"])
    done = invoked("greet", "nobody")
    assert done.exit_code == 2 and done.output == "lgbench: there is nobody to greet; name somebody\n"


def test_each_command_of_a_package_has_its_part_of_the_summary(site):
    install(site, "greeter", ["greet", "part"])
    metadata = site / "greeter-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Greet people", "Greet people; part from them"))
    said = " ".join(invoked("--help").output.split())
    assert "greet Greet people (greeter)." in said and "part Part from them (greeter)." in said


def test_help_and_completion_list_it_and_do_not_import_it(site):
    install(site, "greeter", ["greet"])
    assert "greet Greet people (greeter)." in " ".join(invoked("--help").output.split())
    assert "greet" in main.list_commands(main.make_context("lgbench", ["list"]))
    assert "greeter" not in sys.modules


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (SOURCE.replace("return [greet]", "return [3]"), "lgbench_commands returned 3, expected objects of click.Command"),
        (SOURCE.replace("def greet", "def other").replace("[greet]", "[other]"), "lgbench_commands returns 'other'"),
        (SOURCE.replace("def lgbench_commands", "def lgbench_command"), "lgbench_command"),
        ('LGBENCH_CONTRACT = "99.0"\n' + SOURCE, "contract 99.0"),
    ],
)
def test_a_broken_plugin_costs_its_own_command_alone(site, source, said):
    install(site, "broken", ["greet"], source)
    install(site, "greeter", ["meet"], SOURCE.replace("def greet", "def meet").replace("[greet]", "[meet]"))
    done = invoked("greet", "you")
    assert done.exit_code == 1 and said in done.output and "command 'greet' of broken cannot be used" in done.output
    assert invoked("meet", "you").output == "hello you\n" and invoked("--help").exit_code == 0
    words = BashComplete(main, {}, "lgbench", "_LGBENCH_COMPLETE").get_completions([], "")
    assert {"meet", "run"} <= {word.value for word in words} and "greet" not in {word.value for word in words}


FAULTS = (
    ("silent", "it has no help text: write a docstring"),
    ("broken", "No module named 'no_such_module'"),
    ("shadow", "the command 'sql' comes from lgbench and shadow, and that of lgbench is used"),
)


def test_check_tries_the_commands_of_a_package(site, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_norms")
    install(site, "greeter", ["greet"])
    install(
        site,
        "silent",
        ["greet-silently"],
        SOURCE.replace("def greet", "def greet_silently")
        .replace("[greet]", "[greet_silently]")
        .replace("'''Say hello.'''", ""),
    )
    install(site, "broken", ["meet"], "import no_such_module")
    install(site, "shadow", ["sql"], SOURCE.replace("def greet", "def sql").replace("[greet]", "[sql]"))
    for name in ("greeter", "greet"):
        assert invoked("check", name).output == "command greet\n1 check passed\n"
    for name, said in FAULTS:
        done = invoked("check", name)
        assert done.exit_code == 1 and said in done.output
    done = invoked("check", "greetr")
    assert done.exit_code == 2 and "did you mean 'greeter'" in done.output
    assert "command meet" in invoked("check").output


def test_one_name_of_two_plugins_is_used_by_neither(site):
    install(site, "greeter", ["greet"]), install(site, "other", ["greet"])
    done = invoked("greet", "you")
    sentence = "the command 'greet' comes from greeter and other, and none is used: uninstall one of the packages"
    assert done.exit_code == 1 and sentence in done.output
    assert sentence in " ".join(invoked("--help").output.split())


def test_a_built_in_command_keeps_its_name(site):
    install(site, "greeter", ["sql"])
    assert "Query the tables" in invoked("sql", "--help").output
    shown = " ".join(invoked("--help").output.split())
    assert "the command 'sql' comes from lgbench and greeter, and that of lgbench is used" in shown


def test_plugins_shows_commands_and_what_is_wrong_with_them(site, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_norms")
    install(site, "broken", ["meet"], "import no_such_module")
    install(site, "greeter", ["greet", "sql"], SOURCE)
    done = invoked("plugins")
    assert done.exit_code == 1 and "command: greet" in done.output
    assert "the command 'meet' of broken cannot be used" in done.output
    assert "the command 'sql' comes from lgbench and greeter" in done.output
