"""The tables of README.md, claims.md and overall.md: what the published runs say, one function a table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import factors
from factors import PROTOCOL

from lgbench.claims.claim import ClaimSeeds, ClaimTest, read_claims
from lgbench.claims.verdicts import Verdict, decide, latest
from lgbench.contracts.names import FAMILIES
from lgbench.experiment.protocols import BOARDS_PROTOCOL
from lgbench.reports.claims import Judged, pair, summary
from lgbench.results.boards import Board
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.overall import Estimate

HERE = Path(__file__).parent

UNFITTED = "\\*"
"""Mark of numbers without a seed that fits the training range with every entry: an escaped star."""

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm", "attention-layer-norm", "attention-standardize")

OVERVIEW = (
    "transformer+pre-norm",
    "transformer+post-norm",
    "transformer+peri-norm",
    "transformer+peri-init-norm",
    "transformer+attention-layer-norm",
    "transformer+pre-norm+deltanet-negative",
    "lstm",
)
"""The entries of the picture at the top."""

# Accuracy of the softmax model of arXiv 2410.01104 (appendix A), in percent; its authors' numbers, 100,000 steps.
PUBLISHED = {16: 98.6, 256: 81.3, 1024: 53.8, 4096: 22.6}

# The same with adaptive temperature at inference.
PUBLISHED_ADAPTIVE = {16: 98.6, 256: 82.1, 1024: 57.7, 4096: 24.9}


def boards_of(results: Results) -> list[Board]:
    """Board of each family that comes with lgbench."""
    return [board for board in results.boards("tvd", protocol=PROTOCOL) if board.name in FAMILIES]


RUNS = """
    select protocol || '/' || protocol_version as protocol, count(distinct run_id) as runs,
        count(distinct run_id) filter (diverged_step is not null) as diverged
    from results
    group by all
    order by protocol desc
"""

ENTRIES = """
    select entry, family, count(distinct seed) as seeds
    from results
    where protocol || '/' || protocol_version = $protocol and metric = 'tvd' and weights = 'raw'
    group by all
"""


def runs(results: Results, swept: Results) -> str:
    """How many runs there are, by folder and protocol; and of each entry, the seeds on each family."""
    lines = [["folder", "protocol", "runs", "diverged"], [":--", ":--", "--:", "--:"]]
    for folder, own in (("runs", results), ("inside/runs", swept)):
        counted = own.connection.execute(RUNS).fetchall()
        lines += [[f"[{folder}]({folder}/)", f"`{protocol}`", f"{n:,}", str(diverged)] for protocol, n, diverged in counted]
    return "\n".join(map(markdown_table, (lines, _seeds(results))))


def _seeds(results: Results) -> list[list[str]]:
    """Lines of numbers of seeds by family, with the entries that have them."""
    seeds: dict[str, dict[str, int]] = {}
    for entry, family, n in results.connection.execute(ENTRIES, {"protocol": PROTOCOL}).fetchall():
        seeds.setdefault(entry, {})[family] = n
    alike: dict[str, list[str]] = {}
    for entry in sorted(seeds, key=lambda entry: (-len(seeds[entry]), entry)):
        where = ", ".join(f"{family} {n}" for family, n in sorted(seeds[entry].items()))
        alike.setdefault(where, []).append(f"`{entry.removeprefix('transformer+')}`")
    return [[f"{PROTOCOL}: seeds", "entries"], [":--", ":--"], *([where, ", ".join(same)] for where, same in alike.items())]


def together(results: Results) -> str:
    """Raw weights of entries that ran every family, best first: interquartile mean and mean of their shares of the baseline."""
    (board,) = results.overall("tvd", PROTOCOL)
    lines = [
        [f"{PROTOCOL}: OOD TVD / baseline", "IQM", "rank without a family", "mean", "P(better than pre-norm)", *board.families],
        [":--", *["--:"] * (4 + len(board.families))],
    ]
    raw = [row for row in board.rows if "@" not in row.entry]
    for row in raw:
        ranks = [1 + sum(other.ranks_without[f] < rank for other in raw) for f, rank in enumerate(row.ranks_without)]
        better = "-" if row.improvement is None else _estimate(row.improvement, 2)
        lines.append(
            [
                f"`{row.entry.removeprefix('transformer+')}`",
                _estimate(row.score, 3),
                f"{min(ranks)}-{max(ranks)}",
                _estimate(row.mean, 3),
                better,
                *(f"{mean:.2f}" for mean in row.families),
            ]
        )
    return markdown_table(lines)


def _estimate(estimate: Estimate, digits: int) -> str:
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def judged(results: Results) -> Judged:
    """Every claim about these families alone, with its verdicts. The others are in field.py."""
    every = [claim for claim in read_claims(HERE / "claims") if all(family_of(task) for task, _ in claim.parts)]
    return [(claim, decide(claim, results)) for claim in every]


def verdicts(results: Results) -> str:
    """Verdicts on every claim: a line for each test and protocol with runs, a column for each family."""
    found = judged(results)
    lines = [["claim", "test", "protocol", *FAMILIES], [":--", ":--", ":--", *["--:"] * len(FAMILIES)]]
    for claim, own in found:
        about = f"{claim.claim} ({claim.source.paper})"
        shown_here = shown(own)
        for test in claim.tests:
            for use in dict.fromkeys(verdict.protocol for verdict in shown_here):
                of_test = [each for each in shown_here if each.test == test and each.protocol == use]
                if of_test:
                    by_family = {family_of(each.task): _verdict(each) for each in of_test}
                    of_pair = pair(test).replace("transformer+", "").replace(" against ", "` against `")
                    lines.append([about, f"`{of_pair}`", str(use), *(by_family.get(family, "-") for family in FAMILIES)])
                    about = ""
    return markdown_table(lines)


def by_fresh_seeds(results: Results) -> Judged:
    """Every prediction for fresh seeds, with its verdicts."""
    return [(claim, decide(claim, results, PROTOCOL)) for claim in read_claims(HERE / "confirmations")]


def confirmations(results: Results, found: Judged) -> str:
    """Verdicts by fresh seeds on what the first ones have shown, with intervals, beside the difference of the first ones."""
    lines = [["prediction", "task", "seeds 0 to 4", "seeds 5 to 9"], [":--", ":--", "--:", "--:"]]
    for claim, verdicts in found:
        first = ClaimSeeds.only(range(claim.runs.seeds[0]))
        former = decide(replace(claim, runs=replace(claim.runs, seeds=first)), results, PROTOCOL)
        for before, now in zip(former, verdicts, strict=True):
            word = "like" if now.test.expect == "alike" else "better than"
            of_pair = pair(now.test).replace("transformer+", "").replace(" against ", f"` {word} `")
            lines.append([f"`{of_pair}`", now.task, _verdict(before), _verdict(now, interval=True)])
    return markdown_table(lines)


def shown(own: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts that runs decide. Under the protocol of boards, each test on a task has that of its newest version with runs."""
    decided = [each for each in own if each.state != "not run" and not each.protocol.changes]
    of_boards = [each for each in decided if each.protocol.name == BOARDS_PROTOCOL]
    newest: dict[tuple[str, ClaimTest], int] = {}
    for each in of_boards:
        newest[each.task, each.test] = max(each.protocol.version, newest.get((each.task, each.test), 0))
    old = [each for each in of_boards if each.protocol.version < newest[each.task, each.test]]
    return [each for each in decided if each not in old]


