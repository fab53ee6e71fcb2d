"""`lgbench selftest`: proof that a device trains and tests as a CPU does."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.output import complain, echo


@click.command()
@click.option("--device", default="cuda", show_default=True, help="Device: cuda, mps, or cpu to try the command itself.")
@click.option("--out", default="selftest.md", show_default=True, type=click.Path(path_type=Path), help="Report to write.")
@click.option("--small", is_flag=True, help="A few steps of each part: whether the parts run, and no proof.")
def selftest(device: str, out: Path, small: bool) -> None:
    """Compare a GPU with a CPU, and measure its pace.

    Every task with every norm scheme, captured and compiled steps, memory, populations of up to 1,024 models, bfloat16, and one
    family under the protocol standard: about ten minutes on a GPU, without DuckDB and without a network. Exits with 1 if a part
    does not hold, and with 2 if there is no such device.
    """
    from lgbench import selftest as parts
    from lgbench.execution.device import choose_device

    where = choose_device(device)
    report, holds = parts.selftest(where, parts.SMALL if small else parts.Sizes(), complain)
    out.write_text(report, encoding="utf-8")
    echo(f"report written to {out}: please attach it to an issue")
    if not holds:
        complain(f"some part does not hold on {where.type}: see {out}")
        raise SystemExit(1)
