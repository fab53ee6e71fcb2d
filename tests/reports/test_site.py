"""The output of `lgbench site`, checked without a browser."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers import site_runs
from helpers.claim_files import around, write_runs
from helpers.commands import invoked
from helpers.run_files import measured_by_all, simulated, write_rows

import lgbench_measurements
from lgbench.errors import UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.reports import boards as boards_report
from lgbench.reports import site
from lgbench.reports.tables import as_json
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.statistics import CONFIDENCE, MIN_BOOTSTRAP_SEEDS, MIN_PAIRED_SEEDS, SURE

METRICS = ("tvd", "accuracy", "roc_auc")


class Page:
    """The files of a page: the tags of its HTML with their attributes, and the data that a browser reads."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files, self.html = files, files["index.html"]
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attrs: self.tags.append((tag, dict(attrs)))
        parser.feed(self.html)

    def data(self, name: str) -> dict:
        head, _, content = self.files[f"data/{name}.js"].partition(" = ")
        assert head == f'(window.lgbench ??= {{}})["{name}"]' and content.endswith(";\n")
        return json.loads(content[:-2], parse_constant=pytest.fail)

    @property
    def index(self) -> dict:
        return self.data("index")

    def runs(self, protocol: str, entry: str) -> dict:
        """Runs, probe readings and values of seeds of the entry with these raw weights, which are one file."""
        return self.data(f"runs-{self.index['protocols'].index(protocol)}-{self.index['trained'].index(entry)}")

    def board(self, place: dict) -> dict:
        """A board by its place in the index, with the values of seeds. The boards of a protocol and a metric are one file."""
        metrics = list(dict.fromkeys(each["metric"] for each in self.index["boards"]))
        file = f"boards-{self.index['protocols'].index(place['protocol'])}-{metrics.index(place['metric'])}"
        board = self.data(file)[str(place["id"])]
        for row in board["rows"]:
            runs = self.runs(place["protocol"], self.index["entries"][row["entry"]]["base"])
            for cell, values in zip(row["cells"], runs["seeds"][row["entry"]][str(place["id"])], strict=True):
                assert "values" not in cell
                cell["values"] = values
        return board


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return site_runs.made(tmp_path_factory.getbasetemp()).folder


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    return site_runs.made(tmp_path_factory.getbasetemp()).results


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(site_runs.made(tmp_path_factory.getbasetemp()).files)


def command(*arguments: object):
    return invoked("site", *arguments)


def test_every_board_of_families_and_tasks_is_among_the_data_as_the_leaderboard_prints_it(page, results, folder):
    index = page.index
    found = {}
    for place in index["boards"]:
        board = page.board(place)
        (own,) = (own for own in results.boards(place["metric"], place["name"]) if str(own.protocol) == place["protocol"])
        assert board.pop("notes") == boards_report.notes(own)
        assert (place["name"], place["metric"]) == (board["name"], board["metric"]["name"])
        assert (place["version"], place["metric_version"]) == (board["task_version"], board["metric"]["version"])
        assert index["metrics"][f"{place['metric']}/{place['metric_version']}"] == board["metric"]
        changed = board["protocol"]["changes"] != []
        assert place["protocol"] == (site_runs.CHANGED if changed else "quick/1")
        assert place["entries"] == [row["entry"] for row in board["rows"]]
        found.setdefault((place["metric"], board["name"]), []).append(board)
    expected = {(metric, name) for metric in METRICS for name in ("alpha", "alpha-1", "alpha-2", "beta")}
    assert found.keys() == expected
    for (metric, name), boards in found.items():
        assert boards == json.loads(as_json(results.boards(metric, name)))
    for own in index["overall"]:
        assert own.pop("notes")
    for metric in METRICS:
        asked = ["--metric", metric, "--protocol", "all", "--format", "json", "--results", str(folder)]
        printed = invoked("leaderboard", *asked)
        families = [*found[metric, "alpha"], *found[metric, "beta"]]
        overall = [own for own in index["overall"] if own["metric"]["name"] == metric]
        assert json.loads(printed.stdout) == {"overall": overall, "boards": families}
    assert index["overall"]


