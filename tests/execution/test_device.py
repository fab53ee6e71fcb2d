"""Numbers of an execution, and memory of its process: the kernel counts how often freed memory has to be fetched anew."""

import sys

import pytest
from helpers.processes import python

from lgbench import RunOptions, UsageError
from lgbench.execution.device import Execution

resource = pytest.importorskip("resource")

PROGRAM = """
import resource, sys, torch
if sys.argv[1] == "kept":
    from lgbench.execution.device import keep_freed_memory
    keep_freed_memory()
def use():
    several = [torch.ones(2**19) for _ in range(64)]  # 2 MiB each
for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    # With this threshold every block goes back to the system; without it, that depends on what was freed before.
    return int(python(PROGRAM, how, MALLOC_MMAP_THRESHOLD_=str(2**17)).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another allocator")
def test_results_of_many_megabytes_are_not_fetched_from_the_system_again_and_again():
    assert faults("kept") < faults("given back") / 10


@pytest.mark.parametrize(
    ("option", "value"), [("checkpoint", -0.1), ("checkpoint", float("nan")), ("population", 0), ("workers", 0)]
)
def test_a_number_out_of_range_is_told(option, value):
    with pytest.raises(UsageError, match=f"--{option} is {value}, expected "):
        Execution.of(RunOptions("tomita", "pre-norm", **{option: value}))
