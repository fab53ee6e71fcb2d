"""`lgbench probe RUN`: probes of the model of a run, read from its kept weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lgbench.cli.options import split
from lgbench.cli.output import complain, console, echo, installed


def probe_run(
    run: Path,
    probes: Sequence[str],
    weights: str,
    out: Path | None,
    device: str,
    plugins: Sequence[Path],
    results: Path,
) -> None:
    """Print what probes read, and write all rows to a file if one is named."""
    from lgbench.execution.device import choose_device
    from lgbench.kept import loading, probing
    from lgbench.reports import files, row_files
    from lgbench.reports.analyses import PROBE_COLUMNS, probe_table
    from lgbench.reports.tables import show

    if out:
        row_files.known_format(out)
    own = loading.find(run, results)
    own.require_variant(weights)
    rows = probing.probe_run(own, split(probes) or ["all"], installed(plugins), choose_device(device), complain)
    echo(f"{own.record.title}, {weights} weights; by length, the mean over heads")
    show(probe_table(rows, weights), console())
    if out:
        files.replace(out, row_files.content(rows.select(PROBE_COLUMNS), out))
        echo(out)
