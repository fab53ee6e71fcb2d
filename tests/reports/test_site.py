"""The output of `lgbench site`, checked without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import site_runs
from helpers.claim_files import around, write_runs
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench.cli.main import main
from lgbench.errors import UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.reports import boards as boards_report
from lgbench.reports import site
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric, descriptions
from lgbench.results.statistics import CONFIDENCE, MIN_BOOTSTRAP_SEEDS, MIN_PAIRED_SEEDS, SURE

METRICS = ("tvd", "accuracy", "roc_auc")


class Page(HTMLParser):
    """Of a page's HTML the texts of scripts and styles, as a browser delimits them, and all attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.texts: list[tuple[str, dict[str, str], str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        own = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in own.items()]
        self._inside = tag in ("script", "style")
        if self._inside:
            self.texts.append((tag, own, ""))

    def handle_data(self, data):
        if self._inside:
            tag, own, text = self.texts[-1]
            self.texts[-1] = tag, own, text + data

    def handle_endtag(self, tag):
        self._inside = False

    def document(self, name):
        (text,) = (text for _, own, text in self.texts if own.get("id") == name)
        return json.loads(text)

    def executed(self, tag):
        return [text for found, own, text in self.texts if found == tag and "type" not in own]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return site_runs.made(tmp_path_factory.getbasetemp()).folder


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    return site_runs.made(tmp_path_factory.getbasetemp()).results


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(site_runs.made(tmp_path_factory.getbasetemp()).html)


def command(*arguments: object):
    return CliRunner().invoke(main, ["site", *map(str, arguments)])


def test_every_board_of_families_and_tasks_is_embedded_as_the_leaderboard_prints_it(page, results, folder):
    index = page.document("index")
    found = {}
    for place in index["boards"]:
        board = page.document(f"board-{place['id']}")
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
        assert boards == json.loads(boards_report.boards_json(results.boards(metric, name)))["boards"]
    for metric in METRICS:
        asked = ["--metric", metric, "--protocol", "all", "--format", "json", "--results", str(folder)]
        printed = CliRunner().invoke(main, ["leaderboard", *asked])
        families = [*found[metric, "alpha"], *found[metric, "beta"]]
        overall = [own for own in page.document("overall") if own["metric"]["name"] == metric]
        assert json.loads(printed.stdout) == {"overall": overall, "boards": families}
    assert page.document("overall")


def test_runs_bring_their_footers_and_their_training(page, folder):
    index = page.document("index")
    runs = page.document(f"runs-{index['runs'][site_runs.HOSTILE]}")
    assert [(run["task"], run["seed"]) for run in runs] == [(task, seed) for task in site_runs.TASKS for seed in range(5)]
    for run in runs:
        about = run_files.metadata(folder / f"{run['run_id']}.parquet")
        assert run["about"] | {name: about[name] for name in ("measurements", "checksum")} == about
        assert run["measurements"] == [f"{each['name']}/{each['version']}" for each in about["measurements"]]
        assert run["train_loss"]["steps"] == run["gradient_norm"]["steps"] == [10, 20, 30]
    assert runs[1]["train_loss"]["values"] == [0.2, 0.1, 0.06668]  # four digits
    assert runs[2]["train_loss"]["values"] == [0.2, None, None] and runs[2]["diverged_step"] == 15


def test_entries_say_whose_weights_they_are(page):
    entries = page.document("index")["entries"]
    assert list(entries) == sorted(site_runs.LEVELS | {"best+norm@ema": 0})
    places = {entry: about.pop("place") for entry, about in entries.items()}
    assert sorted(places, key=places.get) == [*sorted(site_runs.LEVELS, key=ran), "best+norm@ema"]
    assert entries["best+norm@ema"] == {"base": "best+norm", "weights": "ema"}
    assert entries["best+norm"] == {"base": "best+norm", "weights": "raw"}


def ran(entry):
    """The best one ran under two protocols, the others under one."""
    return entry != site_runs.BEST, entry


def test_names_from_files_open_no_element(page):
    assert site_runs.HOSTILE in page.document("index")["entries"]
    assert site_runs.HOSTILE not in page.html
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    documents = [own["id"] for tag, own, _ in page.texts if tag == "script" and own.get("type") == "application/json"]
    assert len(documents) == len(set(documents))
    assert len([tag for tag, *_ in page.texts if tag == "script"]) == len(documents) + 2
    for _, own, text in page.texts:
        assert "<" not in text or "id" not in own


def test_texts_of_settings_and_of_metrics_open_no_element_and_end_no_string(tmp_path):
    """They come from run files, and stand in the page's HTML, in its JSON and in expressions of its charts."""
    (tvd,) = (about for about in descriptions(lgbench_measurements.lgbench_measurements()) if about["name"] == "tvd")
    hostile = "<b>'\"\\', x: warn(1), </script>"
    about = tvd | {"label": hostile, "title": hostile, "landmark_name": hostile}
    rows = simulated({8: 0.5, 16: 0.5}, changes=[("model.kind", "<b>")])
    write_rows(tmp_path / "run.parquet", rows, experiment={}, measurements=[about])
    page = Page(site.page(Results(tmp_path)))
    assert "model.kind=&lt;b&gt;" in page.html and "<b>" not in page.html
    assert page.document("index")["metrics"]["tvd/1"]["title"] == hostile
    layers = page.document("specs")["tvd/1"]["layer"]
    assert hostile in {layer["mark"].get("text") for layer in layers}
    (expression,) = (own["tooltip"]["value"]["expr"] for own in (layer["encoding"] for layer in layers) if "tooltip" in own)
    outside_strings = re.sub(r'"(\\.|[^"\\])*"', "", expression)
    assert "warn" in expression and "warn" not in outside_strings


