"""The tables of README.md: what the published runs say, one function a table."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from lgbench.claims.claim import read_claims
from lgbench.claims.verdicts import decide
from lgbench.errors import UsageError
from lgbench.experiment.protocols import BOARDS_PROTOCOL, PROTOCOLS
from lgbench.reports.analyses import predictor_tables
from lgbench.reports.claims import Judged, commands, reasons, verdicts_by_protocol
from lgbench.reports.tables import pipes
from lgbench.results.boards import Board, Cell
from lgbench.results.compare import Difference, compare
from lgbench.results.entries import BASELINE_ENTRY
from lgbench.results.exponents import exponent
from lgbench.results.leaderboard import EVERYWHERE, Results
from lgbench.results.metrics import Metric
from lgbench.results.overall import Estimate
from lgbench.results.predictors import Predictor, predictors

HERE = Path(__file__).parent

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm", "attention-layer-norm", "attention-standardize")

WITHOUT_NORM, WITH_NORM = "set-attention", "set-attention+attention-layer-norm"
"""The other architecture that ran with several norm schemes: with none, and with this one."""

SCHEMES = (*(f"transformer+{norm}" for norm in NORMS), WITHOUT_NORM, WITH_NORM)
"""Every norm scheme alone."""

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

VANISHING = [
    ("attention-layer-norm", "pre-norm"),
    ("attention-standardize", "pre-norm"),
    ("attention-layer-norm", "attention-standardize"),
    (WITH_NORM, WITHOUT_NORM),
]

METHOD = f"{BASELINE_ENTRY}+"
"""Before the names of these methods, which stand in the baseline."""

ATTENTIONS = (
    "adaptive-temperature",
    "log-length",
    "ssmax",
    "entmax15",
    "sparsemax",
    "asentmax",
    "differential",
    "sigmoid",
    "selective",
    "stick-breaking",
    "nap",
    "t2r",
)
POSITIONS = ("sinusoidal", "randomised-learned", "rope", "xpos", "alibi", "fire")
NETWORKS = ("lstm", "gru")
LINEAR = (
    "deltanet",
    "deltanet-negative",
    "deltaproduct",
    "deltaproduct-negative",
    "gated-deltanet",
    "gated-deltanet-negative",
    "mamba-2",
    "mlstm",
    "rwkv-7",
)
MODELS = (
    "llama",
    "gemma2",
    "olmo2",
    "xt-plain",
    "xt-sandwich-norm",
    "xt-forgetting",
    "xt-hyper-connections",
    "olmo-hybrid",
    "falcon-h1",
    "recurrent-gemma",
)
"""Architectures of transformers and x-transformers."""

# Accuracy of the softmax model of arXiv 2410.01104 (appendix A), in percent; its authors' numbers, 100,000 steps.
PUBLISHED = {
    16: 98.6,
    32: 97.1,
    64: 94.3,
    128: 89.7,
    256: 81.3,
    512: 70.1,
    1024: 53.8,
    2048: 35.7,
    4096: 22.6,
    8192: 15.7,
    16384: 12.4,
}

# The same with adaptive temperature at inference.
PUBLISHED_ADAPTIVE = {
    16: 98.6,
    32: 97.1,
    64: 94.5,
    128: 89.9,
    256: 82.1,
    512: 72.5,
    1024: 57.7,
    2048: 39.4,
    4096: 24.9,
    8192: 17.5,
    16384: 14.0,
}


Made = TypeVar("Made")


def versions(results: Results) -> list[str]:
    """The versions of the protocol of boards that were run, the newest first."""
    uses = [use for use in results.protocols.values() if use.name == BOARDS_PROTOCOL and not use.changes]
    return [str(use) for use in sorted(uses, key=lambda use: -use.version)]


def newest(results: Results, make: Callable[[str], Made]) -> tuple[str, Made] | None:
    """The newest version of the protocol of boards that has enough runs for `make`, and the result of `make` for that version.

    None where no version has enough.
    """
    return next(((label, made) for label in versions(results) if (made := make(label))), None)


def boards_of(results: Results) -> list[Board]:
    """Of each family, its board under the newest version of the protocol of boards."""
    found: dict[str, Board] = {}
    for board in results.boards("tvd", protocol=BOARDS_PROTOCOL):
        if board.name not in found or board.protocol.version > found[board.name].protocol.version:
            found[board.name] = board
    return list(found.values())


def titles(boards: Sequence[Board]) -> tuple[str, list[str]]:
    """The text before a table of boards, and the titles of its columns. The protocol stands once if all boards share it."""
    protocols = {str(board.protocol) for board in boards}
    if len(protocols) == 1:
        return f"{protocols.pop()}: ", [board.name for board in boards]
    return "", [f"{board.name}, {board.protocol}" for board in boards]


RUNS = """
    select protocol || '/' || protocol_version as protocol, count(distinct run_id) as runs,
        count(distinct run_id) filter (diverged_step is not null) as diverged
    from results
    group by all
    order by protocol desc