def test_runs_bring_their_metadata_and_their_training(page, folder):
    runs = page.runs("quick/1", site_runs.HOSTILE)["runs"]
    assert [(run["task"], run["seed"]) for run in runs] == [(task, seed) for task in site_runs.TASKS for seed in range(5)]
    for run in runs:
        about = run_files.metadata(folder / f"{run['run_id']}.parquet")
        assert run["about"] == {name: about[name] for name in ("experiment", "plugins", "execution", "seconds", "environment")}
        assert run["measurements"] == [f"{each['name']}/{each['version']}" for each in about["measurements"]]
        assert run["train_loss"]["steps"] == run["gradient_norm"]["steps"] == [10, 20, 30]
    assert runs[1]["train_loss"]["values"] == [0.2, 0.1, 0.0667]  # three digits
    assert runs[2]["train_loss"]["values"] == [0.2, None, None] and runs[2]["diverged_step"] == 15


def test_a_run_brings_all_learning_rates_that_were_tried(tmp_path):
    tried = [(0.001, 2.0), (0.003, 1.5), (0.009, None)]  # the last one beyond the grid, and it diverged
    tuning = {
        "grid": [0.001, 0.003],
        "seeds": [1_000_000],
        "steps": 25,
        "chosen": 0.003,
        "open": True,
        "runs": [
            {"lr": lr, "seed": 1_000_000, "losses": [3.0, loss], "diverged_step": None, "population": 1, "compiled": False}
            for lr, loss in tried
        ],
    }
    for seed in (0, 1):
        about = {"experiment": {"tuning": tuning}, "measurements": measured_by_all()}
        write_rows(tmp_path / f"{seed}.parquet", simulated({8: 0.5, 16: 0.5}, seed=seed), **about)
    first, second = Page(site.pages(Results(tmp_path))).runs("quick/1", "arch+norm")["runs"]
    expected = {"chosen": 0.003, "steps": 25, "seeds": [1_000_000], "tried": [[lr, [loss]] for lr, loss in tried]}
    assert first["tuning"] == expected and second["tuning"] is None  # the same
    assert "tuning" not in first["about"]["experiment"]


def test_entries_say_whose_weights_they_are(page):
    entries = page.index["entries"]
    assert list(entries) == sorted(site_runs.LEVELS | {"best+norm@ema": 0})
    places = {entry: about.pop("place") for entry, about in entries.items()}
    assert sorted(places, key=places.get) == [*sorted(site_runs.LEVELS, key=ran), "best+norm@ema"]
    assert entries["best+norm@ema"] == {"base": "best+norm", "weights": "ema", "short": "best+norm@ema"}
    assert entries["best+norm"] == {"base": "best+norm", "weights": "raw", "short": "best+norm"}


def ran(entry):
    """The best one ran under two protocols, the others under one."""
    return entry != site_runs.BEST, entry


def test_texts_of_settings_open_no_element(tmp_path):
    """They come from run files, and stand in the page's HTML."""
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.5}, changes=[("model.kind", "<b>")]))
    page = Page(site.pages(Results(tmp_path)))
    assert "model.kind=&lt;b&gt;" in page.html and "<b>" not in page.html


def test_the_scripts_make_no_html_from_text(page):
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "DOMParser"):
        assert word not in page.files["page.js"]


def test_a_task_named_like_its_family_has_no_board_of_its_own_beside_published_runs(tmp_path):
    for folder, entry in (("filed", "arch+old"), ("own", "arch+new")):
        for task in ("copying", "copying-long"):
            write_runs(tmp_path / folder / task, {entry: around(0.3)}, task, family="copying")
    found = Page(site.pages(Results(tmp_path / "own", tmp_path / "filed"))).index["boards"]
    assert sorted({(place["kind"], place["name"]) for place in found}) == [("family", "copying"), ("task", "copying-long")]


