"""The page in a real browser, from a file and without a network."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers import site_runs
from helpers.claim_files import CLAIM, QUICK, around, write_claim, write_runs
from helpers.commands import invoked
from helpers.folders import ROOT
from helpers.site_runs import BEST, EVEN, HOSTILE, POOR
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from lgbench.claims.claim import read_claims
from lgbench.claims.verdicts import decide
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.reports import site
from lgbench.reports.tables import as_json
from lgbench.results.leaderboard import Results

pytestmark = pytest.mark.browser

FLAGS = {"diverged": "diverged", "not_fitted": "not fitted"}
ENTRIES = "svg .series"
"""The curves of entries."""
DASHED = "svg path.context-free"
"""The curve of the context-free baseline."""

VIEWS = {
    "start": "#/",
    "overall": "#/overall",
    "family": "#/task/alpha",
    "task": "#/task/alpha-1",
    "entry": f"#/entry/{quote(HOSTILE, safe='')}",
    "compare": f"#/compare/{BEST}/{POOR}",
    "rules": "#/rules",
    "glossary": "#/glossary/OOD",
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        sentence = (
            "there is no Chromium to test the page with; install it (Debian: apt-get install chromium) or name it in CHROMIUM"
        )
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return site_runs.made(tmp_path_factory.getbasetemp()).folder


@pytest.fixture(scope="session")
def address(tmp_path_factory) -> str:
    return site.write(site_runs.made(tmp_path_factory.getbasetemp()).files, tmp_path_factory.mktemp("browser")).as_uri()


@pytest.fixture(scope="session")
def index(tmp_path_factory) -> dict:
    return index_of(site_runs.made(tmp_path_factory.getbasetemp()).files)


def index_of(files: Mapping[str, str]) -> dict:
    """The data that a page reads first."""
    return json.loads(files["data/index.js"].partition(" = ")[2][:-2])


@pytest.fixture(scope="session")
def boards(tmp_path_factory) -> dict[tuple[str, str], dict]:
    """The boards that the command prints (test_site.py), by metric and name, of the protocol that has all entries."""
    results = site_runs.made(tmp_path_factory.getbasetemp()).results
    names = [(metric, name) for metric in ("tvd", "accuracy", "roc_auc") for name in ("alpha", "alpha-1", "alpha-2", "beta")]
    found = {(metric, name): json.loads(as_json(results.boards(metric, name, "quick"))) for metric, name in names}
    return {names: own for names, (own,) in found.items()}


class Watch:
    """Opens the page, without a network. Knows everything that was asked of a network, complained of, or popped up."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address
        self.contexts: list[BrowserContext] = []
        self.asked: list[str] = []
        self.said: list[str] = []

    def open(self, view: str = "#/task", width: int = 1280, height: int = 900, **options) -> Page:
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.contexts.append(context)
        context.set_offline(True)
        context.route(re.compile(r"^(?!file:)"), lambda route: route.abort())
        context.on("request", lambda request: self.asked.append(request.url))
        page = context.new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        page.goto(self.address + view)
        expect(page.locator("h1")).to_be_visible()
        return page

    def check(self) -> None:
        folder = self.address.rpartition("/")[0]
        assert all(url.startswith(f"{folder}/") for url in self.asked), self.asked
        assert self.said == []

    def close(self) -> None:
        for context in self.contexts:
            context.close()


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser, address, tmp_path) -> Iterator[Visit]:
    """Opens a view of the page, or of one that is made of other files."""
    watches: list[Watch] = []

    def show(view: str = "#/task", files: Mapping[str, str] | None = None, **options) -> Page:
        place = site.write(files, tmp_path / "page").as_uri() if files else address
        watches.append(Watch(browser, place))
        return watches[-1].open(view, **options)

    yield show
    for watch in watches:
        watch.close()
        watch.check()


@pytest.fixture(scope="module")
def shared(browser, address) -> Iterator[tuple[Watch, dict[tuple[int, int], Page]]]:
    watch = Watch(browser, address)
    yield watch, {}
    watch.close()


@pytest.fixture
def look(shared) -> Iterator[Visit]:
    """Opens a view on a page that tests share, which is faster: for tests that choose nothing, since choices outlive a view."""
    watch, pages = shared

    def show(view: str = "#/task", width: int = 1280, height: int = 900) -> Page:
        if (width, height) not in pages:
            pages[width, height] = watch.open(view, width, height)
            return pages[width, height]
        page = pages[width, height]
        page.mouse.move(0, 0)
        page.locator("h1").evaluate("(heading) => heading.setAttribute('data-old', '')")
        page.evaluate(
            "(view) => { history.replaceState(null, '', view); dispatchEvent(new HashChangeEvent('hashchange')); }", view
        )
        expect(page.locator("h1:not([data-old])")).to_be_visible()
        return page

    yield show
    watch.check()


def curves(page: Page):
    """The chart once it is drawn."""
    expect(page.locator(".curves .canvas svg").first).to_be_visible()
    return page.locator(".curves .canvas").first


def names(page: Page) -> list[str]:
    """The entries that the board shows, from top to bottom."""
    return page.locator("tbody tr:not([hidden]) th").all_inner_texts()


def by_mean(board: dict, kind: str = "OOD") -> list[str]:
    cells = {row["entry"]: next(cell["mean"] for cell in row["cells"] if cell["kind"] == kind) for row in board["rows"]}
    return sorted(cells, key=cells.__getitem__)


