"""The published boards are what the published runs say, and the runs are such as could be submitted today."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import product, takewhile

import numpy as np
import pytest
from helpers.claim_files import around, write_runs
from helpers.filed import check_filed
from helpers.folders import ROOT
from scipy import stats
from statsmodels.api import OLS
from statsmodels.stats.multitest import multipletests

from lgbench import RunOptions
from lgbench.claims.claim import read_claim
from lgbench.cli.main import main
from lgbench.cli.options import split
from lgbench.execution.command import Command
from lgbench.execution.progress import ProgressDisplay
from lgbench.experiment.components import families_of, find_entries, find_tasks
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.registry import Registry
from lgbench.reports import plots
from lgbench.reports.figure import GRID
from lgbench.results import run_files
from lgbench.results.leaderboard import Inside, Results
from lgbench.results.stored_runs import stored
from lgbench.submissions.inspection import inspected

pytestmark = pytest.mark.usefixtures("all_plugins")

LEADERBOARDS = ROOT / "leaderboards"
MODULES = ("findings", "factors", "queries", "internals", "classes", "field", "lengths", "predictors", "generate", "tuned")


@pytest.fixture(scope="module")
def scripts():
    """The modules of the folder, which find each other as they do when `make boards` runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(LEADERBOARDS)
        patch.delitem(sys.modules, "generate", raising=False)  # plugins/ has a script of that name, which other tests load
        return {name: importlib.import_module(name) for name in MODULES}


@pytest.fixture(scope="module")
def findings(scripts):
    return scripts["findings"]


@pytest.fixture(scope="module")
def generate(scripts):
    return scripts["generate"]


@pytest.fixture(scope="module")
def results():
    return Results(LEADERBOARDS / "runs")


@pytest.fixture(scope="module")
def judged(scripts, results):
    """The claims of the page of the field with their verdicts."""
    return scripts["field"].judged(results)


@pytest.fixture(scope="module")
def swept():
    """The runs of the page on what is inside of models."""
    return Results(LEADERBOARDS / "inside" / "runs")


@pytest.fixture(scope="module")
def filed():
    """Metadata of all published runs."""
    return [own for path in run_files.find(LEADERBOARDS / "runs") for own in run_files.metadata_of_runs(path).values()]


@pytest.mark.slow
def test_everything_generated_is_what_the_runs_say(generate, results, swept):
    assert not results.left_out and not swept.left_out
    assert not generate.stale(results, swept), "run `make boards`"


def test_no_measured_number_of_a_page_is_typed(generate):
    """Decimals stand in queries and tables alone, except those of other people's numbers and of settings."""
    # Rates and margins, then numbers of other people and of settings.
    allowed = {"0.01", "0.1", "0.3", "0.0005", "0.001", "0.0014", "0.002", "0.0028", "0.004", "0.006", "0.016", "0.02", "0.027"}
    allowed |= {"0.00333", "0.025", "0.00577", "0.05", "0.59", "0.9", "0.95", "0.97", "1.25", "1.7", "2.13", "3.2"}
    for template in (*generate.HERE.glob("*.md.jinja"), *generate.INSIDE.glob("*.md.jinja")):
        text = template.read_text(encoding="utf-8")
        prose = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|```.*?```|arXiv\s+\d{4}\.\d{5}", "", text, flags=re.DOTALL)
        assert set(re.findall(r"\b\d+\.\d+\b", prose)) <= allowed


def test_findings_are_read_in_one_go(generate):
    """Tables included: a longer page is not read, and each sentence that is added looks short by itself."""
    assert len((generate.HERE / "README.md").read_text(encoding="utf-8").split()) <= 5000


def test_a_sentence_that_the_runs_do_not_bear_out_stops_the_page(scripts, results, swept):
    queries = scripts["queries"].Queries(results, swept)
    assert queries.better("post-norm", "no-norm", "set-complement").startswith("-0.1")
    with pytest.raises(scripts["queries"].Stale, match="is better, not worse"):
        queries.worse("post-norm", "no-norm", "set-complement")


def test_a_rank_correlation_over_entries_is_that_of_scipy_over_their_means(scripts, results, swept):
    sql = """with measured as (
            select run_id, entry, metric, step, value from results where task = 'dictionary-lookup' and length = 128
            and protocol_version = 7 and weights = 'raw' and metric in ('tvd', 'attention_on_source')
        ), last as (select run_id, max(step) as step from measured group by run_id),
        ended as (select run_id, entry, metric, value from measured join last using (run_id, step))
        select avg(a.value), avg(b.value) from ended a join ended b using (run_id)
        where a.metric = 'tvd' and b.metric = 'attention_on_source' group by a.entry"""
    pairs = results.connection.execute(sql).fetchall()
    found = scripts["queries"].Queries(results, swept).correlation("attention_on_source", "dictionary-lookup", 128)
    expected = stats.spearmanr(*zip(*pairs, strict=True)).statistic
    assert found.startswith(f"{expected:.2f} [") and found.endswith(f"(n = {len(pairs)})")