def test_the_same_results_make_the_same_bytes(page, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert site.pages(Results(tmp_path / "elsewhere"), tasks=site_runs.DESCRIBED) == page.files


@pytest.mark.slow
def test_a_protocol_leaves_out_the_others(results):
    assert {place["protocol"] for place in Page(site.pages(results, "quick")).index["boards"]} == {"quick/1"}
    page = Page(site.pages(results, site_runs.CHANGED))
    index = page.index
    assert {(place["name"], place["protocol"]) for place in index["boards"]} == {("beta", site_runs.CHANGED)}
    assert list(index["entries"]) == ["best+norm", "best+norm@ema"] and index["protocols"] == [site_runs.CHANGED]
    assert index["trained"] == ["best+norm"] and len(page.runs(site_runs.CHANGED, "best+norm")["runs"]) == 1


def test_the_page_starts_with_the_protocol_of_most_families_then_the_most_telling_one(tmp_path):
    write_runs(tmp_path, {f"arch+{name}": around(0.5) for name in "abc"})
    write_runs(tmp_path, {"arch+a": around(0.4)}, "gamma", protocol="short", protocol_version=1)
    assert Page(site.pages(Results(tmp_path))).index["start"]["protocol"] == "short/1"  # not that of most entries
    for version in (2, 10):
        write_runs(tmp_path / str(version), {"arch+a": around(0.4)}, "gamma", protocol="standard", protocol_version=version)
    start = Page(site.pages(Results(tmp_path))).index["start"]
    assert (start["name"], start["protocol"]) == ("gamma", "standard/10")
    write_runs(tmp_path / "2", {"arch+a": around(0.4)}, "alpha", protocol="standard", protocol_version=2)
    assert Page(site.pages(Results(tmp_path))).index["start"]["protocol"] == "standard/2"


def test_numbers_that_are_not_finite_are_null_in_the_data(tmp_path):
    about = {"seconds": {"train": math.nan, "total": math.inf}}
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}), **about, measurements=measured_by_all())
    (run,) = Page(site.pages(Results(tmp_path))).runs("quick/1", "arch+norm")["runs"]
    assert run["about"]["seconds"] == {"train": None, "total": None}


def test_words_of_the_glossary_have_all_their_names_and_plain_text(page):
    words = {name: word for word in page.index["glossary"] for name in word["names"]}
    assert {"TVD", "IQM", "OOD", "ID", "@ema", "standard/N", "p*", "P(better)", "context-free baseline"} <= words.keys()
    assert words["ID"] is words["out-of-distribution"] and words["IQM"]["names"] == ["interquartile mean", "IQM"]
    assert words["TVD"]["text"].startswith(
        "Total variation distance between the model's distribution p and p*: half the sum of |p − p*|."
    )
    assert not [word for word in words.values() if re.search(r"[`\\\n]|^ ", word["text"])]


@pytest.mark.slow
def test_a_task_is_described_as_show_prints_it(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 64: 0.25}, task="tomita-5", family="tomita"))
    assert command("--results", tmp_path, "--out", tmp_path / "site").exit_code == 0
    page = Page({path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in (tmp_path / "site").rglob("*.*")})
    own = page.index["tasks"]["tomita-5"]
    shown = invoked("show", "tomita-5").stdout
    assert own["about"] == shown.splitlines()[1] and f"published: {own['published']}\n" in shown
    assert shown.startswith("\n".join(["tomita-5", own["about"], "", "\n\n".join(own["rule"])]))
    printed = [
        f"  {each['context']}\n    {', '.join(f'{name}: {p:g}' for name, p in each['answers'])}" for each in own["samples"]
    ]
    assert shown.rstrip().endswith("\n".join(printed)) and len(printed) == 3
    assert [(column["kind"], column["name"]) for column in page.index["grids"][0]["columns"]] == [
        ("family", "tomita"),
        ("class", own["class"]),
    ]


