"""`lgbench site`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import baseline_option, claims_option, protocol_option, results_option
from lgbench.cli.output import echo
from lgbench.cli.setup import opened, warn


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("site"),
    show_default=True,
    help="Folder for the page, index.html. A page that is already there is replaced.",
)
@claims_option
@protocol_option
@baseline_option
@results_option
def site(out: Path, claims_folder: Path | None, protocol: str | None, baseline: str | None, results: Path) -> None:
    """Write all boards as one HTML page that works offline.

    The page has every board with its curves. For every entry it has the seeds, training curves, settings and origins of runs.
    Where the runs say anything of a claim, it has the claims with their verdicts.
    """
    from lgbench.claims.claim import default_folder, read_claims
    from lgbench.reports import site as pages

    claims = read_claims(claims_folder or default_folder())
    runs = opened(results)
    try:
        page = pages.page(runs, protocol, baseline, claims)
    finally:
        warn(runs.no_boards)
    path = pages.write(page, out)
    echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