def test_models_that_are_the_same_count_once_in_a_rank_correlation(scripts, results, swept):
    """Of the twelve norm schemes eight are models of their own in one layer without MLP, as on set complement."""
    asked = {"metric": "logit_separation", "protocol": "standard/7"}
    ((_, probes),) = results.models(asked["metric"], "set-complement", asked["protocol"], inside=Inside(None))
    raw = [entry for entry in probes.entries if "@" not in entry]
    found = scripts["queries"].Queries(results, swept).correlation("logit_separation", "set-complement", 56)
    assert found.endswith(f"(n = {len(raw) - 4})")


def test_differences_less_a_task_since_a_version_and_at_a_length_are_those_of_scipy(scripts, results, swept):
    queries = scripts["queries"].Queries(results, swept)
    sql = """select seed, avg(if(entry like '%+post-norm', value, null)) - avg(if(entry like '%+no-norm', value, null))
        from (select entry, seed, task, avg(value) as value from final where family = 'tomita' and task != 'tomita-2'
            and metric = 'tvd' and weights = 'raw' and on_boards and not in_distribution and protocol = 'standard'
            and protocol_version = 7 and entry in ('transformer+post-norm', 'transformer+no-norm') group by all)
        group by seed"""
    found = queries.without("undecided", "post-norm", "no-norm", "tomita", "tomita-2")
    assert found == spelt([gap for _, gap in results.connection.execute(sql).fetchall()])
    sql = """select seed, sum(if(protocol_version = 7, value, -value)) from final where task = 'tomita-7' and metric = 'tvd'
        and weights = 'raw' and length = 512 and entry = 'olmo-hybrid' and protocol = 'standard' and protocol_version >= 6
        group by seed"""
    found = queries.since("undecided", "olmo-hybrid", "tomita-7", "standard/6", length=512)
    assert found == spelt([gap for _, gap in results.connection.execute(sql).fetchall()])
    with pytest.raises(scripts["queries"].Stale, match="is undecided, not better"):
        queries.since("better", "olmo-hybrid", "tomita-7", "standard/6", length=512)
    sql = """select seed, sum(if(entry = 'lstm', value, -value)) from final where task = 'tomita-6' and metric = 'tvd'
        and weights = 'raw' and length = 512 and entry in ('lstm', 'transformer+pre-norm') and protocol = 'standard'
        and protocol_version = 7 group by seed having count(*) = 2"""
    found = queries.judged_at("better", "lstm", "pre-norm", "tomita-6", 512)
    assert found == spelt([gap for _, gap in results.connection.execute(sql).fetchall()])
    sql = """select seed, sum(if(weights = 'ema', value, -value)) from (select seed, weights, avg(value) as value from final
        where task = 'othello' and metric = 'tvd' and weights in ('raw', 'ema') and on_boards and not in_distribution
            and entry = 'transformer+pre-norm' and protocol = 'standard' and protocol_version = 7 group by all) group by seed"""
    found = queries._gaps(("pre-norm@ema", "pre-norm"), "othello", None, ("standard/7", "standard/7"))
    assert sorted(found) == pytest.approx(sorted(gap for _, gap in results.connection.execute(sql).fetchall()), abs=2e-4)


def test_an_entry_that_is_not_ahead_of_every_norm_scheme_is_stale(scripts, results, swept):
    queries = scripts["queries"].Queries(results, swept)
    assert queries.ahead_of_schemes("lstm", "tomita") == queries.better("lstm", queries.best_scheme("tomita"), "tomita")
    with pytest.raises(scripts["queries"].Stale, match="rope against .* on dictionary-lookup is worse, not better"):
        queries.ahead_of_schemes("pre-norm+rope", "dictionary-lookup")


def spelt(gaps):
    low, high = stats.ttest_1samp(gaps, 0).confidence_interval()
    return f"{np.mean(gaps):+.3f} [{low:+.3f}, {high:+.3f}]"