def shown(cell: dict) -> str:
    return f"{cell['mean']:.4f} {cell['low']:.4f}–{cell['high']:.4f}"


def cells_of(row: dict) -> dict[tuple[str, int | None], dict]:
    return {(cell["kind"], cell["length"]): cell for cell in row["cells"]}


@pytest.mark.parametrize(("metric", "name"), [("tvd", "alpha"), ("accuracy", "beta")])
def test_the_numbers_of_a_board_are_those_of_the_command(look, boards, metric, name):
    page, board = look(f"#/task/{name}/{metric}/{quote('quick/1', safe='')}/1"), boards[metric, name]
    header = [text.strip() for text in page.locator("thead tr:last-child th").all_text_contents()]
    results = ["entry", "OOD", "OOD, drawn"]
    standing = ["tier", "rank interval", "effective length", "seeds", "fitted", "ID"]
    assert header == ["drawn", *results, *standing, "8", "16", "32", "63"]
    lines = page.locator("tbody tr")
    assert lines.count() == len(board["rows"])
    for line, row in zip(lines.all(), board["rows"], strict=True):
        texts = line.locator("th, td").all_text_contents()
        cells = cells_of(row)
        best, worst = row["rank_interval"]
        assert texts[1:3] == [row["entry"], shown(cells["OOD", None])]
        assert texts[4:6] == [str(row["tier"]), f"{best}–{worst}" if best != worst else str(best)]
        longest = "≥ " if row["effective_length"] == 63 else ""
        assert texts[6] == (f"{longest}{row['effective_multiple']:.3g}×" if row["effective_length"] else "–")
        flags = "".join(f" {len(row[key])} {what}" for key, what in FLAGS.items() if row[key])
        assert texts[7] == f"{len(row['seeds'])}{flags}"
        fitted = row["fitted"]
        assert texts[8] == f"{fitted['seeds'] / fitted['n']:.2f} {fitted['low']:.2f}–{fitted['high']:.2f}"
        assert texts[9:] == [shown(cells["ID", None]), *(shown(cells["length", length]) for length in (8, 16, 32, 63))]


def test_the_context_free_level_stands_below_the_board_where_it_is_known_and_is_drawn(look, boards):
    page = look()
    level = {(own["kind"], own["length"]): f"{own['mean']:.4f}" for own in boards["tvd", "alpha"]["context_free"]}
    assert level["length", 63] == f"{site_runs.CONTEXT_FREE[63]:.4f}"
    texts = page.locator("tfoot").locator("th, td").all_text_contents()
    lengths = [level["length", length] for length in (8, 16, 32, 63)]
    assert texts == ["", "context-free baseline", level["OOD", None], *[""] * 6, level["ID", None], *lengths]
    expect(curves(page).locator(DASHED)).to_have_count(1)
    assert page.locator(".legend li").last.inner_text() == "context-free baseline"
    page.get_by_role("link", name="accuracy").click()
    expect(page.get_by_role("navigation", name="Metric").locator("[aria-current]")).to_have_text("accuracy")
    expect(curves(page).locator(DASHED)).to_have_count(0)
    assert page.locator("tfoot").count() == 0 and "context-free baseline" not in page.locator(".legend").inner_text()


def test_a_header_sorts_by_mouse(look, boards):
    page = look("#/task/alpha/accuracy/" + quote("quick/1", safe="") + "/1")
    expected = by_mean(boards["accuracy", "alpha"])
    header = page.get_by_role("columnheader", name="OOD", exact=True)
    expect(header).to_have_attribute("aria-sort", "none")
    header.get_by_role("button").click()  # of accuracies the highest first
    assert names(page) == expected[::-1]
    expect(header).to_have_attribute("aria-sort", "descending")
    header.get_by_role("button").click()
    assert names(page) == expected
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert page.locator("th[aria-sort=ascending], th[aria-sort=descending]").count() == 1


def test_filters_hide_entries_and_their_curves_and_say_how_many_are_left(visit):
    page = visit()
    status, legend = page.get_by_role("status"), page.locator(".legend li")
    expect(status).to_have_text("5 of 5 entries shown, 4 drawn")
    page.get_by_label("Filter entries").fill("BEST")
    assert names(page) == [BEST, f"{BEST}@ema"]
    expect(status).to_have_text("2 of 5 entries shown, 1 drawn")
    assert legend.all_inner_texts() == [BEST, "context-free baseline"]
    page.get_by_label("raw", exact=True).uncheck()
    assert names(page) == [f"{BEST}@ema"]
    expect(status).to_have_text("1 of 5 entries shown, 0 drawn")
    expect(page.locator(".curves")).to_contain_text("Nothing is ticked")
    page.get_by_label("Filter entries").fill("")
    page.get_by_label("raw", exact=True).check()
    expect(status).to_have_text("5 of 5 entries shown, 4 drawn")
    page.get_by_role("navigation", name="Task").get_by_role("link", name="alpha-2").click()
    expect(status).to_have_text("5 of 5 entries shown, 4 drawn")


def test_the_ticked_entries_are_drawn(visit):
    page = visit()
    lines = curves(page).locator(ENTRIES)
    expect(lines).to_have_count(4)  # raw weights alone
    page.get_by_label(f"draw {BEST}", exact=True).focus()
    page.keyboard.press("Space")
    expect(lines).to_have_count(3)
    page.get_by_label(f"draw {BEST}@ema").check()
    expect(lines).to_have_count(4)
    assert set(page.locator(".legend li").all_inner_texts()) == {EVEN, POOR, HOSTILE, f"{BEST}@ema", "context-free baseline"}
    page.get_by_role("button", name="Draw none").click()
    expect(lines).to_have_count(0)
    page.get_by_role("button", name="Draw all shown").click()
    expect(lines).to_have_count(5)


