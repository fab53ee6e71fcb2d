"""Built-in tasks draw on a GPU what they draw on a CPU."""

from __future__ import annotations

import pytest
import torch

from lgbench import Language, Random
from lgbench.extensions.registry import Registry

BUILT_IN = [
    *("dictionary-lookup", "dyck-1-8", "dyck-2-3", "dyck-2-5", "dyck-8-5", "max-retrieval", "set-complement"),
    *("tomita-1", "tomita-2", "tomita-3", "tomita-4", "tomita-5", "tomita-6", "tomita-7"),
]


def test_the_built_in_tasks_are_these_fourteen(registry: Registry) -> None:
    ours = [name for name in registry.tasks.names() if type(registry.tasks[name]).__module__.startswith("lgbench_tasks.")]
    assert ours == BUILT_IN


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", BUILT_IN)
def test_contexts_and_strings_on_a_gpu_are_those_on_a_cpu(registry: Registry, name: str) -> None:
    task = registry.tasks[name]
    for draw in (task.sample, *([task.strings] if isinstance(task, Language) else [])):
        here, there = (draw(24, Random(300, 9, device)) for device in ("cpu", "cuda"))
        for mine, theirs in zip(here, there, strict=True):
            if mine is not None:  # a task may have no weights
                assert theirs.device.type == "cuda"
                torch.testing.assert_close(theirs.cpu(), mine)
