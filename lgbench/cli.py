"""The command line. Help imports neither torch nor DuckDB nor any plugin, so heavy modules are imported inside commands."""

from __future__ import annotations

import sys
from typing import Any

import click

from lgbench.commands import catalog, check, look, new_plugin, plot, plugins, publish, run, site
from lgbench.errors import Interrupted, LgbenchError


class Group(click.Group):
    """Errors of lgbench and of the system become one sentence and an exit code; an interrupt is the exit code alone.

    Where something is left to go on with, a command takes the interrupt itself, and says what.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LgbenchError as error:
            click.echo(f"lgbench: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Interrupted.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads on, as in `lgbench list tasks | head`
            ctx.exit(0)
        except OSError as error:  # what cannot be read or written, wherever a command came upon it
            click.echo(f"lgbench: {_said(error)}", err=True)
            ctx.exit(LgbenchError.exit_code)


def _said(error: OSError) -> str:
    """The file and the reason, without the number that the reason has."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"cannot use {str(error.filename)!r}: {reason}"


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lgbench")
def main() -> None:
    """Train sequence models on short inputs, test them on long ones, and measure what survives."""


for command in (
    run.run,
    look.leaderboard,
    look.compare,
    plot.plot,
    look.sql,
    site.site,
    publish.submit,
    publish.verify,
    check.check,
    catalog.list_names,
    catalog.show,
    plugins.plugins,
    new_plugin.new_plugin,
):
    main.add_command(command)
