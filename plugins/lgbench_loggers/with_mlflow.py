"""MLflow: a server, or a database on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, final

from lgbench import LoggedRun, Logger, OpenRun, RunEnd
from lgbench_loggers.installed import PROJECT, lacking

STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
AT_ONCE = 100
"""Values that MLflow takes in one request: it refuses more parameters."""


@final
class MLflow(Logger):
    """MLflow, in `mlflow.db` or where MLFLOW_TRACKING_URI says, in the experiment that MLFLOW_EXPERIMENT_NAME names."""

    name = "mlflow"

    def missing(self) -> str | None:
        return lacking("mlflow", "mlflow")

    def start(self, run: LoggedRun) -> OpenRun:
        from mlflow.entities import Param

        client = _client()
        experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        made = client.create_run(experiment, run_name=run.name, tags=dict(run.tags))
        parameters = [Param(name, str(value)) for name, value in run.config.items()]
        for first in range(0, len(parameters), AT_ONCE):
            client.log_batch(made.info.run_id, params=parameters[first : first + AT_ONCE])
        return MLflowRun(client, made.info.run_id)

    def resume(self, run: LoggedRun, handle: str) -> OpenRun | None:
        from mlflow.exceptions import MlflowException

        client = _client()
        try:
            client.update_run(handle, status="RUNNING")
        except MlflowException:  # somebody has removed it, or the environment names another store
            return None
        return MLflowRun(client, handle)


class MLflowRun(OpenRun):
    """A run of MLflow."""

    def __init__(self, client: Any, run: str) -> None:
        self._client, self.handle = client, run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        for first in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self.handle, metrics=metrics[first : first + AT_ONCE])

    def end(self, end: RunEnd) -> None:
        said = {"reason": end.reason, "diverged_step": str(end.diverged_step or "")}
        for name, value in said.items():
            if value:
                self._client.set_tag(self.handle, name, value)
        self._client.set_terminated(self.handle, STATUS[end.status])


def _client() -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient()


def _experiment(client: Any, name: str) -> str:
    """The id of the experiment of this name, which is made if nobody has made it."""
    from mlflow.exceptions import MlflowException

    if found := client.get_experiment_by_name(name):
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException:  # another command was faster
        if found := client.get_experiment_by_name(name):
            return str(found.experiment_id)
        raise
