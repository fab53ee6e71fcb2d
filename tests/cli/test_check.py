"""`lgbench check`, the same checks in a plugin's own tests, and the checks of everything that is built in."""

from __future__ import annotations

import importlib
import re
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest
import toys
from helpers.commands import invoked
from helpers.processes import install

from lgbench.conformance.collect import checks_of_plugin
from lgbench.extensions import commands
from lgbench.extensions.registry import Registry
from lgbench.testing import checks

PLUGIN = '''
from lgbench import Averager, hookimpl


class Latest(Averager):
    """The latest weights, and no average."""

    name = "latest"

    def start(self, weights, schedule):
        return {"latest": weights}

    def update(self, state, weights, step):
        return {"latest": weights}

    def weights(self, state):
        return state["latest"]

    def reference(self, start, path, schedule):
        return path[-1][1]


@hookimpl
def lgbench_averagers():
    return [Latest()]
'''
NOTED = PLUGIN.replace("return path[-1][1]", "return None")
WRONG = PLUGIN.replace('return state["latest"]', 'return {name: w.mul_(0.5) for name, w in state["latest"].items()}')
RULES = [
    "it has what its contract declares",
    "a docstring describes it",
    "names and shapes are those of the weights, a state's never change, and asking changes nothing",
    "each model is averaged by itself",
    "weights that never change are their own average",
    "it agrees with its reference",
    "an update does not wait for the device",
]
LOADS = "loads quickly and prints nothing"
COUNT = len(RULES) + 1


check = partial(invoked, "check")


def lines(result) -> list[str]:
    return result.stdout.splitlines()


@pytest.fixture
def file(tmp_path):
    """Writes a plugin file."""

    def write(source: str, name: str = "my_average.py") -> Path:
        path = tmp_path / name
        path.write_text(source, encoding="utf-8")
        return path

    return write


@pytest.fixture
def installed(site, monkeypatch):
    """Installs packages, each with one plugin; nothing else is there."""
    names = []

    def add(name: str, source: str, **package: str) -> None:
        install(site, name, source, **package)
        names.append(name)
        monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(names))

    return add


@pytest.fixture
def built_in(monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_averaging,lgbench_norms,lgbench_tasks,lgbench_transformer")


def test_a_plugin_that_keeps_the_contract_passes(file):
    done = check("--plugin", file(PLUGIN))
    assert done.exit_code == 0
    assert lines(done) == ["plugin my_average", "averager latest", f"all {COUNT} checks passed"]


def test_verbose_shows_the_checks_that_passed(file):
    done = check("--plugin", file(PLUGIN), "-v")
    assert done.exit_code == 0
    passed = [f"  passed {rule}" for rule in RULES]
    assert lines(done)[:-1] == ["plugin my_average", f"  passed {LOADS}", "averager latest", *passed]


def test_a_note_is_shown_and_fails_nothing(file):
    done = check("--plugin", file(NOTED))
    assert done.exit_code == 0
    assert lines(done)[2:] == [
        "  note   it agrees with its reference",
        "    it has no `reference` to compare with",
        f"all {COUNT} checks passed, 1 with a note",
    ]


def test_a_failed_check_is_a_sentence_and_the_exit_code(file):
    done = check("--plugin", file(WRONG.replace("return path[-1][1]", "return None")))
    assert done.exit_code == 1
    found = lines(done)
    assert found[:3] == ["plugin my_average", "averager latest", f"  FAILED {RULES[2]}"]
    assert "it changes the part 'latest' of the state in place, such as table" in found[3]
    failed = [line for line in found if line.startswith("  FAILED ")]
    assert done.stderr == f"lgbench: {len(failed)} of {COUNT} checks failed, 1 with a note\n"


def test_an_error_in_a_plugin_is_shown_with_its_line(file):
    path = file(PLUGIN.replace('return {"latest": weights}\n\n    def weights', 'return state["newest"]\n\n    def weights'))
    done = check("--plugin", path)
    line = 1 + path.read_text().splitlines().index('        return state["newest"]')
    assert f"    it raised KeyError: 'newest' ({path}:{line})" in lines(done)
    assert done.exit_code == 1


def test_without_names_files_are_checked_alone_and_otherwise_everything(file, built_in, monkeypatch):
    two = check("--plugin", file(PLUGIN, "one.py"), "--plugin", file(PLUGIN.replace('"latest"', '"newest"', 1), "two.py"))
    assert [line for line in lines(two) if line.startswith("plugin")] == ["plugin one", "plugin two"]
    monkeypatch.setenv("LGBENCH_PLUGINS", "lgbench_averaging")
    monkeypatch.setattr(commands, "named", dict)  # an environment may have packs with commands
    assert lines(check()) == ["plugin lgbench_averaging", "averager ema", "averager bema", f"all {2 * COUNT - 1} checks passed"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lgbench_averaging", ["plugin lgbench_averaging", "averager ema", "averager bema"]),
        ("my_average", ["plugin my_average", "averager latest"]),
        ("latest", ["averager latest"]),
        ("dyck-1-2", ["task dyck-1-2"]),
    ],
)
def test_a_plugin_or_one_thing_of_it_is_checked_by_its_name(file, built_in, name, found):
    done = check(name, "--plugin", file(PLUGIN))
    assert done.exit_code == 0
    assert lines(done)[:-1] == found


