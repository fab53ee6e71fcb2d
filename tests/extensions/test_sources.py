"""The sources of plugins in the identity of runs: an edit is another run, and nobody averages the two."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from helpers.folders import TESTS
from helpers.processes import install, lgbench_command, python
from helpers.registries import BUILT_IN
from helpers.run_files import simulated, write_rows

from lgbench import checkout
from lgbench.errors import PluginError, UsageError
from lgbench.experiment.plan import plan
from lgbench.experiment.record import deciding
from lgbench.extensions import loading
from lgbench.extensions.loading import UNKNOWN, source_of
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results import run_files
from lgbench.results.compare import compare
from lgbench.results.entries import Use, suffixes
from lgbench.results.leaderboard import Results
from lgbench.results.stored_runs import RunMetadata
from lgbench.submissions.submission import unpublishable

TOYS = (TESTS / "toys.py").read_text()
RUN = ("run", "--task", "toy-walk", "--arch", "toy-table", "--average", "none", "--protocol", "quick", "--seeds", "0")
SMALL = ("--set", "train.steps=2", "--set", "evaluate.max_length=8", "--set", "evaluate.contexts=4")


def editable(folder: Path) -> Path:
    """The toys, as an editable installation leaves them."""
    install(folder, "toys", TOYS, "1.2.3", "lgbench-toys")
    direct = {"url": f"file://{folder}", "dir_info": {"editable": True}}
    (folder / "lgbench_toys-1.2.3.dist-info" / "direct_url.json").write_text(json.dumps(direct))
    return folder / "toys.py"


@pytest.mark.slow
def test_an_edited_editable_plugin_is_run_again_and_has_a_row_of_its_own(tmp_path):
    source, results = editable(tmp_path / "site"), tmp_path / "results"
    environ = {"PYTHONPATH": str(tmp_path / "site"), "LGBENCH_PLUGINS": "toys,lgbench_measurements,lgbench_optimizers"}

    def ran() -> str:
        done = lgbench_command(*RUN, *SMALL, "--results", str(results), **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "1 run written" in ran()
    assert "1 run was done before" in ran()
    source.write_text(TOYS.replace("scale: float = 1.0", "scale: float = 1.00"))  # its options are the same
    assert "1 run written" in ran()
    used = [run_files.metadata(path)["experiment"]["plugins"] for path in run_files.find(results)]
    sources = [plugin["source"] for found in used for plugin in found if plugin["name"] == "lgbench-toys"]
    assert len(set(sources)) == 2 and {plugin["provides"][0] for plugin in used[0]} >= {"architecture"}
    rows = [row.entry for board in Results(results).boards("tvd") for row in board.rows]
    assert sorted(rows) == sorted(f"toy-table+toy-nothing (lgbench-toys 1.2.3 source {source})" for source in sources)
    about = next(plugin for plugin in run_files.metadata(next(run_files.find(results)))["plugins"] if "toys" in plugin["name"])
    assert about["installed"] == "editable" and about["origin"] is None and str(tmp_path) not in json.dumps(about)


@pytest.mark.slow
def test_a_source_changes_with_any_name_or_content_of_a_package_and_with_nothing_else(tmp_path):
    package = tmp_path / "some_package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "one.py").write_text("x = 1")

    def source() -> str:
        code = "from lgbench.extensions.loading import source_of; print(source_of(['some_package.deep.one']))"
        return python(code, PYTHONPATH=str(tmp_path)).stdout.strip()

    found = [source()]
    (package / "notes.txt").write_text("no code")
    assert source() == found[0]
    (package / "deep" / "one.py").write_text("x = 2")
    found.append(source())
    (package / "deep" / "one.py").rename(package / "deep" / "two.py")
    (package / "deep" / "one.py").write_text("")
    found.append(source())
    (package / "deep" / "two.py").unlink()
    found.append(source())
    assert len(set(found)) == 4
    assert source_of(["no_such_module_at_all"]) == source_of([]) == UNKNOWN


def test_an_edit_after_the_import_is_refused_since_nobody_can_say_which_sources_run(site):
    install(site, "edited_later", TOYS, "1.0", "edited-later")
    request = RunOptions("toy-walk", "toy-table", average=[], seeds=[0], protocol="quick")
    names = {"LGBENCH_PLUGINS": "edited_later,lgbench_measurements,lgbench_optimizers"}
    before = plan(request, Registry.load(names)).experiments
    assert plan(request, Registry.load(names)).experiments == before
    (site / "edited_later.py").write_text(TOYS + "edited = True\n")
    with pytest.raises(PluginError, match="edited_later have changed since this process imported them: start Python anew"):
        plan(request, Registry.load(names))


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A small checkout in lgbench's place."""
    for name in ("lgbench/training.py", "lgbench/cli/show.py", "plugins/lgbench_norms/__init__.py", "plugins/contrib/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    return tmp_path


def changed() -> str:
    return checkout.changed_sources.__wrapped__()


def test_uncommitted_changes_of_what_decides_numbers_have_a_hash_and_nothing_else_has(copy):
    def git(*words: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", copy, *named, *words], check=True, capture_output=True)

    assert len(changed()) == 16  # a copy that is no checkout
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    (copy / "lgbench" / "cli" / "show.py").write_text("x = 2\n")
    (copy / "plugins" / "contrib" / "x.py").write_text("x = 2\n")
    (copy / "lgbench" / "notes.txt").write_text("none")
    assert changed() == ""
    (copy / "lgbench" / "training.py").write_text('"""What it is."""\n\nx = 1  # why\n')
    assert changed() == ""
    (copy / "plugins" / "lgbench_norms" / "__init__.py").write_text("x = 2\n")
    found = [changed()]
    (copy / "lgbench" / "own.py").write_text("x = 1\n")
    found.append(changed())
    (copy / "lgbench" / "training.py").unlink()
    found.append(changed())
    assert len({"", *found}) == 4
    git("add", ".")
    git("commit", "-m", "changed")
    assert changed() == ""


def test_a_changed_checkout_is_part_of_a_runs_identity_and_one_without_changes_is_not(monkeypatch):
    request = RunOptions("tomita-1", "pre-norm", average=[], seeds=[0], protocol="quick")

    def record(digits: str):
        monkeypatch.setattr(loading, "changed_sources", lambda: digits)
        return plan(request, Registry.load({"LGBENCH_PLUGINS": ",".join(BUILT_IN)})).experiments[0].record

    clean, dirty = record(""), record("1a2b3c4d5e6f7a8b")
    assert clean.plugins == () and clean.run_id != dirty.run_id
    assert deciding(dirty.plugins, "ema") == [("lgbench", "0.1.0 1a2b3c4d5e6f7a8b")]


OLD, NEW, EDITED = "0.1.0 1a2b3c4d5e6f7a8b", "0.2.0 9a8b7c6d5e4f3a2b", "0.1.0 0000000000000000"


SHORT, LONG = ("short", 1), ("long", 1)


def named(*made: tuple[str, dict[str, str]], later: tuple[str, int] = SHORT) -> list[str]:
    """Suffixes of one entry on these tasks with these packages: the first under SHORT, the others under `later`."""
    uses = [
        Use("entry", task, later if number else SHORT, tuple(sorted(plugins.items())))
        for number, (task, plugins) in enumerate(made)
    ]
    found = suffixes(uses)
    return [found[use.entry, use.protocol, use.plugins] for use in uses]


def test_an_entry_has_its_plain_name_unless_a_package_tells_its_numbers_apart():
    assert named(("a", {"x": OLD}), ("b", {"x": OLD, "y": NEW}), ("c", {})) == ["", "", ""]
    assert named(("a", {"x": OLD}), ("a", {"x": NEW})) == [" (x 0.1.0)", " (x 0.2.0)"]
    assert named(("a", {"x": OLD}), ("b", {"x": NEW})) == [" (x 0.1.0)", " (x 0.2.0)"]  # or a mean over tasks would mix them
    assert named(("a", {"x": OLD}), ("a", {"x": EDITED})) == [
        " (x 0.1.0 source 1a2b3c4d5e6f7a8b)",
        " (x 0.1.0 source 0000000000000000)",
    ]
    assert named(("a", {"x": OLD}), ("a", {})) == [" (x 0.1.0)", ""]
    assert named(("a", {"x": OLD}), ("a", {"y": OLD})) == [" (x 0.1.0)", " (y 0.1.0)"]
    for other in LONG, ("short", 2):  # whose numbers no mean has together with those under SHORT
        assert named(("a", {"x": OLD}), ("a", {"x": NEW}), later=other) == ["", ""]
    assert named(("a", {"lgbench": OLD}), ("b", {})) == [" (lgbench 0.1.0 with changes 1a2b3c4d5e6f7a8b)", ""]


def test_things_of_files_need_no_more_than_the_hash_in_their_names():
    assert named(("a", {"f.py": "sha256:12 34"}), ("b", {"f.py": "sha256:56 78"})) == ["", ""]


@pytest.fixture
def two_versions(tmp_path) -> Path:
    """Two seeds of each of two versions, and a baseline with all four."""
    for seed in range(4):
        plugins = [("lgbench-x", OLD if seed < 2 else NEW)]
        rows = []
        for weights in ("raw", "ema"):
            same = {"seed": seed, "weights": weights}
            rows += simulated({8: 0.1 + 0.1 * seed, 16: 0.5}, run_id=f"{seed:016x}", plugins=plugins, entry="arch+x", **same)
        write_rows(tmp_path / f"x-{seed}.parquet", rows)
        rows = simulated({8: 0.2, 16: 0.4}, run_id=f"b{seed:015x}", entry="arch+plain", seed=seed)
        write_rows(tmp_path / f"plain-{seed}.parquet", rows)
    return tmp_path


def test_two_versions_are_two_rows_of_a_board_and_never_meet_in_a_mean(two_versions):
    (board,) = Results(two_versions).boards("tvd")
    seeds = {row.entry: row.seeds for row in board.rows}
    old, new = "arch+x (lgbench-x 0.1.0)", "arch+x (lgbench-x 0.2.0)"
    assert seeds == {old: (0, 1), f"{old}@ema": (0, 1), new: (2, 3), f"{new}@ema": (2, 3), "arch+plain": (0, 1, 2, 3)}
    means = {row.entry: row.cell("length", 8).mean for row in board.rows}
    assert (means[old], means[new]) == (0.15, 0.35)


def test_two_versions_are_compared_by_their_names_and_a_name_for_both_is_refused(two_versions):
    results = Results(two_versions)
    (found,) = compare(results, "arch+x (lgbench-x 0.2.0)", "plain", "tvd")
    assert found.mean.n == 2
    with pytest.raises(UsageError, match=r"'arch\+x' may be any of arch\+x \(lgbench-x 0.1.0\), arch\+x \(lgbench-x 0.2.0\)"):
        compare(results, "arch+x", "plain", "tvd")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"installed": "editable"}, "was installed editable, from a folder that may change"),
        ({"installed": "archive"}, "was installed from an archive of sources"),
        ({"installed": "unknown"}, "was installed in a way that the run does not say"),
        ({"version": "0.1.dev3"}, "has a version that is not released"),
        ({"version": "1.0+local"}, "has a version that is not released"),
    ],
)
def test_runs_with_plugins_that_others_cannot_install_are_not_published(saved_runs, change, why):
    about = run_files.metadata(saved_runs.language)
    about["experiment"]["protocol"] = {"name": "standard", "version": 6, "changes": []}
    about["environment"]["git_commit"] = "0123456789"
    about["experiment"]["plugins"] = []  # where this checkout has changes, lgbench is one
    released = {"name": "mine", "version": "1.0", "source": UNKNOWN, "installed": "wheel", "origin": None, "takes_part": True}

    def said(plugin: dict[str, object]) -> list[str]:
        return list(unpublishable(msgspec.convert(about | {"plugins": [plugin]}, RunMetadata)))

    assert said(released) == []
    (sentence,) = said(released | change)
    assert why in sentence and "so others may not have the same; install its release, or a wheel of its release" in sentence


@pytest.mark.parametrize(
    ("direct", "installed", "origin"),
    [
        (None, "index", None),
        ({"url": "file:///home/me/x", "dir_info": {"editable": True}}, "editable", None),
        ({"url": "file:///home/me/x-1.0-py3-none-any.whl", "archive_info": {}}, "wheel", "x-1.0-py3-none-any.whl"),
        ({"url": "https://me:secret@a.org:81/x.whl?key=1", "archive_info": {}}, "wheel", "https://a.org:81/x.whl"),
        (
            {"url": "https://token@a.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "version control",
            "https://a.org/x.git@abc",
        ),
    ],
)
def test_metadata_say_how_a_plugin_was_installed_and_nothing_private(site, direct, installed, origin):
    install(site, "from_somewhere", TOYS, "1.0", "from-somewhere")
    if direct is not None:
        (site / "from_somewhere-1.0.dist-info" / "direct_url.json").write_text(json.dumps(direct))
    distribution = Registry.load({"LGBENCH_PLUGINS": "from_somewhere"}).plugins[0].distribution
    assert (distribution.installed, distribution.origin) == (installed, origin)
    assert len(distribution.source) == 16 and distribution.source == source_of(["from_somewhere"])
