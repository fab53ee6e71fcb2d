"""The documentation is run, not trusted."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lgbench import hookspecs
from lgbench.cli import main

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def hooks():
    return {n: f for n, f in inspect.getmembers(hookspecs, inspect.isfunction) if n.startswith("lgbench_")}


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_documented_with_its_signature(name):
    signature = str(inspect.signature(hooks()[name])).replace("'", "")
    assert f"`{name}{signature}`" in CONTRIBUTING


def test_the_plugin_of_the_guide_installs_runs_and_ranks(tmp_path):
    files = dict(re.findall(r"`([\w.]+)`\n\n```\w+\n(.*?)```", CONTRIBUTING, re.DOTALL))
    assert set(files) == {"pyproject.toml", "my_norm.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    commands = re.search(r"```sh\n(pip install \..*?)```", CONTRIBUTING, re.DOTALL)[1].splitlines()
    site = tmp_path / "site"
    environment = os.environ | {"PYTHONPATH": str(site), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    output = ""
    for command in commands:
        # What the guide installs into the user's environment goes into a folder of the test's own, without the network.
        command = command.replace(
            "pip install .", f"{sys.executable} -m pip install --no-deps --no-build-isolation --target {site} ."
        )
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        output += done.stdout
    assert "my_norm  (lgbench-my-norm 0.1.0)\n  norm: my-norm" in output
    assert "transformer+my-norm@bema" in output


def readme_commands():
    block = re.search(r"## Use\n\n```sh\n(.*?)```", README, re.DOTALL)[1]
    return [line.split("  #")[0].strip() for line in block.splitlines()]


def test_the_commands_of_the_readme_are_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    small = "--set train.steps=2 --set evaluate.contexts=4 --set evaluate.strings=4 --set evaluate.max_length=40 --seeds 0"
    for command in readme_commands():
        words = re.findall(r'"[^"]*"|\S+', command)
        arguments = [word.strip('"') for word in words[1:]]
        if arguments[0] == "run":
            arguments = [*arguments, *small.split()]
        result = runner.invoke(main, arguments)
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_links_in_the_documentation_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "leaderboards").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], names)
    assert set(names["rows"]["task"].to_pylist()) == {"tomita-5"}
    assert names["best"].fetchall()