def test_pairs_that_are_left_after_the_correction_are_those_of_statsmodels(scripts, results, swept):
    others = ("no-norm", "post-norm", "peri-norm", "olmo2-norm", "output-norm", "attention-layer-norm", "pre-norm+rope")
    sql = """select entry, seed, value from final where task = 'max-retrieval' and metric = 'tvd' and weights = 'raw'
        and on_boards and not in_distribution and protocol = 'standard' and protocol_version = 7"""
    rows = results.connection.execute(f"select entry, seed, avg(value) from ({sql}) group by all").fetchall()
    means = {(entry.removeprefix("transformer+"), seed): mean for entry, seed, mean in rows}
    p = []
    for other in others:
        seeds = [seed for entry, seed in means if entry == other and ("pre-norm", seed) in means]
        p.append(stats.ttest_1samp([means[other, seed] - means["pre-norm", seed] for seed in seeds], 0).pvalue)
    left = [other for other, sure in zip(others, multipletests(p, 0.05, "holm")[0], strict=True) if sure]
    found = (
        scripts["queries"].Queries(results, swept).corrected([(o, "pre-norm") for o in others], "max-retrieval", "standard/7")
    )
    assert found == f"{', '.join(left)} against pre-norm".replace("pre-norm+", "") and 0 < len(left) < len(others)


def test_effects_of_norms_are_those_of_a_regression_on_their_places(scripts):
    """Without noise within cells OLS with effect coding gives the same means; intervals are those of SciPy's one-sample t."""
    factors, draw = scripts["factors"], np.random.default_rng(0)
    values = draw.normal(size=(2, 2, 3, 5))
    found = {each.title: each for each in factors.contrasts("dyck", values)}
    rows = [(i, o, s, values[i, o, s].mean()) for i in range(2) for o in range(2) for s in range(3)]
    i, o, s, y = (np.array(column) for column in zip(*rows, strict=True))
    design = np.stack([np.ones(12), i - 0.5, o - 0.5, s == 1, s == 2, (i - 0.5) * (o - 0.5)], 1)
    fitted = OLS(y, design).fit().params
    titles = (
        "on the input",
        "on the output",
        "on the sum, after the residual",
        "on the sum, before the logits",
        "input x output",
    )
    assert [found[title].mean for title in titles] == pytest.approx(fitted[1:].tolist())
    by_seed = (values[:, 1] - values[:, 0]).mean((0, 1))
    low, high = stats.t.interval(0.95, 4, by_seed.mean(), stats.sem(by_seed))
    assert (found["on the output"].low, found["on the output"].high) == pytest.approx((low, high))


