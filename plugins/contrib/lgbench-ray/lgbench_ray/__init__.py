"""An executor for lgbench: each population is a task of a Ray cluster.

Ray starts a task again if its node dies. Nodes need no common folder; if they see the results folder, a task that is started
again continues from its checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lgbench import Demand, Executor, Pool, UsageError, hookimpl
from lgbench.errors import first_line

RETRIES = 20
"""Limit of starts of a task whose node or process died."""


@dataclass(frozen=True)
class Ray(Executor):
    """Tasks of a Ray cluster.

    address: of the cluster, or auto for the one of this machine; by default a new one is started.
    """

    name = "ray"

    address: str | None = None

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Pool]:
        import ray

        connected = ray.is_initialized()
        if not connected:
            _connect(self.address)
        try:
            kind = "GPU" if demand.gpu else "CPU"
            resources: Any = ray.cluster_resources  # Ray has no types for it
            found = int(resources().get(kind, 0))
            if not found:
                raise UsageError(f"no node of the Ray cluster has a {kind}: --device chooses between CPUs and GPUs")
            options: dict[str, Any] = {
                "num_cpus": 1,
                "num_gpus": int(demand.gpu),
                "max_retries": RETRIES,
                "runtime_env": {"env_vars": demand.environ},
            }
            yield Pool(lambda function: _Task(ray.remote(_call).options(**options).remote(function)), demand.workers or found)
        finally:
            if not connected:
                ray.shutdown()


def _connect(address: str | None) -> None:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = first_line(error)
        raise UsageError(f"no Ray cluster answers at {address or 'this machine'}: {reason}") from error


def _call(function: Callable[[], Any]) -> Any:
    return function()


@dataclass(frozen=True)
class _Task:
    """A submitted function."""

    reference: Any

    def done(self) -> bool:
        import ray

        ready, _ = ray.wait([self.reference], timeout=0)
        return bool(ready)

    def result(self) -> Any:
        import ray

        return ray.get(self.reference)

    def cancel(self) -> None:
        import ray

        ray.cancel(self.reference, force=True)


@hookimpl
def lgbench_executors() -> list[Executor]:
    return [Ray()]
