"""A command on a Ray cluster of three nodes of this machine, one of which dies. A script: Ray stays out of the tests.

With APART=1 in the environment, no node sees the results folder.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from lgbench.cli.main import main
from lgbench.execution import ray_tasks
from lgbench.execution.tuning import FOLDER

MEMORY = 100 * 2**20


def kill_when_busy(cluster: Cluster, node: object, results: Path) -> None:
    """Kill the raylet of a node, and with it its workers, once some runs are there and others are in training."""
    while not (found := run_files_of(results)):
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)
    print(f"killed a node after {len(found)} runs in {found[0].parent.name}", flush=True)


def run_files_of(results: Path) -> list[Path]:
    return [*results.glob("*.parquet"), *results.glob(f"{FOLDER}/*.parquet")]


train = ray_tasks.train


def train_apart(order: ray_tasks.Order) -> ray_tasks.Answer:
    """A task on a node that has no such folder."""
    return train(replace(order, folder="/nowhere/else"))


if __name__ == "__main__":
    results, words = Path(sys.argv[1]), sys.argv[2:]
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    )
    if "APART" in os.environ:
        ray_tasks.train = train_apart
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(3)]
    threading.Thread(target=kill_when_busy, args=(cluster, nodes[0], results), daemon=True).start()
    try:
        main([*words, "--executor", "ray", "--ray-address", cluster.address, "--results", str(results)], prog_name="lgbench")
    finally:
        ray.shutdown()
        cluster.shutdown()
