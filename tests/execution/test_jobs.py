"""Executors of plugins: any engine makes the run files of this machine, to the bit."""

from __future__ import annotations

import re
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import toys
from helpers import notebook
from helpers.commands import rows
from helpers.folders import ROOT
from helpers.logged import SETTINGS, numbers_in, numbers_of
from helpers.made_runs import made

import lgbench
from lgbench import Executor, Pool, UsageError
from lgbench.errors import RunFailed
from lgbench.execution.command import Command, executor_named
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import UNFINISHED
from lgbench.execution.workers import Local
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results.run_files import TUNING

GUIDE = ROOT / "docs" / "how-to" / "write-an-executor.md"
TOYS = {"protocol": "quick", "average": "toy-mean", "compile": False, "set": SETTINGS, "seeds": (0, 1)}


@pytest.fixture
def processes(tmp_path) -> Path:
    """The plugin file of the guide."""
    path = tmp_path / "processes.py"
    path.write_text(re.search(r'```python title="processes.py"\n(.*?)^```', GUIDE.read_text(), re.MULTILINE | re.DOTALL)[1])
    return path


@pytest.mark.slow
def test_processes_of_the_guide_make_what_one_process_makes_and_tell_loggers(processes, tmp_path, toys_alone, monkeypatch):
    monkeypatch.setenv("NOTEBOOK", str(tmp_path / "pages"))
    plugins = [processes, Path(notebook.__file__)]
    asked = {**TOYS, "population": 1, "checkpoint": 0.0}
    lgbench.run("toy-largest", "toy-table", **asked, workers=1, results=tmp_path / "alone")
    own = {"executor": "processes", "executor_options": {"number": 2}, "plugins": plugins, "logger": "notebook"}
    lgbench.run("toy-largest", "toy-table", **asked, **own, results=tmp_path / "jobs")
    assert rows(tmp_path / "jobs") == rows(tmp_path / "alone") and len(rows(tmp_path / "jobs")) == 2
    assert not (tmp_path / "jobs" / UNFINISHED).exists()
    pages = notebook.read(tmp_path / "pages")
    assert {name: numbers_of(page) for name, page in pages.items()} == {
        path.stem: numbers_in(path) for path in (tmp_path / "jobs").glob("*.parquet")
    }


@pytest.mark.slow
def test_jobs_try_learning_rates_as_one_process_does(processes, tuned_everywhere, tmp_path):
    asked = {"protocol": "tuned", "seeds": [0], "compile": False, "average": "toy-mean", "population": 3}
    lgbench.run("toy-walk", "toy-table", **asked, workers=1, results=tmp_path / "alone")
    lgbench.run("toy-walk", "toy-table", **asked, executor="processes", plugins=[processes], results=tmp_path / "jobs")
    for place in (".", TUNING):
        assert made(tmp_path / "jobs" / place) == made(tmp_path / "alone" / place) != {}


@dataclass(frozen=True)
class Here(Executor):
    """Runs each function in this process; the first `lost` functions are lost."""

    name = "here"
    lost: int = 0
    count: int | None = None
    share: float = 1.0

    @contextmanager
    def open(self, demand):
        left = [self.lost]

        def submit(function):
            future = Future()
            if left[0]:
                left[0] -= 1
                future.set_exception(OSError("the node is gone\nand more"))
            else:
                # a machine without the folder of the claim
                future.set_result(replace(function, folder=Path("/nowhere/else"))())
            return future

        yield Pool(submit, demand.workers or 1)


LOCAL = Local(ProgressDisplay(), 1)


def carried_out(executor, arch, folder, task="toy-largest"):
    """Outcome of a command with two seeds of a toy, and what it said."""
    registry, display = Registry.load(), ProgressDisplay()
    display.say = (said := []).append
    asked = {"average": "toy-mean", "seeds": (0, 1), "protocol": "quick", "set": SETTINGS, "compile": False}
    options = RunOptions(task, arch, **asked, device="cpu", population=2, results=folder)
    outcome = replace(Command.of(options, registry, display), executor=executor).carry_out()
    return outcome, said


def test_files_come_back_from_a_machine_without_the_folder(tmp_path, toys_alone):
    outcome, said = carried_out(Here(), "toy-table", tmp_path)
    assert len(outcome.written) == 2 and not outcome.failed
    assert said[-1].endswith("(2 models): done, 2 of 2 runs written") and not (tmp_path / UNFINISHED).exists()


def test_a_population_whose_job_is_lost_is_trained_again_in_halves(tmp_path, toys_alone):
    outcome, said = carried_out(Here(lost=1), "toy-table", tmp_path)
    assert len(outcome.written) == 2 and not outcome.failed
    assert any("needed more memory than is free; trained again, at most 1 at once" in sentence for sentence in said)


def test_jobs_that_are_lost_each_time_are_a_sentence(tmp_path, toys_alone):
    outcome, _ = carried_out(Here(lost=100), "toy-table", tmp_path)
    assert [str(failure) for failure in outcome.failed] == [
        f"toy-largest toy-table+toy-nothing seed {seed} failed: the job was lost: the node is gone" for seed in (0, 1)
    ]


def test_an_executor_that_cannot_be_opened_is_a_sentence(tmp_path, toys_alone):
    class Closed(Here):
        def open(self, demand):
            raise ImportError("no module named dask")

    with pytest.raises(UsageError, match="the executor here cannot be used: ImportError: no module named dask"):
        carried_out(Closed(), "toy-table", tmp_path)


def test_an_error_in_a_job_names_its_place(tmp_path, toys_alone):
    outcome, _ = carried_out(Here(), "toy-broken", tmp_path, "toy-walk")
    assert isinstance(outcome.failed[0], RunFailed) and Path(toys.__file__).name in str(outcome.failed[0])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("hear", {}, "no executor 'hear'; did you mean 'here'? known: here, local"),
        ("here", {"losst": "1"}, "no option of the executor here 'losst'; did you mean 'lost'? known: count, lost, share"),
        ("here", {"lost": "many"}, "the option lost of the executor here cannot be 'many': Expected `int`"),
        ("local", {"lost": "1"}, "--executor-option lost needs another executor: local has no options"),
    ],
)
def test_wrong_names_and_values_are_sentences(name, options, said):
    catalog = Registry().executors
    catalog.add(Here(), Distribution("mine", "1.0"))
    with pytest.raises(UsageError, match=re.escape(said)):
        executor_named(name, options, catalog, LOCAL)


def test_options_have_the_types_of_their_fields():
    catalog = Registry().executors
    catalog.add(Here(), Distribution("mine", "1.0"))
    assert executor_named("here", {"count": "3", "share": "0.5"}, catalog, LOCAL) == Here(count=3, share=0.5)
    assert executor_named("local", {}, catalog, LOCAL) is LOCAL