def family_of(task: str) -> str | None:
    return next((family for family in FAMILIES if task == family or task.startswith(f"{family}-")), None)


def _verdict(verdict: Verdict, interval: bool = False) -> str:
    if verdict.difference is None:
        return "not run"
    state = verdict.state if verdict.state == "undecided" else f"**{verdict.state}**"
    state += UNFITTED * (verdict.fitted == 0)
    ends = (verdict.low, verdict.high) if interval else (None, None)
    return f"{state} {factors.with_interval(verdict.difference, *ends)}"


def tvd(results: Results) -> Metric:
    return next(metric for metric in results.metrics if metric.name == "tvd")


def beside_published(results: Results) -> str:
    """Accuracy on max retrieval after 100,000 steps: the published model's, and ours, the mean over seeds."""
    (board,) = results.boards("accuracy", "max-retrieval", "paper")
    rows = {row.entry: row for row in board.rows}
    lines = [["accuracy (%) on sets of", *map(str, PUBLISHED)], [":--", *["--:"] * len(PUBLISHED)]]
    for what, published, entry in (
        ("softmax", PUBLISHED, "set-attention"),
        ("adaptive temperature", PUBLISHED_ADAPTIVE, "set-attention+adaptive-temperature"),
    ):
        cells = [cell for size in PUBLISHED if (cell := rows[entry].cell("length", size))]
        lines.append([f"{what}, published", *map(str, published.values())])
        lines.append([f"{what}, `{board.protocol}`", *(f"{100 * cell.mean:.1f}" for cell in cells)])
    return markdown_table(lines)


def rates(swept: Results, task: str) -> str:
    """OOD TVD of the retrieval model on a task by learning rate, and what norms on its attention output change."""
    changes = {each.title: factors.shown(each) for each in factors.by_rate(swept) if each.family == task}
    lines = [["learning rate", "no norm", *(f"{norm} less no norm" for norm in factors.WITH_NORM)]]
    lines.append([":--", *["--:"] * (1 + len(factors.WITH_NORM))])
    (sweep,) = (sweep for sweep in factors.of_retrieval(swept) if sweep.board.name == task)
    plain = sweep.cells[factors.RETRIEVAL]
    own = [factors.best(sweep.cells[entry]) for entry in (factors.RETRIEVAL, *factors.WITH_NORM.values())]
    named = f"{factors.BEST}: {', '.join(map(str, own))}"
    for lr, at, cell in [*((str(lr), lr, cell) for lr, cell in plain.items()), (named, factors.BEST, plain[own[0]])]:
        lines.append([lr, f"{cell.mean:.3f}", *(changes[f"{norm} at {at}"] for norm in factors.WITH_NORM)])
    return markdown_table(lines)


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables(results: Results, swept: Results) -> dict[str, str]:
    """Tables of the pages, by the names that these give."""
    fresh = by_fresh_seeds(results)
    return {
        "runs": runs(results, swept),
        "verdicts": verdicts(results),
        "confirmations": confirmations(results, fresh),
        "confirmed": summary(fresh),
        "summary": summary([(claim, latest(claim, own)) for claim, own in judged(results)]),
        "overall": together(results),
        "factors": markdown_table(factors.table(factors.tested(factors.cells(results)))),
        "published": beside_published(results),
        "rates": rates(swept, "dictionary-lookup"),
    }