def test_the_rules_say_the_numbers_that_boards_are_made_with(page):
    tvd = Metric.of(lgbench_measurements.TotalVariation())
    assert CONFIDENCE == 0.95 and SURE == 0.001 and MIN_BOOTSTRAP_SEEDS == 8 and MIN_PAIRED_SEEDS == 3
    assert tvd.limit() == tvd.limit(0.0) == tvd.threshold and tvd.limit(0.05) == 0.05 / 2
    assert [PROTOCOLS[name].submitted_seeds for name in ("short", "standard", "long", "paper")] == [5, 5, 3, 3]
    rules = page.html.partition('<template id="rules">')[2].partition("</template>")[0]
    assert "<h1>How boards are made</h1>" in rules
    said = re.sub(r"<[^>]*>|\s+", lambda found: "" if found[0].startswith("<") else " ", rules)
    for words in (
        f"mean ID TVD is {tvd.limit()} or more",
        "95 % interval over seeds",
        "p below 0.001",
        "fewer than three seeds",
    ):
        assert words in said, words


def test_the_command_writes_a_folder_and_says_where_and_how_large(folder, tmp_path, monkeypatch):
    made = {"index.html": "page", "data/index.js": "x" * 200_000}
    monkeypatch.setattr(site, "pages", lambda *_: made)
    done = command("--results", folder, "--out", tmp_path / "new" / "site")
    path = tmp_path / "new" / "site" / "index.html"
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{path} (0.2 MB with its data)\n"
    assert {name: (path.parent / name).read_text() for name in made} == made
    assert sum(each.is_file() for each in path.parent.rglob("*")) == len(made)


def test_a_folder_that_cannot_be_written_to_is_wrong_usage(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write .*name another place"):
        site.write({"index.html": "text"}, tmp_path / "file" / "deeper")
    write_rows(tmp_path / "runs" / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    done = command("--results", tmp_path / "runs", "--out", tmp_path / "file")
    assert done.exit_code == 2 and "cannot write" in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="is not a page of lgbench, and stays as it is; name another folder"):
        site.write({"index.html": "text", "page.css": "style"}, tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine" and not (tmp_path / "page.css").exists()
    (tmp_path / "index.html").unlink()
    (tmp_path / "index.html").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        site.write({"index.html": "text"}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "index.html", "runs"}


def test_results_without_boards_are_wrong_usage(tmp_path):
    write_rows(tmp_path / "runs" / "run.parquet", simulated({8: None}))
    for arguments, said in (
        (["--results", tmp_path / "nowhere"], "no results folder"),
        (["--results", tmp_path / "runs"], "belongs on a board"),
        (["--results", tmp_path / "runs", "--protocol", "qiuck"], "did you mean 'quick'?"),
    ):
        done = command(*arguments, "--out", tmp_path / "site")
        assert done.exit_code == 2 and said in done.stderr
    assert not (tmp_path / "site").exists()


def test_probes_are_means_over_heads_and_seeds_by_layer(tmp_path):
    page = Page(site.pages(Results(site_runs.probed(tmp_path))))
    internals = page.runs("quick/1", "arch+norm")["internals"]
    assert list(internals) == ["arch+norm"]
    entropy, gap = internals["arch+norm"]
    assert (entropy["task"], entropy["metric"]) == ("alpha", "attention_entropy/1")
    # by hand: the heads are 0.5 apart from their mean, the seeds 10 from the middle one
    assert [(line["layer"], line["lengths"], line["values"], line["seeds"]) for line in entropy["layers"]] == [
        (layer, [8, 16], [values[8] + 10.5, values[16] + 10.5], 3) for layer, values in site_runs.PROBED.items()
    ]
    assert gap["layers"] == [{"layer": None, "lengths": [8], "values": [1.0], "seeds": 3}]
    assert {board["metric"] for board in page.index["boards"]} == {"tvd"}
