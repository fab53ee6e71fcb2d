"""`lgbench new-plugin`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from lgbench.cli.output import complain, echo
from lgbench.cli.setup import installed
from lgbench.extensions import new_plugin as packages


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(packages.EXAMPLES)),
    metavar="KIND",
    required=True,
    help=f"Kind of thing that it provides: {', '.join(packages.EXAMPLES)}.",
)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Folder to write.  [default: lgbench-NAME]")
@click.option("--license", type=click.Choice(packages.LICENSES), default="MIT", show_default=True, help="License to include.")
def new_plugin(name: str, kind: str, folder: Path | None, license: str) -> None:
    """Write a new plugin as a package, ready to be published.

    The package is a worked example of its kind: a method from the literature, with tests. Replace the method by yours. The
    author is the one that git knows.
    """
    author = packages.author_by_git(Path.cwd())
    package = packages.Package.named(name, kind, license, author)
    folder = folder or Path(package.distribution)
    packages.require_empty(folder)
    packages.require_free(package, installed())
    packages.write(package, folder)
    if not author.known:
        complain(f"git knows no author: replace {author.name} in pyproject.toml and LICENSE")
    what = packages.EXAMPLES[kind].what
    echo(f"{folder} has the {what} {package.provides}, in {package.module}/__init__.py. Next:\n")
    for command in (
        f"cd {shlex.quote(str(folder))}",
        'pip install -e ".[test]"',
        f"lgbench check {package.module}",
        f"lgbench run {package.run} --protocol quick",
    ):
        echo(f"  {command}")