"""

ENTRIES = """
    select entry, family, count(distinct seed) as seeds, list(distinct weights) as weights
    from results
    where protocol || '/' || protocol_version = $protocol and metric = 'tvd' and weights <> 'chance'
    group by all
"""


def runs(results: Results) -> str:
    """How many runs there are, by protocol; and of each entry under the newest protocol of boards, the seeds on each family."""
    counted = results.connection.execute(RUNS).fetchall()
    lines = [["protocol", "runs", "diverged"], [":--", "--:", "--:"]]
    lines += [[f"`{protocol}`", f"{n:,}", str(diverged)] for protocol, n, diverged in counted]
    protocol, *_ = versions(results)
    seeds: dict[str, dict[str, int]] = {}
    weights: dict[str, set[str]] = {}
    for entry, family, n, tested in results.connection.execute(ENTRIES, {"protocol": protocol}).fetchall():
        seeds.setdefault(entry, {})[family] = n
        weights.setdefault(entry, set()).update(tested)
    families = sorted({family for found in seeds.values() for family in found})
    own = [[f"{protocol}: seeds", "weights", *families], [":--", ":--", *["--:"] * len(families)]]
    for entry in sorted(seeds, key=lambda entry: (-len(seeds[entry]), entry)):
        kept = ", ".join(each for each in ("raw", "ema", "bema") if each in weights[entry])
        own.append([f"`{entry}`", kept, *(str(seeds[entry].get(family, "-")) for family in families)])
    return f"{markdown_table(lines)}\n{markdown_table(own)}"


def summary(results: Results) -> str:
    """One table: the OOD TVD of every norm scheme alone, by family, with its tier there."""
    boards = boards_of(results)
    before, columns = titles(boards)
    rows = {(row.entry, board.name): row for board in boards for row in board.rows}
    found = {entry for entry, _ in rows if entry.partition("@")[0] in SCHEMES}
    entries = sorted(found, key=lambda entry: (entry.partition("@")[2], entry))
    lines = [[f"{before}OOD TVD (tier)", *columns], [":--", *["--:"] * len(boards)]]
    for entry in entries:
        own = [rows.get((entry, board.name)) for board in boards]
        lines.append([f"`{entry}`", *("-" if row is None else f"{_number(row.cell('OOD'))} ({row.tier})" for row in own)])
    return markdown_table(lines)


def together(results: Results) -> str:
    """The entries that ran every family, best first: the interquartile mean of their shares of chance, and each family's."""
    protocol, (board,) = newest(results, lambda protocol: results.overall("tvd", protocol))
    lines = [
        [f"{protocol}: OOD TVD / chance", "IQM", "P(better than pre-norm)", *board.families],
        [":--", *["--:"] * (2 + len(board.families))],
    ]
    for row in board.rows:
        better = "-" if row.improvement is None else _estimate(row.improvement, 2)
        lines.append([f"`{row.entry}`", _estimate(row.score, 3), better, *(f"{mean:.2f}" for mean in row.families)])
    return markdown_table(lines)