def test_an_entry_has_its_colour_whatever_page_was_seen_before_and_in_plots(visit, folder, tmp_path):
    page = visit("#/task")
    colour_of = """(entry) => getComputedStyle([...document.querySelectorAll('.legend a')].find((a) =>
        a.textContent === entry).previousElementSibling).color"""
    curves(page)
    first = page.evaluate(colour_of, POOR)
    page.goto(page.url.partition("#")[0] + f"#/compare/{POOR}/{EVEN}")
    curves(page)
    assert page.evaluate(colour_of, POOR) == first
    path = tmp_path / "a.json"
    invoked("plot", "--entry", f"{POOR},{EVEN}", "--results", folder, "--out", path)
    legend = json.loads(path.read_text())["vconcat"][1]
    (scale,) = {
        json.dumps(layer["encoding"]["color"]["scale"]) for layer in legend["layer"] if "color" in layer.get("encoding", {})
    }
    drawn = dict(zip(json.loads(scale)["domain"], json.loads(scale)["range"], strict=True))
    red, green, blue = (int(drawn[POOR][at : at + 2], 16) for at in (1, 3, 5))
    assert first == f"rgb({red}, {green}, {blue})"


def test_without_names_the_first_two_of_the_overview_are_compared(look):
    first = [link.get_attribute("href").split("/")[2] for link in look("#/").locator(".grid tbody th a").all()[:2]]
    page = look("#/compare")
    assert [page.locator("#one").input_value(), page.locator("#other").input_value()] == first
    expect(page.locator("main")).to_contain_text("at first the first two of the overview under quick/1.")
    page.goto(page.url.partition("#")[0] + f"#/compare/{BEST}/{BEST}")
    expect(page.locator("main")).to_contain_text("An entry cannot be compared with itself; choose two.")


def told_at_the_point(page: Page, entry: str, place: int) -> dict[str, str]:
    """The tooltip of a point of an entry's curve, by its place from the left."""
    series = curves(page).locator(".series")
    (own,) = (line for line in series.all() if line.get_attribute("data-entry") == entry)
    box = own.locator("path.point").nth(place).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tooltip = page.locator("#tooltip")
    expect(tooltip).to_be_visible()
    return dict(zip(tooltip.locator("dt").all_inner_texts(), tooltip.locator("dd").all_inner_texts(), strict=True))


@pytest.mark.parametrize("entry", [POOR, HOSTILE])
def test_hovering_over_a_curve_tells_its_numbers(look, boards, entry):
    page = look()
    told = told_at_the_point(page, entry, site_runs.LENGTHS.index(32))
    (row,) = (row for row in boards["tvd", "alpha"]["rows"] if row["entry"] == entry)
    cell = cells_of(row)["length", 32]
    assert (told["entry"], told["length"], told["seeds"]) == (entry, "32", "5")
    assert told["context-free baseline"] == f"{site_runs.CONTEXT_FREE[32]:.4f}"
    assert told["TVD"] == f"{cell['mean']:.4f}"
    assert re.findall(r"\d\.\d{4}", told["95 % interval"]) == [f"{cell['low']:.4f}", f"{cell['high']:.4f}"]
    page.keyboard.press("Escape")
    expect(page.locator("#tooltip")).to_be_hidden()


def test_the_ticked_entries_are_drawn_against_training_steps_at_a_length_that_is_chosen(visit, boards):
    page = visit()
    choice = page.get_by_label("Draw against")
    at_16 = "training steps, at length 16 (OOD)"
    expect(choice.locator("option")).to_have_text(["length", "training steps, at length 8 (ID)", at_16])
    choice.select_option(label=at_16)
    canvas = page.locator(".canvas")
    expect(canvas).to_have_attribute(
        "aria-label", re.compile("against training steps at length 16: .* and the context-free baseline")
    )
    expect(curves(page).locator(ENTRIES)).to_have_count(4)
    told = told_at_the_point(page, POOR, -1)
    (row,) = (row for row in boards["tvd", "alpha"]["rows"] if row["entry"] == POOR)
    cell = cells_of(row)["length", 16]
    assert (told["entry"], told["training steps"], told["TVD"], told["seeds"]) == (POOR, "5", f"{cell['mean']:.4f}", "5")
    page.get_by_role("navigation", name="Task").get_by_role("link", name="alpha-2").click()
    expect(page.get_by_label("Draw against")).to_have_value("16")
    page.get_by_role("navigation", name="Metric").get_by_role("link", name="accuracy").click()
    expect(page.get_by_label("Draw against")).to_have_count(0)  # it was not measured before the end
    expect(page.locator(".canvas")).to_have_attribute("aria-label", re.compile("against length: "))


