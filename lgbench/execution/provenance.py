"""Provenance: versions, commit and machine of a run, for the footer of its file."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import torch

import lgbench
from lgbench.checkout import git_commit
from lgbench.experiment.experiment import Experiment


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's instruction set, which decides how numbers are rounded: "cpu (x86_64, AVX512)"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and machine, the same for all runs of one command."""
    return {
        "lgbench": lgbench.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git_commit": git_commit(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def made_by(population: Sequence[Experiment], device: torch.device) -> dict[str, str]:
    """Versions of lgbench, torch, plugins and the plugins' libraries, and the kind of device.

    A process continues a training only if they are the same.
    """
    versions = {"lgbench": lgbench.__version__, "torch": torch.__version__, "device": device.type}
    for experiment in population:  # the tasks of a population may be of several plugins
        versions |= {**experiment.plugins, **experiment.libraries}
    return versions