def _estimate(estimate: Estimate, digits: int) -> str:
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def methods(names: Iterable[str]) -> list[str]:
    """The entries of methods in the baseline. Their names alone may mean the same methods in another architecture."""
    return [f"{METHOD}{name}" for name in names]


def against_baseline(entries: Iterable[str]) -> list[tuple[str, str]]:
    return [(entry, "pre-norm") for entry in entries]


def differences(results: Results, pairs: list[tuple[str, str]]) -> str:
    """A line for each pair of entries: the difference of their OOD TVD, first - second, by family; a table for each version."""
    return "\n".join(filter(None, (_differences(results, pairs, protocol) for protocol in versions(results))))


def _differences(results: Results, pairs: list[tuple[str, str]], protocol: str) -> str:
    found = {}
    for pair in pairs:
        with suppress(UsageError):  # no run of one of them
            found[pair] = {each.name: each.mean for each in compare(results, *pair, "tvd", protocol=protocol)}
    families = sorted({family for by_family in found.values() for family in by_family})
    lines = [[f"{protocol}: OOD TVD", *families], [":--", *["--:"] * len(families)]]
    for pair, by_family in found.items():
        first, second = (name.removeprefix(METHOD) for name in pair)
        lines.append([f"`{first}` against `{second}`", *(_judged(by_family.get(family)) for family in families)])
    return markdown_table(lines) if found else ""


def judged(results: Results) -> Judged:
    """Every claim in claims/, with what the runs say of it."""
    return [(claim, decide(claim, results)) for claim in read_claims(HERE / "claims")]


def untested(results: Results) -> str:
    """A line for each claim of which something was not run under the protocols that it names, with the commands that run it."""
    lines = []
    for claim, verdicts in judged(results):
        lacking = [each for each in verdicts if each.state == "not run" and each.protocol.name in claim.runs.protocols]
        lacking = [each for each in lacking if each.protocol.version == PROTOCOLS[each.protocol.name].version]
        if lacking:
            said = reasons(lacking)
            lines.append(" ".join([f"- **{claim.claim}**", *said, *(f"`{line}`" for line in commands(claim, lacking))]))
    return "".join(f"{line}\n" for line in lines) or "Everything that the claims ask for was run.\n"


def _judged(difference: Difference | None) -> str:
    if difference is None:
        return "-"
    size = f"{difference.difference:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    if not difference.significant:
        return size
    return f"**{'better' if difference.difference < 0 else 'worse'}** {size}"


def _number(cell: Cell) -> str:
    return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"


def chance(results: Results) -> str:
    """Of every family, the chance level, the best entry, and how many entries are better than chance."""
    boards = boards_of(results)
    before, columns = titles(boards)
    lines = [[f"{before}TVD", *columns], [":--", *["--:"] * len(boards)]]
    for kind in ("ID", "OOD"):
        levels = [board.chance_level(kind) for board in boards]
        means = [[cell.mean for row in board.rows if (cell := row.cell(kind))] for board in boards]
        better = [sum(mean < level for mean in own) for level, own in zip(levels, means, strict=True)]
        lines.append([f"{kind}: chance level", *(f"{level:.3f}" for level in levels)])
        lines.append([f"{kind}: best entry", *(f"{min(own):.3f}" for own in means)])
        counts = (f"{count} of {len(own)}" for count, own in zip(better, means, strict=True))
        lines.append([f"{kind}: entries better than chance", *counts])
    return markdown_table(lines)


def predicting(results: Results) -> str:
    """How each probe goes with the OOD TVD of a model, by family."""
    found = predicted(results)
    return "\n".join(map(pipes, predictor_tables(found, tvd(results)))) if found else "No published run has probes.\n"


def predicted(results: Results) -> list[Predictor]:
    """How each probe goes with the OOD TVD under the newest protocol of boards whose runs have probes."""
    every = newest(results, lambda protocol: _found(lambda: predictors(results, protocol=protocol)))
    return every[1] if every else []


