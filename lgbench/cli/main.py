"""The command line. Commands import heavy modules when they run: help needs neither torch, DuckDB nor any plugin."""

from __future__ import annotations

import sys
from typing import Any

import click

from lgbench.cli.check import check
from lgbench.cli.claims import claims
from lgbench.cli.compare import compare
from lgbench.cli.leaderboard import leaderboard
from lgbench.cli.list import list_names
from lgbench.cli.merge import merge
from lgbench.cli.new_plugin import new_plugin
from lgbench.cli.output import Output, complain
from lgbench.cli.plot import plot
from lgbench.cli.plugins import plugins
from lgbench.cli.predict import predict
from lgbench.cli.predictors import predictors
from lgbench.cli.probe import probe
from lgbench.cli.run import run
from lgbench.cli.show import show
from lgbench.cli.site import site
from lgbench.cli.sql import sql
from lgbench.cli.submit import submit
from lgbench.cli.verify import verify
from lgbench.errors import Interrupted, LgbenchError

SECTIONS = {
    "Run": (run, merge),
    "Read results": (leaderboard, compare, claims, predictors, plot, site, sql),
    "Use trained models": (predict, probe),
    "Publish results": (submit, verify),
    "Look things up": (list_names, show),
    "Plugins": (plugins, check, new_plugin),
}
"""The commands, in the order of `lgbench --help`."""


class Group(click.Group):
    """Shows an error of lgbench or of the system as one sentence, and exits with its code.

    An interrupt is the exit code alone. A command that can continue catches the interrupt itself, and says how.
    """

    def main(self, *given: Any, standalone_mode: bool = True, **named: Any) -> Any:
        lasting = standalone_mode and sys.stdout is sys.__stdout__  # and not in a test, which goes on after the command
        named = {"obj": Output(lasting), "standalone_mode": standalone_mode, **named}
        return super().main(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LgbenchError as error:
            complain(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Interrupted.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # the reader has gone, as in `lgbench list tasks | head`
            ctx.exit(0)
        except OSError as error:  # a file that cannot be read or written
            complain(_message(error))
            ctx.exit(LgbenchError.exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # click sorts them

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                limit = formatter.width - 6 - width
                rows = [(f"{command.name:<{width}}", command.get_short_help_str(limit)) for command in commands]
                formatter.write_dl(rows)


def _message(error: OSError) -> str:
    """The file and the reason, without the error's number."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"cannot use {str(error.filename)!r}: {reason}"


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lgbench")
def main() -> None:
    """Train sequence models on short inputs, test them on long ones, and measure what survives."""


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