def asked_by(script, tmp_path):
    """The options of each `lgbench run` of a script, as a stub in place of lgbench gets them."""
    stub = tmp_path / "lgbench"
    stub.write_text('#!/bin/sh\necho "$@"\n')
    stub.chmod(0o755)
    environment = os.environ | {"LGBENCH": str(stub)}
    done = subprocess.run([LEADERBOARDS / script, "there"], env=environment, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        command, *words = shlex.split(line)
        options = main.commands[command].make_context(command, words).params
        assert options["protocol"] in PROTOCOLS and str(options["results"]) == "there"
        yield options


def as_number(value):
    """A setting as a number, where it is one: 1e-9 is written in several ways."""
    try:
        return float(value)
    except ValueError:
        return value


def named_by(options, registry):
    """The tasks and entries of a `lgbench run`."""
    tasks = [task.label for task in find_tasks(split(options["task"]), registry)]
    return tasks, [*find_entries(split(options["arch"]), registry)]


def test_the_script_of_the_published_runs_asks_for_what_there_is_and_can_be_submitted(registry, tmp_path):
    built_in, registry, asked = registry, Registry.load(), set()
    for options in asked_by("grid.sh", tmp_path):
        tasks, entries = named_by(options, registry)
        assert 0 < PROTOCOLS[options["protocol"]].submitted_seeds <= len(options["seeds"])
        asked |= {(options["protocol"], task, entry) for task in tasks for entry in entries}
    every = {task.name for task in built_in.tasks}  # tasks of packs have no published runs
    for entry in ("transformer+post-norm", "lstm", "transformer+pre-norm+rope"):
        assert {task for protocol, task, own in asked if (protocol, own) == ("standard", entry)} == every


def test_the_script_of_the_field_asks_for_whole_families_and_all_that_its_claims_and_classes_lack(scripts, judged, tmp_path):
    """`lgbench submit` takes whole families."""
    registry, asked = Registry.load(), {}
    families = families_of(registry)
    for options in asked_by("field.sh", tmp_path):
        tasks, entries = named_by(options, registry)
        assert options["protocol"] == "standard" and len(options["seeds"]) >= PROTOCOLS["standard"].submitted_seeds
        assert all({*tasks} >= {*own} or {*tasks}.isdisjoint(own) for own in families.values())
        asked |= {(task, entry): options["seeds"] for task in tasks for entry in entries}
    classes = scripts["classes"]
    for kind, tasks in classes.CLASSES.items():
        assert {find_tasks([task], registry)[0].thing.facts.kind for task in tasks} == {kind}
        assert asked.keys() >= {*product(tasks, classes.ENTRIES)}
    for claim, verdicts in judged:
        for wanted in (each for verdict in verdicts for each in verdict.wanted):
            assert {*asked[wanted.task, wanted.arch]} >= {*wanted.seeds}, claim.name


def test_the_script_of_training_lengths_asks_for_the_languages_of_the_picture(scripts, tmp_path):
    lengths, registry = scripts["lengths"], Registry.load()
    asked = [(*named_by(options, registry), options["set"]) for options in asked_by("lengths.sh", tmp_path)]
    assert [changes for _, _, changes in asked] == [{lengths.SETTING: [str(n)]} for n in (8, 16, 32, 64, 128)]
    for tasks, entries, _ in asked:
        assert {*tasks} == {"tomita-2", *(task for own in lengths.TASKS.values() for task in own)}
        assert entries == [lengths.ENTRY]
    for title, tasks in lengths.TASKS.items():
        facts = [find_tasks([task], registry)[0].thing.facts for task in tasks]
        assert [own.c_rasp for own in facts] == [title.startswith("with ")] * 8


def test_the_picture_of_training_lengths_has_the_longest_right_length_of_the_median_seed(scripts, tmp_path):
    """Of made-up runs, half of whose values are right where the guess is exact or bad, and a fifth where it is good."""
    lengths, expected = scripts["lengths"], {}
    random = np.random.default_rng(49)  # medians of less than 1, of 1, of 2 and of more training lengths
    tested = (1, 2, 4, 8, 16, 32)
    guess = dict(zip(tested, (0.0, 0.2, 0.2, 0.04, 0.2, 0.2), strict=True))
    limit = dict(zip(tested, (0.05, 0.05, 0.05, 0.02, 0.05, 0.05), strict=True))
    for task, trained in product(("regular-d-2", "tomita-5"), (4, 8)):
        values = random.uniform(0, 2 * lengths.RIGHT, (3, 6)) * random.uniform(0, 1, (3, 1))
        runs = [dict(zip(tested, own.tolist(), strict=True)) for own in values]
        changes = [("train.max_length", str(trained))]
        entries = {lengths.ENTRY: runs, f"{lengths.ENTRY}@chance": [guess] * 3}
        write_runs(tmp_path / f"{task}-{trained}", entries, task, trained=trained, changes=changes)
        right = [list(takewhile(lambda length, own=own: own[length] < limit[length], own)) for own in runs]
        expected[task, trained] = [max(own, default=0) for own in right]
    found = lengths.reaches(Results(tmp_path))
    assert {(reach.task, reach.trained): [*reach.right_to] for reach in found} == expected
    medians = {each: sorted(own)[1] for each, own in expected.items()}
    assert len({*medians.values()}) > 2
    header, _, *rows = lengths.table(found)
    assert header[1:] == [
        "a program, within",
        "a program, 2 times",
        "a program, 4 times",
        "none, within",
        "none, 2 times",
        "none, 4 times",
    ]
    for trained, row in zip((4, 8), rows, strict=True):
        ends = [medians[task, trained] for task in ("regular-d-2", "tomita-5")]
        assert row == [str(trained), *(f"{end >= times * trained:d} of 1" for end in ends for times in (1, 2, 4))]
    low, high = sorted(
        ("≥" if medians["regular-d-2", trained] == 32 else "") + f"{medians['regular-d-2', trained] / trained:g}"
        for trained in (4, 8)
    )
    assert lengths.multiples(found) == f"regular-d-2 {low} to {high}"
    drawn = json.dumps(lengths.picture(found), ensure_ascii=False)
    for (task, trained), end in medians.items():
        learned = sum(own >= trained for own in expected[task, trained])
        assert f'"{"≥" * (end == 32)}{end}{f" ({learned})" if learned < 3 else ""}"' in drawn
    missed = sum(end < trained for (_, trained), end in medians.items())
    assert grey(lengths.picture(found), tmp_path / "lengths.svg") == missed > 0


def test_the_picture_of_training_lengths_has_whole_strings_of_equal_blocks(scripts, tmp_path):
    """All but one of a string's answers need no count."""
    changes = [("train.max_length", "8")]
    for metric, ends in (("tvd", [0.01, 0.01, 0.01]), ("exact_match", [1.0, 0.95, 0.85])):
        runs = [dict(zip((8, 16, 32), ends, strict=True))] * 3
        write_runs(tmp_path, {scripts["lengths"].ENTRY: runs}, "counter-2", metric=metric, trained=8, changes=changes)
    (reach,) = scripts["lengths"].reaches(Results(tmp_path))
    assert reach.right_to == (16, 16, 16)


def test_a_model_that_is_exact_for_runs_of_twos_that_it_trained_on_sets_the_value_of_the_language_of_twos(scripts):
    """{0,1,2}*02* in closed form.

    A context of length L ends in a run of k twos, k uniform from 0 to L - 1, after 0 or 1. So of its L + 1 prefixes k - R end
    in a run of more than R twos. There the answers are uniform over four or over three classes, half of the time each, and the
    total variation distance of their mean to either is 1/8. Longer runs elsewhere are negligible.
    """

    def blind(trained, length):
        return sum(max(0, run - trained) for run in range(length)) / length / (length + 1) / 8

    assert [blind(50, length) for length in (64, 128, 512)] == pytest.approx([0.003, 0.023, 0.051], abs=1e-3)
    for name in ("c-rasp-nope", "c-rasp-positions"):
        (test,) = (
            test for task, test in read_claim(LEADERBOARDS / "claims" / f"{name}.toml").parts if task == "regular-012-0-2"
        )
        assert (test.expect, test.lengths) == ("worse", (512,)) and test.value == pytest.approx(blind(50, 512) / 2, abs=2e-3)
    lengths = (8, 16, 32, 64, 128, 256, 512)
    reached = [
        max(length for length in lengths if blind(trained, length) < scripts["lengths"].RIGHT) for trained in lengths[:5]
    ]
    assert reached == [64, 128, 256, 512, 512]  # eight times as far, as field.md says


def grey(spec, path):
    """Number of grey cells of a drawn picture."""
    plots.write(spec, path)
    return path.read_text(encoding="utf-8").count(f'fill="{GRID}"')


def test_the_table_by_task_has_the_parts_of_the_scores_of_classes(scripts, results):
    classes, compared = scripts["classes"], 0
    header, _, *rows = classes.by_task(results)
    assert [row[1] for row in rows] == [task for tasks in classes.CLASSES.values() for task in tasks]
    for score in classes.scores(results):
        column = header.index(f"`{classes._short(score.entry)}`")
        cells = [row[column] for row in rows if row[1] in classes.CLASSES[score.kind]]
        shares, fitted, seeds = zip(*(re.match(r"([\d.]+) \((\d+)/(\d+)\)", cell).groups() for cell in cells), strict=True)
        each = [*map(int, fitted)]
        assert min(each) >= score.fits
        if len({*seeds}) == 1:  # otherwise the class has fewer seeds than some of its tasks
            compared += 1
            assert score.fits >= sum(each) - (len(each) - 1) * len(score.seeds)  # equal if no seed fails on two tasks
            assert np.mean([float(share) for share in shares]) == pytest.approx(score.seeds.mean(), abs=6e-4)
    assert compared > 30
    (parity,) = (dict(zip(header, row, strict=True)) for row in rows if row[1] == "parity-check")
    assert parity["`pre-norm`"].endswith("(0/5)") and parity["`lstm`"].endswith("(5/5)")


def test_a_class_that_no_seed_fits_is_grey(scripts, tmp_path):
    classes = scripts["classes"]
    fits = (5, 0, 0, 1, 5)
    found = [classes.Score("lstm", kind, np.ones(5), own) for kind, own in zip(classes.CLASSES, fits, strict=False)]
    assert grey(classes.picture(found), tmp_path / "classes.svg") == 2


def test_entries_that_fit_a_class_at_every_seed_are_named(scripts):
    classes = scripts["classes"]
    names = ("lstm", "stack-rnn", "transformer+peri-norm", "transformer+pre-norm")
    fits = {"recall": (5, 4, 0, 0), "games": (0, 4, 0, 0), "counter": (5, 5, 1, 5)}
    found = [classes.Score(name, kind, np.ones(5), n) for kind, own in fits.items() for name, n in zip(names, own, strict=True)]
    told = "recall (`lstm`), games (none), counter (`lstm`, `stack-rnn`, `pre-norm`)"
    assert classes.fitted(found) == told


def test_the_predictions_of_the_chomsky_benchmark_that_rest_on_memory_are_counted():
    """By the tables of the page: decided there are those that are confirmed or refuted, which some seed fits."""
    page = (LEADERBOARDS / "field.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    (header,) = (line for line in lines if line[:2] == ["task", "rnn"])
    names = ["pre-norm" if name == "transformer" else name for name in header]
    rows = lines[lines.index(header) + 2 :][:15]
    unread = {(row[0], name) for row in rows for name, cell in zip(names, row, strict=True) if cell.startswith("? / ")}
    about, decided = "", []
    for row in page.split("| claim | prediction |")[1].split("## The Chomsky benchmark")[0].splitlines()[2:]:
        if row.startswith("|"):
            claim, test, confirmed, refuted, *_ = (cell.strip() for cell in row.strip("|").split("|"))
            about = claim or about
            if "Chomsky benchmark" in about:
                told = re.findall(r"([a-z-]+) \d\.\d{3} \(([0-9]+)/", f"{confirmed}, {refuted}")
                decided += [(task, test.split()[0]) for task, fitted in told if int(fitted)]
    told = f"Of the {len(decided)} predictions decided there, {len(unread.intersection(decided))} rest on such a result."
    assert len(unread) == 45 - 5 and decided and told in page


def test_the_score_of_a_class_is_the_mean_share_of_the_baseline_over_its_tasks(scripts, results):
    sql = """with means as (
            select task, weights, seed, avg(value) as mean from results
            where metric = 'tvd' and on_boards and step = 6000 and length > 40 and entry = 'lstm' and protocol_version = 7
                and task in ('parity-check', 'tomita-3', 'tomita-5', 'tomita-6') and weights in ('raw', 'chance')
            group by all)
        select seed, avg(own.mean / baseline.mean) from means as own join means as baseline using (task, seed)
        where own.weights = 'raw' and baseline.weights = 'chance' group by all having count(*) = 4 order by seed"""
    expected = [share for _, share in results.connection.execute(sql).fetchall()]
    (score,) = (each for each in scripts["classes"].scores(results) if each[:2] == ("lstm", "regular with groups"))
    assert score.seeds == pytest.approx(expected, abs=1e-4) and len(expected) >= 5


def test_the_table_of_classes_has_the_entries_in_the_order_of_the_picture(scripts):
    classes = scripts["classes"]
    ran = classes.ENTRIES[::-2]
    found = [classes.Score(entry, kind, np.ones(5), fits=5) for entry, kind in zip(ran, classes.CLASSES, strict=False)]
    _, _, *rows = classes.table(found)
    assert [row[0].strip("`") for row in rows] == [entry.split("+")[-1] for entry in ran[::-1]]
    assert all(len([cell for cell in row if cell != "-"]) == 2 for row in rows)


def test_our_best_seed_and_mean_stand_beside_the_published_accuracy_of_the_same_network(scripts, tmp_path):
    for version, mean in ((6, 0.9), (7, 0.73)):
        lstm = [{8: 1.0, 16: mean + noise, 32: mean + noise} for noise in (0.02, -0.03, 0.01)]
        columns = {"task": "parity-check", "protocol": "standard", "protocol_version": version}
        write_runs(tmp_path / str(version), {"lstm": lstm, "rnn": [{8: 0.2, 16: 0.3}]}, metric="accuracy", **columns)
        # TVD decides whether a seed fits.
        write_runs(tmp_path / str(version), {"lstm": around(0.5, seeds=3), "rnn": [{8: 0.8, 16: 0.7}]}, **columns)
    lines = [line.strip("| ").split(" | ") for line in scripts["field"].chomsky(Results(tmp_path)).splitlines()]
    table = {task: dict(zip(lines[0][1:], own, strict=True)) for task, *own in lines[2:]}
    assert len(table) == 15 and table["parity-check"] | {"lstm": ""} == {
        "rnn": r"100 / 30.0 (30.0)\*",  # no seed fits
        "stack-rnn": "100 / not run",
        "tape-rnn": "100 / not run",
        "transformer": "52.0 / not run",
        "lstm": "",
    }
    assert table["parity-check"]["lstm"] == "100 / 75.0 (73.0)" and table["bucket-sort"]["lstm"] == "? / not run"


def test_every_prediction_stands_once_on_the_page_of_the_field(scripts, judged):
    field = scripts["field"]
    rows = [line.split(" | ")[2:] for line in field.predictions(judged).splitlines()[2:]]
    cells = [told for row in rows for cell in row for told in cell.strip("| ").split(", ") if told]
    tasks = [told.split()[0].rstrip("\u2020") for told in cells]
    assert len(rows) == sum(len(claim.tests) for claim, _ in judged)
    assert sorted(tasks) == sorted(task for claim, _ in judged for task, _ in claim.parts)
    counts = re.findall(r"of (\d+) predictions|(\d+) (?:not fitted|met by|not run)", field.summary(judged))
    assert sum(int(number) for pair in counts for number in pair if number) == len(tasks)


def test_a_prediction_has_its_mean_or_difference_and_the_seeds_that_fit(scripts, results, judged):
    """Against the values of seeds, as SQL has them."""
    shown = scripts["field"].predictions(judged)
    for name, entries in (("chomsky-lstm", ["lstm"]), ("negative-eigenvalues-parity", ["deltanet-negative", "deltanet"])):
        ((_, verdicts),) = [(claim, own) for claim, own in judged if claim.name == name]
        verdict = next(own for own in verdicts if len(own.test.entries) == len(entries) and own.task == "parity-check")
        means = [np.mean([*_by_seed(results, verdict, entry).values()]) for entry in verdict.test.entries]
        assert [entry.rsplit("+")[-1] for entry in verdict.test.entries] == entries
        told = f"{means[0]:.3f}" if len(means) == 1 else f"{means[0] - means[1]:+.3f}"
        assert f"parity-check {told} ({verdict.fitted}/{verdict.n})" in shown
    dagger = next(own for _, verdicts in judged for own in verdicts if own.blind)
    assert f"{dagger.task}\u2020 {dagger.first:.3f}" in shown
    told = sum(own.is_telling for _, verdicts in judged for own in verdicts)
    counted = sum(own.state != "not run" for _, verdicts in judged for own in verdicts)
    assert scripts["field"].untold(judged).startswith(f"{counted - told} of {counted} ")


def test_a_table_by_length_has_the_tasks_with_a_program_that_a_guess_does_not_do(scripts, results, judged):
    _, _, *lines = scripts["field"].by_length(results, judged).splitlines()
    rows = {tuple(cell.strip("` ") for cell in line.strip("|").split("|")[:4]): line for line in lines}
    claims = {claim.name: verdicts for claim, verdicts in judged}
    for name, entry in (("c-rasp-nope", "pre-norm"), ("c-rasp-positions", "pre-norm+coupled")):
        expected = [own.task for own in claims[name] if own.test.expect == "better" and own.fitted and not own.blind]
        assert [task for transformer, task, *_ in rows if transformer == entry] == expected
    sql = """select length, avg(value) from results where task = 'regular-d-3' and entry = 'transformer+pre-norm'
        and metric = 'tvd' and weights = 'raw' and step = 6000 and length in (64, 512) group by length order by length"""
    near, far = (mean for _, mean in results.connection.execute(sql).fetchall())
    line = rows["pre-norm", "regular-d-3", "50", "tvd"]
    assert f"| {near:.3f} [" in line and f"| {far:.3f} [" in line


def test_copying_is_told_by_symbols_for_every_model_of_its_claim(scripts, results, judged):
    _, _, *lines = scripts["field"].copying(results, judged).splitlines()
    rows = {line.split("|")[1].strip("` "): line for line in lines}
    assert {*rows} == {"pre-norm", "pre-norm+rope", "pre-norm+mamba-2", "lstm"}
    sql = """select avg(value) from results where task = 'copy-unique' and entry = 'lstm' and metric = 'accuracy'
        and weights = 'raw' and step = 6000 and on_boards and not in_distribution"""
    ((mean,),) = results.connection.execute(sql).fetchall()
    assert f"{mean:.3f} [" in rows["lstm"] and "(0/5)" in rows["lstm"]


def test_predictions_of_programs_are_those_of_the_facts_of_the_tasks(scripts, judged):
    """With a program in C-RASP, "better" is expected, and "worse" without one. Tasks of other packs have no such facts."""
    tasks = Registry.load().tasks
    lines = scripts["field"].programs(judged).splitlines()[2:]
    for name, fact in (("c-rasp-nope", "c_rasp"), ("c-rasp-positions", "c_rasp_positions")):
        ((claim, verdicts),) = [(claim, verdicts) for claim, verdicts in judged if claim.name == name]
        known = {
            verdict.task: (getattr(tasks[verdict.task].facts, fact, None), verdict.test.expect == "better")
            for verdict in verdicts
        }
        assert {(has, better) for has, better in known.values() if has is not None} == {(True, True), (False, False)}
        shown = [line for line in lines if f"`{claim.tests[0].entry.removeprefix('transformer+')}`" in line]
        counts = [re.findall(r"of (\d+) predictions?|(\d+) (?:not fitted|met by|not run)", line) for line in shown]
        totals = [sum(int(number) for pair in own for number in pair if number) for own in counts]
        assert totals == [sum(expected is better for _, better in known.values()) for expected in (True, False)]


def test_the_runs_of_the_page_on_internals_are_those_that_its_script_asks_for(tmp_path, swept, monkeypatch):
    monkeypatch.syspath_prepend(LEADERBOARDS / "inside")
    registry, asked = Registry.load(files=importlib.import_module("pack").PLUGINS), set()
    for options in (*asked_by("inside/sweeps.sh", tmp_path), *asked_by("lengths.sh", tmp_path)):
        tasks, entries = named_by(options, registry)
        given = [(name, value) for name, values in options["set"].items() for value in ",".join(values).split(",")]
        changes = [(name, as_number(value)) for name, value in given]
        changes.append(("precision", options["precision"]))
        asked |= {(task, entry, change) for task in tasks for entry in entries for change in changes}
    rows = swept.connection.execute("select distinct task, entry, changes from results where entry is not null").fetchall()
    assert rows
    for task, entry, changes in rows:  # a setting at the protocol's own value is no change
        assert all((task, entry, (name, as_number(value))) in asked for name, value in dict(changes).items())


def test_runs_of_a_sweep_are_packed_once_and_as_they_were(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(LEADERBOARDS / "inside")
    pack, (first, *_) = importlib.import_module("pack"), sorted((LEADERBOARDS / "inside" / "runs").glob("max-retrieval.*"))
    results, packed = tmp_path / "results", tmp_path / "packed"
    for folder in (results, packed):
        folder.mkdir()
    shutil.copy(first, results)
    pack.main(results, packed)
    (written,) = packed.iterdir()
    assert run_files.metadata_of_runs(written) == run_files.metadata_of_runs(first)
    assert run_files.read(written).equals(run_files.read(first))
    pack.main(results, packed)
    assert list(packed.iterdir()) == [written]
    runs = len(run_files.metadata_of_runs(first))
    assert capsys.readouterr().out.splitlines() == [
        f"{runs} runs written to {packed}, 0 there before",
        f"0 runs written to {packed}, {runs} there before",
    ]


@pytest.mark.slow
def test_further_seeds_take_the_learning_rate_of_the_published_ones(scripts, results, tmp_path):
    scripts["tuned"].main(str(tmp_path), "set-complement", "lstm")
    wanted = RunOptions(["set-complement"], ["lstm"], seeds=[7], average=(), protocol="standard", results=tmp_path)
    (experiment,) = Command.of(wanted, Registry.load(), ProgressDisplay()).rates.tuned()  # without a training
    sql = """select distinct value from results where metric = 'learning_rate' and task = 'set-complement' and entry = 'lstm'
        and protocol_version = 7"""
    assert results.connection.execute(sql).fetchall() == [(experiment.record.train.lr,)]


@pytest.mark.slow
def test_verdicts_of_claims_are_those_of_the_runs(findings, results):
    """Each is computed again from the values of seeds, as SQL and SciPy have them, where it rests on a family of one task."""
    page = (LEADERBOARDS / "claims.md").read_text(encoding="utf-8")
    for claim, verdicts in findings.judged(results):
        assert claim.claim in page
        for verdict in (v for v in verdicts if v.tasks == 1 and v.n and v.test.against and v.test.lengths == "OOD"):
            first, second = (_by_seed(results, verdict, entry) for entry in verdict.test.entries)
            gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
            assert verdict.n == len(gaps) and verdict.difference == pytest.approx(sum(gaps) / len(gaps), abs=5.1e-5)
            sign = -1 if verdict.test.metric == "tvd" else 1
            if verdict.state in ("confirmed", "refuted") and verdict.test.expect == "better":
                beyond = stats.ttest_1samp([sign * gap for gap in gaps], verdict.test.margin)
                assert (beyond.statistic > 0) == (verdict.state == "confirmed")
            if verdict in findings.shown(verdicts):
                assert f"{verdict.state}" in page and f"{verdict.difference:+.3f}" in page


def _by_seed(results, verdict, entry):
    """The mean over the board's OOD lengths of each seed, at the end of its training."""
    name, _, weights = entry.partition("@")
    sql = """with measured as (
            select seed, step, value from results where task = $task and entry = $entry and weights = $weights
            and metric = $metric and protocol = $protocol and protocol_version = $version and on_boards and not in_distribution
        )
        select seed, avg(value) from measured where step = (select max(step) from measured) group by seed"""
    asked = {"task": verdict.task, "entry": name, "weights": weights or "raw", "metric": verdict.test.metric}
    asked |= {"protocol": verdict.protocol.name, "version": verdict.protocol.version}
    return dict(results.connection.execute(sql, asked).fetchall())


@pytest.mark.slow
def test_every_published_run_could_be_submitted_today_or_is_of_an_earlier_version():
    assert check_filed(LEADERBOARDS, Registry.load()) == []


def test_a_published_run_of_an_earlier_protocol_is_refused_for_that_alone():
    """Its metadata lack settings of today, and so would not fit its checksum."""
    path = min((LEADERBOARDS / "runs").glob("set-complement.16-entries.*"))
    wrong: list[str] = []
    assert not list(inspected(stored(path)[:1], Registry.load(), wrong))
    assert len(wrong) == 1 and f"standard/3 is standard/{PROTOCOLS['standard'].version} in this lgbench" in wrong[0]


def test_every_published_run_names_a_commit(filed):
    assert len(filed) > 1000 and all(own["environment"]["git_commit"] for own in filed)