def tvd(results: Results) -> Metric:
    return next(metric for metric in results.metrics if metric.name == "tvd")


def falling(results: Results) -> str:
    """The exponent of the length with which `output_std` falls, of every norm scheme alone, by family."""
    boards = newest(results, lambda protocol: _found(lambda: results.boards("output_std", None, protocol, inside=EVERYWHERE)))
    if boards is None:
        return "No published run has probes.\n"
    protocol, of_families = boards
    rows = {(row.entry, board.name): row for board in of_families for row in board.rows}
    lines = [[f"{protocol}: exponent", *(board.name for board in of_families)], [":--", *["--:"] * len(of_families)]]
    for entry in SCHEMES:
        own = [rows.get((entry, board.name)) for board in of_families]
        if any(own):
            lines.append([f"`{entry}`", *(str((row and exponent(row)) or "-").removeprefix("N^") for row in own)])
    return markdown_table(lines)


def _found(make: Callable[[], list[Made]]) -> list[Made]:
    """Nothing, where no run has what is asked for."""
    try:
        return make()
    except UsageError:
        return []


def beside_published(results: Results) -> str:
    """Max retrieval: the published model's accuracy, and ours."""

    def with_the_model(protocol: str) -> Board | None:
        (board,) = results.boards("accuracy", "max-retrieval", protocol)
        return board if any(row.entry == WITHOUT_NORM for row in board.rows) else None

    _, board = newest(results, with_the_model)
    rows, steps = {row.entry: row for row in board.rows}, _steps(results, board)
    lines = [["accuracy (%) on sets of", *map(str, PUBLISHED)], [":--", *["--:"] * len(PUBLISHED)]]
    for what, published, entry in (
        ("softmax", PUBLISHED, WITHOUT_NORM),
        ("adaptive temperature", PUBLISHED_ADAPTIVE, "set-attention+adaptive-temperature"),
    ):
        lines.append([f"{what}, published, 100,000 steps", *map(str, published.values())])
        ours = [rows[entry].cell("length", length) if entry in rows else None for length in published]
        shown = [f"{100 * c.mean:.1f} [{100 * c.low:.1f}, {100 * c.high:.1f}]" if c else "-" for c in ours]
        lines.append([f"{what}, `set-attention`, {steps:,} steps", *shown])
    return markdown_table(lines)


def _steps(results: Results, board: Board) -> int:
    """For how many steps the runs of a board of one task were trained."""
    same = {"task": board.name, "version": board.task_version}
    same |= {"protocol": board.protocol.name, "protocol_version": board.protocol.version}
    sql = """select max(step) from results where task = $task and task_version = $version
        and protocol = $protocol and protocol_version = $protocol_version"""
    ((steps,),) = results.connection.execute(sql, same).fetchall()
    return int(steps)


def markdown_table(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables(results: Results) -> dict[str, str]:
    """The tables of README.md, by the names that it gives."""
    return {
        "runs": runs(results),
        "verdicts": pipes(verdicts_by_protocol(judged(results))),
        "untested": untested(results),
        "chance": chance(results),
        "overall": together(results),
        "summary": summary(results),
        "norms": differences(results, against_baseline(("post-norm", "peri-norm", "peri-init-norm"))),
        "bema": differences(results, [(f"{norm}@bema", norm) for norm in NORMS]),
        "ema": differences(results, [(f"{norm}@ema", norm) for norm in NORMS]),
        "vanishing": differences(results, VANISHING),
        "attentions": differences(results, against_baseline(methods(ATTENTIONS))),
        "positions": differences(results, against_baseline(methods(POSITIONS))),
        "recurrent": differences(results, against_baseline([*NETWORKS, *methods(LINEAR)])),
        "models": differences(results, against_baseline(MODELS)),
        "predicting": predicting(results),
        "falling": falling(results),
        "published": beside_published(results),
    }