def test_a_file_is_checked_by_its_path_without_an_option(file, built_in):
    done = check(file(PLUGIN), "ema")
    assert lines(done)[:-1] == ["plugin my_average", "averager latest", "averager ema"]


def test_a_package_is_checked_by_its_name(installed):
    installed("one_module", PLUGIN, distribution="lgbench-latest")
    done = check("lgbench-latest")
    assert done.exit_code == 0
    assert lines(done)[:-1] == ["plugin one_module", "averager latest"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pre-nrom", "lgbench: no plugin 'pre-nrom'; did you mean 'pre-norm'? known: "),
        ("lgbench_norm", "lgbench: no plugin 'lgbench_norm'; did you mean 'lgbench_norms'? known: "),
        ("dyck-0-0", "lgbench: no task 'dyck-0-0': "),
    ],
)
def test_an_unknown_name_says_what_could_be_meant(built_in, name, said):
    done = check(name)
    assert done.exit_code == 2
    assert done.stderr.startswith(said)


def test_a_package_without_a_version_fails_and_the_message_says_why(installed):
    installed("versionless", PLUGIN, version="0.0.0")
    assert "    its package has the version '0.0.0', and results name plugins by version" in lines(check())


def test_a_file_with_a_name_that_is_taken_is_told_so(file):
    path = file(PLUGIN.replace('name = "latest"', 'name = "ema"'))
    done = check(path)
    assert done.exit_code == 1
    assert lines(done).count("  FAILED no other plugin has its name") == 1


def test_a_name_that_two_plugins_provide_fails_in_both_and_the_rest_is_checked(installed):
    installed("one", PLUGIN)
    installed("two", PLUGIN)
    done = check()
    assert done.exit_code == 1
    assert lines(done).count("  FAILED no other plugin has its name") == 2
    assert "    averager 'latest' is provided by one 1.0 and two 1.0, so it cannot be used: uninstall one, or" in done.stdout


OWN_TESTS = """
import latest_noted
import latest_wrong
import pytest
from lgbench.testing import checks


@pytest.mark.parametrize("check", checks(latest_noted))
def test_of_a_module(check):
    check()


@pytest.mark.parametrize("check", checks(latest_wrong.Latest()))
def test_of_an_object(check):
    check()
"""


