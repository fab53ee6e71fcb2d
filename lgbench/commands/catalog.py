"""Commands that tell what can be named: `lgbench list`, `show` and `plugins`."""

from __future__ import annotations

import sys

import click

from lgbench.commands.surroundings import installed
from lgbench.options import Names

KINDS = ("tasks", "archs", "norms", "averagers", "protocols")


@click.command(name="list")
@click.argument("kind", type=click.Choice(KINDS))
def list_names(kind: str) -> None:
    """List what can be named."""
    from lgbench import describe

    for name, about in describe.summaries(kind, installed()):
        click.echo(f"{name:<24}{about}".rstrip())


@click.command()
@click.argument("name", type=Names("tasks", "archs", "norms", "averagers", "protocols"))
def show(name: str) -> None:
    """Show what NAME is: its rule, its sizes and, for a task, three sample contexts with p*."""
    from lgbench import describe

    click.echo(describe.page(name, installed()))


@click.command()
def plugins() -> None:
    """Show what is installed, what each plugin provides, and what failed to load."""
    from lgbench import describe
    from lgbench.registry import Registry

    registry = Registry.load()
    click.echo("\n".join(describe.plugins(registry)))
    if registry.problems():
        sys.exit(1)
