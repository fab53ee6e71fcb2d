"""Command line. Commands import heavy modules when run: help needs neither torch, DuckDB nor any plugin."""

from __future__ import annotations

import sys
from typing import Any

import click

from lgbench.cli.claims import claims
from lgbench.cli.output import complain, fitted
from lgbench.cli.plugins import check, list_names, new_plugin, plugins, selftest, show
from lgbench.cli.results import compare, leaderboard, plot, predictors, site, sql
from lgbench.cli.run import merge, run
from lgbench.cli.saved import predict, probe, submit, verify
from lgbench.errors import Interrupted, LgbenchError, PluginError
from lgbench.extensions import commands

SECTIONS = {
    "Run": (run, merge),
    "Read results": (leaderboard, compare, claims, predictors, plot, site, sql),
    "Use trained models": (predict, probe),
    "Publish results": (submit, verify),
    "Look things up": (list_names, show, selftest),
    "Plugins": (plugins, check, new_plugin),
}
"""Built-in commands in the order of `lgbench --help`, followed by commands of plugins."""


class Group(click.Group):
    """Command group that shows an error of lgbench or of the system as one sentence, and exits with the error's code.

    An interrupt gives an exit code without a message. Resumable commands catch the interrupt and explain how to continue.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:  # with all choices its line is long, and click breaks none
            text = fitted(f"Error: {error.format_message()}", sys.stderr)
            raise click.UsageError(text.removeprefix("Error: "), error.ctx) from None
        except LgbenchError as error:
            complain(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(Interrupted.exit_code)
        except RuntimeError as error:
            if str(error) != "Query interrupted":  # what DuckDB raises after Ctrl-C
                raise
            ctx.exit(Interrupted.exit_code)
        except BrokenPipeError:
            # Python would complain of the closed pipe when it exits.
            sys.stderr.close()  # the reader has gone, as in `lgbench list tasks | head`
            ctx.exit(0)
        except OSError as error:  # a file that cannot be read or written
            complain(_message(error))
            ctx.exit(LgbenchError.exit_code)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return super().get_command(ctx, cmd_name) or commands.command(cmd_name)
        except PluginError:
            if ctx.resilient_parsing:  # during completion by the shell
                return None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*self.commands, *commands.named()]))  # click sorts them

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = commands.named()
        width = max(map(len, [*self.commands, *found]))
        limit = formatter.width - 6 - width  # 6 columns of indentation and gaps, as click counts
        for title, own in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{each.name:<{width}}", each.get_short_help_str(limit)) for each in own])
        if found:
            with formatter.section("From plugins"):
                for name, entry_points in found.items():
                    clash = commands.clash(name, entry_points, self.commands)
                    text = f"Warning: {clash}." if clash else commands.about(entry_points[0])
                    formatter.write_dl([(f"{name:<{width}}", text)])


def _message(error: OSError) -> str:
    """File and reason of an error, without the error number."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"cannot use {str(error.filename)!r}: {reason}"


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lgbench")
def main() -> None:
    """Train sequence models on short inputs, test them on long ones, and measure what survives."""


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