@pytest.fixture(scope="module")
def own_tests(tmp_path_factory, warm):
    """The output of pytest for a plugin's own tests, where warnings are errors."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "latest_noted.py").write_text(NOTED)
    (folder / "latest_wrong.py").write_text(WRONG.replace("path[-1]", "path[99]"))
    (folder / "test_own.py").write_text(OWN_TESTS)
    # That lgbench is imported already is so here alone.
    words = ["-v", "-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "test_own.py"]
    code = "import os, sys, pytest; os.chdir(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
    with warm.start([folder, "--rootdir", folder, *words], code, PYTHONPATH=str(folder)) as process:
        said, _ = process.communicate()
    return said


@pytest.mark.slow
def test_in_pytest_every_check_is_a_test_that_is_named_by_it(own_tests):
    thing = [f"averager latest: {rule}" for rule in RULES]
    tests = [f"test_of_a_module[{name}]" for name in (f"plugin latest_noted: {LOADS}", *thing)]
    tests += [f"test_of_an_object[{name}]" for name in thing]
    outcomes = dict(re.findall(r"^test_own.py::(.+\]) (PASSED|FAILED) ", own_tests, re.M))
    assert list(outcomes) == tests
    assert [name for name, outcome in outcomes.items() if outcome == "FAILED"] == [
        f"test_of_an_object[averager latest: {rule}]" for rule in (RULES[2], *RULES[4:6])
    ]
    assert own_tests.rstrip("=\n").rpartition("= ")[2].startswith(f"3 failed, {2 * len(thing) - 2} passed, 1 warning in ")


@pytest.mark.slow
def test_in_pytest_a_failed_check_is_a_sentence_without_the_lines_of_the_check(own_tests):
    said = "averager latest: it changes the part 'latest' of the state in place, such as table: return new tensors"
    assert f"lgbench.conformance.check.CheckFailed: {said}\n" in own_tests
    assert not any(inside in own_tests for inside in ("conformance/", "expect(", "examine()"))


@pytest.mark.slow
def test_in_pytest_an_error_in_a_plugin_is_shown_from_its_own_line_on(own_tests):
    assert ">       return path[99][1]\n" in own_tests
    assert "CheckFailed: averager latest: it raised IndexError: list index out of range (" in own_tests


@pytest.mark.slow
def test_in_pytest_a_note_is_a_warning_at_the_test_and_fails_nothing(own_tests):
    assert "test_own.py:10: ConformanceNote: averager latest: it has no `reference` to compare with" in own_tests


def test_a_module_that_cannot_be_used_is_refused_with_the_reason():
    with pytest.raises(
        ValueError, match=r"plugin empty \(empty not installed\): provides nothing: no function in it is marked"
    ):
        checks(ModuleType("empty"))


def test_a_function_that_fails_on_every_signature_fails_its_checks(tmp_path, toys_alone):
    file = tmp_path / "broken.py"
    file.write_text("def build(signature):\n    raise ValueError('shapes do not fit')\n")
    done = invoked("check", f"{file}:build")
    assert (
        done.exit_code == 1 and "it is built for no signature: building the model failed with ValueError: shapes" in done.output
    )


def test_a_module_for_another_contract_fails_as_its_file_does(tmp_path, monkeypatch):
    (tmp_path / "for_tomorrow.py").write_text('LGBENCH_CONTRACT = "9.0"\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="9.0"):
        checks(importlib.import_module("for_tomorrow"))


def test_a_class_in_the_place_of_an_object_is_refused():
    with pytest.raises(TypeError, match=r"is nothing that a plugin provides: call the class, as in Walk\(\)"):
        checks(toys.Walk)


INSTALLED = Registry.load()


def built_in_things() -> list[pytest.param]:
    """The checks of everything that is built in, thing by thing; those of the packs are among their own tests."""
    plugins = [plugin for plugin in INSTALLED.plugins if plugin.distribution.name == "lgbench"]
    found = groupby((check for each in plugins for check in checks_of_plugin(each, INSTALLED)), lambda check: check.thing)
    return [pytest.param(list(checks), id=thing) for thing, checks in found]


@pytest.mark.slow
@pytest.mark.parametrize("checks", built_in_things())
def test_everything_built_in_passes_every_check(checks):
    for check in checks:
        if "one graph" not in check.name or check.thing.startswith("architecture"):  # seconds each, for a note
            check()