def test_an_entry_shows_every_seed_as_the_boards_have_it(look, boards):
    page = look(VIEWS["entry"])
    page.locator("details").evaluate_all("found => found.forEach((one) => { one.open = true; })")
    for name in ("alpha", "alpha-1", "alpha-2", "beta"):
        (row,) = (row for row in boards["tvd", name]["rows"] if row["entry"] == HOSTILE)
        lines = page.get_by_role("table", name=f"Every seed on {name}", exact=True).locator("tbody tr").all()
        assert len(lines) == len(row["seeds"]) + 2
        cells = cells_of(row)
        order = [cells["ID", None], cells["OOD", None], *(cells["length", length] for length in site_runs.LENGTHS)]
        for at, (line, seed) in enumerate(zip(lines, row["seeds"], strict=False)):
            texts = line.locator("th, td").all_text_contents()
            flags = [what for key, what in FLAGS.items() if seed in row[key]]
            assert texts[0] == " ".join(["seed", str(seed), *flags])
            assert texts[1:] == [f"{cell['values'][at]:.4f}" for cell in order]
        assert lines[-2].locator("td").all_text_contents() == [shown(cell) for cell in order]
        levels = [f"{site_runs.CONTEXT_FREE[length]:.4f}" for length in site_runs.LENGTHS]
        assert lines[-1].locator("th, td").all_text_contents()[3:] == levels


def test_an_entry_shows_its_training_and_marks_what_diverged(look):
    page = look(VIEWS["entry"])
    charts = page.locator("svg.small")
    assert charts.count() == 2 * len(site_runs.TASKS)
    for chart in charts.all():
        assert chart.locator("path.curve").count() == 5 and chart.locator("path.cross").count() == 1
        assert "seed 2 diverged at step 15" in chart.get_attribute("aria-label")
    assert page.locator("p.diverged").all_inner_texts() == ["seed 2 diverged at step 15"] * 3
    box = charts.first.bounding_box()
    charts.first.hover(position={"x": box["width"] - 15, "y": box["height"] / 2})
    told = page.locator("#tooltip dt").all_inner_texts(), page.locator("#tooltip dd").all_inner_texts()
    assert told == (
        ["step", *(f"seed {seed}" for seed in range(5))],
        ["30", "0.0667", "0.0667", "not finite", "0.0667", "0.0667"],
    )


def test_an_entry_shows_its_configuration_and_where_its_runs_differ(look):
    page = look(f"#/entry/{BEST}")
    text = page.locator("main").inner_text()
    expected = {"architecture": "arch", "model.width": "32", "optimizer": "adamw", "optimizer.beta1": "0.9"}
    expected |= {"protocol": "quick", "protocol version": "1", "changes": "none"}
    expected |= {"measurements": "tvd/1, accuracy/1, exact_match/1, roc_auc/1, illegal_mass/1, illegal_top/1"}
    expected |= {"python": "3.11.7", "plugin.lgbench": "0.1.0", f"plugin.{BEST}": "1.2.3"}
    facts = page.locator("dl.facts > div").evaluate_all(
        "found => found.map((one) => [...one.children].map((e) => e.innerText))"
    )
    assert expected.items() <= {name: value for name, value in facts}.items()
    assert "2.7.0 (12 runs)" in text and "2.6.0 (3 runs)" in text and text.count("differs between runs") == 1
    assert "2026-11-20T09:14:23+00:00 to 2026-11-24T09:14:23+00:00" in text
    steps = page.get_by_role("table", name="Settings by task").locator("tbody tr").all_inner_texts()
    assert [line.split() for line in steps] == [["alpha-1", "30"], ["alpha-2", "30"], ["beta", "60"]]
    page.get_by_role("navigation", name="Protocol").get_by_role("link", name=site_runs.CHANGED).click()
    expect(page.get_by_role("table", name="Results of").locator("tbody tr")).to_have_count(1)
    assert "changes\ntrain.lr=0.1" in page.locator("main").inner_text()


@pytest.mark.parametrize(
    ("first", "second", "better", "said"),
    [
        (BEST, POOR, BEST, f"{BEST} is significantly better than {POOR}."),
        (POOR, BEST, BEST, f"{BEST} is significantly better than {POOR}."),
        (BEST, EVEN, "neither", f"{BEST} and {EVEN} are not significantly different."),
    ],
)
def test_a_comparison_says_what_the_boards_say(look, boards, first, second, better, said):
    page = look(f"#/compare/{first}/{second}")
    assert page.locator("p.verdict").all_inner_texts() == [said] * 4
    assert page.locator("td.better").all_inner_texts() == [better] * 4
    lines = page.get_by_role("table", name="Both entries on alpha-2").locator("tbody tr").all()
    rows = {row["entry"]: cells_of(row) for row in boards["tvd", "alpha-2"]["rows"]}
    level = {(own["kind"], own["length"]): f"{own['mean']:.4f}" for own in boards["tvd", "alpha-2"]["context_free"]}
    order = [("ID", None), ("OOD", None), *(("length", length) for length in site_runs.LENGTHS)]
    for line, column in zip(lines, order, strict=True):
        texts = line.locator("td").all_text_contents()
        assert texts == [*(shown(rows[entry][column]) for entry in (first, second)), level[column]]
    expect(curves(page).locator(ENTRIES)).to_have_count(2)
    expect(curves(page).locator(DASHED)).to_have_count(1)
    expect(curves(page).locator("svg path.band")).to_have_count(2)
    command = f"lgbench compare {first} {second} --task alpha --metric tvd --protocol quick/1"
    assert page.locator(".command code").first.inner_text() == command


