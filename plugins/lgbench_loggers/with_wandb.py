"""Weights & Biases: online with a login, or offline in the folder `wandb`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, final

from lgbench import LoggedRun, Logger, OpenRun, RunEnd
from lgbench_loggers.installed import PROJECT, lacking

MAX_TAG = 64
"""Characters of a tag that the server takes."""


@final
class WeightsAndBiases(Logger):
    """Weights & Biases. WANDB_MODE=offline needs no account; WANDB_PROJECT, WANDB_ENTITY and WANDB_DIR say where runs go."""

    name = "wandb"

    def missing(self) -> str | None:
        return lacking("wandb", "wandb")

    def start(self, run: LoggedRun) -> OpenRun:
        return _begun(run)

    def resume(self, run: LoggedRun, handle: str) -> OpenRun | None:
        return _begun(run, id=handle)


def _begun(run: LoggedRun, **how: Any) -> OpenRun:
    """A run of wandb beside others that are open. It watches neither the machine nor the code nor the output."""
    import wandb

    quiet = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True)
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.name,
        group=f"{run.tags['task']} {run.tags['entry']}",
        tags=[f"{name}: {value}"[:MAX_TAG] for name, value in run.tags.items()],
        config={**run.tags, **run.config},
        resume="allow",
        reinit="create_new",
        settings=quiet,
        **how,
    )
    return WandbRun(opened)


class WandbRun(OpenRun):
    """A run of wandb. One that goes on offline is a folder of its own, with the id of the first, for `wandb sync`."""

    def __init__(self, run: Any) -> None:
        self.handle, self._run = str(run.id), run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def end(self, end: RunEnd) -> None:
        self._run.summary.update({"status": end.status, "reason": end.reason, "diverged_step": end.diverged_step})
        self._run.finish(exit_code=0 if end.status == "finished" else 1)
