"""`lgbench claims`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli import options
from lgbench.cli.output import console, echo, echo_data, installed
from lgbench.cli.run import run_request
from lgbench.errors import RunFailed, UsageError, unknown
from lgbench.experiment.protocols import ALL_PROTOCOLS
from lgbench.options import RunOptions

if TYPE_CHECKING:
    from lgbench.claims.claim import Claim
    from lgbench.claims.missing import Wanted
    from lgbench.claims.verdicts import Verdict
    from lgbench.extensions.registry import Registry
    from lgbench.results.leaderboard import Results


@dataclass(frozen=True)
class ClaimRuns:
    """Options for the runs of claims."""

    seeds: tuple[int, ...] | None
    device: str
    workers: int | None
    protocol: str | None
    plugins: Sequence[Path]
    results: Path


def _claim_names(ctx: click.Context) -> list[str]:
    from lgbench.claims.claim import default_folder

    folder: Path = ctx.params.get("claims_folder") or default_folder()
    return sorted(path.stem for path in folder.glob("*.toml"))


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=options.Completed(_claim_names))
@options.claims_option
@click.option("--run", "make", is_flag=True, help="Make the runs that these claims lack, and then decide.")
@click.option("--missing", is_flag=True, help="List the commands for the runs that these claims lack, in place of verdicts.")
@click.option("--seeds", type=options.seeds, help="Seeds that --run makes.  [default: those that the claim asks for]")
@options.device_option
@click.option("--workers", type=int, help="Processes that train at the same time, as of `lgbench run`.")
@click.option(
    "--protocol",
    type=options.protocol_name,
    help='Protocol to decide under: a name, a full label such as "standard/3 train.lr=0.001", or all. With --run, the name of '
    "the protocol to run.  [default: for each test one with runs: the newest standard, or else paper, long, short or quick]",
)
@options.json_option
@options.plugin_option
@options.results_option
@options.gathered(ClaimRuns, "asked")
def claims(
    names: Sequence[str], claims_folder: Path | None, make: bool, missing: bool, as_json: bool, asked: ClaimRuns
) -> None:
    """Decide claims of papers from the available runs.

    A claim is a TOML file with sentence, source, runs and test. On each task of a claim, and under each protocol, the verdict
    is confirmed, refuted, undecided, or not run. Claims without a run are counted, not listed. NAME shows a claim in full: its
    source, and all its numbers. --missing lists the commands for missing runs, and --run makes these runs, under the first
    protocol that the claim names or under --protocol. --json has the verdicts under all protocols, and the commands.
    Differences are paired by seed, and p is corrected for all tests of a claim under one protocol.
    """
    from lgbench.claims.claim import default_folder, read_claims
    from lgbench.claims.missing import as_in_results
    from lgbench.claims.verdicts import latest
    from lgbench.reports import claims as shown
    from lgbench.reports.tables import as_json as json_text

    _require_sense(names, make, missing, as_json)
    if not make and not missing and _is_named("results") and not asked.results.is_dir():
        options.opened(asked.results)  # raises UsageError: the folder is misspelt, and not one to come
    found = read_claims(claims_folder or default_folder(), names)
    registry = installed(asked.plugins)
    found = [as_in_results(claim, registry) for claim in found]
    failures = _run(found, asked, registry) if make else []
    judged = _judged(found, asked, registry)
    where = [] if asked.results == options.RESULTS else ["--results", str(asked.results)]
    where += [word for file in asked.plugins for word in ("--plugin", str(file))]
    if as_json:
        echo_data(json_text(shown.documents(judged, where)))
    elif missing:
        shown.show_missing(judged, where, console())
    else:
        if asked.protocol != ALL_PROTOCOLS:
            judged = [(claim, latest(claim, verdicts)) for claim, verdicts in judged]
        for claim, verdicts in judged if names else ():
            shown.show_claim(claim, verdicts, console())
        if not names:
            shown.show_claims(judged, console())
    if failures:
        raise RunFailed("; ".join(failures))


def _require_sense(names: Sequence[str], make: bool, missing: bool, as_json: bool) -> None:
    """Raise UsageError for incompatible options."""
    if missing and (make or as_json):
        other = "--run, which makes the runs" if make else "--json, which has the commands"
        raise UsageError(f"--missing lists commands, and does not go with {other}: leave one of them out")
    if make and not names:
        raise UsageError("--run takes the names of claims, as in `lgbench claims post-norm --run`; all of them would take days")
    if make and as_json:
        raise UsageError("--json does not go with --run, which tells what it does; run first, and then ask again with --json")
    for option in ("seeds", "device", "workers"):
        if not make and _is_named(option):
            raise UsageError(f"--{option} says nothing without --run: nothing is trained")


def _is_named(option: str) -> bool:
    """Whether the command line has an option."""
    return click.get_current_context().get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE


def _judged(found: Sequence[Claim], asked: ClaimRuns, registry: Registry) -> list[tuple[Claim, list[Verdict]]]:
    """Claims with verdicts. Verdicts name obstacles to missing runs on this machine."""
    from lgbench.claims.missing import with_obstacles
    from lgbench.claims.verdicts import decide
    from lgbench.experiment.components import families_of

    runs = _opened(asked.results)
    _check_protocol(found, runs, asked.protocol)
    families, protocol = families_of(registry), None if asked.protocol == ALL_PROTOCOLS else asked.protocol
    return [(claim, with_obstacles(claim, decide(claim, runs, protocol, families), registry)) for claim in found]


def _check_protocol(found: Sequence[Claim], runs: Results | None, protocol: str | None) -> None:
    """Raise UsageError for a protocol absent from claims and runs."""
    known = {name for claim in found for name in claim.runs.protocols}
    uses = runs.protocols.values() if runs else ()
    known |= {name for use in uses for name in (str(use), *([] if use.changes else [use.name]))}
    if protocol not in (None, ALL_PROTOCOLS, *known):
        raise unknown("protocol of these claims and runs", str(protocol), known)


def _opened(results: Path) -> Results | None:
    """Results of a folder; None before the first run."""
    from lgbench.results import run_files

    return options.opened(results) if results.is_dir() and any(run_files.find(results)) else None


def _run(found: Sequence[Claim], asked: ClaimRuns, registry: Registry) -> list[str]:
    """Make missing runs of claims as by `lgbench run`, and return failures. Raises UsageError for impossible runs."""
    from lgbench.claims.claim import ClaimSeeds
    from lgbench.claims.missing import orders, require_possible

    for claim in found:
        require_possible(claim, registry)
    failures = []
    for claim in found:
        name = asked.protocol or claim.runs.protocols[0]
        runs = replace(claim.runs, protocols=(name,), seeds=ClaimSeeds(asked.seeds) if asked.seeds else claim.runs.seeds)
        wanted = replace(claim, runs=runs)
        lacking = orders(wanted, _lacking(wanted, asked.results, registry))
        if not lacking:
            echo(f"{claim.name} lacks no run under {name}")
        for order in lacking:
            own = dict(average=order.average or None, seeds=order.seeds, protocol=name, probe=order.probes)
            request = RunOptions(order.tasks, order.archs, **(vars(asked) | own))
            try:
                run_request(request, registry)
            except RunFailed as error:
                failures.append(str(error))
    return failures


def _lacking(claim: Claim, results: Path, registry: Registry) -> list[Wanted]:
    """Missing runs of a claim with a single protocol. Raises UsageError for an unknown protocol."""
    from lgbench.claims.verdicts import decide
    from lgbench.experiment.components import families_of
    from lgbench.experiment.protocols import protocol_named

    (name,) = claim.runs.protocols
    version = protocol_named(name).version
    verdicts = decide(claim, _opened(results), name, families_of(registry))
    return [each for verdict in verdicts if verdict.protocol.version == version for each in verdict.wanted]
