"""`lgbench verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import device_option, plugin_option
from lgbench.cli.output import console, echo
from lgbench.cli.setup import installed
from lgbench.errors import Interrupted, Unverified

if TYPE_CHECKING:
    from lgbench.submissions.inspection import Run
    from lgbench.submissions.verdict import Failure, Verdict


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--sample", type=click.IntRange(min=1), help="Number of runs to repeat, drawn at random.  [default: all]")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest allowed difference of a number; a third of it for means over lengths.  [default: known effects of rounding]",
)
@device_option
@plugin_option
def verify(runs: Sequence[Path], sample: int | None, tolerance: float | None, device: str, plugins: Sequence[Path]) -> None:
    """Run files again and compare every number.

    RUNS are run files, or folders of them. lgbench repeats each run as its file says it was made, and writes nothing. With the
    torch, device, threads and population of the file, numbers must be the same. Elsewhere rounding differs, and training
    amplifies that: numbers must be as near as it allows.
    """
    from lgbench.execution.console import ConsoleProgress
    from lgbench.execution.device import choose_device
    from lgbench.submissions import inspection, verification

    registry, where = installed(plugins), choose_device(device)
    outcomes: list[Verdict | Failure] = []
    try:
        paths, wrong = inspection.gather(runs)
        found, unfit = inspection.inspect_all(paths, inspection.Inspector(registry))
        chosen = verification.drawn(found, sample)
        for sentence in (wrong := [*wrong, *unfit]):
            echo(f"refused: {sentence}")
        _echo_chosen(chosen, len(found))
        for outcome in verification.verify(chosen, where, ConsoleProgress(console(stderr=True)), tolerance):
            outcomes.append(outcome)
            echo("\n".join(outcome.lines()))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the outcomes above are complete, and nothing was written") from None
    agreed = sum(outcome.agrees for outcome in outcomes)
    if wrong or agreed < len(outcomes):
        refused = "; see above for refused files" if wrong else ""
        raise Unverified(f"{agreed} of {len(outcomes)} runs verified{refused}")
    echo(f"{agreed} of {len(outcomes)} runs verified")


def _echo_chosen(chosen: Sequence[Run], found: int) -> None:
    how = ", drawn at random" if len(chosen) < found else ""
    echo(f"running again {len(chosen)} of {found} runs{how}:" if found else "there is no run to repeat")
    for run in chosen:
        echo(f"  {run.title} ({run.path})")