def test_two_entries_are_chosen_by_keyboard_and_a_hostile_name_is_one_word_to_a_shell(look):
    page = look(f"#/entry/{EVEN}")
    page.get_by_label("Compare with").select_option(HOSTILE)
    page.get_by_role("button", name="Compare").press("Enter")
    expect(page.locator("p.verdict").first).to_have_text(f"{EVEN} is significantly better than {HOSTILE}.")
    assert f"compare {EVEN} '{HOSTILE}' --task" in page.locator(".command code").first.inner_text()
    page.get_by_label("Entry", exact=True).select_option(POOR)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("p.verdict").first).to_have_text(f"{POOR} and {HOSTILE} are not significantly different.")


def test_an_address_of_nothing_says_so(look):
    page = look("#/nonsense")
    for view in ("#/entry/nobody", "#/task/alpha/beauty", "#/%E0%A4%A", "#/compare/a/b", "#/entry/toString", "#/toString"):
        page.goto(page.url.partition("#")[0] + view)
        expect(page).to_have_title(re.compile("^not found"))
        expect(page.locator("h1")).to_have_text("There is no such page")
    page.get_by_role("link", name="All tasks").click()
    expect(page.locator("h1")).to_have_text("alpha")


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_phone_scrolls_tables_and_never_the_page(look, view):
    page = look(view, width=360, height=740)
    page.locator("details").evaluate_all("found => found.forEach((one) => { one.open = true; })")
    assert not re.search(r"\b(null|undefined|NaN)\b", page.locator("main").inner_text())
    for width in (320, 700, 360):
        page.set_viewport_size({"width": width, "height": 740})
        # Drawings follow a narrower window a moment later.
        page.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=width)
    if view == VIEWS["family"]:
        box = page.locator(".scroll").first
        expect(box).to_have_attribute("tabindex", "0")
        for line in page.locator("tbody tr").all():  # the result is beside the entry
            result = line.locator("td.number").first.locator(".mean").bounding_box()
            assert result["x"] > 100 and result["x"] + result["width"] <= 360
        left = box.evaluate("(box) => { box.scrollLeft = 10000; return box.scrollLeft; }")
        assert left > 100
        name = page.locator("tbody th").first.bounding_box()
        assert name["x"] >= 0 and name["x"] + name["width"] <= 250  # the entry is still in sight, and leaves room
        last = page.locator("tbody tr td").last.bounding_box()
        assert last["x"] > name["x"] + name["width"] and last["x"] + last["width"] <= 360