def test_the_policy_lets_nothing_be_fetched_and_only_these_scripts_run(page):
    (policy,) = (value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "-src" in value)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:" and "unsafe" not in policy
    assert rules.keys() == {"default-src", "base-uri", "form-action", "img-src", "script-src", "style-src"}

    def hashes(texts):
        return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}

    assert set(rules["script-src"].split()) == hashes(page.executed("script"))
    assert set(rules["style-src"].split()) == hashes(page.executed("style"))


def test_the_scripts_make_no_html_from_text(page):
    own, _ = page.executed("script")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "DOMParser"):
        assert word not in own


def test_the_same_results_make_the_same_bytes(page, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert site.page(Results(tmp_path / "elsewhere")) == page.html


@pytest.mark.slow
def test_a_protocol_leaves_out_the_others(results):
    index = Page(site.page(results, "quick")).document("index")
    assert {place["protocol"] for place in index["boards"]} == {"quick/1"}
    page = Page(site.page(results, site_runs.CHANGED))
    index = page.document("index")
    assert {(place["name"], place["protocol"]) for place in index["boards"]} == {("beta", site_runs.CHANGED)}
    assert list(index["entries"]) == ["best+norm", "best+norm@ema"]
    assert [len(page.document(f"runs-{i}")) for i in index["runs"].values()] == [1]


def test_the_page_starts_with_the_most_telling_protocol_and_not_with_the_most_entries(tmp_path):
    write_runs(tmp_path, {f"arch+{name}": around(0.5) for name in "abc"})
    write_runs(tmp_path, {"arch+a": around(0.4)}, "gamma", protocol="short", protocol_version=1)
    assert Page(site.page(Results(tmp_path))).document("index")["start"]["protocol"] == "short/1"
    for version in (2, 10):
        write_runs(tmp_path / str(version), {"arch+a": around(0.4)}, "gamma", protocol="standard", protocol_version=version)
    start = Page(site.page(Results(tmp_path))).document("index")["start"]
    assert (start["name"], start["protocol"]) == ("gamma", "standard/10")


def test_footers_of_any_content_are_valid_json(tmp_path):
    rows = simulated({8: 0.5, 16: 0.25})
    measurements = descriptions(lgbench_measurements.lgbench_measurements())
    about = {"experiment": {"train": {"lr": math.inf}}, "seconds": [math.nan], "other": None, "measurements": measurements}
    write_rows(tmp_path / "run.parquet", rows, **about)
    page = Page(site.page(Results(tmp_path)))
    (run,) = page.document("runs-0")
    assert run["about"].pop("experiment")["train"] == {"lr": "inf", "steps": 5, "max_length": 8}
    assert run["about"] == {"seconds": ["nan"], "other": None}
    assert not re.search(r"\b(NaN|Infinity)\b", "".join(text for _, own, text in page.texts if "id" in own))


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


def test_the_command_writes_one_file_and_says_where_and_how_large(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "page", lambda results, *_: f"page of {results.folder}" * 100_000)
    done = command("--results", folder, "--out", tmp_path / "new" / "site")
    path = tmp_path / "new" / "site" / "index.html"
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{path} ({path.stat().st_size / 1e6:.1f} MB)\n"
    assert list(path.parent.iterdir()) == [path] and path.read_text(encoding="utf-8").startswith(f"page of {folder}")


def test_a_folder_that_cannot_be_written_to_is_wrong_usage(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write .*name another place"):
        site.write("text", tmp_path / "file" / "deeper")
    write_rows(tmp_path / "runs" / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    done = command("--results", tmp_path / "runs", "--out", tmp_path / "file")
    assert done.exit_code == 2 and "cannot write" in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "index.html").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        site.write("text", tmp_path)
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
    page = Page(site.page(Results(site_runs.probed(tmp_path))))
    assert page.document("index")["insides"] == {"arch+norm": 0}
    entropy, gap = page.document("inside-0")
    assert {name: entropy[name] for name in ("task", "protocol", "metric")} == {
        "task": "alpha",
        "protocol": "quick/1",
        "metric": "attention_entropy/1",
    }
    # by hand: the heads are 0.5 apart from their mean, the seeds 10 from the middle one
    assert [(line["layer"], line["lengths"], line["values"], line["seeds"]) for line in entropy["layers"]] == [
        (layer, [8, 16], [values[8] + 10.5, values[16] + 10.5], 3) for layer, values in site_runs.PROBED.items()
    ]
    assert gap["layers"] == [{"layer": None, "lengths": [8], "values": [1.0], "seeds": 3}]
    assert {board["metric"] for board in page.document("index")["boards"]} == {"tvd"}
