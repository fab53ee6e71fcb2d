"""`lgbench site`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.commands.surroundings import opened, results_option


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("site"),
    show_default=True,
    help="Folder to put index.html into; one that is there is replaced.",
)
@click.option("--protocol", help="Protocol, or its full label.  [default: every one found]")
@results_option
def site(out: Path, protocol: str | None, results: Path) -> None:
    """Write all boards as one HTML page that works offline, with curves, seeds, training and provenance."""
    from lgbench.showing import site as pages

    path = pages.write(pages.page(opened(results), protocol), out)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