def test_everything_is_reached_by_keyboard_and_seen_to_be(visit):
    page = visit()
    look = """() => {
      const style = getComputedStyle(document.activeElement);
      const box = document.activeElement.getBoundingClientRect();
      const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
      const inside = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0;
      const name = document.activeElement.getAttribute('aria-label') ?? document.activeElement.id;
      return [document.activeElement.innerText?.trim() || name, seen && inside];
    }"""
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, seen = page.evaluate(look)
        assert seen, f"the focus on {name!r} cannot be seen"
        stops.append(name)
        if name == "How boards are made":
            break
    header = ["Skip to the content", "lgbench", "Overview", "Tasks", "All families", "Compare", "Rules", "Glossary"]
    facets = ["alpha", "beta", "all tasks", "alpha-1", "alpha-2", "TVD", "accuracy", "ROC AUC"]
    across = "length\ntraining steps, at length 8 (ID)\ntraining steps, at length 16 (OOD)"
    expected = [*header, *facets, "alpha-1", "alpha-2", "TVD", "quick/1", across, BEST, EVEN, POOR, HOSTILE]
    assert stops[: len(expected)] == expected
    controls = stops[len(expected) :]
    assert controls[0] == "filter" and "Draw all shown" in controls and f"draw {HOSTILE}" in controls
    assert [name for name in controls if name in ("tier", "rank interval", "entry", "seeds", "63")] == [
        "entry", "tier", "rank interval", "seeds", "63", "tier", "rank interval",
    ]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_axe_finds_nothing_wrong(look, view):
    """All rules where it is light; where it is dark, the rules that look at colours, for nothing else differs."""
    page = look(view)
    page.locator("details").evaluate_all("found => found.forEach((one) => { one.open = true; })")
    for scheme, options in (("dark", {"runOnly": ["color-contrast", "link-in-text-block"]}), ("light", None)):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"preload": False, **(options or {})})  # it would fetch the style sheet
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_claim_has_a_page_with_its_paper_its_runs_and_its_verdicts(visit, tmp_path, width):
    entries = {"arch+new": around(0.3), "arch+old": around(0.5, sign=-1, spread=0.1)}
    results = Results(write_runs(tmp_path / "runs", entries))
    write_claim(tmp_path, CLAIM.replace('["alpha"]', '["gamma"]'), "without-runs")
    claims = read_claims(write_claim(tmp_path, CLAIM.replace('["alpha"]', '["alpha", "beta"]')).parent)
    page = visit("#/claims", site.pages(results, judged=[(claim, decide(claim, results)) for claim in claims]), width=width)
    expect(page.locator("nav a[aria-current]")).to_have_text("Claims")
    expect(page.locator("main")).to_contain_text("1 other claim has no verdict from these runs.")
    expect(page.locator(".claims li")).to_have_text([f"{claims[0].claim} {claims[0].source.paper}1 confirmed {QUICK}"])
    page.get_by_role("link", name=claims[0].claim).click()
    expect(page.locator("h1")).to_have_text(claims[0].claim)
    expect(page.locator("p.lead a")).to_have_attribute("href", "https://arxiv.org/abs/0000.00000")
    (row,) = page.locator("section tbody tr").all()
    assert row.locator("th").text_content() == "alpha" and row.locator(".flag").text_content() == "confirmed"
    (verdict, _) = decide(claims[0], results)
    assert row.locator(".mean").text_content() == f"{verdict.difference:+.4f}".replace("-", "−")
    assert page.locator("thead th").all_text_contents() == ["task", "expected", QUICK]
    box = row.locator("td").first.bounding_box()
    assert row.locator("td").first.text_content() == str(verdict.test) and box["x"] + box["width"] < width
    page.locator("summary").click()
    expect(page.locator("details code")).to_contain_text("lgbench run --task beta --arch arch+new,arch+old --seeds 0:5")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page, options={"preload": False})
    assert found.violations_count == 0, found.generate_report()
    runs = page.locator("section", has=page.get_by_role("heading", name="The runs")).locator("li")
    assert runs.all_text_contents() == [f"arch+new: {QUICK}", f"arch+old: {QUICK}", f"arch+new beside arch+old: {QUICK}"]
    runs.first.get_by_role("link").click()
    expect(page.get_by_role("table", name="Results of arch+new").locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", [1280, 390])
def test_own_entries_are_marked_beside_published_ones_and_stand_below_under_other_protocols(visit, tmp_path, width):
    standard = {"protocol": "standard", "protocol_version": PROTOCOLS["standard"].version}
    own, filed = tmp_path / "own", tmp_path / "filed"
    write_runs(filed, {"arch+old": around(0.5), "arch+good": around(0.2, sign=-1)}, **standard)
    write_runs(own / "ranked", {"arch+new": around(0.3)}, **standard)
    write_runs(own / "short", {"arch+new": around(0.1)}, protocol="short", protocol_version=1)
    page = visit("#/task/alpha", site.pages(Results(own, filed)), width=width)
    assert names(page) == ["arch+good", "arch+new *", "arch+old", "arch+new (short/1)"]
    assert set(page.locator(".legend a").all_inner_texts()) == {"arch+good", "arch+new", "arch+old", "arch+new (short/1)"}
    expect(page.locator(".notes")).to_contain_text("Entries with * have runs of yours.")
    expect(page.locator(".notes code")).to_have_text("lgbench run --task alpha --arch arch+new --protocol standard --seeds 0:5")
    assert page.locator("tbody tr").last.locator(".standing").all_inner_texts() == ["–", "–"]
    page.locator("tbody a").last.click()
    expect(page.locator("h1")).to_have_text("arch+new")
    expect(page.get_by_role("navigation", name="Protocol").locator("[aria-current]")).to_have_text("short/1")


def test_the_policy_stops_what_would_get_in(browser, address):
    context = browser.new_context()
    page = context.new_page()
    loaded: list[str] = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(address)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.harmed = 1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.harmed = 1'}))")
    refused = page.evaluate("fetch('https://example.org/').then(() => false, () => true)")
    harmed = page.evaluate("window.harmed ?? null")
    context.close()
    assert refused and harmed is None and all(url.startswith("file:") for url in loaded)


def test_the_grid_has_each_entry_by_families_and_classes_with_the_best_marked_and_grey_beyond_the_baseline(look, index):
    """Its numbers are those of tests/results/test_grid.py."""
    page, (grid, *_) = look("#/"), index["grids"]
    expected = {
        (row["entry"], column["name"]): (cell["mean"], column["context_free"])
        for row in grid["rows"]
        for column, cell in zip(grid["columns"], row["cells"], strict=True)
    }
    columns = ["alpha", "beta", "counter", "star-free"]
    assert page.locator(".grid thead tr:last-child th").all_text_contents() == ["entry", *columns]
    assert page.locator(".grid .above th").all_text_contents() == ["families of tasks", "classes of tasks"]
    lines = page.locator(".grid tbody tr").all()
    entries = [line.locator("th").text_content() for line in lines]
    assert set(entries) == {*site_runs.LEVELS}  # no averages
    best = {column: min(site_runs.LEVELS, key=lambda entry: expected[entry, column][0]) for column in columns}
    grounds = {}
    for entry, line in zip(entries, lines, strict=True):
        for column, cell in zip(columns, line.locator("td").all(), strict=True):
            mean, level = expected[entry, column]
            marked = "★best " if best[column] == entry else ""
            assert cell.text_content() == f"{marked}{100 * mean / level:.0f}"
            ground = cell.evaluate("(cell) => getComputedStyle(cell).backgroundColor")
            grounds.setdefault(mean > level, set()).add(ground)
    assert len(grounds[True]) == 1 and len(grounds[False]) > 2 and not grounds[True] & grounds[False]
    page.locator(".grid tbody td").first.hover()
    told = page.locator("#tooltip dd").all_inner_texts()
    mean, level = expected[entries[0], "alpha"]
    assert told[:4] == [entries[0], "alpha", f"{mean:.4f}", f"{level:.4f}"]


def test_the_first_view_has_a_sentence_the_tasks_a_picture_of_each_family_and_how_to_add_a_model(look):
    page = look("#/")
    expect(page.locator("h1")).to_have_text(re.compile("^lgbench trains sequence models on short inputs, .* survives.$"))
    screen = ["Who stays right beyond the training length", "The tasks", "Add your model"]
    assert page.locator("h2").all_text_contents()[:3] == screen
    for title in screen:
        box = page.get_by_role("heading", name=title).bounding_box()
        assert box["y"] + box["height"] < 900, f"{title} is not on the first screen"
    assert page.locator(".first code").all_inner_texts() == [
        "lgbench run --task alpha --arch ./my_model.py:build --protocol standard --seeds 0:5",
        "lgbench leaderboard --task alpha --with published",
    ]
    assert page.locator(".tasks dt").all_text_contents() == ["alpha", "beta"]
    assert page.locator(".tasks dd").first.text_content() == site_runs.DESCRIBED["alpha-1"]["rule"][0]
    assert page.locator(".pictures figcaption").all_text_contents() == ["alpha", "beta"]
    for picture in page.locator(".pictures .canvas").all():
        expect(picture.locator(ENTRIES)).to_have_count(4)
    page.get_by_role("link", name="All families", exact=True).click()
    expect(page.locator("h1")).to_have_text("All families")


def test_the_first_view_has_own_boards_before_families_of_other_protocols_and_claims_last(visit, tmp_path):
    runs = write_runs(tmp_path / "runs", {"arch+new": around(0.3), "arch+old": around(0.5)})
    write_runs(runs, {"arch+new": around(0.4)}, "beta", protocol="short", protocol_version=1)
    write_runs(runs, {f"arch+{number}": around(0.4) for number in range(14)}, "delta")
    claims = read_claims(write_claim(tmp_path / "claims").parent)
    results = Results(runs)
    made = site.pages(results, judged=[(claim, decide(claim, results)) for claim in claims], docs="../docs")
    page = visit("#/", made)
    assert page.locator("h2").all_text_contents()[-2:] == ["As inputs get longer", "Which published claims hold"]
    assert page.locator(".pictures figcaption").all_text_contents() == ["delta", "alpha", "beta, protocol short/1"]
    assert page.get_by_role("link", name="Docs").get_attribute("href") == "../docs/index.html"
    assert page.get_by_role("link", name="Use any model").get_attribute("href") == "../docs/how-to/use-any-model.html"
    lines = page.locator(".grid tbody tr:visible")
    assert lines.count() < 16
    page.get_by_role("button", name="All 16 entries").press("Enter")
    expect(lines).to_have_count(16)
    page.get_by_role("navigation", name="Protocol").get_by_role("link", name="short/1").click()
    expect(page.locator(".grid thead th")).to_have_text(["entry", "beta"])
    assert page.locator(".pictures figcaption").all_text_contents()[0] == "beta"


def test_of_many_families_those_with_most_entries_come_first_and_the_page_stays_as_wide_as_the_window(visit, tmp_path):
    for number in range(20):
        write_runs(tmp_path, {"arch+new": around(0.3)}, f"family-{number}")
    for entry in ("arch+old", "arch+other"):
        write_runs(tmp_path, {entry: around(0.5)}, "family-7")
    page = visit("#/", site.pages(Results(tmp_path)))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    first = ["family-7", "family-0", "family-1", "family-10", "family-11", "family-12"]
    assert page.locator(".grid thead th").all_text_contents()[:7] == ["entry", *first]
    assert page.locator(".tasks dt").all_text_contents() == page.locator(".pictures figcaption").all_text_contents() == first
    assert page.locator(".grid .best").count() == 1  # the only entry of a family is not its best
    page.get_by_role("link", name="All 20 families of tasks").click()
    families = page.get_by_role("navigation", name="Family").get_by_role("link")
    expect(families).to_have_text(sorted(f"family-{number}" for number in range(20)))


def test_words_explain_themselves_on_focus_and_hover_and_lead_to_the_glossary(look):
    page = look("#/")
    tooltip = page.locator("#tooltip")
    words = {"OOD": "above it", "TVD": "Total variation distance", "context-free baseline": "ignores the context"}
    for word, said in words.items():
        page.locator(".scale").get_by_role("link", name=word, exact=True).focus()
        expect(tooltip).to_contain_text(said)
    expect(page.locator(":focus")).to_have_attribute("aria-describedby", "tooltip")
    page.keyboard.press("Escape")
    expect(tooltip).to_be_hidden()
    page.get_by_role("navigation", name="Protocol").get_by_role("link", name="quick/1", exact=True).hover()
    expect(tooltip).to_contain_text("for seconds")
    page = look("#/task")
    page.locator("tbody a", has_text=f"{BEST}@ema").focus()
    expect(tooltip).to_contain_text("moving average")
    page.get_by_role("columnheader", name="tier").get_by_role("button").focus()
    expect(tooltip).to_contain_text("significantly better")
    page.locator(".notes").get_by_role("link", name="OOD").click()
    expect(page.locator("h1")).to_have_text("Glossary")
    expect(page.locator(":focus")).to_contain_text("in-distribution, ID, out-of-distribution, OOD")


def test_a_task_has_a_page_with_its_rule_published_facts_contexts_board_and_curves(look, boards):
    page, own = look("#/task/alpha-1"), site_runs.DESCRIBED["alpha-1"]
    text = page.locator("main").inner_text()
    for said in (own["about"], *own["rule"], own["reads"], own["trained"], f"Published: {own['published']}."):
        assert said in text
    (context,) = page.locator(".context").all()
    assert context.locator("> code").text_content() == "<b>01</b>"
    assert context.locator("li").all_inner_texts() == ["0 0.25", "end 0.75", "and 4 more"]
    few, many = (bar.bounding_box()["width"] for bar in context.locator(".bar").all())
    assert many == pytest.approx(3 * few)
    assert page.locator(".task-parts a").first.get_attribute("href") == "https://arxiv.org/abs/0000.00000"
    assert names(page) == [row["entry"] for row in boards["tvd", "alpha-1"]["rows"]]
    expect(curves(page).locator(ENTRIES)).to_have_count(4)
    page = look("#/task/alpha")
    assert [term.text_content() for term in page.locator(".tasks dt").all()] == ["alpha-1", "alpha-2"]
    assert page.locator(".tasks dd").first.text_content() == own["about"]


def test_the_published_page_is_light_at_first_and_within_one_protocol():
    """Without curves against training steps, which are loaded when they are chosen; with the runs of one entry."""
    made = site.pages(Results(ROOT / "leaderboards" / "runs"))
    index = index_of(made)
    sizes = {name: len(gzip.compress(text.encode())) for name, text in made.items()}
    number = index["protocols"].index(index["start"]["protocol"])
    metrics = list(dict.fromkeys(board["metric"] for board in index["boards"]))
    page = ("index.html", "page.css", "page.js", "data/index.js")
    first = (*page, f"data/boards-{number}-{metrics.index(index['start']['metric'])}.js")
    assert sum(sizes[name] for name in first) < 0.5e6
    boards = (f"data/boards-{number}-{place}.js" for place in range(len(metrics)))
    runs = max(size for name, size in sizes.items() if name.startswith(f"data/runs-{number}-"))
    assert sum(sizes[name] for name in (*page, *boards)) + runs < 2e6


def test_a_print_has_every_chart_though_nobody_scrolled_to_it(browser, address):
    context = browser.new_context(viewport={"width": 800, "height": 200}, color_scheme="dark")
    page = context.new_page()
    page.goto(address + f"#/compare/{BEST}/{POOR}")
    expect(page.locator(".canvas svg")).to_have_count(4)
    page.emulate_media(media="print")
    tints = "(lines) => lines.map((line) => getComputedStyle(line).color)"  # at once, for charts are drawn anew for a print
    found = page.locator(f".canvas {ENTRIES}").evaluate_all(tints)
    assert len(found) == 8 and len(set(found)) == 2 and page.evaluate("scrollY") == 0
    assert page.pdf().startswith(b"%PDF")
    context.close()


def test_all_families_together_have_the_numbers_of_the_command(look, folder):
    page = look("#/overall")
    (board,) = json.loads(invoked("leaderboard", "--results", folder, "--format", "json").stdout)["overall"]
    expect(page.locator("h1")).to_have_text("All families")
    for line, row in zip(page.locator("tbody tr").all(), board["rows"], strict=True):
        entry, *numbers = line.locator("th, td").all_text_contents()
        shares = [f"{row[name]['value']:.4f} {row[name]['low']:.4f}–{row[name]['high']:.4f}" for name in ("score", "mean")]
        assert (entry, numbers[:2]) == (row["entry"], shares)
        assert numbers[2] == "–".join(map(str, sorted({min(row["ranks_without"]), max(row["ranks_without"])})))
        assert numbers[3:] == ["5", *(f"{value:.4f}" for value in row["families"])]
    expect(page.locator(ENTRIES)).to_have_count(4)  # raw weights alone
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tasks").click()
    expect(page.locator("h1")).to_have_text("alpha")


def test_a_board_has_a_column_against_the_baseline_where_that_is_on_it(visit, folder):
    results = Results(folder)
    (board,) = results.boards("tvd", "alpha", "quick", baseline=BEST)
    page = visit(files=site.pages(results, "quick", BEST))
    header = [text.strip() for text in page.locator("thead tr:last-child th").all_text_contents()]
    column = header.index("against baseline")
    for line, row in zip(page.locator("tbody tr").all(), board.rows, strict=True):
        text, own = line.locator("th, td").all_text_contents()[column], row.against
        if own is None:
            assert (text, row.entry) == ("baseline", BEST)
            continue
        value, low, high = (f"{end:+.4f}".replace("-", "−") for end in (own.difference, own.low, own.high))
        assert text == f"{value}{f' {own.verdict}' if own.verdict else ''} {low} to {high}"
    assert len(page.locator("tfoot").locator("th, td").all()) == len(header)
    page.goto(page.url.partition("#")[0] + "#/overall")
    assert "baseline" in page.locator("tbody").inner_text()


def test_an_entry_shows_what_probes_read_inside_it(visit, tmp_path):
    """Of runs with probes of two layers; an entry without probes has no such section."""
    made = site.pages(Results(site_runs.probed(tmp_path / "runs")))
    page = visit("#/entry/arch+norm", made)
    section = page.locator("section", has=page.get_by_role("heading", name="Inside"))
    assert section.locator("ul.legend li").all_inner_texts() == ["whole model", "layer 1", "layer 2"]
    entropy, gap = section.locator("figure").all()
    assert entropy.locator("figcaption").inner_text() == "entropy of the attention weights (nats)"
    assert entropy.locator("path.curve").count() == 2 and gap.locator("path.curve").count() == 1
    described = entropy.get_by_role("img").get_attribute("aria-label")
    assert described == "entropy of the attention weights (nats) against length, 2 lines, between 11.5 and 14.5"
    entropy.locator("svg").hover(position={"x": 40, "y": 40})
    told = page.locator("#tooltip dt").all_inner_texts(), page.locator("#tooltip dd").all_inner_texts()
    assert told == (["length", "layer 1", "layer 2"], ["8", "12.5", "14.5"])
    page.goto(page.url.partition("#")[0] + "#/entry/other")
    expect(page.locator("h1")).to_have_text("other")
    expect(page.get_by_role("heading", name="Inside")).to_have_count(0)
